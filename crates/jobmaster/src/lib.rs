//! JobMaster processes: the container runner, JobMasters, coordinators, engines, the guard, logs.

pub mod guard;
