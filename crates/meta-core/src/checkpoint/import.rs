//! In: the records of a checkpoint, checked while they are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use meta_types::codec::{self, CodecError};
use meta_types::limits::MAX_DEDUP_WINDOW;
use meta_types::{Event, EventKind, KeyValue, LeaseId, Revision, RevisionEvents};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::layout::{
    HEADER, HeaderV1, LAYOUT_VERSION, LEASE, LeaseV1, ORIGIN, OriginV1, TRAILER, TrailerV1, VERSION,
    VersionV1, parse_lease, parse_number, parse_version,
};
use crate::core::{ClusterInfo, Core, EntryPosition};
use crate::dedup::{Dedup, Registered};
use crate::hash::of_key_value;
use crate::history::History;
use crate::keyspace::{EVENT_OVERHEAD, Figures, Keyspace, VERSION_OVERHEAD, size};
use crate::lease::{Lease, Leases};
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use crate::versions::{KeyVersions, Version};

/// Why a checkpoint was not taken.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ImportError {
    /// A record cannot be decoded, or belongs to another layout version.
    #[error("checkpoint record cannot be read: {0}")]
    Codec(#[from] CodecError),
    /// The records are not those of one whole checkpoint.
    #[error("checkpoint is not whole: {0}")]
    Broken(&'static str),
    /// The state that was read is not the one that was written.
    #[error("checkpoint has hash {found:#018x} where {recorded:#018x} is recorded")]
    Hash {
        /// Of the state read.
        found: u64,
        /// As recorded.
        recorded: u64,
    },
}

pub(super) fn import<K, V>(records: impl Iterator<Item = (K, V)>) -> Result<Core, ImportError>
where
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    let mut records = records;
    let header = match records.next() {
        Some((key, value)) if key.as_ref() == [HEADER] => codec::decode(LAYOUT_VERSION, value.as_ref())?,
        _ => return Err(ImportError::Broken("it does not begin with a header")),
    };
    let mut import = Import::new(header);
    let mut last = vec![HEADER];
    for (key, value) in records {
        let (key, value) = (key.as_ref(), value.as_ref());
        if key <= last.as_slice() {
            return Err(ImportError::Broken("records out of order"));
        }
        import.take(key, value)?;
        last.clear();
        last.extend_from_slice(key);
    }
    import.finish()
}

/// What was read so far.
struct Import {
    header: HeaderV1,
    origins: BTreeMap<u64, Registered>,
    leases: Vec<(LeaseId, Lease)>,
    keys: Vec<(Bytes, KeyVersions)>,
    /// Events of each revision from `first_event` on, with their places.
    events: Vec<Vec<(u32, Event)>>,
    first_event: Revision,
    figures: Figures,
    versions: u64,
    trailer: Option<TrailerV1>,
}

impl Import {
    fn new(header: HeaderV1) -> Self {
        // The first write takes revision 2.
        let first_event = header.compact_revision.max(2);
        let revisions = usize::try_from(header.revision + 1 - first_event).unwrap_or(0);
        Self {
            header,
            origins: BTreeMap::new(),
            leases: Vec::new(),
            keys: Vec::new(),
            events: vec![Vec::new(); revisions],
            first_event,
            figures: Figures::default(),
            versions: 0,
            trailer: None,
        }
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), ImportError> {
        const BAD_KEY: ImportError = ImportError::Broken("a record has an unknown key");
        let (section, rest) = key.split_first().ok_or(BAD_KEY)?;
        match *section {
            ORIGIN => self.origin(parse_number(rest).ok_or(BAD_KEY)?, codec::decode_body(value)?),
            LEASE => self.lease(parse_lease(rest).ok_or(BAD_KEY)?, decode(value)?),
            VERSION => {
                let (key, revision) = parse_version(rest).ok_or(BAD_KEY)?;
                self.version(key, revision, decode(value)?)
            }
            TRAILER if rest.is_empty() => {
                self.trailer = Some(decode(value)?);
                Ok(())
            }
            _ => Err(BAD_KEY),
        }
    }

    fn origin(&mut self, member: u64, record: OriginV1) -> Result<(), ImportError> {
        let OriginV1 { boot, low_water, applied, retired } = record;
        let count = applied
            .iter()
            .try_fold(0u64, |sum, (first, last)| sum.checked_add(last.checked_sub(*first)?.checked_add(1)?));
        if count.is_none_or(|count| count > MAX_DEDUP_WINDOW as u64) {
            return Err(ImportError::Broken("an origin has too many applied numbers"));
        }
        let applied = applied.into_iter().flat_map(|(first, last)| first..=last).collect();
        self.origins.insert(member, Registered { boot, low_water, applied, retired: retired.into() });
        Ok(())
    }

