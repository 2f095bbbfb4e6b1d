//! How replicas that have nothing become a cluster, exactly once, and what an empty directory means later.
//!
//! ```text
//!  first start: mint a random member id, make it durable; open the log; ask every peer of cluster.initial: who are you?
//!
//!  the first by name    all peers answer "empty, same list"  -> mint the cluster's id, make it durable,
//!                                                               start openraft, initialise it with all ids
//!  the others           a peer answers "member, and so are you" -> make its cluster id durable, start openraft
//!  anybody              a peer answers "a member has your name, with another id" -> refused: remove and re-add
//!                       a peer answers "member, and you are unknown"             -> wait to be added
//!
//!  a later start        a peer answers "a member has your name, with another id" -> refused: a foreign directory
//! ```
//!
//! Exactly once, whatever crashes: only the first by name initialises. It answers "member" only after openraft has
//! the membership in its log. If it dies between its cluster id and that, its log is still empty and it starts over
//! with the same id; nobody has heard of it. If it dies later, openraft refuses a second initialisation. A replica
//! whose directory is wiped mints another id and is refused by name. A log directory that is gone while the identity
//! is there means that promises were lost: such a replica does not start (see `recover`).

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use crate::errors::StartError;
use crate::net::frame::{self, Outgoing};
use crate::net::link::{self, Stream};
use crate::net::message::{Hello, MAGIC, PROTOCOL, Purpose};
use crate::net::server::ask;
use crate::options::{InitialMember, RaftOptions, Seams};
use crate::types::Member;

/// Between two rounds of questions.
const POLL: Duration = Duration::from_millis(100);
/// Rounds between two log lines that say what is missing.
const SAY_EVERY: u32 = 50;

/// How long a replica that starts again waits for what its peers know of it.
const SOON: Duration = Duration::from_millis(500);

/// What a replica says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) id: u64,
    pub(crate) member: Member,
    /// Names and addresses of its `cluster.initial`, sorted.
    pub(crate) initial: Vec<(String, String)>,
}

/// The answer of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It has nothing either.
    Empty(Candidate),
    /// It is a member, and the asker is too, under this id.
    Member {
        /// The cluster's id.
        cluster_id: u64,
    },
    /// It is a member, and knows the asker's name under another id.
    OtherId,
    /// It is a member and does not know the asker.
    Unknown,
    /// It has a cluster, but cannot say yet who belongs to it.
    Starting,
}

/// This replica's own answer to others.
pub(crate) struct Forming {
    me: Candidate,
    cluster: RwLock<Known>,
}

/// What this replica knows of a cluster.
enum Known {
    /// There is none.
    Nothing,
    /// It belongs to one, whose members it has not read yet. Never to be taken for empty.
    Starting,
    /// Its id and its members.
    Cluster(u64, BTreeMap<u64, String>),
}

impl Forming {
    pub(crate) fn new(id: u64, options: &RaftOptions) -> Self {
        let member = Member {
            name: options.node_name.clone(),
            peer_addr: options.peer_addr.clone(),
            client_addr: options.client_addr.clone(),
        };
        let mut initial: Vec<_> =
            options.initial.iter().map(|m| (m.name.clone(), m.peer_addr.clone())).collect();
        initial.sort();
        Self { me: Candidate { id, member, initial }, cluster: RwLock::new(Known::Nothing) }
    }

    /// This replica belongs to a cluster.
    pub(crate) fn set_starting(&self) {
        *self.cluster.write() = Known::Starting;
    }

    /// The members changed, or were learned.
    pub(crate) fn set_cluster(&self, cluster_id: u64, members: BTreeMap<u64, String>) {
        *self.cluster.write() = Known::Cluster(cluster_id, members);
    }

    fn answer(&self, asker: &Candidate) -> Answer {
        let cluster = self.cluster.read();
        let (cluster_id, members) = match &*cluster {
            Known::Nothing => return Answer::Empty(self.me.clone()),
            Known::Starting => return Answer::Starting,
            Known::Cluster(cluster_id, members) => (cluster_id, members),
        };
        if members.get(&asker.id) == Some(&asker.member.name) {
            return Answer::Member { cluster_id: *cluster_id };
        }
        if members.values().any(|name| *name == asker.member.name) {
            Answer::OtherId
        } else {
            Answer::Unknown
        }
    }
}

