//! Everything in one process: it serves, exports what its page of metrics says, stops cleanly, and comes back.

use std::collections::BTreeSet;

use crate::support::{Standalone, get, wait_until_ok};

/// The names of the `# TYPE` lines.
fn exported(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The names in the first columns of the page, with whether they have labels: such a family is exported once it counts.
fn documented() -> Vec<(String, bool)> {
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `metastore_"));
    rows.map(|row| {
        let mut cells = row.split('|');
        let name = cells.next().unwrap().trim().trim_end_matches('`');
        let rest = cells.collect::<Vec<_>>().join("|");
        (format!("metastore_{name}"), rest.contains("by `"))
    })
    .collect()
}

/// Where the process's server node listens, as the store knows it.
fn node_address(client: &str) -> String {
    let body = wait_until_ok(client, "/kv//node/?prefix=1");
    let address = body.split("node_address").nth(1).unwrap();
    address
        .split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))
        .find(|it| it.len() > 8)
        .unwrap()
        .to_owned()
}

#[test]
fn it_serves_measures_stops_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Standalone::start(dir.path());
    for address in [&first.client, &first.rest] {
        wait_until_ok(address, "/livez");
        wait_until_ok(address, "/readyz");
    }
    assert_eq!(get(&first.rest, "/run-async").1.trim(), "[]");
    let node = node_address(&first.client);
    let mut all = BTreeSet::new();
    let page = documented();
    for address in [&first.client, &first.rest, &node] {
        let names = exported(&wait_until_ok(address, "/metrics"));
        assert!(names.contains("metastore_build"), "{names:?}");
        for name in &names {
            assert!(page.iter().any(|(known, _)| known == name), "{name} is not in docs/metrics.md");
        }
        all.extend(names);
    }
    for (name, has_labels) in &page {
        assert!(*has_labels || all.contains(name), "docs/metrics.md has {name}, and no process exports it");
    }
    assert!(first.stop().success());
    let mut second = Standalone::start(dir.path());
    wait_until_ok(&second.rest, "/readyz");
    assert!(second.stop().success());
}
