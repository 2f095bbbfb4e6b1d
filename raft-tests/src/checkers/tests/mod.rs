//! Each checker against histories with one fault, and against ones without: by hand and at random.

mod bad_calls;
mod bad_leases;
mod bad_order;
mod bad_runs;
mod bad_watches;
mod good;
mod random;
mod random_faults;

mod story;
