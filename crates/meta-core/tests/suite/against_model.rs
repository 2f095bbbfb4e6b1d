//! Random sequences of everything, compared with the naive model step by step; checkpoints taken in between are
//! read back, fed the rest of the log, and must have become the same state.

use bytes::Bytes;
use meta_core::{Core, Frozen, Record};
use meta_types::{
    Batch, Command, KeyRange, LeaseStamp, Op, Origin, RangeRequest, Refusal, Sequenced, Txn, codec,
};
use proptest::prelude::*;

use crate::model::Model;
use crate::rig::{Rig, replay};
use crate::strategies::{command, lease, range_request, txn};

#[derive(Debug, Clone)]
enum Step {
    /// Fresh commands, with lease time moved on by so much.
    Propose(Vec<Command>, Option<u64>),
    /// A stamp of another term must be ignored.
    ForeignStamp(u64),
    /// The n-th batch from the end is proposed again.
    Again(usize),
    /// Everything is settled up to so many numbers back.
    Settle(u64),
    /// The member boots anew.
    Reboot,
    /// Its boot before the last one is heard of once more.
    Late(bool),
    Elect,
    Skip,
    Range(RangeRequest),
    ReadTxn(Txn),
    History(i64, usize),
    ExpireDue,
    Lease(i64),
    Freeze,
    Export(usize),
    Sweep(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let commands = proptest::collection::vec(command(), 1..4);
    prop_oneof![
        30 => (commands, prop::option::of(0..2500u64)).prop_map(|(c, t)| Step::Propose(c, t)),
        1 => (0..9_000u64).prop_map(Step::ForeignStamp),
        3 => (0..6usize).prop_map(Step::Again),
        2 => (0..5u64).prop_map(Step::Settle),
        1 => Just(Step::Reboot),
        1 => any::<bool>().prop_map(Step::Late),
        1 => Just(Step::Elect),
        1 => Just(Step::Skip),
        20 => range_request().prop_map(Step::Range),
        4 => txn(true).prop_map(Step::ReadTxn),
        4 => (0..30i64, 1..8usize).prop_map(|(from, max)| Step::History(from, max)),
        2 => Just(Step::ExpireDue),
        2 => lease().prop_map(Step::Lease),
        2 => Just(Step::Freeze),
        4 => (1..900usize).prop_map(Step::Export),
        1 => (0..4usize).prop_map(Step::Sweep),
    ]
}

/// A pin, what the model was then, and the records that are out.
struct Pinned {
    frozen: Frozen,
    model: Model,
    records: Vec<Record>,
}

struct Pair {
    rig: Rig,
    model: Model,
    time_ms: u64,
    boots: u64,
    pinned: Option<Pinned>,
}

impl Pair {
    fn new() -> Self {
        let rig = Rig::new();
        let mut model = Model::new();
        if let (at, Some(batch)) = &rig.log[0] {
            model.apply(*at, batch);
        }
        Self { rig, model, time_ms: 0, boots: 100, pinned: None }
    }

    /// Revisions come counted back from the head.
    fn revision(&self, back: i64) -> i64 {
        if back == i64::MAX { 0 } else { self.model.revision + 1 - back }
    }

    fn turn(&self, mut request: RangeRequest) -> RangeRequest {
        request.revision = self.revision(request.revision);
        request
    }

    fn turn_txn(&self, mut txn: Txn) -> Txn {
        for op in txn.success.iter_mut().chain(&mut txn.failure) {
            if let Op::Range(request) = op {
                *request = self.turn(request.clone());
            }
        }
        txn
    }

    fn turn_command(&self, command: Command) -> Command {
        match command {
            Command::Compact(back) => Command::Compact(self.revision(back)),
            Command::Txn(txn) => Command::Txn(self.turn_txn(txn)),
            Command::LeaseExpire { term, ids } => Command::LeaseExpire { term: self.rig.term - term, ids },
            other => other,
        }
    }