    fn lease(&mut self, id: LeaseId, record: LeaseV1) -> Result<(), ImportError> {
        self.leases.push((id, Lease { ttl_s: record.ttl_s, expiry_ms: record.expiry_ms }));
        Ok(())
    }

    fn version(&mut self, key: Vec<u8>, revision: Revision, record: VersionV1) -> Result<(), ImportError> {
        if revision > self.header.revision {
            return Err(ImportError::Broken("a version is newer than the checkpoint"));
        }
        let VersionV1 { value, create_revision, version, lease, sub } = record;
        let is_known = self.keys.last().is_some_and(|(last, _)| *last == key);
        let key = match self.keys.last() {
            Some((last, _)) if is_known => last.clone(),
            _ => Bytes::from(key),
        };
        let kv =
            KeyValue { key: key.clone(), value, create_revision, mod_revision: revision, version, lease };
        let version = Version { kv: Arc::new(kv), sub };
        let prev = match self.keys.last() {
            Some((_, versions)) if is_known => versions.current().cloned(),
            _ => None,
        };
        self.account(&version, prev.as_deref());
        self.remember(&version, prev);
        self.versions += 1;
        match self.keys.last_mut() {
            Some((_, versions)) if is_known => versions.push(version),
            _ => self.keys.push((key, KeyVersions::new(version))),
        }
        Ok(())
    }

    fn account(&mut self, version: &Version, prev: Option<&KeyValue>) {
        let figures = &mut self.figures;
        if version.is_live() {
            figures.live_bytes += size(&version.kv);
            figures.hash.add(of_key_value(&version.kv));
        } else {
            figures.history_bytes += size(&version.kv) + VERSION_OVERHEAD;
        }
        if let Some(prev) = prev {
            figures.live_bytes -= size(prev);
            figures.history_bytes += size(prev) + VERSION_OVERHEAD;
            figures.hash.remove(of_key_value(prev));
        }
    }

    fn remember(&mut self, version: &Version, prev: Option<Arc<KeyValue>>) {
        let revision = version.kv.mod_revision;
        let place = usize::try_from(revision - self.first_event).ok();
        if let Some(events) = place.and_then(|place| self.events.get_mut(place)) {
            let kind = if version.is_live() { EventKind::Put } else { EventKind::Delete };
            events.push((version.sub, Event { kind, kv: Arc::clone(&version.kv), prev }));
            self.figures.history_bytes += EVENT_OVERHEAD;
        }
    }

    fn history(events: Vec<Vec<(u32, Event)>>, first: Revision) -> Result<History, ImportError> {
        let mut history = History::default();
        for (revision, mut events) in (first..).zip(events) {
            events.sort_by_key(|(sub, _)| *sub);
            let places = events.iter().map(|(sub, _)| *sub as usize);
            if events.is_empty() || !places.eq(0..events.len()) {
                return Err(ImportError::Broken("an event is missing in the history"));
            }
            let events = events.into_iter().map(|(_, event)| event).collect();
            history.push(RevisionEvents { revision, events });
        }
        Ok(history)
    }

    fn finish(self) -> Result<Core, ImportError> {
        let trailer = self.trailer.ok_or(ImportError::Broken("it ends before its trailer"))?;
        let counts = (self.origins.len() as u64, self.leases.len() as u64, self.versions);
        if counts != (trailer.origins, trailer.leases, trailer.versions) {
            return Err(ImportError::Broken("records are missing"));
        }
        let HeaderV1 { applied, revision, compact_revision, lease_time_ms, cluster } = self.header;
        let history = Self::history(self.events, self.first_event)?;
        let mut leases = Leases::restore(lease_time_ms, self.leases);
        for (key, versions) in &self.keys {
            let lease = versions.current().map_or(0, |kv| kv.lease);
            if lease != 0 && !leases.exists(lease) {
                return Err(ImportError::Broken("a key hangs on a lease that does not exist"));
            }
            leases.attach(key, 0, lease);
        }
        let tree = Tree::from_sorted(self.keys.into_iter());
        let now = Snapshot { tree, revision, compact_revision };
        let core = Core {
            keys: Keyspace::restore(now, history, self.figures),
            leases,
            dedup: Dedup::restore(self.origins),
            cluster: cluster.map(|(cluster_id, name, feature_level)| ClusterInfo {
                cluster_id,
                name,
                feature_level,
            }),
            applied: applied.map(|(index, term)| EntryPosition { index, term }),
        };
        let (found, recorded) = (core.state_hash(), trailer.hash);
        if found != recorded { Err(ImportError::Hash { found, recorded }) } else { Ok(core) }
    }
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, ImportError> {
    Ok(codec::decode_body(value)?)
}
