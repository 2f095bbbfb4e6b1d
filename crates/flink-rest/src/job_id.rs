//! Flink job ids: 32 hexadecimal digits of any case, kept in lower case.

/// The id in lower case, or `None` if it is not one.
pub fn parse(text: &str) -> Option<String> {
    let is_id = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| text.to_ascii_lowercase())
}

/// Flink's words for an id that does not parse.
pub fn parse_failure(text: &str) -> String {
    format!(
        "java.lang.IllegalArgumentException: Cannot parse JobID from \"{text}\". The expected format is \
         [0-9a-fA-F]{{32}}, e.g. fd72014d4c864993a2e5a9287b4a9c5d."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_case_of_32_hex_digits_is_an_id() {
        let id = "A424E6C44DE5FA6353759A9FC574B8B8";
        assert_eq!(parse(id).as_deref(), Some("a424e6c44de5fa6353759a9fc574b8b8"));
        for bad in ["", "xyz", "12", &id[1..], "a424e6c4-4de5-fa63-5375-9a9fc574b8b8", &format!("{id}0")] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
