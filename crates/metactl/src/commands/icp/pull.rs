//! `metactl icp pull`: brings a package to a node before a job needs it there.

use std::time::Duration;

use clap::Args;
use records::{UnitId, keys::encode_segment, names::check_node};
use reqwest::Method;

use super::path_of;
use crate::{
    cli::{Globals, duration},
    exit::{Done, OK},
    rest::{Dispatchers, json as answer_json},
    show,
};

const EXAMPLES: &str = "Examples:
  metactl icp pull lib:1.0 --node n3        answers when it is PRESENT there
  metactl icp pull lib:1.0 --node n3 --timeout 30m

Exits 3 if no node has it or time is up, 4 if it is not READY, 5 if there is no such package or node.";

/// Grace for the dispatcher to say that time is up.
const ANSWER: Duration = Duration::from_secs(10);

/// What is brought where.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Pull {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
    /// The server node.
    #[arg(long, value_parser = node_name)]
    node: String,
    /// How long it may take.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

/// Checks the name of a node.
pub fn node_name(text: &str) -> Result<String, String> {
    check_node(text).map(|()| text.to_owned()).map_err(|refusal| refusal.text)
}

impl Pull {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let dispatchers = Dispatchers::find(globals).await?;
        let path = format!(
            "{}/pull?node={}&timeout_ms={}",
            path_of(&self.unit),
            encode_segment(&self.node),
            self.timeout.as_millis()
        );
        let limit = self.timeout + ANSWER;
        // A second pull finds what the first one fetched.
        let answer = dispatchers.call(Method::POST, &path, true, async |it| Ok(it.timeout(limit))).await?;
        let answer = answer_json(answer).await?;
        if globals.json() {
            show::json_line(&answer)?;
        } else {
            println!("{} {} on {}", self.unit, answer["status"].as_str().unwrap_or("PRESENT"), self.node);
        }
        Ok(OK)
    }
}
