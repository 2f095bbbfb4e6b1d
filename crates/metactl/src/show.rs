//! Output: tables with aligned columns, JSON, raw bytes as they are.

use std::io::{self, Write};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use meta_api::pb::{etcdserverpb as pb, mvccpb};
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

/// A time since the epoch as UTC, to the second.
pub fn time(ms: u64) -> String {
    let s = ms / 1000;
    let (days, second) = (s / 86_400, s % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar counted from March.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_399_000), "2000-02-28T23:59:59Z");
        assert_eq!(time(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_764_447_383_999), "2025-11-29T20:16:23Z");
    }
}
