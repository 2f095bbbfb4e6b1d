//! Engines: what executes a job. An engine turns a job into a program to start; the guard runs it.

pub mod process;

use records::record::Exit;

/// A job that cannot be started, or ended badly: as its record will say it.
pub fn failure(class: &str, text: impl Into<String>) -> Exit {
    Exit { code: None, signal: None, class: Some(class.into()), text: text.into() }
}
