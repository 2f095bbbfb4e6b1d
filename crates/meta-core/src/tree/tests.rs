//! The tree against `BTreeMap`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Tree, Weigh};

/// Weighs 0 or 1 like a deleted or a live key.
#[derive(Debug, Clone, PartialEq, Default)]
struct Item(u32);

impl Weigh for Item {
    fn weight(&self) -> u64 {
        u64::from(!self.0.is_multiple_of(3))
    }
}

type Naive = BTreeMap<u16, Item>;

fn check(tree: &Tree<u16, Item>, naive: &Naive, probe: u16) {
    let weight = |items: &mut dyn Iterator<Item = &Item>| items.map(Weigh::weight).sum::<u64>();
    assert_eq!(tree.weight(), weight(&mut naive.values()));
    assert_eq!(tree.rank(&probe), weight(&mut naive.range(..probe).map(|(_, v)| v)));
    assert_eq!(tree.get(&probe), naive.get(&probe));
    assert!(tree.ascend(Some(&probe)).eq(naive.range(probe..)));
    assert!(tree.descend(Some(&probe)).eq(naive.range(..probe).rev()));
    let live = naive.range(probe..).filter(|(_, v)| v.weight() > 0);
    assert!(tree.ascend(Some(&probe)).weighted().eq(live));
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u16, u32),
    Modify(u16, u32),
    Remove(u16),
    RemoveRange(u16, u16),
    Snapshot,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..900u16;
    let step = prop_oneof![
        8 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Step::Insert(k, v)),
        2 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Step::Modify(k, v)),
        4 => key.clone().prop_map(Step::Remove),
        1 => (key, 1..200u16).prop_map(|(k, n)| Step::RemoveRange(k, n)),
        1 => Just(Step::Snapshot),
    ];
    proptest::collection::vec(step, 1..1200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn it_is_a_map_with_ranks_and_frozen_clones(steps in steps()) {
        let mut tree = Tree::new();
        let mut naive = Naive::new();
        let mut kept = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(k, v) => {
                    let old = tree.alter(&k, |item| std::mem::replace(item, Item(v)));
                    assert_eq!(old, naive.insert(k, Item(v)).unwrap_or_default());
                }
                Step::Modify(k, v) => {
                    let there = tree.modify(&k, |item| item.0 = v).is_some();
                    assert_eq!(there, naive.get_mut(&k).map(|item| item.0 = v).is_some());
                }
                Step::Remove(k) => assert_eq!(tree.remove(&k), naive.remove(&k)),
                Step::RemoveRange(k, n) => {
                    for k in k..k + n {
                        assert_eq!(tree.remove(&k), naive.remove(&k));
                    }
                }
                Step::Snapshot if kept.len() < 4 => kept.push((tree.clone(), naive.clone())),
                Step::Snapshot => {}
            }
            if n % 50 == 0 {
                check(&tree, &naive, (n as u16 * 37) % 900);
            }
        }
        check(&tree, &naive, 450);
        for (tree, naive) in &kept {
            check(tree, naive, 333);
        }
        let built = Tree::from_sorted(naive.iter().map(|(k, v)| (*k, v.clone())));
        check(&built, &naive, 77);
    }
}
