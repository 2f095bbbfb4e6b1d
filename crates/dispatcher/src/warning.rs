//! The `Warning` header of RFC 7234, for answers that are a success with a reservation: bytes that only one node holds.

use axum::response::Response;
use http::{HeaderValue, header};
use records::packages::PackageStatus;
use serde_json::Value;

/// So many nodes hold what was acknowledged, or the answer warns.
const COPIES: usize = 2;

/// What holds a package, of its status.
pub fn holders_of(status: &PackageStatus) -> Vec<String> {
    let present = status.nodes.iter().filter(|row| row.alive && row.status == "PRESENT");
    present.map(|row| row.node.clone()).collect()
}

/// The same of a status that a node answered.
pub fn holders_in(status: &Value) -> Vec<String> {
    let rows = status["nodes"].as_array().into_iter().flatten();
    let present = rows.filter(|row| row["alive"] == true && row["status"] == "PRESENT");
    present.filter_map(|row| row["node"].as_str().map(str::to_owned)).collect()
}

/// Adds the header if fewer than two nodes hold `what`.
pub fn if_few_hold(mut response: Response, what: &str, holders: &[String]) -> Response {
    if let Some(text) = few_hold(what, holders) {
        response.headers_mut().insert(header::WARNING, header_value(&text));
    }
    response
}

fn few_hold(what: &str, holders: &[String]) -> Option<String> {
    match holders {
        [] => Some(format!("no live node holds {what} any more")),
        [only] if COPIES > 1 => Some(format!(
            "only node {only} holds {what}: it is lost if that node is lost before others have it"
        )),
        _ => None,
    }
}

/// Code 199 is "miscellaneous, for people"; the agent is a pseudonym, as a proxy's would be; the text a quoted string.
fn header_value(text: &str) -> HeaderValue {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    let value = format!("199 metastore \"{escaped}\"");
    // Names of nodes and packages are ASCII.
    HeaderValue::from_str(&value).unwrap_or_else(|_| HeaderValue::from_static("199 metastore \"few copies\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_are_enough_and_the_text_is_a_quoted_string() {
        let two = ["a".to_owned(), "b".to_owned()];
        assert_eq!(few_hold("x", &two), None);
        assert!(few_hold("x", &two[..1]).unwrap().starts_with("only node a holds x"));
        assert!(few_hold("x", &[]).unwrap().starts_with("no live node"));
        assert_eq!(header_value("say \"x\"").to_str().unwrap(), "199 metastore \"say \\\"x\\\"\"");
    }
}
