//! The proposer's book: which commands are in flight, in which batch, and what is known of their fate. Pure.
//!
//! A command is *queued* or *in a batch*. It leaves the book when this replica applies it, when its caller stops
//! waiting, or when a checkpoint replaced the state it was on its way to. A batch that comes back puts what is left
//! of it into the queue again, under the same numbers; *doubtful* marks commands that some log may hold, so that
//! giving up on them is "unknown" and not "not carried out".

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use meta_types::Outcome;
use meta_types::limits::{MAX_BATCH_BYTES, MAX_BATCH_COMMANDS};
use tokio::sync::oneshot;

use crate::errors::NotSent;
use crate::options::ProposerOptions;

/// The number of the registration: an origin's first command.
pub(crate) const REGISTRATION: u64 = 1;

/// A command's answer: `None` if its entry was skipped by a checkpoint.
pub(crate) type Answer = Option<Outcome>;

struct Pending {
    command: Bytes,
    answer: Option<oneshot::Sender<Answer>>,
    batch: Option<u64>,
    doubtful: bool,
}

/// A batch to propose.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) number: u64,
    pub(crate) low_water: u64,
    pub(crate) commands: Vec<(u64, Bytes)>,
}

/// The book.
pub(crate) struct InFlight {
    limits: ProposerOptions,
    next_seq: u64,
    next_batch: u64,
    pending: BTreeMap<u64, Pending>,
    queued: BTreeSet<u64>,
    /// Commands left in each batch under way.
    batches: HashMap<u64, usize>,
    bytes: usize,
    /// The number of the registration while it is not applied.
    registration: Option<u64>,
}

impl InFlight {
    /// A new origin's book; `registration` is its first command, and goes alone.
    pub(crate) fn new(limits: ProposerOptions, registration: Bytes) -> Self {
        let first = Pending { command: registration, answer: None, batch: None, doubtful: false };
        Self {
            limits,
            next_seq: REGISTRATION + 1,
            next_batch: 1,
            pending: BTreeMap::from([(REGISTRATION, first)]),
            queued: BTreeSet::from([REGISTRATION]),
            batches: HashMap::new(),
            bytes: 0,
            registration: Some(REGISTRATION),
        }
    }

