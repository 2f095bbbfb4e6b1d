//! `metactl put`.

use std::io::Read as _;

use clap::Args;
use meta_api::pb::etcdserverpb as pb;
use serde_json::json;

use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    show,
    store::Store,
    txn_text::lease_id,
};

const EXAMPLES: &str = "Examples:
  metactl put /app/color blue
  metactl put /app/color < file          the value is read from stdin
  metactl put /app/alive yes --lease 694d5765fc71500b";

/// Puts a key.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Put {
    /// The key.
    key: String,
    /// The value; read from stdin if left out.
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
    /// Lease to hang the key on, hexadecimal.
    #[arg(long, default_value = "0", value_parser = lease_id)]
    lease: i64,
    /// Prints what was there before.
    #[arg(long)]
    prev_kv: bool,
    /// Keeps the value, changes only the lease.
    #[arg(long)]
    ignore_value: bool,
    /// Keeps the lease.
    #[arg(long)]
    ignore_lease: bool,
}

impl Put {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let value = match self.value {
            Some(value) => value.into_bytes(),
            None if self.ignore_value => Vec::new(),
            None => read_stdin()?,
        };
        let store = Store::connect(globals).await?;
        let request = pb::PutRequest {
            key: self.key.clone().into(),
            value: value.into(),
            lease: self.lease,
            prev_kv: self.prev_kv,
            ignore_value: self.ignore_value,
            ignore_lease: self.ignore_lease,
        };
        let ask = format!("get {}", self.key);
        let reply =
            store.kv().put(request).await.map_err(|status| store.failure(&status, &ask))?.into_inner();
        if globals.json() {
            let mut out = json!({ "header": show::header(reply.header.as_ref()) });
            if let Some(prev) = &reply.prev_kv {
                out["prev_kv"] = show::key_value(prev);
            }
            show::json_line(&out)?;
        } else {
            println!("OK");
            if let Some(prev) = &reply.prev_kv {
                show::bytes_line(&prev.key)?;
                show::bytes_line(&prev.value)?;
            }
        }
        Ok(OK)
    }
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    std::io::stdin().lock().read_to_end(&mut value)?;
    Ok(value)
}
