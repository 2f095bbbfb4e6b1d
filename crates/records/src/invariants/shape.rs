//! I1: keys and records can be read.

use meta_client::{Stored, TypedKey};
use meta_types::KeyValue;

use super::{Violation, note};
use crate::keys::{
    CopyKey, JarKey, JobCancelKey, JobKey, JobOwnerKey, ManifestKey, NameKey, NodeDrainKey, NodeKey, PinKey,
    ReqKey, RunKey, RunOwnerKey, RunTokenKey, UnitKey, UseKey,
};
use crate::refusal::Refusal;
use crate::view::View;

/// I1: every key of ours is of a known form and its record can be read.
pub(super) fn readable(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for kv in view.snapshot().iter() {
        if let Err(why) = read(kv) {
            note(found, "I1", String::from_utf8_lossy(&kv.key), why);
        }
    }
    Ok(())
}

fn read(kv: &KeyValue) -> Result<(), String> {
    let key = std::str::from_utf8(&kv.key).map_err(|_| "the key is not UTF-8".to_owned())?;
    let readers = [
        of::<NodeKey>,
        of::<NodeDrainKey>,
        of::<UnitKey>,
        of::<CopyKey>,
        of::<UseKey>,
        of::<PinKey>,
        of::<NameKey>,
        of::<ManifestKey>,
        of::<ReqKey>,
        of::<JarKey>,
        of::<RunKey>,
        of::<RunOwnerKey>,
        of::<RunTokenKey>,
        of::<JobKey>,
        of::<JobOwnerKey>,
        of::<JobCancelKey>,
    ];
    readers.iter().find_map(|reader| reader(key, kv)).unwrap_or_else(|| match key.starts_with("/icp/") {
        true => Err("not a key of a known kind".into()),
        // Other applications may keep keys beside ours.
        false => Ok(()),
    })
}

fn of<K: TypedKey>(key: &str, kv: &KeyValue) -> Option<Result<(), String>> {
    if !key.starts_with(K::PREFIX) {
        return None;
    }
    if K::decode(key).is_none() {
        return Some(Err(format!("not a key of the kind {}", K::PREFIX)));
    }
    Some(Stored::<K::Value>::read(kv).map(drop).map_err(|e| e.to_string()))
}
