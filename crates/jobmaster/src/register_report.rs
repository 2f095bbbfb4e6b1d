//! Whether all nodes found the same files, and if not, which node and file is to blame.

use std::collections::{BTreeMap, BTreeSet};

use icp_store::{Digest, Finding, Manifest};
use serde::Serialize;

/// Rows in one answer; the rest is counted.
pub const MAX_ROWS: usize = 2000;
/// In place of a file: all of them, or the directory itself.
pub const WHOLE: &str = "*";

/// One file on one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Row {
    /// The node.
    pub node: String,
    /// Path in the package, or [`WHOLE`].
    pub file: String,
    /// `OK`; `MISSING`, `EXTRA` or `DIFFERENT` against the others; or why the node has nothing to register.
    pub state: String,
}

impl Row {
    /// A row about the whole directory of a node.
    pub fn whole(node: &str, state: &str) -> Self {
        Self { node: node.into(), file: WHOLE.into(), state: state.into() }
    }
}

/// Why there is nothing to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which kind of answer it is.
    pub blame: Blame,
    /// In a sentence.
    pub text: String,
    /// Who is to blame.
    pub rows: Vec<Row>,
    /// Rows beyond [`MAX_ROWS`].
    pub left_out: usize,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// No node has a file.
    NothingThere,
    /// No node may register from that directory.
    NotAllowed,
    /// A node has nothing, or what cannot be registered.
    Unusable,
    /// The nodes, or they and the expected digest, differ.
    NotEqual,
}

impl Report {
    fn new(blame: Blame, text: String, rows: BTreeSet<Row>) -> Self {
        let left_out = rows.len().saturating_sub(MAX_ROWS);
        Self { blame, text, rows: rows.into_iter().take(MAX_ROWS).collect(), left_out }
    }
}

/// What each live target found, by node.
pub type Findings = BTreeMap<String, Finding>;

/// The manifest that all have, if they have; with `expect`, if it is that one.
pub fn compare(findings: &Findings, expect: Option<&Digest>) -> Result<Manifest, Report> {
    let mut files: BTreeMap<&str, (&Manifest, Digest)> = BTreeMap::new();
    let mut refused: Vec<(&str, &str, Option<&str>, &str)> = Vec::new();
    for (node, finding) in findings {
        match finding {
            Finding::Found { files: found } => {
                files.insert(node, (found, found.digest()));
            }
            Finding::Refused { state, file, error } => refused.push((node, state, file.as_deref(), error)),
        }
    }
    let reference = reference(&files, expect);
    let mut rows = BTreeSet::new();
    for (node, (found, digest)) in &files {
        match &reference {
            Some((against, wanted)) if wanted != digest => rows.extend(differences(node, found, against)),
            Some(_) => {}
            None => {
                rows.insert(Row::whole(node, "DIFFERENT"));
            }
        }
    }
    for (node, state, file, _) in &refused {
        let file = file.unwrap_or(WHOLE);
        rows.insert(Row { node: (*node).into(), file: file.into(), state: (*state).into() });
    }
    let Some((node, _, _, error)) = refused.first() else {
        return match reference {
            Some((manifest, _)) if rows.is_empty() => Ok(manifest.clone()),
            Some(_) => Err(Report::new(Blame::NotEqual, not_equal(&rows, files.len()), rows)),
            None => Err(Report::new(Blame::NotEqual, not_expected(&files, expect), rows)),
        };
    };
    let all =
        |states: &[&str]| files.is_empty() && refused.iter().all(|(_, state, ..)| states.contains(state));
    let blame = match () {
        () if all(&["MISSING", "EMPTY"]) => Blame::NothingThere,
        () if all(&["NOT_ALLOWED"]) => Blame::NotAllowed,
        () => Blame::Unusable,
    };
    let text = match blame {
        Blame::NothingThere => format!("no node has a file to register: node {node}: {error}"),
        Blame::NotAllowed | Blame::Unusable | Blame::NotEqual => format!("node {node}: {error}"),
    };
    Err(Report::new(blame, text, rows))
}

/// All nodes have the same files, and they are not the expected ones.
pub fn unexpected(nodes: &[&String], found: &str, expect: &Digest) -> Report {
    let rows = nodes.iter().map(|node| Row::whole(node, "DIFFERENT")).collect();
    let text = format!("no node has the expected digest {expect}; all of them have {found}");
    Report::new(Blame::NotEqual, text, rows)
}

/// What the others are compared with: the expected files, else those that most nodes have, else the first node's.
/// None if nobody has the expected ones.
fn reference<'a>(
    files: &BTreeMap<&str, (&'a Manifest, Digest)>,
    expect: Option<&Digest>,
) -> Option<(&'a Manifest, Digest)> {
    if let Some(expect) = expect {
        return files.values().find(|(_, digest)| digest == expect).copied();
    }
    let mut votes: BTreeMap<Digest, usize> = BTreeMap::new();
    for (_, digest) in files.values() {
        *votes.entry(*digest).or_default() += 1;
    }
    let most = votes.values().max()?;
    files.values().find(|(_, digest)| votes.get(digest) == Some(most)).copied()
}

