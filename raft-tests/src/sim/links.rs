//! The links between hosts, as the faults that are on want them. Faults overlap; this keeps count and tells the
//! network what each link is now.

use std::collections::BTreeMap;
use std::time::Duration;

use turmoil::Sim;

use super::fault::Split;

/// A way from one host to another, by number.
type Way = (usize, usize);

/// Hosts by number: the replicas first, then the clients.
pub struct Links {
    hosts: Vec<String>,
    replicas: usize,
    blocked: BTreeMap<Way, u32>,
    held: BTreeMap<Way, u32>,
    loss: Option<u64>,
}

impl Links {
    /// All links carry.
    pub fn new(hosts: Vec<String>, replicas: usize) -> Self {
        Self { hosts, replicas, blocked: BTreeMap::new(), held: BTreeMap::new(), loss: None }
    }

    /// The ways that a split takes away. `leader` is the one to cut off.
    pub fn ways(&self, split: &Split, leader: Option<usize>) -> Vec<Way> {
        let n = self.replicas;
        let between = |in_first: &dyn Fn(usize) -> bool, but: Option<usize>| {
            let mut ways = Vec::new();
            for a in (0..n).filter(|a| in_first(*a) && Some(*a) != but) {
                for b in (0..n).filter(|b| !in_first(*b) && Some(*b) != but) {
                    ways.extend([(a, b), (b, a)]);
                }
            }
            ways
        };
        let turned = |turn: usize, at: usize| (at + turn) % n;
        match *split {
            Split::Halves { turn } => between(&|at| turned(turn, at) < n / 2, None),
            Split::Single(alone) => between(&|at| at == alone, None),
            Split::Leader => {
                let leader = leader.unwrap_or(0);
                // The leader and whoever keeps it in the minority.
                between(&|at| turned(n - leader, at) < n / 2, None)
            }
            Split::OneWay(from, step) => vec![(from, (from + step) % n)],
            Split::Bridge(bridge) => between(&|at| turned(n - bridge, at) <= n / 2, Some(bridge)),
            Split::Ring => ring(n),
            Split::Clients(replica) => {
                (n..self.hosts.len()).flat_map(|client| [(replica, client), (client, replica)]).collect()
            }
        }
    }

    /// Every way between a replica and the other replicas.
    pub fn all_of(&self, replica: usize) -> Vec<Way> {
        (0..self.replicas).filter(|other| *other != replica).map(|other| (replica, other)).collect()
    }

    /// Blocks ways, or opens them again.
    pub fn block(&mut self, sim: &mut Sim<'_>, ways: &[Way], on: bool) {
        for way in ways {
            count(&mut self.blocked, *way, on);
            self.tell(sim, *way);
        }
    }

    /// Holds up what goes between two, or lets it go again.
    pub fn hold(&mut self, sim: &mut Sim<'_>, ways: &[Way], on: bool) {
        for way in ways {
            count(&mut self.held, ordered(*way), on);
            self.tell(sim, *way);
        }
    }

    /// Loses one message in so many, or none.
    pub fn lose(&mut self, sim: &mut Sim<'_>, one_in: Option<u64>) {
        self.loss = one_in;
        for a in 0..self.replicas {
            for b in a + 1..self.replicas {
                self.tell(sim, (a, b));
            }
        }
    }

    /// Makes a link slow, or as the others again.
    pub fn slow(&self, sim: &Sim<'_>, (a, b): Way, to: Duration) {
        sim.set_link_max_message_latency(self.hosts[a].as_str(), self.hosts[b].as_str(), to);
    }

    fn tell(&self, sim: &mut Sim<'_>, way: Way) {
        let (a, b) = ordered(way);
        let (from, to) = (self.hosts[a].as_str(), self.hosts[b].as_str());
        let (there, back) = (self.blocked.contains_key(&(a, b)), self.blocked.contains_key(&(b, a)));
        let held = self.held.contains_key(&(a, b));
        // Chance repairs what it broke, and with it whatever else was broken: never both at once.
        let loss = self.loss.filter(|_| !(there || back || held) && b < self.replicas);
        sim.set_link_fail_rate(from, to, loss.map_or(0.0, |one_in| 1.0 / one_in as f64));
        sim.release(from, to);
        if there {
            sim.partition_oneway(from, to);
        }
        if back {
            sim.partition_oneway(to, from);
        }
        if held && !there && !back {
            sim.hold(from, to);
        }
    }
}

fn ordered((a, b): Way) -> Way {
    (a.min(b), a.max(b))
}

fn count(ways: &mut BTreeMap<Way, u32>, way: Way, on: bool) {
    let faults = ways.entry(way).or_default();
    *faults = if on { *faults + 1 } else { faults.saturating_sub(1) };
    if *faults == 0 {
        ways.remove(&way);
    }
}

/// Replicas in a ring, each linked with the nearest ones only, so many that they make a majority with it.
fn ring(n: usize) -> Vec<Way> {
    let near = n / 4 + usize::from(n == 3);
    let mut ways = Vec::new();
    for a in 0..n {
        for b in (0..n).filter(|b| *b != a) {
            let step = (b + n - a) % n;
            let distance = step.min(n - step);
            // Three replicas are all neighbours: there one link of the ring is missing.
            let cut = if n == 3 { (a, b) == (0, 2) || (a, b) == (2, 0) } else { distance > near };
            if cut {
                ways.push((a, b));
            }
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(n: usize) -> Links {
        let hosts = (0..n + 2).map(|host| format!("h{host}")).collect();
        Links::new(hosts, n)
    }

    /// Whom a replica still hears, itself included.
    fn hears(n: usize, ways: &[Way], at: usize) -> Vec<usize> {
        (0..n).filter(|other| *other == at || !ways.contains(&(*other, at))).collect()
    }

    #[test]
    fn a_leader_is_cut_off_into_the_minority() {
        for n in [3, 5] {
            for leader in 0..n {
                let ways = links(n).ways(&Split::Leader, Some(leader));
                assert_eq!(hears(n, &ways, leader).len(), n / 2);
            }
        }
    }

    #[test]
    fn a_bridge_hears_all_and_nobody_else_does() {
        for n in [3, 5] {
            for bridge in 0..n {
                let ways = links(n).ways(&Split::Bridge(bridge), None);
                assert_eq!(hears(n, &ways, bridge).len(), n);
                assert!((0..n).filter(|at| *at != bridge).all(|at| hears(n, &ways, at).len() < n));
            }
        }
    }

    #[test]
    fn in_a_ring_each_hears_a_majority_and_not_the_same_one() {
        let ways = links(5).ways(&Split::Ring, None);
        let heard: Vec<Vec<usize>> = (0..5).map(|at| hears(5, &ways, at)).collect();
        assert!(heard.iter().all(|heard| heard.len() == 3));
        let different: std::collections::BTreeSet<_> = heard.iter().collect();
        assert_eq!(different.len(), 5);
    }
}
