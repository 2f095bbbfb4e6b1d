//! The keys, with their pinned string forms. Every segment is percent-encoded, so that a trigger id with a `/` is
//! one segment; package, version and node names consist of characters that stay as they are.

use std::str::FromStr;

use meta_client::TypedKey;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::names::{JobId, TriggerId, UnitId};
use crate::record::{
    CancelIntent, Copy, Jar, Job, JobOwner, Manifest, NameHolder, Node, NodeDrain, Pin, Req, Run, RunOwner,
    RunToken, Unit, Use,
};

/// Characters kept as they are: those of names, versions and of RFC 3986's unreserved set.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'+');

/// Percent-encodes one segment of a key or path.
pub fn encode_segment(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Reads one segment back; `None` unless it is exactly what [`encode_segment`] makes.
pub fn decode_segment(text: &str) -> Option<String> {
    let plain = percent_decode_str(text).decode_utf8().ok()?.into_owned();
    (encode_segment(&plain) == text).then_some(plain)
}

/// A part of a key: one or more segments.
trait Part: Sized {
    fn write(&self, key: &mut String);
    fn read<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Option<Self>;
}

impl Part for String {
    fn write(&self, key: &mut String) {
        key.push_str(&encode_segment(self));
    }
    fn read<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        decode_segment(segments.next()?).filter(|segment| !segment.is_empty())
    }
}

impl Part for UnitId {
    fn write(&self, key: &mut String) {
        self.name.write(key);
        key.push('/');
        self.version.write(key);
    }
    fn read<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let (name, version) = (String::read(segments)?, String::read(segments)?);
        UnitId::new(&name, &version).ok()
    }
}

impl Part for TriggerId {
    fn write(&self, key: &mut String) {
        key.push_str(&encode_segment(self.as_str()));
    }
    fn read<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        TriggerId::from_str(&String::read(segments)?).ok()
    }
}

impl Part for JobId {
    fn write(&self, key: &mut String) {
        key.push_str(self.as_str());
    }
    fn read<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let text = String::read(segments)?;
        JobId::from_str(&text).ok().filter(|job| job.as_str() == text)
    }
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident($prefix:literal, $($field:ident: $part:ty),+) => $value:ty;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $part),+ }

        impl $name {
            /// Makes the key.
            // A node's or holder's name is a `String` like any other part: one macro for all.
            #[allow(clippy::ptr_arg)]
            pub fn new($($field: &$part),+) -> Self {
                Self { $($field: $field.clone()),+ }
            }
        }

        impl TypedKey for $name {
            type Value = $value;
            const PREFIX: &'static str = $prefix;

            fn encode(&self) -> String {
                let mut key = String::from($prefix);
                $(
                    if !key.ends_with('/') { key.push('/'); }
                    self.$field.write(&mut key);
                )+
                key
            }

            fn decode(key: &str) -> Option<Self> {
                let mut segments = key.strip_prefix($prefix)?.split('/');
                let read = Self { $($field: <$part as Part>::read(&mut segments)?),+ };
                segments.next().is_none().then_some(read)
            }
        }
    )+};
}

keys! {
    /// A live process; its create revision is the node's incarnation.
    NodeKey("/node/", node: String) => Node;
    /// An operator's drain.
    NodeDrainKey("/node-drain/", node: String) => NodeDrain;
    /// A package in the cluster.
    UnitKey("/icp/unit/", unit: UnitId) => Unit;
    /// A node's copy of a package.
    CopyKey("/icp/node/", unit: UnitId, node: String) => Copy;
    /// A running use of a node's copy.
    UseKey("/icp/use/", unit: UnitId, node: String, holder: String) => Use;
    /// An admitted job's hold on a package.
    PinKey("/icp/pin/", unit: UnitId, job: JobId) => Pin;
    /// The holder of a name, by the name in lower case.
    NameKey("/icp/name/", lower: String) => NameHolder;
    /// A package's files.
    ManifestKey("/icp/manifest/", digest: String) => Manifest;
    /// A request's outcome.
    ReqKey("/icp/req/", request: String) => Req;
    /// Flink's jar id.
    JarKey("/jar/", jar: String) => Jar;
    /// A run.
    RunKey("/run/", trigger: TriggerId) => Run;
    /// Who drives a run; its create revision is the epoch.
    RunOwnerKey("/run-owner/", trigger: TriggerId) => RunOwner;
    /// What a finished or deleted run was.
    RunTokenKey("/run-token/", trigger: TriggerId) => RunToken;
    /// A job.
    JobKey("/job/", job: JobId) => Job;
    /// Who runs a job; its create revision is the epoch.
    JobOwnerKey("/job-owner/", job: JobId) => JobOwner;
    /// Somebody wants the job gone.
    JobCancelKey("/job-cancel/", job: JobId) => CancelIntent;
}

