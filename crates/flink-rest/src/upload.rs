//! The rules of `POST /jars/upload`: exactly one file, named `*.jar`, and no other part.

use http::StatusCode;

use crate::error::RestError;

/// Watches the parts of one upload go by.
#[derive(Debug, Default)]
pub struct UploadRules {
    files: usize,
    name: Option<String>,
}

impl UploadRules {
    /// A part came. `Ok(true)`: read it; `Ok(false)`: skip it, the upload is refused at its end.
    pub fn part(&mut self, field: Option<&str>, file_name: Option<&str>) -> Result<bool, RestError> {
        let Some(file_name) = file_name else {
            let field = field.unwrap_or_default();
            let text = format!("Received unknown attribute {field}.");
            return Err(RestError::new(StatusCode::BAD_REQUEST, text).without_cors());
        };
        self.files += 1;
        if self.files > 1 {
            return Ok(false);
        }
        self.name = Some(base_name(file_name).to_owned());
        Ok(true)
    }

    /// All parts were seen whole: the base name of the one file.
    pub fn finish(self) -> Result<String, RestError> {
        match self.name {
            Some(name) if self.files == 1 => check_name(name),
            _ => Err(wrong_count(self.files)),
        }
    }
}

/// A JAR's base name, or Flink's refusal.
pub fn check_name(name: String) -> Result<String, RestError> {
    if !name.ends_with(".jar") || name.contains(|c: char| c.is_control()) || name.len() > MAX_NAME_BYTES {
        return Err(RestError::handler(StatusCode::BAD_REQUEST, "Only Jar files are allowed."));
    }
    Ok(name)
}

/// With the 37 bytes of a jar id's prefix this stays below the 255 bytes of a file name.
const MAX_NAME_BYTES: usize = 200;

/// Flink's refusal of none or several files.
pub fn wrong_count(files: usize) -> RestError {
    RestError::handler(StatusCode::BAD_REQUEST, format!("Exactly 1 file must be sent, received {files}."))
}

/// Flink's refusal of a body that is neither empty, nor JSON, nor multipart.
pub fn unexpected_body() -> RestError {
    RestError::bad_format("EmptyRequestBody")
}

/// The last part of a path in either separator's manner.
pub fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(parts: &[(Option<&str>, Option<&str>)]) -> Result<String, RestError> {
        let mut rules = UploadRules::default();
        for (field, file) in parts {
            rules.part(*field, *file)?;
        }
        rules.finish()
    }

    #[test]
    fn one_jar_of_any_field_name_is_taken_by_its_base_name() {
        for (given, wanted) in [
            ("x.jar", "x.jar"),
            ("../../../evil.jar", "evil.jar"),
            ("C:\\jobs\\x.jar", "x.jar"),
            ("my job%20x.jar", "my job%20x.jar"),
            ("j\u{f6}b.jar", "j\u{f6}b.jar"),
        ] {
            assert_eq!(judge(&[(Some("any"), Some(given))]).unwrap(), wanted);
        }
    }

    #[test]
    fn everything_else_is_refused_in_flinks_words() {
        for name in ["wrong.txt", "x.zip", "x.JAR", "", "a\n.jar", &format!("{}.jar", "n".repeat(300))] {
            let refusal = judge(&[(Some("f"), Some(name))]).unwrap_err();
            assert!(refusal.errors()[0].ends_with("Only Jar files are allowed."), "{name}");
        }
        assert!(judge(&[]).unwrap_err().errors()[0].ends_with("received 0."));
        let two = [(Some("a"), Some("x.jar")), (Some("b"), Some("x.jar"))];
        assert!(judge(&two).unwrap_err().errors()[0].ends_with("received 2."));
        let text = judge(&[(Some("a"), Some("x.jar")), (Some("note"), None)]).unwrap_err();
        assert_eq!(text.errors(), ["Received unknown attribute note."]);
    }
}
