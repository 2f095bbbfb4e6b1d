//! `metactl icp status --node`: a node's packages, its records beside what any dispatcher finds on its disk.

use records::keys::encode_segment;
use reqwest::Method;
use serde_json::{Value, json};

use super::status::What;
use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    rest::{Dispatchers, json as answer_json},
    show,
};

/// Shows what a node has, or one name or package of it.
pub async fn show(globals: &Globals, what: Option<&What>, node: &str) -> Done {
    let dispatchers = Dispatchers::find(globals).await?;
    let path = format!("/nodes/{}/icp", encode_segment(node));
    let answer = dispatchers.simple(Method::GET, &path, globals.command_timeout).await?;
    let mut answer = answer_json(answer).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(what) = what {
        let packages = answer["packages"].as_array().cloned().unwrap_or_default();
        let meant = |row: &Value| what.means(&text(&row["name"]), &text(&row["version"]));
        let left: Vec<Value> = packages.into_iter().filter(meant).collect();
        if left.is_empty() {
            return Err(Failure::not_found(format!(
                "node {node} has no {what}, on its disk or in its records"
            )));
        }
        answer["packages"] = json!(left);
    }
    if globals.json() {
        show::json_line(&answer)?;
        return Ok(OK);
    }
    let why = answer["disk-error"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    println!("{node} {}{why}", text(&answer["status"]));
    let rows: Vec<_> =
        answer["packages"].as_array().map(|rows| rows.iter().map(row).collect()).unwrap_or_default();
    show::table(&["package", "status", "disk", "op", "uses", "bytes", "drift", "error"], &rows)?;
    Ok(OK)
}

fn row(found: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let disk = &found["disk"];
    let known =
        |at: &Value, name: &str| at[name].as_u64().filter(|number| *number > 0).map(|it| it.to_string());
    let package = [text(&found["name"]), text(&found["version"])];
    let op = disk["op"].as_str().or(found["op"].as_str()).unwrap_or_default();
    let error = [&found["why"], &found["error"]].into_iter().filter_map(Value::as_str).collect::<Vec<_>>();
    vec![
        package.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(":"),
        text(&found["status"]),
        text(&disk["state"]),
        op.chars().take(8).collect(),
        found["usageCount"].as_u64().unwrap_or(0).to_string(),
        known(disk, "bytes").or_else(|| known(found, "bytes")).unwrap_or_else(|| "0".to_owned()),
        if found["drift"] == true { "yes" } else { "no" }.to_owned(),
        error.join("; "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_the_disk_and_falls_back_on_the_record() {
        let found = json!({
            "name": "lib", "version": "1", "status": "PRESENT", "op": "0123456789abcdef", "usageCount": 2, "bytes": 7,
            "error": null, "drift": true, "why": "it is not on disk",
            "disk": { "state": "ABSENT", "op": null, "bytes": 0, "files": 0 },
        });
        assert_eq!(
            row(&found),
            ["lib:1", "PRESENT", "ABSENT", "01234567", "2", "7", "yes", "it is not on disk"]
        );
        let file = json!({ "name": "notes.txt", "version": "", "disk": { "state": "UNREGISTERED" } });
        assert_eq!(row(&file), ["notes.txt", "", "UNREGISTERED", "", "0", "0", "no", ""]);
    }
}
