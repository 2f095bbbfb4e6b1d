//! The four layers: reads them, refuses what nobody knows, remembers where each value came from.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use toml::{Value, de::DeTable};

use super::{Config, ConfigError, ConfigValue, Row, rows_of};

/// What the layers are read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The config file, if any.
    pub file: Option<PathBuf>,
    /// The environment.
    pub env: Vec<(String, String)>,
    /// Prefix of our variables.
    pub env_prefix: &'static str,
    /// `KEY=VALUE` flags.
    pub sets: Vec<String>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody said anything.
    Default,
    /// A line of the config file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A `--set` flag.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => f.write_str(name),
            Self::Flag => f.write_str("--set"),
        }
    }
}

#[derive(Debug, Clone)]
enum Raw {
    Toml(Value),
    Text(String),
}

/// The values said by any layer, the strongest for each key.
#[derive(Debug, Default)]
pub struct Values {
    said: BTreeMap<String, (Raw, Source)>,
}

impl Values {
    /// The value of `key`, or `None` if no layer says one.
    pub fn get<T: ConfigValue>(&self, key: &str) -> Result<Option<T>, ConfigError> {
        let Some((raw, source)) = self.said.get(key) else { return Ok(None) };
        let (parsed, shown) = match raw {
            Raw::Toml(value) => (T::from_toml(value), value.to_string()),
            Raw::Text(text) => (T::from_text(text), format!("{text:?}")),
        };
        parsed.map(Some).ok_or_else(|| ConfigError::BadValue {
            place: source.to_string(),
            key: key.to_owned(),
            value: shown,
            wants: T::WANTS.to_owned(),
        })
    }

    /// Where the value of `key` comes from.
    pub fn source(&self, key: &str) -> Source {
        self.said.get(key).map_or(Source::Default, |(_, source)| source.clone())
    }

    fn say(&mut self, key: &str, raw: Raw, source: Source, notes: &mut Vec<Note>) {
        let before = self.said.insert(key.to_owned(), (raw, source.clone()));
        if let Some((_, loser)) = before
            && matches!(loser, Source::Env(_))
        {
            notes.push(Note::Overridden { key: key.to_owned(), winner: source, loser });
        }
    }
}

/// Something to tell the operator once logging runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A flag beat an environment variable.
    Overridden {
        /// The key.
        key: String,
        /// Who won.
        winner: Source,
        /// Who lost.
        loser: Source,
    },
    /// A variable with our prefix that sets nothing.
    UnknownVariable {
        /// Its name.
        name: String,
        /// The variable that was probably meant.
        nearest: Option<String>,
    },
}

impl Note {
    /// Logs it.
    pub fn log(&self) {
        match self {
            Self::Overridden { key, winner, loser } => {
                tracing::info!(key, %winner, %loser, "said twice: the first wins");
            }
            Self::UnknownVariable { name, nearest } => {
                let nearest = nearest.as_deref().unwrap_or("nothing near it");
                tracing::warn!(name, nearest, "environment variable sets nothing");
            }
        }
    }
}

/// One line of `--print-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The key.
    pub key: &'static str,
    /// The value as TOML; empty if there is none.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// A config and where each of its values comes from.
#[derive(Debug)]
pub struct Loaded<C> {
    /// The config.
    pub config: C,
    /// Every key in order.
    pub shown: Vec<Shown>,
    /// What to log once logging runs.
    pub notes: Vec<Note>,
}

impl<C> Loaded<C> {
    /// The text of `--print-config`: a TOML file with each value's source behind it.
    pub fn print(&self) -> String {
        let line = |shown: &Shown| match shown.value.as_str() {
            "" => format!("# {} is not set\n", shown.key),
            value => format!("{} = {value}  # {}\n", shown.key, shown.source),
        };
        self.shown.iter().map(line).collect()
    }
}

/// Reads all layers and fills a config.
pub fn load<C: Config>(sources: &Sources) -> Result<Loaded<C>, ConfigError> {
    let rows = rows_of::<C>();
    let mut values = Values::default();
    let mut notes = Vec::new();
    if let Some(path) = &sources.file {
        read_file(path, &rows, &mut values)?;
    }
    read_env(sources, &rows, &mut values, &mut notes);
    read_sets(&sources.sets, &rows, &mut values, &mut notes)?;
    let config = C::read(&values)?;
    let shown = rows.iter().map(|row| show(row, &values)).collect();
    Ok(Loaded { config, shown, notes })
}

