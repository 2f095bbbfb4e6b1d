//! `metactl del`.

use clap::Args;
use meta_api::{convert::delete_request_to_wire, pb::etcdserverpb as pb};
use meta_types::DeleteRangeRequest;
use serde_json::json;

use super::get::range;
use crate::{
    cli::Globals,
    exit::{Done, NOT_FOUND, OK},
    show,
    store::Store,
};

const EXAMPLES: &str = "Examples:
  metactl del /app/color
  metactl del /app/ --prefix --prev-kv

Prints the number of deleted keys; 0 is no error unless --fail is given (exit 5).";

/// Deletes a key or a range.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Del {
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
    /// Prints what was deleted.
    #[arg(long)]
    prev_kv: bool,
    /// Exits 5 if nothing was deleted.
    #[arg(long)]
    fail: bool,
}

impl Del {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let store = Store::connect(globals).await?;
        let range = range(&self.key, self.range_end.as_deref(), self.prefix, self.from_key);
        let request = delete_request_to_wire(DeleteRangeRequest { range, prev_kv: self.prev_kv });
        let ask = format!("get {}", self.key);
        let reply = store.kv().delete_range(request).await;
        let reply = reply.map_err(|status| store.failure(&status, &ask))?.into_inner();
        print(globals, &reply)?;
        Ok(if self.fail && reply.deleted == 0 { NOT_FOUND } else { OK })
    }
}

fn print(globals: &Globals, reply: &pb::DeleteRangeResponse) -> std::io::Result<()> {
    if globals.json() {
        let prev: Vec<_> = reply.prev_kvs.iter().map(show::key_value).collect();
        let mut out = json!({ "header": show::header(reply.header.as_ref()), "deleted": reply.deleted });
        if !prev.is_empty() {
            out["prev_kvs"] = json!(prev);
        }
        return show::json_line(&out);
    }
    println!("{}", reply.deleted);
    for kv in &reply.prev_kvs {
        show::bytes_line(&kv.key)?;
        show::bytes_line(&kv.value)?;
    }
    Ok(())
}
