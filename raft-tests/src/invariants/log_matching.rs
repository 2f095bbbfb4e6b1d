//! Two logs that have an entry with the same index and term are equal up to it.
//!
//! Source: the Raft paper, figure 3, Log Matching, and section 5.3. By induction it is enough that each entry equals
//! every other of its index and term and follows one of the same term: so each entry is looked at once, when it
//! comes into a log.

use std::collections::BTreeMap;

use super::step::{Invariant, Step};

/// Checksum and the term before, of each index and term seen.
#[derive(Default)]
pub struct LogMatching {
    seen: BTreeMap<(u64, u64), (u32, u64)>,
}

impl Invariant for LogMatching {
    fn name(&self) -> &'static str {
        "log-matching"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for (replica, changed) in step.changed {
            for came in &changed.effects.came {
                let (index, term) = (came.mark.index, came.mark.term);
                let first = *self.seen.entry((index, term)).or_insert((came.mark.crc, came.before));
                if first.0 != came.mark.crc {
                    found.push(format!(
                        "{replica} has another entry {index} of term {term} than was seen first"
                    ));
                } else if first.1 != came.before {
                    found.push(format!(
                        "{replica} has entry {index} of term {term} after one of term {}, others of term {}",
                        came.before, first.1
                    ));
                }
                if came.before > term {
                    found.push(format!(
                        "{replica} has entry {index} of term {term} after term {}",
                        came.before
                    ));
                }
            }
        }
    }
}
