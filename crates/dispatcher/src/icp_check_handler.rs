//! `POST /icp/:name/:version/check`: every node that holds the package reads its copy again, against the manifest in
//! the records.
//!
//! 1. The package is read, linearizably: it must be READY. Its operation is remembered.
//! 2. Every node that has a row is asked, all at once, each within its time. A node that does not answer is a row.
//! 3. The package is read again: another operation or state means that the rows say nothing about it any more, 409
//!    CHANGED_DURING_CHECK.
//!
//! Nothing is written here. With `repair` a node with damage writes its own row, and its agent replaces the copy.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::respond;
use futures_util::future::join_all;
use http::StatusCode;
use jobmaster::package_handlers::{Verified, WHOLE};
use meta_client::{Stored, TypedKey};
use records::keys::{CopyKey, NodeKey, UnitKey, below, encode_segment};
use records::packages::ready_package;
use records::record::Unit;
use records::{Class, Refusal, Scope, UnitId, View};
use serde::Serialize;
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::front::Front;
use crate::limits::{CHECK_ANSWER, CHECK_BYTES_PER_SECOND, CHECK_LONGEST};
use crate::openapi::{Checked, Refused, UnitPath};
use crate::request::{flag_of, known_parameters, query_of, timeout_of};

/// One finding. A copy that is as it should be is one row with file `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    node: String,
    file: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// A node that has a row of the package.
struct Holder {
    node: String,
    /// Where it is asked; none if it is not alive.
    address: Option<String>,
    /// What its row says, unless PRESENT.
    says: Option<String>,
}

/// What one node answered.
struct Answered {
    rows: Vec<Row>,
    repair: Option<Value>,
}

/// `POST /icp/:name/:version/check[?repair=true][&timeout_ms=N]`.
#[utoipa::path(post, path = "/icp/{name}/{version}/check", tag = "packages", operation_id = "icp_check",
    params(UnitPath, ("repair" = Option<bool>, Query, description = "Replace damaged copies"),
        ("timeout_ms" = Option<u64>, Query, description = "How long a node may take")),
    responses((status = 200, description = "What every copy is like", body = Checked),
        (status = 404, description = "There is none", body = Refused),
        (status = 409, description = "UNIT_NOT_READY, CHANGED_DURING_CHECK", body = Refused)))]
pub async fn check(
    State(front): State<Front>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let unit = UnitId::new(&name, &version)?;
    let query = query_of(&request)?;
    known_parameters(&query, &["repair", "timeout_ms"])?;
    let repair = flag_of(&query, "repair")?;
    let asked_limit = timeout_of(&query)?;
    let before = front.fresh(Scope::package(&unit)).await?;
    let package = ready_package(&before, &unit)?;
    let Some(found) = before.get(&UnitKey::new(&unit))? else {
        return Err(Refusal::not_found(format!("there is no package {unit}")).into());
    };
    let limit = asked_limit.unwrap_or_else(|| time_for(found.bytes));
    let holders = holders(&before, &unit, &package.op)?;
    let asked = holders.iter().map(|holder| ask(&front, &unit, &package.op, holder, repair, limit));
    let answers = join_all(asked).await;
    let after = front.fresh(Scope::package(&unit)).await?;
    unchanged(&unit, &found, after.get(&UnitKey::new(&unit))?.as_ref())?;
    let repairs: Vec<&Value> = answers.iter().filter_map(|answer| answer.repair.as_ref()).collect();
    let rows: Vec<&Row> = answers.iter().flat_map(|answer| &answer.rows).collect();
    let clean = !rows.is_empty() && rows.iter().all(|row| row.state == "OK");
    tracing::info!(package = %unit, clean, nodes = holders.len(), repair, "checked");
    let mut body = json!({
        "name": name, "version": version, "op": package.op, "digest": found.manifest, "files": found.files,
        "bytes": found.bytes, "clean": clean, "rows": rows,
    });
    if repair {
        body["repair"] = json!(repairs);
    }
    Ok(respond::ok(&body))
}

/// So long a node may read so many bytes.
fn time_for(bytes: u64) -> Duration {
    (CHECK_ANSWER + Duration::from_secs(bytes / CHECK_BYTES_PER_SECOND)).min(CHECK_LONGEST)
}

fn holders(view: &View, unit: &UnitId, op: &str) -> Result<Vec<Holder>, Refusal> {
    let mut holders = Vec::new();
    for (key, copy) in view.under::<CopyKey>(&below(CopyKey::PREFIX, unit))? {
        if copy.op != op {
            continue;
        }
        let address = view.get(&NodeKey::new(&key.node))?.and_then(|node| node.value.node_address);
        let state = serde_json::to_value(copy.state).ok().and_then(|word| word.as_str().map(str::to_owned));
        let says = state.filter(|word| word != "PRESENT");
        holders.push(Holder { node: key.node, address, says });
    }
    Ok(holders)
}

/// Still the package that was asked about, and READY.
fn unchanged(unit: &UnitId, before: &Unit, after: Option<&Stored<Unit>>) -> Result<(), Refusal> {
    let how = match after {
        Some(after) if after.op != before.op => "it is another package by now",
        Some(after) if after.state != before.state => "it is being removed by now",
        Some(_) => return Ok(()),
        None => "it is gone by now",
    };
    Err(Refusal::new(Class::ChangedDuringCheck, format!("{unit} changed while it was checked: {how}")))
}

async fn ask(
    front: &Front,
    unit: &UnitId,
    op: &str,
    holder: &Holder,
    repair: bool,
    limit: Duration,
) -> Answered {
    let whole =
        |state, detail: Option<String>| Row { node: holder.node.clone(), file: WHOLE.into(), state, detail };
    let only = |row| Answered { rows: vec![row], repair: None };
    let Some(address) = &holder.address else {
        return only(whole("UNREACHABLE", Some("the node is not alive".into())));
    };
    let (name, version) = (encode_segment(&unit.name), encode_segment(&unit.version));
    let path = format!("/packages/{name}/{version}/verify?op={}&repair={repair}", encode_segment(op));
    let answer = match front.nodes.post(address, &path, limit).await {
        Ok(answer) if answer.status == StatusCode::OK => answer.body,
        Ok(answer) => {
            let text = answer.body["errors"][0].as_str().map(str::to_owned);
            let text = text.unwrap_or_else(|| answer.body.to_string());
            return only(whole("UNREACHABLE", Some(format!("it says {}: {text}", answer.status.as_u16()))));
        }
        Err(error) => return only(whole("UNREACHABLE", Some(error.to_string()))),
    };
    let verified: Verified = match serde_json::from_value(answer) {
        Ok(verified) => verified,
        Err(error) => return only(whole("UNREACHABLE", Some(format!("its answer makes no sense: {error}")))),
    };
    let mut rows: Vec<Row> = verified
        .rows
        .into_iter()
        .map(|row| Row {
            node: holder.node.clone(),
            file: row.file,
            state: row.state.as_str(),
            detail: row.detail,
        })
        .collect();
    if verified.left_off > 0
        && let Some(last) = rows.last()
    {
        rows.push(whole(last.state, Some(format!("and {} files more", verified.left_off))));
    }
    if rows.is_empty() {
        rows.push(whole("OK", None));
    }
    if let Some(says) = &holder.says {
        rows.iter_mut().filter(|row| row.file == WHOLE).for_each(|row| {
            row.detail = Some(format!("its record says {says}"));
        });
    }
    let repair = verified
        .repair
        .map(|repair| json!({ "node": holder.node, "state": repair.state, "uses": repair.uses }));
    Answered { rows, repair }
}
