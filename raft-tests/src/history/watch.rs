//! A watch: what was asked for and everything that came, in order.

use meta_client::WatchRequest;
use meta_types::{Event, Revision};

use super::At;

/// One watch stream.
#[derive(Debug, Clone)]
pub struct WatchHistory {
    /// Who watched.
    pub client: u64,
    /// When it was asked for.
    pub asked: At,
    /// What was asked for. `start_revision` 0 = from now on.
    pub request: WatchRequest,
    /// When it was created, and the store's revision then; `None` if it never was.
    pub created: Option<(At, Revision)>,
    /// What came, in order of arrival.
    pub responses: Vec<WatchResponse>,
}

/// One response.
#[derive(Debug, Clone)]
pub struct WatchResponse {
    /// When it came.
    pub at: At,
    /// What it says.
    pub word: WatchWord,
}

/// What a response says.
#[derive(Debug, Clone)]
pub enum WatchWord {
    /// Changes; everything up to `revision` that was asked for has now been delivered.
    Events {
        /// The header's revision.
        revision: Revision,
        /// The changes, in order.
        events: Vec<Event>,
    },
    /// Nothing new up to `revision`.
    Progress {
        /// Everything up to here has been delivered.
        revision: Revision,
    },
    /// The watch ended: the history it needs is compacted away.
    Compacted {
        /// The compact revision.
        compact_revision: Revision,
    },
    /// The watch ended for another reason: the client left, or the stream broke for good.
    Ended(String),
}

impl WatchHistory {
    /// Every event that came, in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.responses.iter().flat_map(|response| match &response.word {
            WatchWord::Events { events, .. } => events.as_slice(),
            WatchWord::Progress { .. } | WatchWord::Compacted { .. } | WatchWord::Ended(_) => &[],
        })
    }

    /// The first revision that has to be delivered, once it is known: `start_revision`, or the one after creation.
    pub fn first_revision(&self) -> Option<Revision> {
        match self.request.start_revision {
            0 => self.created.map(|(_, revision)| revision + 1),
            start => Some(start),
        }
    }
}
