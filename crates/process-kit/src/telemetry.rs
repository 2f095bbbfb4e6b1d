//! Logs: one line an event on stderr, as text or JSON.

use std::io::{self, Write};

use anyhow::Context as _;
use tracing_subscriber::{EnvFilter, fmt, fmt::MakeWriter};

use crate::config::ConfigValue;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl ConfigValue for LogFormat {
    const WANTS: &'static str = "\"text\" or \"json\"";

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "\"text\"".into(),
            Self::Json => "\"json\"".into(),
        }
    }
}

crate::config! {
    /// What is logged and how.
    pub struct LogConfig {
        /// Form of the log lines on stderr: `text` for people, `json` for collectors. Always one line an event.
        "log.format" => format: LogFormat = LogFormat::Text,
        /// What is logged: a level, or a list of target=level. openraft tells each of its steps at info.
        "log.level" => level: String = "info,openraft=warn".to_owned(),
    }
}

/// Starts logging for the process. Called once, right after the config is loaded.
pub fn init(config: &LogConfig) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.level).with_context(|| {
        format!("log.level = \"{}\" is not a level or a list of target=level", config.level)
    })?;
    let base = fmt().with_env_filter(filter).with_writer(OneLine);
    let done = match config.format {
        LogFormat::Text => base.with_ansi(false).try_init(),
        LogFormat::Json => base.json().flatten_event(true).with_span_list(false).try_init(),
    };
    done.map_err(|error| anyhow::anyhow!("logging is already set up: {error}"))
}

/// Writes to stderr; a newline inside an event is written as `\n`, so that an event stays one line.
struct OneLine;

impl<'a> MakeWriter<'a> for OneLine {
    type Writer = OneLineWriter;

    fn make_writer(&'a self) -> OneLineWriter {
        OneLineWriter
    }
}

struct OneLineWriter;

impl Write for OneLineWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(&one_line(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The subscriber hands over one whole event with its final newline.
fn one_line(event: &[u8]) -> Vec<u8> {
    let body = event.strip_suffix(b"\n").unwrap_or(event);
    let mut out = Vec::with_capacity(event.len() + 8);
    for &byte in body {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ => out.push(byte),
        }
    }
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        assert_eq!(one_line(b"a\nb\r\nc\n"), b"a\\nb\\r\\nc\n");
        assert_eq!(one_line(b"plain\n"), b"plain\n");
    }
}
