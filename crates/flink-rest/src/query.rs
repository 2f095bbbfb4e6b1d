//! Query strings: names to values, percent-decoded; a name given twice is refused as Flink refuses it.

use std::collections::BTreeMap;

use http::StatusCode;
use percent_encoding::percent_decode_str;

use crate::error::RestError;

/// The parameters of a query string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    values: BTreeMap<String, String>,
}

impl Query {
    /// Parses the part behind the question mark.
    pub fn parse(text: Option<&str>) -> Result<Self, RestError> {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        Self::of_pairs(pairs.collect::<Result<Vec<_>, RestError>>()?)
    }

    /// The same from decoded pairs, such as the text parts of a form.
    pub fn of_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, RestError> {
        let mut values = BTreeMap::new();
        for (name, value) in pairs {
            if let Some(first) = values.insert(name.clone(), value.clone())
                && first != value
            {
                return Err(RestError::handler(
                    StatusCode::BAD_REQUEST,
                    format!(
                        "Bad request, could not parse parameters: Query parameter {name} has more than one \
                         value, \"{first}\" and \"{value}\"."
                    ),
                ));
            }
        }
        Ok(Self { values })
    }

    /// The value of `name`, if it was given; it may be empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The value of `name`, if it was given and is not empty.
    pub fn non_empty(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// True if `name` is given as `true` (or bare).
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.is_empty() || value.eq_ignore_ascii_case("true"))
    }

    /// The names that were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// All parameters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn decode(text: &str) -> Result<String, RestError> {
    let spaced = text.replace('+', " ");
    match percent_decode_str(&spaced).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(RestError::handler(
            StatusCode::BAD_REQUEST,
            format!("Bad request, could not parse parameters: \"{text}\" is not UTF-8."),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let query = Query::parse(Some("a=1%2C2&b=c+d&&flag&e=%C3%B6")).unwrap();
        assert_eq!(query.get("a"), Some("1,2"));
        assert_eq!(query.get("b"), Some("c d"));
        assert_eq!(query.get("e"), Some("\u{f6}"));
        assert!(query.flag("flag"));
        assert_eq!(query.get("none"), None);
        assert_eq!(Query::parse(None).unwrap(), Query::default());
    }

    #[test]
    fn two_values_and_broken_utf8_are_refused() {
        assert!(Query::parse(Some("a=1&a=1")).is_ok());
        assert_eq!(Query::parse(Some("a=1&a=2")).unwrap_err().status(), 400);
        assert_eq!(Query::parse(Some("a=%ff")).unwrap_err().status(), 400);
    }
}
