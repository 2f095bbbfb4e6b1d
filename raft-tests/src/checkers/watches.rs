//! What a watch promises, for every watch and against the replay.
//!
//! Source: etcd, "KV API guarantees" (ordered, unique, reliable, atomic, resumable, bookmarkable) and the watch
//! validation of its robustness tests, which adds that events are filtered and carry the right previous version and
//! the right mark of creation. Each promise is a finding of its own:
//!
//! | name | broken when |
//! |---|---|
//! | filterable | an event is of a key outside of the range |
//! | ordered | an event is of a lower revision than one before it |
//! | unique | a key's event of a revision comes twice |
//! | atomic | a revision is spread over several responses |
//! | reliable | an event in between is left out, made up or changed |
//! | resumable | an event is of a revision before the first asked for, or the first asked for is left out |
//! | bookmarkable | a response says "all up to r" while an event up to r has not come |
//! | prev-kv | the previous version is not the one before, or was not asked for |
//! | is-create | an event looks like a creation and is not, or the reverse |
//! | watch-compacted | a watch ends as compacted although the history it needs is there |
//! | watch-complete | at the end, with everything healed, an event has not come |

use std::time::Duration;

use meta_types::{Event, EventKind, KeyRange, Revision};

use super::replay::Replay;
use super::{Finding, Findings};
use crate::history::{History, WatchHistory, WatchWord};

/// What is known of the end of the seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct WatchRules {
    /// True if watches that did not end had the time to deliver everything.
    pub has_all: bool,
}

/// Checks every watch.
pub fn watches(replay: &Replay, history: &History, rules: WatchRules) -> Vec<Finding> {
    let mut findings = Findings::of("watch");
    for watch in &history.watches {
        let Some(first) = watch.first_revision() else { continue };
        let mut follow = Follow {
            replay,
            watch,
            findings: &mut findings,
            due: expected(replay, &watch.request.range, first),
            next: 0,
            position: first - 1,
            last: None,
        };
        follow.run(rules);
    }
    findings.into_vec()
}

/// What a watch has to deliver from a revision on.
fn expected<'a>(replay: &'a Replay, range: &KeyRange, first: Revision) -> Vec<&'a Event> {
    let events = replay.events_from(first).flat_map(|events| events.events.iter());
    events.filter(|event| range.contains(&event.kv.key)).collect()
}

/// One watch being followed.
struct Follow<'a, 'b> {
    replay: &'a Replay,
    watch: &'a WatchHistory,
    findings: &'b mut Findings,
    /// Everything to be delivered.
    due: Vec<&'a Event>,
    /// How much of it has been.
    next: usize,
    /// Everything up to here has been delivered, says the watch.
    position: Revision,
    /// The last event's revision, and the number of the response it came in.
    last: Option<(Revision, usize)>,
}

impl Follow<'_, '_> {
    fn run(&mut self, rules: WatchRules) {
        let mut ended = false;
        for (number, response) in self.watch.responses.iter().enumerate() {
            match &response.word {
                WatchWord::Events { revision, events } => {
                    for event in events {
                        self.event(event, number, response.at);
                    }
                    self.bookmark(*revision, response.at);
                }
                WatchWord::Progress { revision } => self.bookmark(*revision, response.at),
                WatchWord::Compacted { compact_revision } => {
                    self.compacted(*compact_revision, response.at);
                    ended = true;
                }
                WatchWord::Ended(_) => ended = true,
            }
        }
        if rules.has_all && !ended && self.watch.created.is_some() && self.next < self.due.len() {
            let text = format!(
                "{} of {} events never came, first {:?}",
                self.due.len() - self.next,
                self.due.len(),
                self.due[self.next]
            );
            self.note("watch-complete", None, text);
        }
    }

    fn note(&mut self, name: &'static str, at: Option<Duration>, text: String) {
        let WatchHistory { client, asked, request, .. } = self.watch;
        let text = format!("watch of {client}, asked at {asked:?} for {request:?}: {text}");
        self.findings.add_as(name, at, text);
    }