    fn apply(&mut self, batch: Batch) {
        let at = self.rig.next_position();
        // What is applied went through the codec, as in the log.
        let bytes = codec::encode(1, &batch).unwrap();
        assert_eq!(codec::decode::<Batch>(1, &bytes).unwrap(), batch);
        let expected = self.model.apply(at, &batch);
        assert_eq!(self.rig.apply(batch), expected);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Propose(commands, advance) => {
                self.time_ms += advance.unwrap_or(0);
                let commands = commands.into_iter().map(|command| self.turn_command(command)).collect();
                let batch = self.rig.batch(commands, advance.map(|_| self.time_ms));
                self.apply(batch);
            }
            Step::ForeignStamp(ms) => {
                let mut batch = self.rig.batch(vec![Command::LeaseTick], None);
                batch.stamp = Some(LeaseStamp { term: self.rig.term - 1, lease_time_ms: self.time_ms + ms });
                self.apply(batch);
            }
            Step::Again(back) => {
                let before = self.rig.log.iter().rev().filter_map(|(_, batch)| batch.clone()).nth(back);
                before.into_iter().for_each(|batch| self.apply(batch));
            }
            Step::Settle(back) => {
                self.rig.low_water = self.rig.low_water.max(self.rig.next_seq.saturating_sub(back));
            }
            Step::Reboot => {
                self.boots += 1;
                self.rig.origin.boot = self.boots;
                (self.rig.next_seq, self.rig.low_water) = (1, 1);
                let batch = self.rig.batch(vec![Command::RegisterOrigin], None);
                self.apply(batch);
            }
            Step::Late(registers) => self.late(registers),
            Step::Elect => self.rig.term += 1,
            Step::Skip => self.rig.skip(),
            Step::ExpireDue => {
                let ids = self.rig.core.due_leases(10);
                let term = self.rig.term;
                let batch = self.rig.batch(vec![Command::LeaseExpire { term, ids }], Some(self.time_ms));
                self.apply(batch);
            }
            Step::Freeze if self.pinned.is_none() => {
                let frozen = self.rig.core.freeze();
                self.pinned = Some(Pinned { frozen, model: self.model.clone(), records: Vec::new() });
            }
            Step::Freeze => {}
            Step::Export(bytes) => self.export(bytes),
            Step::Sweep(budget) => {
                self.rig.core.sweep(budget);
            }
            read => self.read(read),
        }
    }

    fn late(&mut self, registers: bool) {
        let origin = Origin { member: 1, boot: self.boots.saturating_sub(1).max(99) };
        let command = if registers { Command::RegisterOrigin } else { Command::LeaseTick };
        let commands = vec![Sequenced { seq: 1, command }];
        // Boot 99 never registered: it may only be heard of, or it would take over.
        if origin.boot > 99 || !registers {
            self.apply(Batch { origin, low_water: 1, stamp: None, commands });
        }
    }

    fn read(&self, step: Step) {
        let core = &self.rig.core;
        match step {
            Step::Range(request) => {
                let request = self.turn(request);
                let expected = if request.range.key.is_empty() {
                    Err(Refusal::EmptyKey)
                } else {
                    self.model.check_revision(request.revision).map(|()| self.model.range(&request))
                };
                assert_eq!(core.range(&request), expected, "{request:?}");
            }
            Step::ReadTxn(txn) => {
                let txn = self.turn_txn(txn);
                let command = Command::Txn(txn.clone());
                let mut origins = self.model.clone();
                let seq = self.rig.next_seq;
                let batch = Batch {
                    origin: self.rig.origin,
                    low_water: 1,
                    stamp: None,
                    commands: vec![Sequenced { seq, command }],
                };
                let applied = origins.apply(self.rig.next_position(), &batch);
                let expected = applied.outcomes[0].1.result.clone();
                assert_eq!(core.read_txn(&txn).map(meta_types::Response::Txn), expected, "{txn:?}");
            }
            Step::History(back, max) => {
                let from = self.revision(back);
                let found = core.history(from, max);
                let all = self.model.history(from);
                if let (Ok(found), Ok(all)) = (&found, &all) {
                    assert_eq!(found[..], all[..found.len()]);
                    assert_eq!(found.is_empty(), all.is_empty());
                    let events: usize = found.iter().map(|revision| revision.events.len()).sum();
                    assert!(found.len() <= 1 || events <= max);
                } else {
                    assert_eq!(found, all);
                }
            }
            Step::Lease(id) => {
                let expected = self.model.leases.get(&id).map(|(ttl_s, expiry)| meta_core::LeaseInfo {
                    id,
                    ttl_s: *ttl_s,
                    remaining_ms: expiry.saturating_sub(self.model.time_ms),
                    keys: self.model.lease_keys(id),
                });
                assert_eq!(core.lease(id), expected);
            }
            other => unreachable!("{other:?} is not a read"),
        }
    }

