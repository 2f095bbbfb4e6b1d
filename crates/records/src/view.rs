//! What planners look at: records of one revision, with the revisions that guards are made of.

use meta_client::{Kv, KvError, Snapshot, Stored, TypedKey};
use meta_types::{KeyRange, Revision};

use crate::keys::{
    CopyKey, JarKey, JobCancelKey, JobKey, JobOwnerKey, ManifestKey, NameKey, NodeDrainKey, NodeKey, PinKey,
    ReqKey, RunKey, RunOwnerKey, RunTokenKey, UnitKey, UseKey, below, versions,
};
use crate::names::{JobId, TriggerId, UnitId};
use crate::refusal::{Class, Refusal};

/// Keys of one kind and their records, by key.
pub type Found<K> = Vec<(K, Stored<<K as TypedKey>::Value>)>;

/// Records at one revision. What was not loaded is not taken for absent: reading it is [`Class::Internal`].
#[derive(Debug, Clone, Default)]
pub struct View {
    snapshot: Snapshot,
}

impl From<Snapshot> for View {
    fn from(snapshot: Snapshot) -> Self {
        Self { snapshot }
    }
}

impl View {
    /// Reads a scope, linearizably and at one revision.
    pub async fn load(kv: &dyn Kv, scope: Scope) -> Result<Self, KvError> {
        Ok(Snapshot::load(kv, scope.ranges).await?.into())
    }

    /// The revision all of it is of.
    pub fn revision(&self) -> Revision {
        self.snapshot.revision()
    }

    /// The keys and values behind it.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// One record; `None` if the key is absent.
    pub fn get<K: TypedKey>(&self, key: &K) -> Result<Option<Stored<K::Value>>, Refusal> {
        let text = key.encode();
        if !self.snapshot.covers_key(text.as_bytes()) {
            return Err(Refusal::new(Class::Internal, format!("{text} is outside of the view")));
        }
        let Some(kv) = self.snapshot.get(text.as_bytes()) else { return Ok(None) };
        Stored::read(kv).map(Some).map_err(|e| Refusal::new(Class::Unreadable, format!("{text}: {e}")))
    }

    /// Every readable record of a kind, by key. Unreadable ones are left to the invariant that names them.
    pub fn all<K: TypedKey>(&self) -> Result<Found<K>, Refusal> {
        self.under(K::PREFIX)
    }

    /// Every readable record whose key starts with `prefix`.
    pub fn under<K: TypedKey>(&self, prefix: &str) -> Result<Found<K>, Refusal> {
        self.covered(prefix)?;
        let read = |kv: &std::sync::Arc<meta_types::KeyValue>| {
            let key = K::decode(std::str::from_utf8(&kv.key).ok()?)?;
            Some((key, Stored::read(kv).ok()?))
        };
        Ok(self.snapshot.scan(prefix.as_bytes()).filter_map(read).collect())
    }

    /// Every key of a kind, whether its record can be read or not.
    pub fn keys<K: TypedKey>(&self) -> Result<Vec<K>, Refusal> {
        self.covered(K::PREFIX)?;
        let decoded =
            |kv: &std::sync::Arc<meta_types::KeyValue>| K::decode(std::str::from_utf8(&kv.key).ok()?);
        Ok(self.snapshot.scan(K::PREFIX.as_bytes()).filter_map(decoded).collect())
    }

    /// Number of keys with the prefix, readable or not.
    pub fn count(&self, prefix: &str) -> Result<usize, Refusal> {
        self.covered(prefix)?;
        Ok(self.snapshot.scan(prefix.as_bytes()).count())
    }

    fn covered(&self, prefix: &str) -> Result<(), Refusal> {
        if self.snapshot.covers_prefix(prefix.as_bytes()) {
            return Ok(());
        }
        Err(Refusal::new(Class::Internal, format!("{prefix} is outside of the view")))
    }
}

/// What to load for a planner; scopes add up.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    ranges: Vec<KeyRange>,
}

