//! Replicas in one process over real TCP and real files: what happens when they are stopped, cut off, damaged.

mod catch_up;
mod common;
mod cut_net;
mod damage;
mod disks;
mod forming;
mod leader_loss;
mod partitions;
mod reads;
