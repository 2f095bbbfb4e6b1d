//! How far a package is from being usable on the nodes somebody waits for: what `icp wait` looks at.

use std::str::FromStr;

use super::publish::required;
use crate::keys::{CopyKey, UnitKey};
use crate::names::{UnitId, check_node};
use crate::nodes;
use crate::record::{CopyState, NodeRef, Policy, Unit, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// The nodes somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Every target that lives, as a create with this policy counts them.
    All,
    /// More than half of the targets that live.
    Majority,
    /// Exactly these, targets or not.
    Named(Vec<String>),
}

impl FromStr for Wanted {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text {
            "all" => Ok(Self::All),
            "majority" => Ok(Self::Majority),
            names => {
                let names: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
                names.iter().try_for_each(|name| check_node(name))?;
                Ok(Self::Named(names))
            }
        }
    }
}

/// How it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is no such package.
    Absent,
    /// READY, and PRESENT on as many of the wanted nodes as needed.
    Usable {
        /// Those nodes.
        on: Vec<String>,
    },
    /// Not yet.
    Waiting {
        /// The package's operation: another one later is another package.
        op: String,
        /// The package's state.
        state: UnitState,
        /// Wanted nodes that have it.
        present: usize,
        /// How many must.
        needed: usize,
        /// The others, and how each stands.
        missing: Vec<(String, String)>,
    },
    /// It never will be: it is being removed, or its create failed.
    Over {
        /// Why.
        why: String,
    },
}

/// How a package stands. Scope: [`crate::Scope::package`].
pub fn standing(view: &View, unit: &UnitId, wanted: &Wanted) -> Result<Standing, Refusal> {
    let Some(found) = view.get(&UnitKey::new(unit))? else { return Ok(Standing::Absent) };
    let reason = || found.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    match found.state {
        UnitState::Purging if found.aborted => {
            return Ok(Standing::Over { why: format!("the create of {unit} failed{}", reason()) });
        }
        UnitState::Removing | UnitState::Purging => {
            return Ok(Standing::Over { why: format!("{unit} is being removed{}", reason()) });
        }
        UnitState::Creating | UnitState::Ready => {}
    }
    let (nodes, needed) = match wanted {
        Wanted::All => targets(view, &found, Policy::All)?,
        Wanted::Majority => targets(view, &found, Policy::Majority)?,
        Wanted::Named(names) => (names.clone(), names.len()),
    };
    let (mut on, mut missing) = (Vec::new(), Vec::new());
    for node in nodes {
        match stands_at(view, unit, &found, &node)? {
            None => on.push(node),
            Some(how) => missing.push((node, how)),
        }
    }
    if found.state == UnitState::Ready && on.len() >= needed {
        return Ok(Standing::Usable { on });
    }
    Ok(Standing::Waiting { op: found.op.clone(), state: found.state, present: on.len(), needed, missing })
}

/// Names among the wanted ones that mean nothing to the cluster: no live node, no target, no row.
/// Scope: [`crate::Scope::package`].
pub fn unknown_nodes(view: &View, unit: &UnitId, wanted: &Wanted) -> Result<Vec<String>, Refusal> {
    let Wanted::Named(names) = wanted else { return Ok(Vec::new()) };
    let found = view.get(&UnitKey::new(unit))?;
    let mut unknown = Vec::new();
    for name in names {
        let is_target = found.as_ref().is_some_and(|found| found.targets.contains(name));
        let has_row = view.get(&CopyKey::new(unit, name))?.is_some();
        if !is_target && !has_row && !nodes::is_server(view, name)? {
            unknown.push(name.clone());
        }
    }
    Ok(unknown)
}

/// The targets that live, and how many of them must have it; one at least, so that nobody is told "on all of none".
fn targets(view: &View, found: &Unit, policy: Policy) -> Result<(Vec<String>, usize), Refusal> {
    let mut live = Vec::new();
    for target in &found.targets {
        if nodes::current(view, target)?.is_some() {
            live.push(target.clone());
        }
    }
    let needed = required(policy, live.len());
    Ok((live, needed))
}

/// `None` if the node has it; else how it stands there.
fn stands_at(view: &View, unit: &UnitId, found: &Unit, node: &String) -> Result<Option<String>, Refusal> {
    let row = view.get(&CopyKey::new(unit, node))?.filter(|row| row.op == found.op);
    let Some(row) = row else {
        let lives = nodes::current(view, node)?.is_some();
        return Ok(Some(match (lives, found.targets.contains(node)) {
            (false, _) => "not alive".to_owned(),
            (true, true) => "waiting".to_owned(),
            (true, false) => format!("no target: metactl icp pull {unit} --node {node} brings it there"),
        }));
    };
    let writer = NodeRef { node: node.clone(), incarnation: row.incarnation };
    if !nodes::is_alive(view, &writer)? {
        return Ok(Some("not alive, or started anew a moment ago".to_owned()));
    }
    let why = row.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    Ok(match row.state {
        CopyState::Present => None,
        CopyState::Fetching => Some("FETCHING".to_owned()),
        CopyState::Failed => Some(format!("FAILED{why}")),
        CopyState::Draining => Some("DRAINING".to_owned()),
        CopyState::Corrupt => Some(format!("CORRUPT{why}")),
    })
}
