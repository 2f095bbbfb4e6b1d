//! The project's tasks: check, tidy, conf, dist.

fn main() {}
