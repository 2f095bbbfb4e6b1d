//! A READY package that has fewer copies than its policy asks for, because nodes went away for good, gets new ones.

use meta_client::TypedKey;

use super::publish::required;
use crate::keys::{CopyKey, below};
use crate::names::UnitId;
use crate::nodes;
use crate::record::{CopyState, Unit, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// Nodes that are to fetch the package though nobody named them its targets: as many as its policy lacks. Every node
/// comes to the same answer by itself. A row counts until its node's grace is over and it is deleted, so that a node
/// that only starts anew causes nothing; a node that failed is passed over. A package that no row speaks of is LOST:
/// nobody could give it. Scope: [`crate::Scope::package`].
pub fn substitutes(view: &View, unit: &UnitId, found: &Unit) -> Result<Vec<String>, Refusal> {
    if found.state != UnitState::Ready {
        return Ok(Vec::new());
    }
    let mut rows = view.under::<CopyKey>(&below(CopyKey::PREFIX, unit))?;
    rows.retain(|(_, copy)| copy.op == found.op);
    let copies = rows.iter().filter(|(_, copy)| counts(copy.state)).count();
    let lacking = required(found.policy, found.targets.len()).saturating_sub(copies);
    if copies == 0 || lacking == 0 {
        return Ok(Vec::new());
    }
    let mut others: Vec<String> = nodes::live_servers(view)?.into_iter().map(|(of, _)| of.node).collect();
    others.retain(|node| !rows.iter().any(|(key, _)| key.node == *node));
    // Not the same node for every package.
    others.sort_by_key(|node| rank(&found.op, node));
    others.truncate(lacking);
    Ok(others)
}

/// Whether a row is of a copy that is there or on its way.
const fn counts(state: CopyState) -> bool {
    match state {
        CopyState::Present | CopyState::Fetching | CopyState::Draining | CopyState::Corrupt => true,
        CopyState::Failed => false,
    }
}

/// FNV-1a of operation and node: the same in every version of this program.
fn rank(op: &str, node: &str) -> u64 {
    let bytes = op.bytes().chain(node.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