    fn export(&mut self, bytes: usize) {
        let Some(mut pinned) = self.pinned.take() else { return };
        let records = self.rig.core.export_step(&mut pinned.frozen, bytes);
        if !records.is_empty() {
            pinned.records.extend(records);
            self.pinned = Some(pinned);
            return;
        }
        assert_eq!(pinned.frozen.is_sound(), Some(true));
        let mut restored = Core::import(pinned.records.iter().cloned()).unwrap();
        same(&restored, &pinned.model);
        assert_eq!(restored.state_hash(), pinned.frozen.state_hash());
        replay(&mut restored, &self.rig.log);
        // From here on the restored one is tested.
        self.rig.core = restored;
    }
}

/// Everything that can be asked about the state as a whole.
fn same(core: &Core, model: &Model) {
    assert_eq!(core.revision(), model.revision);
    assert_eq!(core.compact_revision(), model.compact.max(0));
    assert_eq!(core.state_hash(), core.recompute_hash());
    assert_eq!(core.live_bytes(), model.live_bytes());
    assert_eq!(core.lease_time_ms(), model.time_ms);
    assert_eq!(core.leases(), model.leases.keys().copied().collect::<Vec<_>>());
    assert_eq!(core.cluster(), model.cluster.as_ref());
    let everything = KeyRange::prefix(Bytes::new());
    for revision in model.compact.max(1)..=model.revision {
        let request = RangeRequest { range: everything.clone(), revision, ..RangeRequest::default() };
        assert_eq!(core.range(&request).unwrap(), model.range(&request));
    }
    let from = model.compact.max(0);
    assert_eq!(core.history(from, usize::MAX), model.history(from));
}

/// What old versions, tombstones and events take, told from the model.
fn history_bytes(model: &Model) -> u64 {
    let size = |kv: &meta_types::KeyValue| (kv.key.len() + kv.value.len()) as u64;
    let mut bytes = 0;
    for (n, kv) in model.versions.iter().enumerate() {
        let next = model.versions[n + 1..].iter().find(|later| later.key == kv.key);
        let readable = next.is_none_or(|next| next.mod_revision > model.compact);
        let remembered = kv.mod_revision >= model.compact;
        if kv.version == 0 && remembered || kv.version > 0 && next.is_some() && readable {
            bytes += size(kv) + 160;
        }
        bytes += if remembered { 96 } else { 0 };
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_core_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..140)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            prop_assert_eq!(pair.rig.core.state_hash(), pair.rig.core.recompute_hash());
        }
        same(&pair.rig.core, &pair.model);
        while !pair.rig.core.sweep(3) {}
        same(&pair.rig.core, &pair.model);
        prop_assert_eq!(pair.rig.core.history_bytes(), history_bytes(&pair.model));

        // Another replica that is fed the whole log is the same.
        let mut other = Core::new();
        replay(&mut other, &pair.rig.log);
        prop_assert_eq!(other.state_hash(), pair.rig.core.state_hash());
        prop_assert_eq!(other.applied(), pair.rig.core.applied());

        // And so is one that starts from a checkpoint of the end.
        let mut frozen = other.freeze();
        let records: Vec<Record> = std::iter::from_fn(|| Some(frozen.step(64)).filter(|out| !out.is_empty())).flatten().collect();
        let restored = Core::import(records.into_iter()).unwrap();
        same(&restored, &pair.model);
        while !other.sweep(1000) {}
        prop_assert_eq!(restored.history_bytes(), other.history_bytes());
    }
}
