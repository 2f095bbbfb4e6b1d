//! `metactl get`.

use clap::{Args, ValueEnum};
use meta_api::{convert::range_request_to_wire, pb::etcdserverpb as pb};
use meta_types::{KeyRange, RangeRequest, SortOrder, SortTarget};
use serde_json::json;

use crate::{
    cli::Globals,
    exit::{Done, NOT_FOUND, OK},
    show,
    store::Store,
};

const EXAMPLES: &str = "Examples:
  metactl get /app/color
  metactl get /app/ --prefix --keys-only
  metactl get /app/color --rev 12 -o json
  metactl get /app/color --consistency s     also without a majority, may be stale

A missing key prints nothing and exits 0; with --fail it exits 5.";

/// Reads a key or a range.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Get {
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
    /// At most so many keys.
    #[arg(long, default_value_t = 0)]
    limit: i64,
    /// As of this revision.
    #[arg(long, default_value_t = 0)]
    rev: i64,
    /// Order of the answer.
    #[arg(long, value_enum, ignore_case = true)]
    order: Option<Order>,
    /// What it is ordered by.
    #[arg(long, value_enum, ignore_case = true)]
    sort_by: Option<SortBy>,
    /// Only keys.
    #[arg(long)]
    keys_only: bool,
    /// Only the number of keys.
    #[arg(long)]
    count_only: bool,
    /// Only values.
    #[arg(long)]
    print_value_only: bool,
    /// l: linearizable; s: what the replica has, perhaps stale.
    #[arg(long, value_enum, default_value = "l")]
    consistency: Consistency,
    /// Exits 5 if nothing is found.
    #[arg(long)]
    fail: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    Ascend,
    Descend,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SortBy {
    Key,
    Version,
    Create,
    Modify,
    Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Consistency {
    L,
    S,
}

impl Get {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let store = Store::connect(globals).await?;
        let request = range_request_to_wire(self.request());
        let reply =
            store.kv().range(request).await.map_err(|status| store.failure(&status, ""))?.into_inner();
        self.print(globals, &reply)?;
        Ok(if self.fail && reply.count == 0 { NOT_FOUND } else { OK })
    }

    fn request(&self) -> RangeRequest {
        RangeRequest {
            range: range(&self.key, self.range_end.as_deref(), self.prefix, self.from_key),
            limit: self.limit,
            revision: self.rev,
            sort_order: match self.order {
                None if self.sort_by.is_some() => SortOrder::Ascend,
                None => SortOrder::None,
                Some(Order::Ascend) => SortOrder::Ascend,
                Some(Order::Descend) => SortOrder::Descend,
            },
            sort_target: match self.sort_by {
                None | Some(SortBy::Key) => SortTarget::Key,
                Some(SortBy::Version) => SortTarget::Version,
                Some(SortBy::Create) => SortTarget::Create,
                Some(SortBy::Modify) => SortTarget::Mod,
                Some(SortBy::Value) => SortTarget::Value,
            },
            serializable: self.consistency == Consistency::S,
            keys_only: self.keys_only,
            count_only: self.count_only,
            ..RangeRequest::default()
        }
    }

    fn print(&self, globals: &Globals, reply: &pb::RangeResponse) -> std::io::Result<()> {
        if globals.json() {
            let kvs: Vec<_> = reply.kvs.iter().map(show::key_value).collect();
            let mut out = json!({ "header": show::header(reply.header.as_ref()), "count": reply.count });
            if !kvs.is_empty() {
                out["kvs"] = json!(kvs);
            }
            if reply.more {
                out["more"] = json!(true);
            }
            return show::json_line(&out);
        }
        if self.count_only {
            println!("{}", reply.count);
        }
        for kv in &reply.kvs {
            if !self.print_value_only {
                show::bytes_line(&kv.key)?;
            }
            if !self.keys_only {
                show::bytes_line(&kv.value)?;
            }
        }
        Ok(())
    }
}

/// The range that KEY, RANGE_END, --prefix and --from-key name.
pub fn range(key: &str, end: Option<&str>, prefix: bool, from_key: bool) -> KeyRange {
    match (prefix, from_key, end) {
        (true, ..) => KeyRange::prefix(key.to_owned()),
        (_, true, _) if key.is_empty() => KeyRange::prefix(String::new()),
        (_, true, _) => KeyRange::between(key.to_owned(), "\0"),
        (_, _, Some(end)) => KeyRange::between(key.to_owned(), end.to_owned()),
        (_, _, None) => KeyRange::one(key.to_owned()),
    }
}
