//! Runs one seed of the simulation in a process of its own, and prints its report as one line of JSON. `cargo xtask
//! prove` starts many. A process a seed, because libraries keep counters for the life of a process (tokio's seeds
//! among them): in a second run they would go on where the first one left them.

mod simulated_libc;

use std::process::ExitCode;
use std::sync::Mutex;

use meta_types::controls::{BUILT_IN, Control};
use raft_tests::controls::{JUDGED, Judged};
use raft_tests::sim::{self, Options};

/// Panics seen; the one of a task ends only that task.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--controls") {
        return list_controls();
    }
    let mut arguments = arguments.into_iter();
    let Some(seed) = arguments.next().and_then(|seed| seed.parse().ok()) else {
        eprintln!(
            "usage: prove SEED [EVENT-LOG]   (PROVE_CONTROL=NAME: with that known bug)   prove --controls"
        );
        return ExitCode::from(2);
    };
    let control = match std::env::var("PROVE_CONTROL").as_deref().map(Control::by_name) {
        Err(_) => None,
        Ok(Some(control)) if BUILT_IN => Some(control),
        Ok(_) => {
            eprintln!("PROVE_CONTROL names no known bug of this build");
            return ExitCode::from(2);
        }
    };
    let log = arguments.next().map(Into::into);
    let options = Options { log, tell_time: simulated_libc::set_time, control };
    logs();
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        eprintln!("{panic}\n{backtrace}");
        PANICS.lock().expect("no panic while this is held").push(panic.to_string());
    }));
    simulated_libc::begin(seed);
    // A thread of its own: it has not drawn from any random source yet.
    let run = std::thread::Builder::new().name("seed".into()).stack_size(16 << 20);
    let run = run.spawn(move || sim::run(seed, &options)).expect("a thread can be started");
    let report = run.join();
    let panics = std::mem::take(&mut *PANICS.lock().expect("no panic while this is held"));
    let mut report = report.unwrap_or_default();
    report.seed = seed;
    report.violations.extend(panics.into_iter().map(|panic| format!("panic: {panic}")));
    println!("{}", report.to_json());
    ExitCode::from(u8::from(!report.violations.is_empty()))
}

/// The known bugs, one a line of JSON: name, judges, within how many seeds.
fn list_controls() -> ExitCode {
    for Judged { control, by, within } in JUDGED {
        println!("{}", serde_json::json!({ "name": control.name(), "by": by, "within": within }));
    }
    ExitCode::SUCCESS
}

/// Logs of the replicas, to stderr, as `RUST_LOG` says.
fn logs() {
    use tracing_subscriber::EnvFilter;
    if let Ok(filter) = EnvFilter::try_from_default_env() {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .init();
    }
}
