//! `metactl icp register`: files that lie on the nodes already become a package, if they are equal everywhere.

use std::time::Duration;

use clap::Args;
use records::{UnitId, keys::encode_segment};
use reqwest::Method;
use serde_json::Value;

use super::path_of;
use crate::{
    cli::{Globals, duration},
    exit::{Done, FAILED, Failure, OK},
    rest::{Dispatchers, of_body},
    show,
};

/// How long the dispatcher may take beyond the register itself.
const SLACK: Duration = Duration::from_secs(30);

/// What is registered, and where it lies.
#[derive(Debug, Args)]
pub struct Register {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
    /// Directory on each node whose files are copied; without it they lie in WORK-DIR/icp/NAME/VERSION.
    #[arg(long, value_name = "DIR")]
    from: Option<String>,
    /// Which nodes must have the files: all, or names parted by commas.
    #[arg(long, default_value = "all")]
    nodes: String,
    /// What the files must be: the digest that another cluster shows for them.
    #[arg(long, value_name = "DIGEST")]
    expect: Option<String>,
    /// How long it may take.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

impl Register {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let dispatchers = Dispatchers::find(globals).await?;
        let (path, within) = (self.path(), self.timeout + SLACK);
        let answer = dispatchers
            .answer(Method::POST, &path, false, async |request| Ok(request.timeout(within)))
            .await?;
        let status = answer.status().as_u16();
        let body = answer.text().await.map_err(|error| {
            Failure::unavailable(format!("{error}; ask with metactl icp status {}", self.unit))
        })?;
        let answer: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        let rows = rows(&answer);
        if globals.json() && !answer.is_null() {
            show::json_line(&answer)?;
        } else if let Some(rows) = &rows {
            show::table(&["node", "file", "state"], rows)?;
        }
        if status < 300 {
            return Ok(OK);
        }
        let left_out = answer["rows-left-out"].as_u64().filter(|left_out| *left_out > 0);
        if let Some(left_out) = left_out {
            eprintln!("{left_out} more rows are left out");
        }
        let failure = of_body(status, &body);
        // Files that differ are what the command was to find out: a plain no.
        if rows.is_some() && status == 409 {
            return Err(Failure::new(FAILED, failure.to_string()));
        }
        Err(failure)
    }

    fn path(&self) -> String {
        let nodes = encode_segment(&self.nodes).replace("%2C", ",");
        let mut path =
            format!("{}/register?nodes={nodes}&timeout_ms={}", path_of(&self.unit), self.timeout.as_millis());
        for (name, value) in [("from", &self.from), ("expect", &self.expect)] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", encode_segment(value)));
            }
        }
        path
    }
}

/// NODE, FILE and STATE of each row, if the answer has any.
fn rows(answer: &Value) -> Option<Vec<Vec<String>>> {
    let rows = answer.get("rows")?.as_array()?;
    let cell = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let lines = rows.iter().map(|row| ["node", "file", "state"].iter().map(|name| cell(row, name)).collect());
    Some(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_request_names_all_that_was_asked() {
        let register = Register {
            unit: "lib:1.0".parse().unwrap(),
            from: Some("/opt/my libs".into()),
            nodes: "a,b".into(),
            expect: Some("abc".into()),
            timeout: Duration::from_secs(5),
        };
        let path = register.path();
        assert!(path.starts_with("/icp/lib/1.0/register?nodes=a,b&timeout_ms=5000&from="), "{path}");
        assert!(path.ends_with("my%20libs&expect=abc"), "{path}");
    }

    #[test]
    fn the_rows_are_cut_out_of_both_kinds_of_answer() {
        let answer = json!({"errors": ["x"], "rows": [{"node": "a", "file": "d.jar", "state": "DIFFERENT"}]});
        assert_eq!(rows(&answer).unwrap(), [["a", "d.jar", "DIFFERENT"]]);
        assert_eq!(rows(&json!({"errors": ["x"]})), None);
    }
}
