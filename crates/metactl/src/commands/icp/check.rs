//! `metactl icp check`: every node that holds a package reads its copy again.

use std::time::Duration;

use clap::Args;
use records::UnitId;
use reqwest::Method;
use serde_json::Value;

use super::path_of;
use crate::{
    cli::{Globals, duration},
    exit::{Done, FAILED, OK},
    rest::{Dispatchers, json as answer_json},
    show,
};

const EXAMPLES: &str = "Examples:
  metactl icp check lib:1.0                 one row a node if all is well, else a row for each damaged file
  metactl icp check lib:1.0 --repair        damaged copies are fetched again from good ones
  metactl icp check lib:1.0 -o json | jq '.rows[] | select(.state != \"OK\")'

States: OK, MISSING, EXTRA, CORRUPT, UNREADABLE, UNREACHABLE (the node did not answer).
Exits 0 if everything is OK, 1 if something is not, 4 if the package is not READY or changed meanwhile.";

/// Grace for the dispatcher to say that a node's time is up.
const ANSWER: Duration = Duration::from_secs(5);

/// What is checked.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
    /// Has nodes with damage fetch it again. A copy that jobs run on is replaced when they are over.
    #[arg(long)]
    repair: bool,
    /// How long each node may take.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

impl Check {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let dispatchers = Dispatchers::find(globals).await?;
        let path = format!(
            "{}/check?repair={}&timeout_ms={}",
            path_of(&self.unit),
            self.repair,
            self.timeout.as_millis()
        );
        let limit = self.timeout + ANSWER;
        // Asking twice does no harm.
        let answer = dispatchers.call(Method::POST, &path, true, async |it| Ok(it.timeout(limit))).await?;
        let answer = answer_json(answer).await?;
        if globals.json() {
            show::json_line(&answer)?;
        } else {
            show::table(&["node", "file", "state"], &rows(&answer))?;
        }
        self.say(&answer);
        Ok(if answer["clean"] == true { OK } else { FAILED })
    }

    /// What does not fit into the columns.
    fn say(&self, answer: &Value) {
        let unit = &self.unit;
        let items = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
        if items("rows").is_empty() {
            eprintln!("no node holds {unit}");
        }
        for row in items("rows") {
            if let Some(detail) = row["detail"].as_str() {
                eprintln!("{}: {detail}", text(&row["node"]));
            }
        }
        for repair in items("repair") {
            let node = text(&repair["node"]);
            match repair["state"].as_str() {
                Some("WAITING") => eprintln!(
                    "{node}: fetched again when the {} uses that run on it are over: metactl icp refs {unit}",
                    repair["uses"]
                ),
                Some("BEGUN") => {
                    eprintln!("{node}: being fetched again: metactl icp wait {unit} --nodes {node}")
                }
                _ => eprintln!("{node}: not usable before the check either: metactl icp status {unit}"),
            }
        }
    }
}

fn rows(answer: &Value) -> Vec<Vec<String>> {
    let rows = answer["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().map(|row| ["node", "file", "state"].map(|name| text(&row[name])).to_vec()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