impl Scope {
    /// Every record there is: what reconcilers mirror, what the placement and the invariants look at.
    pub fn everything() -> Self {
        let prefixes = [
            NodeKey::PREFIX,
            NodeDrainKey::PREFIX,
            "/icp/",
            JarKey::PREFIX,
            RunKey::PREFIX,
            RunOwnerKey::PREFIX,
            RunTokenKey::PREFIX,
            JobKey::PREFIX,
            JobOwnerKey::PREFIX,
            JobCancelKey::PREFIX,
        ];
        Self { ranges: prefixes.iter().map(|prefix| KeyRange::prefix(*prefix)).collect() }
    }

    /// Every live node and drain.
    pub fn nodes() -> Self {
        Self { ranges: vec![KeyRange::prefix(NodeKey::PREFIX), KeyRange::prefix(NodeDrainKey::PREFIX)] }
    }

    /// All that belongs to one package, its name and the live nodes.
    pub fn package(unit: &UnitId) -> Self {
        let mut scope = Self::nodes();
        scope.ranges.extend([
            KeyRange::prefix(versions(&unit.name)),
            KeyRange::prefix(below(CopyKey::PREFIX, unit)),
            KeyRange::prefix(below(UseKey::PREFIX, unit)),
            KeyRange::prefix(below(PinKey::PREFIX, unit)),
            KeyRange::one(NameKey::of(&unit.name).encode()),
        ]);
        scope
    }

    /// Every package, copy, use, pin, name and the live nodes.
    pub fn packages() -> Self {
        let mut scope = Self::nodes();
        let prefixes = [UnitKey::PREFIX, CopyKey::PREFIX, UseKey::PREFIX, PinKey::PREFIX, NameKey::PREFIX];
        scope.ranges.extend(prefixes.iter().map(|prefix| KeyRange::prefix(*prefix)));
        scope
    }

    /// Also every version of a name.
    pub fn and_versions(mut self, name: &str) -> Self {
        self.ranges.push(KeyRange::prefix(versions(name)));
        self
    }

    /// Also one manifest.
    pub fn and_manifest(self, digest: &str) -> Self {
        self.and_key(&ManifestKey { digest: digest.into() })
    }

    /// Also one request's outcome.
    pub fn and_request(self, request: &str) -> Self {
        self.and_key(&ReqKey { request: request.into() })
    }

    /// A run, its owner and its token.
    pub fn run(trigger: &TriggerId) -> Self {
        Self::default()
            .and_key(&RunKey::new(trigger))
            .and_key(&RunOwnerKey::new(trigger))
            .and_key(&RunTokenKey::new(trigger))
    }

    /// Also a job, its owner and a wish to cancel it.
    pub fn and_job(self, job: &JobId) -> Self {
        self.and_key(&JobKey::new(job)).and_key(&JobOwnerKey::new(job)).and_key(&JobCancelKey::new(job))
    }

    /// What [`crate::jobs::start_attempt`] looks at: the job and its uses on a node.
    pub fn start(job: &JobId, packages: &[crate::record::PackageRef], node: &str) -> Self {
        packages.iter().fold(Self::default().and_job(job), |scope, package| {
            scope.and_key(&UseKey::new(&package.unit, &node.to_owned(), &job.to_string()))
        })
    }

    /// What [`crate::jobs::claim`] looks at: the job, and every owner, who says how many slots he takes. No other job:
    /// there may be very many that wait, and more on a node than a transaction may read one by one.
    pub fn claim(job: &JobId) -> Self {
        Self::nodes().and_job(job).and_all::<JobOwnerKey>()
    }

    /// Also the live nodes and drains.
    pub fn and_nodes(mut self) -> Self {
        self.ranges.extend(Self::nodes().ranges);
        self
    }

    /// Also one key.
    pub fn and_key<K: TypedKey>(mut self, key: &K) -> Self {
        self.ranges.push(KeyRange::one(key.encode()));
        self
    }

    /// Also every key of one kind.
    pub fn and_all<K: TypedKey>(mut self) -> Self {
        self.ranges.push(KeyRange::prefix(K::PREFIX));
        self
    }

    /// All jobs, owners, wishes to cancel and live nodes: what the placement looks at.
    pub fn jobs() -> Self {
        Self::nodes().and_all::<JobKey>().and_all::<JobOwnerKey>().and_all::<JobCancelKey>()
    }

    /// The ranges to read.
    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }
}
