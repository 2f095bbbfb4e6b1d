//! What is true of the records at every revision, whoever crashed in between. Each invariant has a number and one
//! function; tests check them after every transaction, `metactl doctor` on a live cluster.
//!
//! | | |
//! |---|---|
//! | I1 | every key of ours is of a known form and its record can be read |
//! | I2 | a package's lower-case name is held by its exact name, and a held name has a package |
//! | I3 | a node's copy belongs to a package of the same operation |
//! | I4 | a running use is of a package of the same operation, on the lease of a node that lives |
//! | I5 | a pin is of a job that is not over, on a package of the same operation that is READY or REMOVING (P4) |
//! | I6 | a job that is not over has pinned each of its packages, those removed by force aside (P4) |
//! | I7 | a trigger id has made the one job that its run names, and no other since (P3) |
//! | I8 | a run has a result exactly when it is COMPLETED; until then its job's record is there |
//! | I9 | a run's owner lives and drives a run in progress |
//! | I10 | a job's owner owns a job that is not over, and lives or keeps an attempt of its epoch (P5) |
//! | I11 | a job that is over has an exit; one that is not has none |
//! | I12 | a wish to cancel is for a job that is not over |
//! | I13 | a deleted run is gone; a completed one is remembered as it ended (P3) |
//! | I14 | a READY package has content, and a manifest and its packages name each other |
//! | I15 | a boot owns no more parallelism than it has slots |
//! | I16 | a job's attempts are numbered up, one an epoch, each epoch newer; at most one if main() may start once (P5) |
//! | I17 | a started attempt of a live boot holds a use of each package on its node, those removed by force aside (P4) |
//! | I18 | main() restarts no more often than its strategy allows; a job that pauses has no owner and no place |

mod jobs;
mod packages;
mod runs;
mod shape;
mod step;

use std::fmt;

use crate::view::View;

pub use step::step_violations;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant: `I7`.
    pub invariant: &'static str,
    /// The key it was seen at.
    pub key: String,
    /// What is wrong, in one sentence.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.invariant, self.key, self.text)
    }
}

type Check = fn(&View, &mut Vec<Violation>) -> Result<(), crate::Refusal>;

/// Every invariant, with its number.
const CHECKS: [(&str, Check); 18] = [
    ("I1", shape::readable),
    ("I2", packages::names),
    ("I3", packages::copies),
    ("I4", packages::uses),
    ("I5", packages::pins),
    ("I6", jobs::pinned),
    ("I7", runs::one_job),
    ("I8", runs::results),
    ("I9", runs::owners),
    ("I10", jobs::owners),
    ("I11", jobs::exits),
    ("I12", jobs::cancels),
    ("I13", runs::tokens),
    ("I14", packages::manifests),
    ("I15", jobs::slots),
    ("I16", jobs::attempts),
    ("I17", jobs::uses),
    ("I18", jobs::restarts),
];

/// Everything that is wrong. Scope: [`crate::Scope::everything`].
pub fn invariants(view: &View) -> Vec<Violation> {
    let mut found = Vec::new();
    for (invariant, check) in CHECKS {
        if let Err(refusal) = check(view, &mut found) {
            found.push(Violation { invariant, key: String::new(), text: refusal.text });
        }
    }
    found
}

/// Notes a violation.
fn note(
    found: &mut Vec<Violation>,
    invariant: &'static str,
    key: impl Into<String>,
    text: impl Into<String>,
) {
    found.push(Violation { invariant, key: key.into(), text: text.into() });
}
