//! Drives the state machine: numbers commands and entries as a proposer and a log would.

use meta_core::{Applied, Core, EntryPosition};
use meta_types::{Batch, Command, LeaseStamp, Origin, Outcome, Refusal, Response, Sequenced};

/// A core with a log before it.
pub struct Rig {
    pub core: Core,
    pub log: Vec<(EntryPosition, Option<Batch>)>,
    pub origin: Origin,
    pub next_seq: u64,
    pub low_water: u64,
    pub term: u64,
}

impl Rig {
    /// An empty store with a registered origin.
    pub fn new() -> Self {
        let origin = Origin { member: 1, boot: 100 };
        let mut rig = Self { core: Core::new(), log: Vec::new(), origin, next_seq: 1, low_water: 1, term: 1 };
        assert_eq!(rig.ask(Command::RegisterOrigin), Ok(Response::Done));
        rig
    }

    /// A batch of fresh commands under the next numbers.
    pub fn batch(&mut self, commands: Vec<Command>, lease_time_ms: Option<u64>) -> Batch {
        let first = self.next_seq;
        self.next_seq += commands.len() as u64;
        let commands = (first..).zip(commands).map(|(seq, command)| Sequenced { seq, command }).collect();
        let stamp = lease_time_ms.map(|lease_time_ms| LeaseStamp { term: self.term, lease_time_ms });
        Batch { origin: self.origin, low_water: self.low_water, stamp, commands }
    }

    pub fn next_position(&self) -> EntryPosition {
        EntryPosition { index: self.log.len() as u64 + 1, term: self.term }
    }

    /// Appends and applies a batch.
    pub fn apply(&mut self, batch: Batch) -> Applied {
        let at = self.next_position();
        let applied = self.core.apply(at, &batch);
        self.log.push((at, Some(batch)));
        applied
    }

    /// Appends an entry without commands.
    pub fn skip(&mut self) {
        let at = self.next_position();
        self.core.skip(at);
        self.log.push((at, None));
    }

    /// Applies one command and gives its outcome.
    pub fn outcome(&mut self, command: Command) -> Outcome {
        let batch = self.batch(vec![command], None);
        let mut applied = self.apply(batch);
        assert_eq!(applied.outcomes.len(), 1);
        applied.outcomes.remove(0).1
    }

    /// Applies one command and gives its answer.
    pub fn ask(&mut self, command: Command) -> Result<Response, Refusal> {
        self.outcome(command).result
    }

    /// Lets lease time be `ms`.
    pub fn stamp(&mut self, ms: u64) {
        let batch = self.batch(vec![Command::LeaseTick], Some(ms));
        self.apply(batch);
    }
}

/// Feeds the rest of a log to a core.
pub fn replay(core: &mut Core, log: &[(EntryPosition, Option<Batch>)]) {
    let applied = core.applied();
    for (at, batch) in log.iter().filter(|(at, _)| applied.is_none_or(|applied| at.index > applied.index)) {
        match batch {
            Some(batch) => {
                core.apply(*at, batch);
            }
            None => core.skip(*at),
        }
    }
}