    /// Enters a command.
    pub(crate) fn add(&mut self, command: Bytes) -> Result<(u64, oneshot::Receiver<Answer>), NotSent> {
        if self.pending.len() >= self.limits.max_commands
            || self.bytes + command.len() > self.limits.max_bytes
        {
            return Err(NotSent::Overloaded);
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        self.bytes += command.len();
        let (answer, receiver) = oneshot::channel();
        self.pending.insert(seq, Pending { command, answer: Some(answer), batch: None, doubtful: false });
        self.queued.insert(seq);
        Ok((seq, receiver))
    }

    /// Every number below is settled.
    pub(crate) fn low_water(&self) -> u64 {
        self.pending.keys().next().copied().unwrap_or(self.next_seq)
    }

    /// The next batch, unless none is due: nothing queued, or enough under way.
    pub(crate) fn take(&mut self) -> Option<Taken> {
        if self.batches.len() >= self.limits.max_batches {
            return None;
        }
        let mut commands = Vec::new();
        let mut bytes = 0;
        while let Some(seq) = self.next_queued() {
            let command = &self.pending[&seq].command;
            let full = commands.len() == MAX_BATCH_COMMANDS || bytes + command.len() > MAX_BATCH_BYTES;
            if full && !commands.is_empty() {
                break;
            }
            bytes += command.len();
            commands.push((seq, command.clone()));
            self.queued.remove(&seq);
        }
        if commands.is_empty() {
            return None;
        }
        let number = self.next_batch;
        self.next_batch += 1;
        for (seq, _) in &commands {
            self.pending.get_mut(seq).expect("a queued command is pending").batch = Some(number);
        }
        self.batches.insert(number, commands.len());
        Some(Taken { number, low_water: self.low_water(), commands })
    }

    /// This replica applied a command of this origin.
    pub(crate) fn settle(&mut self, seq: u64, outcome: Outcome) {
        if self.registration == Some(seq) {
            self.registration = None;
        }
        if let Some(answer) = self.remove(seq).and_then(|pending| pending.answer) {
            // The caller may have stopped waiting in this moment.
            let _ = answer.send(Some(outcome));
        }
    }

    /// The caller stops waiting. True if the command may have been or may yet be carried out.
    pub(crate) fn give_up(&mut self, seq: u64) -> bool {
        self.remove(seq).is_some_and(|pending| pending.doubtful || pending.batch.is_some())
    }

    /// A batch came back unapplied; `doubtful` unless it certainly entered no log.
    pub(crate) fn returned(&mut self, number: u64, doubtful: bool) {
        if self.batches.remove(&number).is_none() {
            return;
        }
        for (seq, pending) in &mut self.pending {
            if pending.batch == Some(number) {
                pending.batch = None;
                pending.doubtful |= doubtful;
                self.queued.insert(*seq);
            }
        }
    }

    /// The leader changed: whatever is under way may be lost.
    pub(crate) fn all_returned(&mut self) {
        let numbers: Vec<u64> = self.batches.keys().copied().collect();
        for number in numbers {
            self.returned(number, true);
        }
    }

    /// A checkpoint replaced the state: an entry that was skipped will never be seen here.
    pub(crate) fn skipped(&mut self) {
        let unsure = |p: &Pending| p.doubtful || p.batch.is_some();
        let lost: Vec<u64> = self.pending.iter().filter(|(_, p)| unsure(p)).map(|(seq, _)| *seq).collect();
        for seq in lost {
            let Some(pending) = self.remove(seq) else { continue };
            if let Some(answer) = pending.answer {
                let _ = answer.send(None);
            } else {
                // The registration: doing it twice changes nothing, but a duplicate number would never be answered.
                let again = Pending { batch: None, doubtful: false, ..pending };
                self.pending.insert(self.next_seq, again);
                self.queued.insert(self.next_seq);
                self.registration = Some(self.next_seq);
                self.next_seq += 1;
            }
        }
    }

    /// Forgets everything: every caller hears that the replica stopped.
    pub(crate) fn close(&mut self) {
        self.pending.clear();
        self.queued.clear();
        self.batches.clear();
        self.bytes = 0;
        self.limits.max_commands = 0;
    }

    /// True after [`close`](Self::close).
    pub(crate) fn is_closed(&self) -> bool {
        self.limits.max_commands == 0
    }

    /// The next command to go: the registration goes first and alone, whatever its number.
    fn next_queued(&self) -> Option<u64> {
        match self.registration {
            Some(seq) => self.queued.contains(&seq).then_some(seq),
            None => self.queued.first().copied(),
        }
    }

    fn remove(&mut self, seq: u64) -> Option<Pending> {
        let pending = self.pending.remove(&seq)?;
        self.queued.remove(&seq);
        if pending.answer.is_some() {
            self.bytes -= pending.command.len();
        }
        if let Some(number) = pending.batch
            && let Some(left) = self.batches.get_mut(&number)
        {
            *left -= 1;
            if *left == 0 {
                self.batches.remove(&number);
            }
        }
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use meta_types::Response;

    use super::*;

    fn book(max_batches: usize) -> InFlight {
        let limits = ProposerOptions { max_commands: 10, max_bytes: 1000, max_batches };
        InFlight::new(limits, Bytes::from_static(b"register"))
    }

    fn done() -> Outcome {
        Outcome { revision: 1, result: Ok(Response::Done) }
    }

    fn seqs(taken: &Taken) -> Vec<u64> {
        taken.commands.iter().map(|(seq, _)| *seq).collect()
    }

    #[test]
    fn the_registration_goes_first_and_alone() {
        let mut book = book(2);
        let (seq, _rx) = book.add(Bytes::from_static(b"a")).unwrap();
        let first = book.take().unwrap();
        assert_eq!((seqs(&first), first.low_water), (vec![REGISTRATION], REGISTRATION));
        assert!(book.take().is_none(), "nothing goes before the registration is applied");
        book.settle(REGISTRATION, done());
        let second = book.take().unwrap();
        assert_eq!((seqs(&second), second.low_water), (vec![seq], seq));
    }

    #[test]
    fn commands_gather_while_enough_batches_are_under_way() {
        let mut book = book(1);
        book.take();
        book.settle(REGISTRATION, done());
        let (a, mut a_rx) = book.add(Bytes::from_static(b"a")).unwrap();
        assert_eq!(seqs(&book.take().unwrap()), [a]);
        let (b, _b) = book.add(Bytes::from_static(b"b")).unwrap();
        let (c, _c) = book.add(Bytes::from_static(b"c")).unwrap();
        assert!(book.take().is_none());
        book.settle(a, done());
        assert_eq!(a_rx.try_recv().unwrap(), Some(done()));
        assert_eq!(seqs(&book.take().unwrap()), [b, c]);
    }

    #[test]
    fn a_returned_batch_keeps_its_numbers_and_only_doubt_makes_it_unknown() {
        let mut book = book(1);
        book.take();
        book.settle(REGISTRATION, done());
        let (a, _a) = book.add(Bytes::from_static(b"a")).unwrap();
        let (b, _b) = book.add(Bytes::from_static(b"b")).unwrap();
        let number = book.take().unwrap().number;
        book.returned(number, false);
        assert!(!book.give_up(a), "certainly not appended");
        let again = book.take().unwrap();
        assert_eq!((seqs(&again), again.low_water), (vec![b], b));
        book.returned(again.number, true);
        assert!(book.give_up(b), "some log may hold it");
        assert_eq!(book.low_water(), b + 1);
    }

    #[test]
    fn a_checkpoint_makes_what_was_under_way_unknown_and_nothing_else() {
        let mut book = book(1);
        book.take();
        book.settle(REGISTRATION, done());
        let (_, mut sent) = book.add(Bytes::from_static(b"a")).unwrap();
        book.take();
        let (b, mut waiting) = book.add(Bytes::from_static(b"b")).unwrap();
        book.skipped();
        assert_eq!(sent.try_recv().unwrap(), None);
        assert!(waiting.try_recv().is_err());
        assert_eq!(seqs(&book.take().unwrap()), [b]);
    }

    #[test]
    fn a_registration_that_a_checkpoint_skipped_is_made_again_under_a_new_number() {
        let mut book = book(1);
        book.take();
        let (a, _a) = book.add(Bytes::from_static(b"a")).unwrap();
        book.skipped();
        let again = book.take().unwrap();
        assert_eq!((seqs(&again), again.low_water), (vec![a + 1], a));
        book.settle(a + 1, done());
        assert_eq!(seqs(&book.take().unwrap()), [a]);
    }

    #[test]
    fn the_book_is_bounded_and_frees_what_leaves() {
        let mut book = book(1);
        let (big, _rx) = book.add(vec![0; 990].into()).unwrap();
        assert_eq!(book.add(vec![0; 20].into()).unwrap_err(), NotSent::Overloaded);
        assert!(!book.give_up(big));
        assert!(book.add(vec![0; 20].into()).is_ok());
    }
}
