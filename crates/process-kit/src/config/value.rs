//! Types a config value can have: how each is read from TOML and from plain text, and how it is shown.

use std::{
    fmt::{self, Display},
    net::SocketAddr,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

/// A type of config value. `from_text` reads what an environment variable or `--set` gives, and TOML strings.
pub trait ConfigValue: Sized {
    /// What fits, as a noun: "a duration such as 15s".
    const WANTS: &'static str;
    /// Reads it from text.
    fn from_text(text: &str) -> Option<Self>;
    /// Shows it as TOML; empty if there is no value.
    fn show(&self) -> String;
    /// Shows it as plain text, without the quotes of TOML.
    fn plain(&self) -> String {
        let shown = self.show();
        let table: Option<toml::Table> = format!("value = {shown}").parse().ok();
        match table.and_then(|mut table| table.remove("value")) {
            Some(toml::Value::String(text)) => text,
            _ => shown,
        }
    }
    /// Reads it from a TOML value.
    fn from_toml(value: &toml::Value) -> Option<Self> {
        Self::from_text(value.as_str()?)
    }
}

/// A number of bytes, written `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_with_unit(self.0, &SIZE_UNITS))
    }
}

/// The number in the largest unit that divides it.
fn show_with_unit(number: u64, units: &[(&str, u64)]) -> String {
    let fits = |&&(_, size): &&(&str, u64)| number != 0 && number.is_multiple_of(size);
    match units.iter().find(fits).or(units.last()) {
        Some((unit, size)) => format!("{}{unit}", number / size),
        None => number.to_string(),
    }
}

fn read_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let size = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<u64>().ok()?.checked_mul(size)
}

impl ConfigValue for ByteSize {
    const WANTS: &'static str = "a size such as 64MiB (B, KiB, MiB, GiB)";

    fn from_text(text: &str) -> Option<Self> {
        read_with_unit(text, &SIZE_UNITS).or_else(|| text.parse().ok()).map(Self)
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::Integer(bytes) => u64::try_from(*bytes).ok().map(Self),
            other => Self::from_text(other.as_str()?),
        }
    }
}

impl ConfigValue for Duration {
    const WANTS: &'static str = "a duration such as 15s (ms, s, m, h, d)";

    fn from_text(text: &str) -> Option<Self> {
        if text.trim() == "0" {
            return Some(Self::ZERO);
        }
        read_with_unit(text, &TIME_UNITS).map(Self::from_millis)
    }

    fn show(&self) -> String {
        let millis = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        format!("\"{}\"", show_with_unit(millis, &TIME_UNITS))
    }
}

impl ConfigValue for bool {
    const WANTS: &'static str = "true or false";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        value.as_bool()
    }
}

impl ConfigValue for String {
    const WANTS: &'static str = "a string";

    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }

    fn show(&self) -> String {
        toml::Value::String(self.clone()).to_string()
    }
}

impl ConfigValue for PathBuf {
    const WANTS: &'static str = "a path";

    fn from_text(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.into())
    }

    fn show(&self) -> String {
        toml::Value::String(self.display().to_string()).to_string()
    }
}

impl ConfigValue for SocketAddr {
    const WANTS: &'static str = "an address such as 127.0.0.1:2379";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl ConfigValue for $type {
            const WANTS: &'static str = concat!("a whole number that fits ", stringify!($type));

            fn from_text(text: &str) -> Option<Self> {
                text.trim().parse().ok()
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn from_toml(value: &toml::Value) -> Option<Self> {
                <$type>::try_from(value.as_integer()?).ok()
            }
        }
    )*};
}

whole_numbers!(u16, u32, u64, usize);

/// A list of texts: a TOML array, or text with commas.
impl<T: FromStr + Display> ConfigValue for Vec<T> {
    const WANTS: &'static str = "a list such as [\"a\", \"b\"], or a,b";

    fn from_text(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('[') {
            let table: toml::Table = format!("list = {text}").parse().ok()?;
            return Self::from_toml(table.get("list")?);
        }
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(|item| item.parse().ok()).collect()
    }

    fn show(&self) -> String {
        let items: Vec<_> =
            self.iter().map(|item| toml::Value::String(item.to_string()).to_string()).collect();
        format!("[{}]", items.join(", "))
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        value.as_array()?.iter().map(|item| item.as_str()?.parse().ok()).collect()
    }
}

impl<T: ConfigValue> ConfigValue for Option<T> {
    const WANTS: &'static str = T::WANTS;

    fn from_text(text: &str) -> Option<Self> {
        T::from_text(text).map(Some)
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(String::new, ConfigValue::show)
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        T::from_toml(value).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_shown_in_the_largest_unit() {
        for (text, millis) in
            [("40ms", 40), ("15s", 15_000), ("90s", 90_000), ("5m", 300_000), ("7d", 604_800_000)]
        {
            let value = Duration::from_text(text).unwrap();
            assert_eq!(value.as_millis(), millis);
            assert_eq!(Duration::from_text(value.show().trim_matches('"')), Some(value));
        }
        assert_eq!(ByteSize::from_text("256MiB"), Some(ByteSize(256 << 20)));
        assert_eq!(ByteSize(3 << 20).show(), "\"3MiB\"");
        assert_eq!(ByteSize::from_text("12"), Some(ByteSize(12)));
    }

    #[test]
    fn plain_text_has_no_quotes_and_reads_back() {
        assert_eq!(Duration::from_secs(90).plain(), "90s");
        assert_eq!("a \"b\" \\ c".to_owned().plain(), "a \"b\" \\ c");
        assert_eq!((true.plain(), 7_u32.plain()), ("true".to_owned(), "7".to_owned()));
        assert_eq!(None::<u64>.plain(), "");
        let list = vec!["a=1".to_owned(), "b".to_owned()];
        assert_eq!(Vec::from_text(&list.plain()), Some(list));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "s", "15", "15 parsecs", "-1s", "99999999999999999999d"] {
            assert_eq!(Duration::from_text(text), None, "{text:?}");
        }
        for text in ["", "MiB", "1.5GiB", "-1", "1TB"] {
            assert_eq!(ByteSize::from_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn lists_read_commas_and_toml() {
        let want = Some(vec!["a=1".to_owned(), "b=2".to_owned()]);
        assert_eq!(Vec::<String>::from_text("a=1, b=2"), want);
        assert_eq!(Vec::<String>::from_text("[\"a=1\", \"b=2\"]"), want);
        assert_eq!(Vec::<String>::from_text(""), Some(vec![]));
    }
}
