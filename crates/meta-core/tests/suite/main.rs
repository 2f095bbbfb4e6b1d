//! The state machine from outside: against a naive model, against etcd's recorded answers, and its checkpoints.

mod against_model;
mod checkpoints;
mod fixed_answers;
mod leases;
mod model;
mod model_writes;
mod rig;
mod settled_once;
mod strategies;
