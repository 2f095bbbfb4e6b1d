//! Output: tables with aligned columns, JSON, raw bytes as they are.

use std::io::{self, Write};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use meta_api::pb::{etcdserverpb as pb, mvccpb};
pub use records::time::rfc3339 as time;
use serde_json::{Value, json};

/// Prints a table: a line of column names in capitals, then the rows. Cells never contain spaces in numbers and
/// flags, so that columns can be cut out; an empty cell is `-`.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let cell = |text: &str| if text.is_empty() { "-".to_owned() } else { text.replace(['\n', '\t'], " ") };
    let head: Vec<_> = columns.iter().map(|column| column.to_uppercase()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head)
        .chain(rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()))
        .collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let mut out = io::stdout().lock();
    for line in &lines {
        let padded: Vec<_> = line.iter().zip(&widths).map(|(text, width)| format!("{text:width$}")).collect();
        writeln!(out, "{}", padded.join("  ").trim_end())?;
    }
    Ok(())
}

/// Prints one JSON value on one line.
pub fn json_line(value: &Value) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{value}")
}

/// Prints bytes as they are, and a newline.
pub fn bytes_line(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.write_all(b"\n")
}

/// Bytes as etcdctl's JSON has them.
pub fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// The header as etcdctl's JSON has it.
pub fn header(header: Option<&pb::ResponseHeader>) -> Value {
    header.map_or(Value::Null, |header| {
        json!({
            "cluster_id": header.cluster_id,
            "member_id": header.member_id,
            "revision": header.revision,
            "raft_term": header.raft_term,
        })
    })
}

/// A key as etcdctl's JSON has it: fields that are zero are left out.
pub fn key_value(kv: &mvccpb::KeyValue) -> Value {
    let mut out = json!({
        "key": base64(&kv.key),
        "create_revision": kv.create_revision,
        "mod_revision": kv.mod_revision,
        "version": kv.version,
        "value": base64(&kv.value),
    });
    if kv.lease != 0 {
        out["lease"] = json!(kv.lease);
    }
    out
}
