//! A run's request in one form: query and body merged, arguments split, compared field by field.

use crate::record::StatedRequest;
use crate::refusal::Refusal;

/// One request from its query and its body: where both state a field, the body's value counts, as in Flink.
pub fn merge(query: StatedRequest, body: StatedRequest) -> StatedRequest {
    StatedRequest {
        jar_id: body.jar_id.or(query.jar_id),
        jar_digest: body.jar_digest.or(query.jar_digest),
        entry_class: body.entry_class.or(query.entry_class),
        program_args: body.program_args.or(query.program_args),
        parallelism: body.parallelism.or(query.parallelism),
        job_id: body.job_id.or(query.job_id),
        allow_non_restored_state: body.allow_non_restored_state.or(query.allow_non_restored_state),
        savepoint_path: body.savepoint_path.or(query.savepoint_path),
        restore_mode: body.restore_mode.or(query.restore_mode),
        flink_configuration: body.flink_configuration.or(query.flink_configuration),
        packages: body.packages.or(query.packages),
    }
}

/// The fields in which two requests of one triggerId differ; empty = they are equal. The JAR is the same if its id
/// or its digest is, so a retry finds its run even if the jar is gone by now.
pub fn differing_fields(first: &StatedRequest, second: &StatedRequest) -> Vec<&'static str> {
    let same_id = first.jar_id.is_some() && first.jar_id == second.jar_id;
    let same_digest = first.jar_digest.is_some() && first.jar_digest == second.jar_digest;
    let checks = [
        ("jar", same_id || same_digest),
        ("entryClass", first.entry_class == second.entry_class),
        ("programArgs", first.program_args == second.program_args),
        ("parallelism", first.parallelism == second.parallelism),
        ("jobId", first.job_id == second.job_id),
        ("allowNonRestoredState", first.allow_non_restored_state == second.allow_non_restored_state),
        ("savepointPath", first.savepoint_path == second.savepoint_path),
        ("restoreMode", first.restore_mode == second.restore_mode),
        ("flinkConfiguration", first.flink_configuration == second.flink_configuration),
        ("packages", first.packages == second.packages),
    ];
    checks.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}

/// Splits `programArgs` as a shell would: blanks separate, quotes of either kind hold together. A quote that is not
/// closed is an error.
pub fn tokenize(text: &str) -> Result<Vec<String>, Refusal> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(Refusal::bad_request(format!("the program arguments have a {open} that is not closed")));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_as_a_shell_does() {
        assert_eq!(tokenize(r#" --a  "b c" d'e f'g "" "#).unwrap(), ["--a", "b c", "de fg", ""]);
        assert!(tokenize("a \"b").is_err());
        assert!(tokenize("").unwrap().is_empty());
    }

    #[test]
    fn the_body_counts_and_the_jar_is_the_same_by_id_or_digest() {
        let query = StatedRequest {
            jar_id: Some("j".into()),
            parallelism: Some(2),
            entry_class: Some("A".into()),
            ..StatedRequest::default()
        };
        let body = StatedRequest { parallelism: Some(3), ..StatedRequest::default() };
        let one = merge(query, body);
        assert_eq!(one.parallelism, Some(3));
        assert_eq!(one.entry_class.as_deref(), Some("A"));

        let known = StatedRequest { jar_digest: Some("d".into()), ..one.clone() };
        assert!(differing_fields(&known, &one).is_empty(), "same id, the digest is not known any more");
        let sent_along = StatedRequest { jar_id: None, jar_digest: Some("d".into()), ..one.clone() };
        assert!(differing_fields(&known, &sent_along).is_empty(), "same digest");
        let other = StatedRequest { jar_id: Some("k".into()), parallelism: None, ..one };
        assert_eq!(differing_fields(&known, &other), ["jar", "parallelism"]);
    }
}
