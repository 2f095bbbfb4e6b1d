//! `metactl txn`.

use std::io::Read as _;

use clap::Args;
use meta_api::{convert::txn_to_wire, pb::etcdserverpb as pb};
use pb::response_op::Response;
use serde_json::{Value, json};

use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    show,
    store::Store,
    txn_text,
};

const EXAMPLES: &str =
    "The transaction is read from stdin: compares, success requests, failure requests, a line each,
the three parts parted by an empty line.

Example:
  printf 'mod(\"a\") > \"0\"\\n\\nput a 2\\n\\nput a 1\\n\\n' | metactl txn";

/// Runs a transaction.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TxnCommand {}

impl TxnCommand {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        let txn = txn_text::parse(&text).map_err(Failure::usage)?;
        let store = Store::connect(globals).await?;
        let ask = if txn.is_read_only() { "" } else { "get KEY" };
        let reply = store.kv().txn(txn_to_wire(txn)).await.map_err(|status| store.failure(&status, ask))?;
        print(globals, &reply.into_inner())?;
        Ok(OK)
    }
}

fn print(globals: &Globals, reply: &pb::TxnResponse) -> std::io::Result<()> {
    if globals.json() {
        let responses: Vec<_> =
            reply.responses.iter().filter_map(|it| it.response.as_ref()).map(as_json).collect();
        return show::json_line(&json!({
            "header": show::header(reply.header.as_ref()),
            "succeeded": reply.succeeded,
            "responses": responses,
        }));
    }
    println!("{}", if reply.succeeded { "SUCCESS" } else { "FAILURE" });
    for response in reply.responses.iter().filter_map(|it| it.response.as_ref()) {
        println!();
        match response {
            Response::ResponseRange(range) => {
                for kv in &range.kvs {
                    show::bytes_line(&kv.key)?;
                    show::bytes_line(&kv.value)?;
                }
            }
            Response::ResponsePut(_) => println!("OK"),
            Response::ResponseDeleteRange(delete) => println!("{}", delete.deleted),
            Response::ResponseTxn(inner) => {
                println!("{}", if inner.succeeded { "SUCCESS" } else { "FAILURE" })
            }
        }
    }
    Ok(())
}

fn as_json(response: &Response) -> Value {
    match response {
        Response::ResponseRange(range) => {
            let kvs: Vec<_> = range.kvs.iter().map(show::key_value).collect();
            json!({ "response_range": { "kvs": kvs, "count": range.count } })
        }
        Response::ResponsePut(_) => json!({ "response_put": {} }),
        Response::ResponseDeleteRange(delete) => {
            json!({ "response_delete_range": { "deleted": delete.deleted } })
        }
        Response::ResponseTxn(inner) => json!({ "response_txn": { "succeeded": inner.succeeded } }),
    }
}
