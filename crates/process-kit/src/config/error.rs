//! What can be wrong with a config, each in one line that says where and what to do.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why a config was refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read config file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line}: not TOML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's words, first line.
        message: String,
    },
    /// No such key.
    #[error("{place}: unknown key {key}{}", did_you_mean(.nearest))]
    UnknownKey {
        /// Where it was said: `FILE:LINE` or `--set`.
        place: String,
        /// The key.
        key: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// A value that does not fit its key.
    #[error("{place}: {key} = {value}: wants {wants}")]
    BadValue {
        /// Where it was said.
        place: String,
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What would fit.
        wants: String,
    },
    /// A `--set` without `=`.
    #[error("--set {0}: wants KEY=VALUE")]
    BadSet(String),
    /// Values that do not go together, or one that is missing.
    #[error("{key}: {message}")]
    Invalid {
        /// The key to change.
        key: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
}

impl ConfigError {
    /// A key whose value does not go with the others.
    pub fn invalid(key: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid { key, message: message.into() }
    }
}

fn did_you_mean(name: &Option<String>) -> String {
    name.as_ref().map_or_else(String::new, |name| format!("; did you mean {name}?"))
}