/// Answers a peer that asks.
pub(crate) async fn answer(stream: &mut Stream, forming: &Forming) -> io::Result<()> {
    let Some(frame) = frame::read(stream).await? else { return Ok(()) };
    let asker = frame.head::<Candidate>()?;
    frame::write(stream, &Outgoing::new(&forming.answer(&asker), vec![])?).await?;
    stream.flush().await
}

/// How an empty replica goes on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It founds the cluster, of these members.
    Found(BTreeMap<u64, Member>),
    /// It is a member of this cluster.
    Join(u64),
}

/// What one round of questions says.
#[derive(Debug, PartialEq, Eq)]
enum Round {
    Decided(Decision),
    /// Nothing yet; what is missing.
    Wait(String),
    Refused(String),
}

/// Asks until it is decided.
pub(crate) async fn decide(
    options: &RaftOptions,
    seams: &Seams,
    forming: &Forming,
) -> Result<Decision, StartError> {
    check(options)?;
    let me = &forming.me;
    for round in 0u32.. {
        let peers = options.initial.iter().filter(|peer| peer.name != me.member.name);
        let questions = peers.map(|peer| async move { (peer, question(options, seams, me, peer).await) });
        let answers = futures_util::future::join_all(questions).await;
        match conclude(me, &answers) {
            Round::Decided(decision) => return Ok(decision),
            Round::Refused(why) => return Err(StartError::Refused(why)),
            Round::Wait(missing) if round % SAY_EVERY == 0 => {
                tracing::info!("forming the cluster: {missing}")
            }
            Round::Wait(_) => {}
        }
        tokio::time::sleep(POLL).await;
    }
    unreachable!("the rounds do not end")
}

/// Asks the peers of `cluster.initial` once whether they know this replica, which belongs to a cluster, under another
/// id: then its directory is another cluster's, or a removed member's. Who cannot be asked soon is not waited for:
/// replicas of another cluster would refuse each other's connections anyway.
pub(crate) async fn check_directory(
    options: &RaftOptions,
    seams: &Seams,
    forming: &Forming,
    cluster_id: u64,
) -> Result<(), StartError> {
    let me = &forming.me;
    let peers = options.initial.iter().filter(|peer| peer.name != me.member.name);
    let questions = peers.map(|peer| async move {
        let asked = tokio::time::timeout(SOON, question(options, seams, me, peer)).await;
        matches!(asked, Ok(Ok(Answer::OtherId))).then_some(&peer.name)
    });
    let answers = futures_util::future::join_all(questions).await;
    match answers.into_iter().flatten().next() {
        None => Ok(()),
        Some(peer) => Err(StartError::Refused(format!(
            "{} is the data directory of member {:x} of the cluster {cluster_id:x}, but {peer} knows {} under another \
             id: the directory belongs to another cluster, or to a member that was removed. Set data-dir to the one \
             of this replica, or cluster.initial to the replicas of its cluster",
            options.data_dir.display(),
            me.id,
            me.member.name
        ))),
    }
}

fn check(options: &RaftOptions) -> Result<(), StartError> {
    let mut names: Vec<_> = options.initial.iter().map(|m| m.name.as_str()).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(StartError::Config("cluster.initial names a replica twice".into()));
    }
    if !names.contains(&options.node_name.as_str()) {
        let name = &options.node_name;
        return Err(StartError::Config(format!(
            "cluster.initial does not name this replica, {name:?}; it has {}",
            names.join(", ")
        )));
    }
    Ok(())
}

async fn question(
    options: &RaftOptions,
    seams: &Seams,
    me: &Candidate,
    peer: &InitialMember,
) -> io::Result<Answer> {
    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL,
        purpose: Purpose::Forming,
        cluster_id: 0,
        cluster_name: options.cluster_name.clone(),
        from: me.id,
        to: 0,
    };
    let asked = async {
        let timeout = options.timing.connect;
        let mut stream = link::open(seams.net.as_ref(), &hello, &peer.peer_addr, timeout).await?;
        ask(&mut stream, me).await?.head::<Answer>()
    };
    tokio::time::timeout(2 * options.timing.connect, asked)
        .await
        .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

