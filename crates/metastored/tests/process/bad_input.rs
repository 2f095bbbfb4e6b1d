//! What an operator gets wrong: one clear line, the right exit code, nothing half done.

use std::{io::Write as _, net::TcpListener, process::Output};

use crate::support::{Standalone, run};

/// The one line of complaint.
fn complaint(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("metastored: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    lines[0].to_owned()
}

#[test]
fn an_unknown_key_names_file_line_and_nearest() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "# mine\nlisten.cleint = \"127.0.0.1:0\"").unwrap();
    let path = file.path().to_str().unwrap();
    let said = complaint(&run(&["replica", "--config", path]), 2);
    assert_eq!(said, format!("metastored: {path}:2: unknown key listen.cleint; did you mean listen.client?"));
}

#[test]
fn an_unknown_flag_and_an_unknown_role_are_usage() {
    for args in [vec!["replica", "--nosuch"], vec!["leader"], vec![]] {
        assert_eq!(run(&args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_port_in_use_names_it_and_the_key() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let data = format!("data-dir={}", dir.path().join("r").display());
    let work = format!("work-dir={}", dir.path().join("w").display());
    let cases = [
        ("replica", "listen.client", vec![data.clone()]),
        ("replica", "listen.peer", vec![data, "listen.client=127.0.0.1:0".to_owned()]),
        ("dispatcher", "listen.rest", vec![work.clone()]),
        ("jobmaster", "listen.node", vec![work]),
    ];
    for (role, key, sets) in cases {
        let set = format!("{key}={address}");
        let mut args = vec![role, "--set", &set];
        sets.iter().for_each(|set| args.extend(["--set", set.as_str()]));
        let said = complaint(&run(&args), 1);
        assert!(said.contains(&address) && said.contains(key) && said.contains("in use"), "{said}");
    }
    assert!(!dir.path().join("r").exists(), "nothing half done");
}

#[test]
fn an_open_port_needs_the_word() {
    let said = complaint(&run(&["dispatcher", "--set", "listen.rest=0.0.0.0:0"]), 1);
    assert!(said.contains("security.insecure = true") && said.contains("run it"), "{said}");
}

#[test]
fn no_replica_and_a_bad_name_are_refused() {
    let said = complaint(&run(&["jobmaster", "--set", "store.endpoints="]), 2);
    assert!(said.contains("store.endpoints"), "{said}");
    let said = complaint(&run(&["jobmaster", "--set", "node.name=a/b"]), 1);
    assert!(said.contains("node.name"), "{said}");
}

#[test]
fn a_directory_of_another_cluster_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Standalone::start(dir.path()).stop().success());
    let data = format!("data-dir={}", dir.path().join("replica").display());
    let sets = [
        data.as_str(),
        "node.name=standalone",
        "cluster.name=other",
        "listen.client=127.0.0.1:0",
        "listen.peer=127.0.0.1:0",
    ];
    let args: Vec<_> = std::iter::once("replica").chain(sets.iter().flat_map(|set| ["--set", set])).collect();
    let said = complaint(&run(&args), 1);
    assert!(said.contains("other") && said.contains("metastore"), "{said}");
}
