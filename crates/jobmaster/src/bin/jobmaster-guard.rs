//! The guard as a program of its own, for a JobMaster process whose binary has no `guard` subcommand.

fn main() -> std::process::ExitCode {
    jobmaster::guard::main(std::env::args_os().skip(1))
}
