//! The domain's invariants over the records of one revision (P3, P4, P5), and over a step from one to the next.
//!
//! Source: `records::invariants`, I1 to I18 and S1 to S4; DESIGN sections 1, 6 and 7.

use records::View;
use records::invariants::{invariants, step_violations};

use super::step::{Invariant, Step};

/// The last records looked at.
#[derive(Default)]
pub struct RecordRules {
    last: Option<View>,
}

impl Invariant for RecordRules {
    fn name(&self) -> &'static str {
        "records"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for view in &step.view.records {
            let revision = view.revision();
            let mut broken = invariants(view);
            if let Some(last) = self.last.take().filter(|last| last.revision() + 1 == revision) {
                broken.extend(step_violations(&last, view));
            }
            found.extend(broken.into_iter().map(|violation| format!("at revision {revision}: {violation}")));
            self.last = Some(view.clone());
        }
    }
}
