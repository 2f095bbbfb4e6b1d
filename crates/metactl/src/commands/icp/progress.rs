//! What `icp create` tells while it goes on, on standard error: one line that is written over on a terminal, else one
//! JSON object a line with the proposal's event names.

use std::{
    collections::HashMap,
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use records::{UnitId, packages::PackageStatus};
use serde_json::json;

/// How often the line is written over.
const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// What was told so far.
pub struct Progress {
    unit: String,
    terminal: bool,
    drawn: Option<Instant>,
    told: HashMap<String, &'static str>,
}

impl Progress {
    /// Nothing yet.
    pub fn new(unit: &UnitId) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { unit: unit.to_string(), terminal, drawn: None, told: HashMap::new() }
    }

    /// So many bytes are sent.
    pub fn upload(&mut self, sent: u64, total: u64) {
        if self.terminal {
            self.draw(&format!("uploading {} of {}", size(sent), size(total)), sent >= total);
        }
    }

    /// Something went wrong that is tried again.
    pub fn note(&mut self, text: &str) {
        self.end();
        eprintln!("{}: {text}; trying again", self.unit);
    }

    /// How far each node is.
    pub fn nodes(&mut self, status: &PackageStatus) {
        if self.terminal {
            let nodes: Vec<_> =
                status.nodes.iter().map(|row| format!("{} {}", row.node, row.status)).collect();
            return self.draw(&nodes.join(", "), false);
        }
        for row in &status.nodes {
            if self.told.insert(row.node.clone(), row.status) != Some(row.status) {
                let event = match row.status {
                    "PRESENT" | "FAILED" => "UploadNewICPDone",
                    _ => "UploadNewICP",
                };
                let line = json!({
                    "event": event, "package": self.unit, "node": row.node, "status": row.status,
                    "error": row.error,
                });
                eprintln!("{line}");
            }
        }
    }

    fn draw(&mut self, text: &str, last: bool) {
        if !last && self.drawn.is_some_and(|at| at.elapsed() < REDRAW_EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        // Of no consequence if the terminal is gone.
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K{}: {text}", self.unit);
    }

    /// Takes the line away.
    pub fn end(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_for_people() {
        assert_eq!(
            [size(0), size(1023), size(1536), size(5 << 20), size(3 << 30)],
            ["0 bytes", "1023 bytes", "1.5 KiB", "5.0 MiB", "3.0 GiB"]
        );
    }
}
