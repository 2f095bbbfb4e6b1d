//! How it stands with the package: in the store and on the disks of the nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use records::keys::{CopyKey, UnitKey};
use records::record::{CopyState, UnitState};
use records::{UnitId, View, nodes};

use crate::points::Operation::{self, Register, RegisterUnequal};

/// Every wait ends.
pub const BOUND: Duration = Duration::from_secs(120);
/// What the package holds.
pub const FILES: [(&str, &str); 2] = [("app.jar", "not read"), ("lib/dep.jar", "dep")];

/// A node's disk.
#[derive(Clone, Copy)]
pub struct Disk<'a> {
    /// The node.
    pub node: &'a str,
    /// Its directory.
    pub work_dir: &'a Path,
}

impl Disk<'_> {
    /// Where the package lies.
    pub fn root(&self, unit: &UnitId) -> PathBuf {
        self.work_dir.join("icp").join(&unit.name).join(&unit.version)
    }

    /// Puts files there by hand.
    pub fn lay(&self, unit: &UnitId, files: &[(&str, &str)]) {
        for (path, bytes) in files {
            let at = self.root(unit).join(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, bytes).unwrap();
        }
    }

    /// What is there beside so many packages.
    pub fn left_over(&self, packages: usize) -> Vec<String> {
        let store = self.work_dir.join("icp-store");
        let below =
            |dir: &str| fs::read_dir(store.join(dir)).into_iter().flatten().flatten().map(|e| e.path());
        let descriptors: Vec<_> = below("descriptors").collect();
        let tentative = descriptors
            .iter()
            .filter(|at| fs::read_to_string(at).is_ok_and(|text| text.contains("\"tentative\":true")));
        let mut left: Vec<String> = tentative.map(|at| at.display().to_string()).collect();
        left.extend(below("staging").chain(below("trash")).map(|at| at.display().to_string()));
        if descriptors.len() != packages {
            left.push(format!("{} descriptors", descriptors.len()));
        }
        left
    }

    /// All files.
    pub fn files(&self) -> Vec<String> {
        tree(self.work_dir)
    }
}

/// It is READY, and whole on every node, which this boot of it says.
pub fn is_everywhere(view: &View, app: &UnitId, disks: &[Disk<'_>; 2]) -> bool {
    let Some(found) = view.get(&UnitKey::new(app)).unwrap() else { return false };
    let holds = |disk: &Disk<'_>| {
        let row = view.get(&CopyKey::new(app, &disk.node.to_owned())).unwrap();
        let now = nodes::current(view, disk.node).unwrap();
        let whole = FILES.iter().all(|(path, bytes)| {
            fs::read_to_string(disk.root(app).join(path)).is_ok_and(|text| text == *bytes)
        });
        let says = row.is_some_and(|row| {
            row.state == CopyState::Present && now.is_some_and(|now| now.incarnation == row.incarnation)
        });
        whole && says && disk.left_over(1).is_empty()
    };
    found.state == UnitState::Ready && disks.iter().all(holds)
}

/// Nothing of it, nor of any other, is in the store (`view` holds all of it) or on a disk. What a user laid there stays.
pub fn is_nowhere(view: &View, of: Operation, disks: &[Disk<'_>; 2]) -> bool {
    let clean = |disk: &Disk<'_>| {
        let files = tree(&disk.work_dir.join("icp"));
        let kept = match of {
            Register => files.iter().filter(|path| path.ends_with(".jar")).count() == 2,
            RegisterUnequal => !files.is_empty(),
            _ => !files.iter().any(|path| path.ends_with(".jar")),
        };
        kept && disk.left_over(0).is_empty()
    };
    records_left(view) == 0 && disks.iter().all(clean)
}

/// Records of packages.
pub fn records_left(view: &View) -> usize {
    view.snapshot().scan(b"/icp/").count()
}

/// Nothing goes on with the package: it is gone, or READY.
pub fn is_settled(view: &View, app: &UnitId) -> bool {
    view.get(&UnitKey::new(app)).unwrap().is_none_or(|found| found.state == UnitState::Ready)
}

/// All of it, for a failure.
pub fn told(view: &View, disks: &[Disk<'_>; 2]) -> String {
    let keys: Vec<String> =
        view.snapshot().iter().map(|kv| format!("{:?} = {:?}", kv.key, kv.value)).collect();
    let disks = disks.map(|disk| disk.files());
    format!("{}\n{disks:#?}", keys.join("\n"))
}

/// All files below a directory.
pub fn tree(at: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(tree(&path)) } else { found.push(path.display().to_string()) }
    }
    found
}
