//! `metactl icp status`: one package, on each node.

use meta_client::TypedKey as _;
use records::{
    Scope, UnitId, View,
    keys::{CopyKey, NodeKey, UnitKey, UseKey, below, uses_on},
};
use serde_json::json;

use super::word;
use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    show, view,
};

/// One node's copy.
pub struct Row {
    pub node: String,
    pub state: String,
    pub holders: Vec<String>,
    pub alive: bool,
    pub error: Option<String>,
}

/// The package on each node that has a row of it.
pub fn rows(view: &View, unit: &UnitId) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (key, copy) in view.under::<CopyKey>(&below(CopyKey::PREFIX, unit))? {
        let uses = view.under::<UseKey>(&uses_on(unit, &key.node))?;
        rows.push(Row {
            state: word(&copy.state),
            holders: uses.into_iter().map(|(key, _)| key.holder).collect(),
            alive: view.get(&NodeKey::new(&key.node))?.is_some(),
            error: copy.error.clone(),
            node: key.node,
        });
    }
    Ok(rows)
}

/// Shows one package.
pub async fn status(globals: &Globals, id: &UnitId) -> Done {
    let view = view::load(globals, Scope::package(id)).await?;
    let unit = view
        .get(&UnitKey::new(id))?
        .ok_or_else(|| Failure::not_found(format!("there is no package {id}")))?;
    let rows = rows(&view, id)?;
    if globals.json() {
        let nodes: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "node": row.node, "status": row.state, "usageCount": row.holders.len(),
                    "holders": row.holders, "alive": row.alive, "error": row.error,
                })
            })
            .collect();
        show::json_line(&json!({
            "name": id.name, "version": id.version, "status": unit.state, "coordinator": unit.coordinator,
            "files": unit.files, "bytes": unit.bytes, "error": unit.error, "nodes": nodes,
        }))?;
        return Ok(OK);
    }
    println!(
        "{id} {}{}",
        word(&unit.state),
        unit.error.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
    );
    let lines: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let alive = if row.alive { "yes" } else { "no" };
            vec![row.node, row.state, alive.to_owned(), row.holders.join(","), row.error.unwrap_or_default()]
        })
        .collect();
    show::table(&["node", "status", "alive", "holders", "error"], &lines)?;
    Ok(OK)
}