fn differences(node: &str, found: &Manifest, against: &Manifest) -> Vec<Row> {
    let by_path = |manifest: &Manifest| -> BTreeMap<String, (u64, Digest)> {
        manifest.files().iter().map(|file| (file.path.clone(), (file.size, file.blake3))).collect()
    };
    let (here, there) = (by_path(found), by_path(against));
    let paths: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    let state = |path: &String| match (here.get(path), there.get(path)) {
        (Some(ours), Some(theirs)) if ours == theirs => None,
        (Some(_), Some(_)) => Some("DIFFERENT"),
        (Some(_), None) => Some("EXTRA"),
        (None, _) => Some("MISSING"),
    };
    let row = |path: &String, state: &str| Row { node: node.into(), file: path.clone(), state: state.into() };
    paths.into_iter().filter_map(|path| state(path).map(|state| row(path, state))).collect()
}

fn not_equal(rows: &BTreeSet<Row>, nodes: usize) -> String {
    let names: BTreeSet<&str> = rows.iter().map(|row| row.node.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    format!(
        "the files are not equal on all {nodes} nodes ({} {}): make them equal and register again",
        names.join(", "),
        if names.len() == 1 { "differs" } else { "differ" }
    )
}

fn not_expected(files: &BTreeMap<&str, (&Manifest, Digest)>, expect: Option<&Digest>) -> String {
    let found: BTreeSet<String> = files.values().map(|(_, digest)| digest.to_string()).collect();
    let found: Vec<String> = found.into_iter().collect();
    match expect {
        Some(expect) => format!("no node has the expected digest {expect}; found {}", found.join(", ")),
        None => "no target node is alive any more".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icp_store::FileEntry;

    fn found(files: &[(&str, &str)]) -> Finding {
        let entries = files.iter().map(|(path, bytes)| FileEntry {
            path: (*path).into(),
            size: bytes.len() as u64,
            blake3: Digest::of(bytes.as_bytes()),
        });
        Finding::Found { files: Manifest::new(entries.collect()).unwrap() }
    }

    fn refused(state: &str, file: Option<&str>) -> Finding {
        Finding::Refused { state: state.into(), file: file.map(Into::into), error: format!("it is {state}") }
    }

    fn nodes(findings: &[&Finding]) -> Findings {
        ["a", "b", "c"].into_iter().zip(findings).map(|(node, f)| (node.into(), (*f).clone())).collect()
    }

    fn rows(report: &Report) -> Vec<(&str, &str, &str)> {
        report.rows.iter().map(|r| (r.node.as_str(), r.file.as_str(), r.state.as_str())).collect()
    }

    #[test]
    fn only_what_is_equal_everywhere_passes() {
        let (x, y) = (found(&[("a", "1"), ("b", "2")]), found(&[("a", "1"), ("b", "3")]));
        let Finding::Found { files } = &x else { unreachable!() };
        assert_eq!(&compare(&nodes(&[&x, &x, &x]), None).unwrap(), files);
        assert_eq!(&compare(&nodes(&[&x, &x]), Some(&files.digest())).unwrap(), files);
        let two_of_three = compare(&nodes(&[&x, &y, &x]), None).unwrap_err();
        assert_eq!(two_of_three.blame, Blame::NotEqual);
        assert_eq!(rows(&two_of_three), [("b", "b", "DIFFERENT")]);
        assert!(two_of_three.text.contains("(b differs)"), "{}", two_of_three.text);
        // Most are wrong: the expected one says who.
        let expected = compare(&nodes(&[&y, &x, &y]), Some(&files.digest())).unwrap_err();
        assert_eq!(rows(&expected), [("a", "b", "DIFFERENT"), ("c", "b", "DIFFERENT")]);
        let nobody = compare(&nodes(&[&y, &y]), Some(&files.digest())).unwrap_err();
        assert_eq!(rows(&nobody), [("a", "*", "DIFFERENT"), ("b", "*", "DIFFERENT")]);
        assert!(nobody.text.contains(&files.digest().to_string()), "{}", nobody.text);
    }

    #[test]
    fn each_difference_is_a_row_and_a_node_without_files_is_one_too() {
        let (x, y) = (found(&[("a", "1"), ("b", "2")]), found(&[("a", "1"), ("c", "2")]));
        let differ = compare(&nodes(&[&x, &y]), None).unwrap_err();
        assert_eq!(rows(&differ), [("b", "b", "MISSING"), ("b", "c", "EXTRA")]);
        let one_empty = compare(&nodes(&[&x, &refused("EMPTY", None)]), None).unwrap_err();
        assert_eq!((one_empty.blame, rows(&one_empty)), (Blame::Unusable, vec![("b", "*", "EMPTY")]));
        assert_eq!(one_empty.text, "node b: it is EMPTY");
        let link = compare(&nodes(&[&refused("REFUSED", Some("l")), &x]), None).unwrap_err();
        assert_eq!(rows(&link), [("a", "l", "REFUSED")]);
        let none = [&refused("EMPTY", None), &refused("MISSING", None)];
        assert_eq!(compare(&nodes(&none), None).unwrap_err().blame, Blame::NothingThere);
        let not_allowed = refused("NOT_ALLOWED", None);
        let report = compare(&nodes(&[&not_allowed, &not_allowed]), None).unwrap_err();
        assert_eq!(report.blame, Blame::NotAllowed);
        assert_eq!(compare(&nodes(&[&not_allowed, &x]), None).unwrap_err().blame, Blame::Unusable);
        assert_eq!(compare(&Findings::new(), None).unwrap_err().text, "no target node is alive any more");
    }

    #[test]
    fn many_rows_are_cut_and_counted() {
        let many: Vec<String> = (0..MAX_ROWS + 5).map(|i| format!("f{i}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "x")).collect();
        let report = compare(&nodes(&[&found(&[("a", "1")]), &found(&many)]), None).unwrap_err();
        assert_eq!((report.rows.len(), report.left_out), (MAX_ROWS, 6));
    }
}