fn conclude(me: &Candidate, answers: &[(&InitialMember, io::Result<Answer>)]) -> Round {
    let mut members = BTreeMap::from([(me.id, me.member.clone())]);
    let mut missing = Vec::new();
    for (peer, answer) in answers {
        let name = &peer.name;
        match answer {
            Ok(Answer::Member { cluster_id }) => return Round::Decided(Decision::Join(*cluster_id)),
            Ok(Answer::OtherId) => {
                return Round::Refused(format!(
                    "{} is a member of the cluster with another id, and this data directory is empty: what it \
                     promised is lost. Remove it from the cluster and re-add it (asked {name})",
                    me.member.name
                ));
            }
            Ok(Answer::Unknown) => missing.push(format!("{name} has a cluster; waiting to be added to it")),
            Ok(Answer::Starting) => missing.push(format!("{name} is starting")),
            Ok(Answer::Empty(peer)) if peer.initial != me.initial => {
                missing.push(format!("{name} has another cluster.initial"));
            }
            Ok(Answer::Empty(peer)) => {
                members.insert(peer.id, peer.member.clone());
            }
            Err(error) => missing.push(format!("{name} at {}: {error}", peer.peer_addr)),
        }
    }
    let first = me.initial.first().is_some_and(|(name, _)| *name == me.member.name);
    if !missing.is_empty() {
        Round::Wait(missing.join("; "))
    } else if members.len() != me.initial.len() {
        Round::Refused(
            "two replicas of cluster.initial answer with the same id: copy no data directories".into(),
        )
    } else if first {
        Round::Decided(Decision::Found(members))
    } else {
        Round::Wait(format!("waiting for {} to initialise it", me.initial[0].0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: u64, name: &str) -> Candidate {
        let member = Member { name: name.into(), peer_addr: format!("{name}:1"), client_addr: String::new() };
        let initial = ["a", "b"].map(|n| (n.to_owned(), format!("{n}:1"))).to_vec();
        Candidate { id, member, initial }
    }

    fn peer(name: &str) -> InitialMember {
        InitialMember { name: name.into(), peer_addr: format!("{name}:1") }
    }

    fn round(me: &Candidate, from: &str, answer: Answer) -> Round {
        conclude(me, &[(&peer(from), Ok(answer))])
    }

    #[test]
    fn only_the_first_by_name_founds_and_only_when_all_are_empty() {
        let (a, b) = (candidate(1, "a"), candidate(2, "b"));
        let Round::Decided(Decision::Found(members)) = round(&a, "b", Answer::Empty(b.clone())) else {
            panic!()
        };
        assert_eq!(members.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert!(matches!(round(&b, "a", Answer::Empty(a.clone())), Round::Wait(_)));
        let silent = [(&peer("b"), Err(io::ErrorKind::TimedOut.into()))];
        assert!(matches!(conclude(&a, &silent), Round::Wait(_)));
        let other_list = Candidate { initial: vec![], ..b };
        assert!(matches!(round(&a, "b", Answer::Empty(other_list)), Round::Wait(_)));
        assert!(matches!(round(&a, "b", Answer::Empty(candidate(1, "b"))), Round::Refused(_)));
    }

    #[test]
    fn a_running_cluster_decides_what_an_empty_directory_is() {
        let a = candidate(1, "a");
        assert_eq!(round(&a, "b", Answer::Member { cluster_id: 9 }), Round::Decided(Decision::Join(9)));
        assert!(matches!(round(&a, "b", Answer::Unknown), Round::Wait(_)));
        let Round::Refused(why) = round(&a, "b", Answer::OtherId) else { panic!() };
        assert!(why.contains("re-add"), "{why}");

        let forming = Forming { me: candidate(2, "b"), cluster: RwLock::new(Known::Nothing) };
        assert!(matches!(forming.answer(&a), Answer::Empty(_)));
        forming.set_starting();
        assert_eq!(forming.answer(&a), Answer::Starting);
        assert!(matches!(round(&a, "b", Answer::Starting), Round::Wait(_)), "never taken for empty");
        forming.set_cluster(9, BTreeMap::from([(1, "a".into()), (2, "b".into())]));
        assert_eq!(forming.answer(&a), Answer::Member { cluster_id: 9 });
        assert_eq!(forming.answer(&candidate(7, "a")), Answer::OtherId);
        assert_eq!(forming.answer(&candidate(7, "c")), Answer::Unknown);
    }
}