fn show(row: &Row, values: &Values) -> Shown {
    let value = (row.said)(values).unwrap_or_else(|| row.default.clone());
    Shown { key: row.key, value, source: values.source(row.key) }
}

fn read_file(path: &PathBuf, rows: &[Row], values: &mut Values) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
    let syntax = |error: toml::de::Error| ConfigError::Syntax {
        path: path.clone(),
        line: error.span().map_or(1, |span| line_of(&text, span.start)),
        message: error.message().lines().next().unwrap_or_default().to_owned(),
    };
    let spans = DeTable::parse(&text).map_err(syntax)?;
    let table: toml::Table = toml::from_str(&text).map_err(syntax)?;
    let mut lines = BTreeMap::new();
    flatten_lines(spans.get_ref(), "", &text, &mut lines);
    let mut flat = Vec::new();
    flatten(&table, "", &mut flat);
    for (key, value) in flat {
        let source = Source::File { path: path.clone(), line: lines.get(&key).copied().unwrap_or(1) };
        known(&key, rows, || source.to_string())?;
        values.said.insert(key, (Raw::Toml(value), source));
    }
    Ok(())
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

fn flatten(table: &toml::Table, prefix: &str, out: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let key = join(prefix, key);
        match value {
            Value::Table(inner) if !inner.is_empty() => flatten(inner, &key, out),
            other => out.push((key, other.clone())),
        }
    }
}

fn flatten_lines(table: &DeTable<'_>, prefix: &str, text: &str, out: &mut BTreeMap<String, usize>) {
    for (key, value) in table {
        let name = join(prefix, key.get_ref());
        match value.get_ref() {
            toml::de::DeValue::Table(inner) if !inner.is_empty() => flatten_lines(inner, &name, text, out),
            _ => {
                out.insert(name, line_of(text, key.span().start));
            }
        }
    }
}

fn known(key: &str, rows: &[Row], place: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if rows.iter().any(|row| row.key == key) {
        return Ok(());
    }
    let nearest = nearest(key, rows.iter().map(|row| row.key.to_owned()));
    Err(ConfigError::UnknownKey { place: place(), key: key.to_owned(), nearest })
}

/// The most similar name, if any is similar at all.
fn nearest(name: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let scored = names.map(|candidate| (strsim::jaro_winkler(name, &candidate), candidate));
    let (score, best) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score > 0.7).then_some(best)
}

/// The variable that sets `key`.
pub(super) fn variable(prefix: &str, key: &str) -> String {
    format!("{prefix}{}", key.to_ascii_uppercase().replace(['.', '-'], "_"))
}

/// Kubernetes injects such names for every service it knows; they are never ours.
fn is_injected(name: &str) -> bool {
    name.contains("_PORT") || name.contains("_SERVICE_")
}

fn read_env(sources: &Sources, rows: &[Row], values: &mut Values, notes: &mut Vec<Note>) {
    let names: BTreeMap<_, _> =
        rows.iter().map(|row| (variable(sources.env_prefix, row.key), row.key)).collect();
    let config_variable = format!("{}CONFIG", sources.env_prefix);
    for (name, text) in &sources.env {
        if !name.starts_with(sources.env_prefix) || is_injected(name) || *name == config_variable {
            continue;
        }
        match names.get(name) {
            Some(key) => values.say(key, Raw::Text(text.clone()), Source::Env(name.clone()), notes),
            None => notes.push(Note::UnknownVariable {
                name: name.clone(),
                nearest: nearest(name, names.keys().cloned()),
            }),
        }
    }
}

fn read_sets(
    sets: &[String],
    rows: &[Row],
    values: &mut Values,
    notes: &mut Vec<Note>,
) -> Result<(), ConfigError> {
    for set in sets {
        let (key, text) = set.split_once('=').ok_or_else(|| ConfigError::BadSet(set.clone()))?;
        known(key.trim(), rows, || "--set".to_owned())?;
        values.say(key.trim(), Raw::Text(text.trim().to_owned()), Source::Flag, notes);
    }
    Ok(())
}