impl NameKey {
    /// The key that guards `name`.
    pub fn of(name: &str) -> Self {
        Self { lower: name.to_ascii_lowercase() }
    }
}

/// Prefix of all keys of `prefix` below one package: `below(CopyKey::PREFIX, unit)`.
pub fn below(prefix: &str, unit: &UnitId) -> String {
    format!("{prefix}{}/{}/", encode_segment(&unit.name), encode_segment(&unit.version))
}

/// Prefix of all versions of a name.
pub fn versions(name: &str) -> String {
    format!("{}{}/", UnitKey::PREFIX, encode_segment(name))
}

/// Prefix of the uses of a package on one node.
pub fn uses_on(unit: &UnitId, node: &str) -> String {
    format!("{}{}/", below(UseKey::PREFIX, unit), encode_segment(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned<K: TypedKey>(key: K, form: &str) {
        assert_eq!(key.encode(), form);
        assert_eq!(K::decode(form), Some(key));
    }

    #[test]
    fn string_forms_are_pinned() {
        let unit = UnitId::new("My.lib", "1.0+b").unwrap();
        let job = JobId::from_random(0xab);
        let job_text = "000000000000000000000000000000ab";
        pinned(NodeKey::new(&"n1".into()), "/node/n1");
        pinned(NodeDrainKey::new(&"n1".into()), "/node-drain/n1");
        pinned(UnitKey::new(&unit), "/icp/unit/My.lib/1.0+b");
        pinned(CopyKey::new(&unit, &"n1".into()), "/icp/node/My.lib/1.0+b/n1");
        pinned(UseKey::new(&unit, &"n1".into(), &"h".into()), "/icp/use/My.lib/1.0+b/n1/h");
        pinned(PinKey::new(&unit, &job), &format!("/icp/pin/My.lib/1.0+b/{job_text}"));
        pinned(NameKey::of("My.lib"), "/icp/name/my.lib");
        pinned(ManifestKey::new(&"d".into()), "/icp/manifest/d");
        pinned(ReqKey::new(&"r/1".into()), "/icp/req/r%2F1");
        pinned(JarKey::new(&"u_a b.jar".into()), "/jar/u_a%20b.jar");
        pinned(RunKey::new(&"../x".parse().unwrap()), "/run/..%2Fx");
        pinned(RunOwnerKey::new(&"100%".parse().unwrap()), "/run-owner/100%25");
        pinned(RunTokenKey::new(&"t".parse().unwrap()), "/run-token/t");
        pinned(JobKey::new(&job), &format!("/job/{job_text}"));
        pinned(JobOwnerKey::new(&job), &format!("/job-owner/{job_text}"));
        pinned(JobCancelKey::new(&job), &format!("/job-cancel/{job_text}"));
    }

    #[test]
    fn other_forms_are_not_keys() {
        assert_eq!(RunKey::decode("/run/a/b"), None);
        assert_eq!(RunKey::decode("/run/%61"), None, "two forms of one key");
        assert_eq!(RunKey::decode("/run/"), None);
        assert_eq!(UnitKey::decode("/icp/unit/a"), None);
        assert_eq!(UnitKey::decode("/icp/unit/../1"), None);
        assert_eq!(JobKey::decode("/job/AB"), None);
    }

    proptest::proptest! {
        #[test]
        fn every_trigger_id_round_trips(text in "[!-~]{1,64}") {
            if let Ok(trigger) = text.parse::<TriggerId>() {
                let key = RunKey::new(&trigger);
                proptest::prop_assert_eq!(RunKey::decode(&key.encode()), Some(key));
            }
        }
    }
}
