//! The server binary: replica, dispatcher, jobmaster, standalone.

fn main() {}
