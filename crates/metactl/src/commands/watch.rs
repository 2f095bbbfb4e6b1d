//! `metactl watch`.

use clap::Args;
use meta_api::pb::{etcdserverpb as pb, mvccpb};
use serde_json::json;
use tokio_stream::wrappers::ReceiverStream;

use super::get::range;
use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    show,
    store::Store,
};

const EXAMPLES: &str = "Examples:
  metactl watch /app/ --prefix
  metactl watch /app/color --rev 1 --prev-kv -o json

Runs until it is stopped, and prints each change as it comes.";

/// Watches a key or a range.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Watch {
    /// The key, or the first of a range.
    key: String,
    /// End of the range, itself not in it.
    range_end: Option<String>,
    /// Every key that starts with KEY.
    #[arg(long, conflicts_with_all = ["range_end", "from_key"])]
    prefix: bool,
    /// Every key from KEY on.
    #[arg(long, conflicts_with = "range_end")]
    from_key: bool,
    /// First revision to deliver; 0 = from now on.
    #[arg(long, default_value_t = 0)]
    rev: i64,
    /// Also prints what was there before each change.
    #[arg(long)]
    prev_kv: bool,
}

impl Watch {
    /// Runs it: reconnects when a replica goes away and goes on behind the last change that was printed.
    pub async fn run(self, globals: &Globals) -> Done {
        let mut from = self.rev;
        loop {
            let store = Store::connect(globals).await?;
            let Some(status) = self.follow(globals, &store, &mut from).await? else { return Ok(OK) };
            let failure = store.failure(&status, "");
            if failure.code != crate::exit::UNAVAILABLE {
                return Err(failure);
            }
            eprintln!("metactl: {failure}; going on with another replica");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// Prints changes until the stream ends. `None` = canceled by the server as asked.
    async fn follow(
        &self,
        globals: &Globals,
        store: &Store,
        from: &mut i64,
    ) -> Result<Option<tonic::Status>, Failure> {
        let range = range(&self.key, self.range_end.as_deref(), self.prefix, self.from_key);
        let create = pb::WatchCreateRequest {
            key: range.key,
            range_end: range.end,
            start_revision: *from,
            prev_kv: self.prev_kv,
            ..Default::default()
        };
        let request =
            pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
        // The sender is kept: a closed request stream would end the watch.
        let (keep, requests) = tokio::sync::mpsc::channel(1);
        keep.send(request).await.map_err(|_| Failure::failed("the watch ended before it began"))?;
        let mut answers = match store.watch().watch(ReceiverStream::new(requests)).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return Ok(Some(status)),
        };
        loop {
            match answers.message().await {
                Ok(Some(answer)) if answer.canceled => return Err(canceled(&answer)),
                Ok(Some(answer)) => {
                    let revision = answer.header.as_ref().map_or(0, |header| header.revision);
                    // A created answer fixes where "from now on" begins, so that a reconnect leaves no gap.
                    if *from == 0 || !answer.events.is_empty() {
                        *from = revision + 1;
                    }
                    self.print(globals, &answer)?;
                }
                Ok(None) => return Ok(Some(tonic::Status::unavailable("the watch's stream ended"))),
                Err(status) => return Ok(Some(status)),
            }
        }
    }

    fn print(&self, globals: &Globals, answer: &pb::WatchResponse) -> std::io::Result<()> {
        for event in &answer.events {
            let is_put = event.r#type == mvccpb::event::EventType::Put as i32;
            let name = if is_put { "PUT" } else { "DELETE" };
            let kv = event.kv.clone().unwrap_or_default();
            if globals.json() {
                let mut out = json!({ "type": name, "kv": show::key_value(&kv) });
                if let Some(prev) = &event.prev_kv {
                    out["prev_kv"] = show::key_value(prev);
                }
                show::json_line(&out)?;
                continue;
            }
            println!("{name}");
            for kv in event.prev_kv.iter().chain(Some(&kv)) {
                show::bytes_line(&kv.key)?;
                show::bytes_line(&kv.value)?;
            }
        }
        Ok(())
    }
}

fn canceled(answer: &pb::WatchResponse) -> Failure {
    if answer.compact_revision > 0 {
        return Failure::failed(format!(
            "the revision asked for is compacted away: start at {} or later",
            answer.compact_revision
        ));
    }
    Failure::failed(format!("the watch was canceled: {}", answer.cancel_reason))
}
