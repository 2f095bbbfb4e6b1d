//! The planners over `MemKv`: the shortest counterexamples of the literal proposal, one trigger from two
//! dispatchers, and random interleavings with crashes, late and lost transactions.

mod cancel;
mod copies;
mod counterexamples;
mod drain;
mod drive_sim;
mod failover;
mod interleave;
mod keep;
mod latest;
mod manifests;
mod many;
mod register;
mod restart;
mod retention;
mod schedules;
mod sim;
mod sim_disk;
mod sim_jobs;
mod sim_literal;
mod sim_packages;
mod sim_register;
mod upkeep;
mod world;