    fn event(&mut self, event: &Event, number: usize, at: Duration) {
        let revision = event.kv.mod_revision;
        if !self.watch.request.range.contains(&event.kv.key) {
            self.note("filterable", Some(at), format!("{event:?} is of another key"));
            return;
        }
        if self.watch.first_revision().is_some_and(|first| revision < first) {
            self.note("resumable", Some(at), format!("{event:?} is before what was asked for"));
            return;
        }
        match self.last {
            Some((last, _)) if revision < last => {
                self.note("ordered", Some(at), format!("{event:?} came after revision {last}"));
            }
            Some((last, response)) if revision == last && response != number => {
                self.note("atomic", Some(at), format!("revision {revision} is spread over responses"));
            }
            _ => {}
        }
        self.last = Some((self.last.map_or(revision, |(last, _)| last.max(revision)), number));
        self.take(event, at);
    }

    /// Finds the event among those that are due.
    fn take(&mut self, event: &Event, at: Duration) {
        let revision = event.kv.mod_revision;
        let from = self.due.partition_point(|due| due.kv.mod_revision < revision);
        let mut alike =
            (from..self.due.len()).take_while(|place| self.due[*place].kv.mod_revision == revision);
        let Some(place) = alike.find(|place| self.due[*place].kv.key == event.kv.key) else {
            self.note("reliable", Some(at), format!("{event:?} never happened"));
            return;
        };
        let due = self.due[place];
        if place < self.next {
            self.note("unique", Some(at), format!("{event:?} came before"));
        } else if place > self.next {
            let name = if self.next == 0 { "resumable" } else { "reliable" };
            self.note(name, Some(at), format!("{event:?} came without {:?}", self.due[self.next]));
        }
        self.next = self.next.max(place + 1);
        self.content(event, due, at);
    }

    fn content(&mut self, event: &Event, due: &Event, at: Duration) {
        let is_create =
            |event: &Event| event.kind == EventKind::Put && event.kv.create_revision == event.kv.mod_revision;
        if is_create(event) != is_create(due) || event.kv.version != due.kv.version {
            self.note("is-create", Some(at), format!("{event:?}, it was {due:?}"));
        } else if event.kind != due.kind || event.kv != due.kv {
            self.note("reliable", Some(at), format!("{event:?}, it was {due:?}"));
        }
        let wanted = due.prev.as_ref().filter(|_| self.watch.request.prev_kv);
        // A compaction to the event's revision or above takes what was before it.
        let may_be_gone = self.replay.compacted() >= event.kv.mod_revision && event.prev.is_none();
        if event.prev.as_ref() != wanted && !may_be_gone {
            self.note("prev-kv", Some(at), format!("{event:?}, before it was {wanted:?}"));
        }
    }

    fn bookmark(&mut self, revision: Revision, at: Duration) {
        if let Some(missing) = self.due.get(self.next).filter(|due| due.kv.mod_revision <= revision) {
            self.note("bookmarkable", Some(at), format!("all up to {revision}, but without {missing:?}"));
        }
        if self.last.is_some_and(|(last, _)| revision < last) || revision > self.replay.revision() {
            self.note(
                "bookmarkable",
                Some(at),
                format!("position {revision} after events of {:?}", self.last),
            );
        }
        self.position = self.position.max(revision);
    }

    fn compacted(&mut self, compact_revision: Revision, at: Duration) {
        if compact_revision > self.replay.compacted() {
            let text = format!("ended as compacted to {compact_revision}, to which nobody compacted");
            self.note("watch-compacted", Some(at), text);
        } else if self.position + 1 >= compact_revision {
            let text = format!("ended as compacted to {compact_revision} having reached {}", self.position);
            self.note("watch-compacted", Some(at), text);
        }
    }
}
