//! Values as JSON with `"v"`: written with the record's version, read back only if the version is one we know;
//! fields we do not know are kept by the record's own flattened `extra` and so survive a rewrite.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Fields of a record that this binary does not know, carried through a rewrite.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// A value of the store. Each record has a `#[serde(flatten)] extra: Extra` field.
pub trait Record: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// The version written, and the newest that can be read.
    const VERSION: u32 = 1;
}

/// Why a value could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// A newer writer made it: rewriting it would lose what we cannot see.
    #[error("record version {found} where this binary reads {supported}: use a newer binary")]
    Newer {
        /// Version found.
        found: u32,
        /// Newest version known.
        supported: u32,
    },
    /// Not such a record at all.
    #[error("not a readable record: {0}")]
    Malformed(String),
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u32,
    #[serde(flatten)]
    record: &'a T,
}

/// Writes a record.
pub fn to_bytes<T: Record>(record: &T) -> Bytes {
    // Records are plain structs with string keys: serialization cannot fail, and a value that cannot be written is
    // a bug that must not become an empty record.
    let text = serde_json::to_vec(&Versioned { v: T::VERSION, record }).expect("a record is always JSON");
    Bytes::from(text)
}

/// Reads a record.
pub fn from_bytes<T: Record>(bytes: &[u8]) -> Result<T, RecordError> {
    let malformed = |e: serde_json::Error| RecordError::Malformed(e.to_string());
    let mut fields: Extra = serde_json::from_slice(bytes).map_err(malformed)?;
    let v = fields.remove("v").and_then(|v| v.as_u64()).and_then(|v| u32::try_from(v).ok());
    match v {
        Some(found) if found > T::VERSION => return Err(RecordError::Newer { found, supported: T::VERSION }),
        Some(_) => {}
        None => return Err(RecordError::Malformed("it has no version \"v\"".into())),
    }
    serde_json::from_value(serde_json::Value::Object(fields)).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Sample {
        name: String,
        #[serde(flatten)]
        extra: Extra,
    }
    impl Record for Sample {}

    #[test]
    fn unknown_fields_survive_a_rewrite() {
        let mut sample: Sample = from_bytes(br#"{"v":1,"name":"a","later":{"deep":[1,2]}}"#).unwrap();
        sample.name = "b".into();
        let text = String::from_utf8(to_bytes(&sample).to_vec()).unwrap();
        assert_eq!(text, r#"{"v":1,"name":"b","later":{"deep":[1,2]}}"#);
    }

    #[test]
    fn a_newer_version_is_refused() {
        let error = from_bytes::<Sample>(br#"{"v":2,"name":"a"}"#).unwrap_err();
        assert_eq!(error, RecordError::Newer { found: 2, supported: 1 });
        assert!(matches!(from_bytes::<Sample>(b"{}"), Err(RecordError::Malformed(_))));
        assert!(matches!(from_bytes::<Sample>(b"\xff"), Err(RecordError::Malformed(_))));
    }
}
