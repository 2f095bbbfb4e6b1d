//! Random histories of the naive store: many clients at once, calls that are never answered, leases, compactions.

use std::time::Duration;

use meta_types::{Compare, DeleteRangeRequest, KeyRange, Op, PutRequest, RangeRequest, Txn};
use proptest::prelude::*;

use super::story::{Story, get, list, put, swap};
use crate::history::{Input, Outcome};

/// What chance decides, in order. Once it is used up the story ends.
struct Chance<'a>(std::slice::Iter<'a, u16>);

impl Chance<'_> {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> Option<u64> {
        self.0.next().map(|drawn| u64::from(*drawn) % bound)
    }
}

/// A client: idle, or waiting for a call, with what the store answers once it was carried out.
type Client = Option<(usize, Option<Outcome>)>;

const CLIENTS: u64 = 5;

/// A story of which every step was drawn.
pub fn story(drawn: &[u16]) -> Story {
    let mut chance = Chance(drawn.iter());
    let mut story = Story::new();
    let mut clients: Vec<Client> = vec![None; CLIENTS as usize];
    let watches = [story.watch(90, "", 0), story.watch(91, "k/", 2)];
    let mut late = Vec::new();
    while step(&mut story, &mut clients, &mut late, &mut chance).is_some() {}
    // What the store still does after everybody left.
    for at in late {
        story.carry_out(at);
    }
    story.pass(1);
    watches.into_iter().for_each(|watch| story.deliver(watch));
    story
}

fn step(
    story: &mut Story,
    clients: &mut [Client],
    late: &mut Vec<usize>,
    chance: &mut Chance<'_>,
) -> Option<()> {
    let who = chance.below(CLIENTS)?;
    match chance.below(10)? {
        0 => story.live(500 * chance.below(4)?),
        1 => story.pass(1),
        2 => drop(story.does(50 + who, list(""))),
        _ => {}
    }
    let client = &mut clients[who as usize];
    *client = match client.take() {
        None => Some((story.call(who, input(story, chance)?), None)),
        // Some calls are not carried out: ever, or until their client has given up.
        Some((at, None)) => match chance.below(12)? {
            0 => None,
            1 => {
                late.push(at);
                None
            }
            _ => {
                let outcome = story.carry_out(at);
                Some((at, Some(outcome)))
            }
        },
        Some((at, Some(outcome))) => {
            if chance.below(10)? > 0 {
                story.ret(at, outcome);
            }
            None
        }
    };
    Some(())
}

fn input(story: &Story, chance: &mut Chance<'_>) -> Option<Input> {
    let key = format!("k/{}", chance.below(4)?);
    // Values are unique: the number of the call.
    let value = story.history.operations.len().to_string();
    let revision = story.revision();
    let one = KeyRange::one(key.clone());
    Some(match chance.below(13)? {
        0..=2 => put(&key, &value),
        3 => Input::Put(PutRequest {
            key: key.into(),
            value: value.into(),
            lease: 1 + chance.below(3)? as i64,
            prev_kv: true,
            ..PutRequest::default()
        }),
        4 => Input::DeleteRange(DeleteRangeRequest { range: one, prev_kv: chance.below(2)? == 0 }),
        5 => Input::DeleteRange(DeleteRangeRequest { range: KeyRange::prefix("k/"), prev_kv: true }),
        6 => swap(&key, revision - chance.below(2)? as i64, &value),
        7 => Input::Txn(Txn {
            compare: vec![Compare::absent(key.clone())],
            success: vec![Op::put(key, value), Op::Range(RangeRequest::prefix("k/"))],
            failure: vec![Op::delete(key_of(chance)?)],
        }),
        8 => get(&key),
        9 => Input::Range(RangeRequest { serializable: true, ..RangeRequest::get(key) }),
        10 => Input::LeaseGrant { id: 1 + chance.below(3)? as i64, ttl: Duration::from_secs(2) },
        11 => match chance.below(3)? {
            0 => Input::LeaseRevoke(1 + chance.below(3)? as i64),
            1 => Input::LeaseTimeToLive(1 + chance.below(3)? as i64),
            _ => Input::LeaseKeepAlive(1 + chance.below(3)? as i64),
        },
        _ => list("k/"),
    })
}

fn key_of(chance: &mut Chance<'_>) -> Option<String> {
    Some(format!("k/{}", chance.below(4)?))
}

/// What chance decides in a story of up to some hundred calls.
pub fn drawn() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 100..900)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn no_history_of_the_naive_store_is_faulty(drawn in drawn()) {
        let (figures, found) = story(&drawn).check();
        prop_assert_eq!(found, vec![]);
        prop_assert!(figures.operations > 0);
    }
}
