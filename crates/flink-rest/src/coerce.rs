//! JSON values to the types Flink declares, with the coercions its JSON library makes.

use std::collections::BTreeMap;

use serde_json::Value;

/// What was expected and what was found, for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// In words, with its article.
    pub expected: &'static str,
    /// The value, as JSON.
    pub found: String,
}

fn mismatch<T>(expected: &'static str, value: &Value) -> Result<T, Mismatch> {
    let mut found = value.to_string();
    if found.len() > 80 {
        let cut = (0..=80).rev().find(|&i| found.is_char_boundary(i)).unwrap_or(0);
        found.truncate(cut);
        found.push_str("...");
    }
    Err(Mismatch { expected, found })
}

/// A string; numbers and booleans become their text, null is absent.
pub fn string(value: &Value) -> Result<Option<String>, Mismatch> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(flag) => Ok(Some(flag.to_string())),
        Value::Array(_) | Value::Object(_) => mismatch("a string", value),
    }
}

/// A whole number; `"2"` and `2.5` count as 2, the empty string and null as absent.
pub fn integer(value: &Value) -> Result<Option<i32>, Mismatch> {
    const EXPECTED: &str = "a whole number";
    let number = match value {
        Value::Null => return Ok(None),
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => text.trim().parse::<i32>().ok(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => i32::try_from(whole).ok(),
            None => number.as_f64().map(f64::trunc).filter(|f| f.abs() < 2_147_483_648.0).map(|f| f as i32),
        },
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.map_or_else(|| mismatch(EXPECTED, value), |number| Ok(Some(number)))
}

/// A truth value; `"true"`/`"false"` in their usual spellings and numbers (0 is false) count too.
pub fn boolean(value: &Value) -> Result<Option<bool>, Mismatch> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(*flag)),
        Value::Number(number) if number.is_i64() || number.is_u64() => Ok(Some(number.as_i64() != Some(0))),
        Value::String(text) => match text.trim() {
            "" => Ok(None),
            "true" | "True" | "TRUE" => Ok(Some(true)),
            "false" | "False" | "FALSE" => Ok(Some(false)),
            _ => mismatch("true or false", value),
        },
        _ => mismatch("true or false", value),
    }
}

/// A list of strings.
pub fn strings(value: &Value) -> Result<Option<Vec<String>>, Mismatch> {
    match value {
        Value::Null => Ok(None),
        Value::Array(items) => {
            let items = items.iter().map(|item| match string(item)? {
                Some(text) => Ok(text),
                None => mismatch("a list of strings", value),
            });
            items.collect::<Result<_, _>>().map(Some)
        }
        _ => mismatch("a list of strings", value),
    }
}

/// An object of strings.
pub fn string_map(value: &Value) -> Result<Option<BTreeMap<String, String>>, Mismatch> {
    match value {
        Value::Null => Ok(None),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, item)| match string(item)? {
                Some(text) => Ok((name.clone(), text)),
                None => mismatch("an object of strings", value),
            });
            fields.collect::<Result<_, _>>().map(Some)
        }
        _ => mismatch("an object of strings", value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integers_are_coerced_as_recorded() {
        for (given, wanted) in [
            (json!(3), Some(3)),
            (json!("2"), Some(2)),
            (json!(2.5), Some(2)),
            (json!(2.0), Some(2)),
            (json!(-1), Some(-1)),
            (json!(null), None),
            (json!(""), None),
        ] {
            assert_eq!(integer(&given), Ok(wanted), "{given}");
        }
        for bad in [json!("abc"), json!(true), json!([1]), json!(4_000_000_000_u64), json!(1e300)] {
            assert!(integer(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn booleans_strings_and_lists_are_coerced_as_recorded() {
        assert_eq!(boolean(&json!("true")), Ok(Some(true)));
        assert_eq!(boolean(&json!(0)), Ok(Some(false)));
        assert!(boolean(&json!("maybe")).is_err());
        assert_eq!(string(&json!(12)), Ok(Some("12".to_owned())));
        assert!(strings(&json!("12")).is_err());
        assert_eq!(strings(&json!(["a", 1, true])), Ok(Some(vec!["a".into(), "1".into(), "true".into()])));
        assert!(string_map(&json!({"a": {}})).is_err());
    }
}
