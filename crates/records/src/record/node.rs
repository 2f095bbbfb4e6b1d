//! `/node/<node>` and `/node-drain/<node>`: who is alive and what it can do.

use meta_client::{Extra, Record};
use meta_types::Revision;
use serde::{Deserialize, Serialize};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Serves the REST front.
    Dispatcher,
    /// A server node: has a package directory and hosts JobMasters.
    Jobmaster,
}

/// One boot of one node: the name and the create revision of its `/node` key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeRef {
    /// The node's name.
    pub node: String,
    /// The create revision of `/node/<node>`.
    pub incarnation: Revision,
}

/// A live process, on its own lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What it does. A dispatcher with `single.enable = false` is both.
    pub roles: Vec<Role>,
    /// `HOST:PORT` of its REST front, for a dispatcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_address: Option<String>,
    /// `HOST:PORT` of its node API, for a server node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_address: Option<String>,
    /// How much parallelism it takes.
    #[serde(default)]
    pub slots: u32,
    /// The program's version.
    #[serde(default)]
    pub version: String,
    /// The Java found there, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub java: Option<String>,
    /// Its value of `jobmanager.jobmaster.single.enable`, for a dispatcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_enable: Option<bool>,
    /// Drawn at random at each boot: tells a boot's own key from its predecessor's.
    pub boot: String,
    /// Drawn at random when its work directory was made, for a server node: tells a node that is back from another of
    /// its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<String>,
    /// When it started.
    #[serde(default)]
    pub started_at_ms: u64,
    /// True from the moment it begins to stop: it takes no new jobs and gives back those it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Node {}

impl Node {
    /// True if it has a package directory and can run code.
    pub fn is_server(&self) -> bool {
        self.roles.contains(&Role::Jobmaster)
    }
    /// True if it serves the REST front.
    pub fn is_dispatcher(&self) -> bool {
        self.roles.contains(&Role::Dispatcher)
    }
}

/// An operator's wish that a node takes no new jobs and gives back those it has, where main() may start again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDrain {
    /// Since when.
    #[serde(default)]
    pub since_ms: u64,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for NodeDrain {}
