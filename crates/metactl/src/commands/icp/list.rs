//! `metactl icp list`.

use meta_client::TypedKey as _;
use records::{
    Scope,
    keys::{CopyKey, UnitKey, UseKey, below},
};
use serde_json::{Value, json};

use super::word;
use crate::{
    cli::Globals,
    exit::{Done, OK},
    show, view,
};

/// Lists the packages.
pub async fn list(globals: &Globals) -> Done {
    let view = view::load(globals, Scope::packages()).await?;
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    for (key, unit) in view.all::<UnitKey>()? {
        let copies = view.under::<CopyKey>(&below(CopyKey::PREFIX, &key.unit))?.len();
        let uses = view.count(&below(UseKey::PREFIX, &key.unit))?;
        rows.push(vec![
            key.unit.to_string(),
            word(&unit.state),
            copies.to_string(),
            uses.to_string(),
            unit.files.to_string(),
            unit.bytes.to_string(),
            word(&unit.origin),
        ]);
        objects.push(json!({
            "name": key.unit.name, "version": key.unit.version, "status": unit.state, "copies": copies,
            "usageCount": uses, "files": unit.files, "bytes": unit.bytes, "origin": unit.origin,
        }));
    }
    if globals.json() {
        show::json_line(&Value::Array(objects))?;
    } else {
        show::table(&["package", "status", "copies", "uses", "files", "bytes", "origin"], &rows)?;
    }
    Ok(OK)
}
