//! Names and ids: what is allowed, and a sentence that says so when it is not.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// Longest package name.
pub const MAX_NAME: usize = 128;
/// Longest package version.
pub const MAX_VERSION: usize = 64;
/// Longest trigger id.
pub const MAX_TRIGGER: usize = 64;
/// The version that means "the newest release" in a request, and never names a package.
pub const LATEST: &str = "latest";

/// A package: name and version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitId {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl UnitId {
    /// Checks and makes one.
    pub fn new(name: &str, version: &str) -> Result<Self, Refusal> {
        check_name(name)?;
        check_version(version)?;
        Ok(Self { name: name.into(), version: version.into() })
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.version)
    }
}

impl FromStr for UnitId {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let (name, version) = text
            .split_once(':')
            .ok_or_else(|| Refusal::bad_request(format!("\"{text}\" is not NAME:VERSION")))?;
        Self::new(name, version)
    }
}

/// The id a client gives a run so that it can be retried.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TriggerId(String);

impl TriggerId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// Makes one from 128 random bits, as the server does when the client gives none.
    pub fn from_random(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }
}

impl fmt::Display for TriggerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TriggerId {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let graphic = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
        if text.is_empty() || text.len() > MAX_TRIGGER || !graphic || text == "." || text == ".." {
            return Err(Refusal::bad_request(format!(
                "a triggerId is 1 to {MAX_TRIGGER} visible ASCII characters without spaces, and not \".\" or \"..\"; \
                 got \"{}\"",
                shown(text)
            )));
        }
        Ok(Self(text.into()))
    }
}

/// A job's id: 32 hexadecimal digits, kept in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// Makes one from 128 random bits.
    pub fn from_random(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for JobId {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Refusal::bad_request(format!(
                "a job id is 32 hexadecimal digits; got \"{}\"",
                shown(text)
            )));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

/// Checks a package name.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    if !is_word(name, MAX_NAME, b"._-") {
        return Err(Refusal::bad_request(format!(
            "a package name starts with a letter or digit, goes on with letters, digits, '.', '_' or '-', and has at \
             most {MAX_NAME} characters; got \"{}\"",
            shown(name)
        )));
    }
    if is_device(name) {
        return Err(Refusal::bad_request(format!("\"{name}\" is a device name on Windows: choose another")));
    }
    Ok(())
}

/// Checks a package version.
pub fn check_version(version: &str) -> Result<(), Refusal> {
    if version == LATEST {
        return Err(Refusal::bad_request("\"latest\" means the newest release and cannot be a version"));
    }
    if !is_word(version, MAX_VERSION, b"._+-") {
        return Err(Refusal::bad_request(format!(
            "a package version starts with a letter or digit, goes on with letters, digits, '.', '_', '+' or '-', and \
             has at most {MAX_VERSION} characters; got \"{}\"",
            shown(version)
        )));
    }
    if is_device(version) {
        return Err(Refusal::bad_request(format!(
            "\"{version}\" is a device name on Windows: choose another"
        )));
    }
    Ok(())
}

/// Checks a node name (it becomes part of keys and directories).
pub fn check_node(name: &str) -> Result<(), Refusal> {
    if is_word(name, MAX_NAME, b"._-") {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "a node name starts with a letter or digit, goes on with letters, digits, '.', '_' or '-', and has at most \
         {MAX_NAME} characters; got \"{}\"",
        shown(name)
    )))
}

fn is_word(text: &str, max: usize, also: &[u8]) -> bool {
    text.len() <= max
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
}

/// Windows takes these, whatever extension follows, as devices; a directory of that name cannot be made there.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    match stem.as_str() {
        "con" | "prn" | "aux" | "nul" => true,
        other => {
            let digit = other.strip_prefix("com").or_else(|| other.strip_prefix("lpt"));
            digit.is_some_and(|digit| digit.len() == 1 && digit.bytes().all(|d| d.is_ascii_digit()))
        }
    }
}

/// What is shown of a wrong text: short and printable.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{}{more}", short.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_cases() {
        for bad in ["..", ".", "a/b", "con", "CON.txt", "Aux", "lpt1", "", "-a", ".a", "a b", "ä", "a:b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name(&"a".repeat(129)).is_err());
        for good in ["A", "a", "0", "a.b_c-D", "console", "com10", "compact"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn versions() {
        for bad in ["latest", "", "../1", "1/2", "+1"] {
            assert!(check_version(bad).is_err(), "{bad}");
        }
        for good in ["1.0.0", "1.0.0-rc.1+build.7", "v2", "2026-11-29"] {
            assert!(check_version(good).is_ok(), "{good}");
        }
        assert_eq!("a:1".parse::<UnitId>().unwrap().to_string(), "a:1");
        assert!("a".parse::<UnitId>().is_err());
    }

    #[test]
    fn trigger_and_job_ids() {
        for bad in ["", ".", "..", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<TriggerId>().is_err(), "{bad}");
        }
        for good in ["../x", "a/b", "%", "~!", &"x".repeat(64)] {
            assert!(good.parse::<TriggerId>().is_ok(), "{good}");
        }
        let upper = "ABCDEF0123456789ABCDEF0123456789";
        assert_eq!(upper.parse::<JobId>().unwrap().as_str(), upper.to_ascii_lowercase());
        assert!("abc".parse::<JobId>().is_err());
    }
}
