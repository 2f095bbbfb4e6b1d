//! A session with a real replica, word for word: what operators read and scripts cut apart.

mod lone;

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

/// Commands with their exit code, stdin and output. `{lease}` is the lease granted first; addresses and ids that
/// differ from run to run are masked.
const SESSION: &[(&str, &str, i32, &str)] = &[
    ("put /app/color blue", "", 0, "OK\n"),
    ("put /app/size", "large", 0, "OK\n"),
    ("put /app/color green --prev-kv", "", 0, "OK\n/app/color\nblue\n"),
    ("get /app/color", "", 0, "/app/color\ngreen\n"),
    ("get /app/ --prefix --keys-only", "", 0, "/app/color\n/app/size\n"),
    ("get /app/ --prefix --count-only", "", 0, "2\n"),
    ("get /app/ --prefix --order descend --print-value-only", "", 0, "large\ngreen\n"),
    ("get /app/color --rev 2 --print-value-only", "", 0, "blue\n"),
    ("get /app/color --consistency s --print-value-only", "", 0, "green\n"),
    ("get /app/a /app/d --keys-only", "", 0, "/app/color\n"),
    ("get nosuch", "", 0, ""),
    ("get nosuch --fail", "", 5, ""),
    ("get /app/color --rev 99", "", 1, ""),
    (
        "get /app/size -o json",
        "",
        0,
        "{\"count\":1,\"header\":{\"cluster_id\":#,\"member_id\":#,\"raft_term\":1,\"revision\":4},\
         \"kvs\":[{\"create_revision\":3,\"key\":\"L2FwcC9zaXpl\",\"mod_revision\":3,\"value\":\"bGFyZ2U=\",\"version\":1}]}\n",
    ),
    (
        "txn",
        "mod(\"/app/color\") > \"0\"\n\nput /app/color red\nget /app/color\n\nput never 1\n",
        0,
        "SUCCESS\n\nOK\n\n/app/color\nred\n",
    ),
    ("txn", "val(\"/app/color\") = \"blue\"\n\n\ndel /app/size\n", 0, "FAILURE\n\n1\n"),
    ("txn", "nonsense\n", 2, ""),
    ("put /app/alive yes --lease {lease}", "", 0, "OK\n"),
    (
        "lease timetolive {lease} --keys",
        "",
        0,
        "lease {lease} granted with TTL(600s), remaining(~s), attached keys([/app/alive])\n",
    ),
    ("lease keep-alive {lease} --once", "", 0, "lease {lease} keepalived with TTL(600)\n"),
    ("lease list", "", 0, "found 1 leases\n{lease}\n"),
    ("lease revoke {lease}", "", 0, "lease {lease} revoked\n"),
    ("lease revoke {lease}", "", 5, ""),
    ("lease timetolive {lease}", "", 0, "lease {lease} already expired\n"),
    ("get /app/alive", "", 0, ""),
    ("put /app/x y --lease 7b", "", 5, ""),
    ("del /app/ --prefix", "", 0, "1\n"),
    ("del /app/ --prefix --fail", "", 5, "0\n"),
    ("node list", "", 0, "NODE  ROLES  REST  ADDRESS  SLOTS  USED  DRAIN  VERSION\n"),
    ("run list", "", 0, "TRIGGER  STATUS  PHASE  JOB  JOB-STATE  WAITING\n"),
    ("run status t1", "", 5, ""),
    ("job status 00000000000000000000000000000001", "", 5, ""),
    ("icp status lib:1.0", "", 5, ""),
    ("icp status lib", "", 5, ""),
    ("icp refs lib:1.0", "", 5, ""),
    ("icp wait lib:1.0", "", 5, ""),
    ("icp remove lib:1.0 --dry-run", "", 5, ""),
    ("icp check lib:1.0", "", 3, ""),
    ("icp pull lib:1.0 --node n1", "", 3, ""),
    ("icp status --node n1", "", 3, ""),
    ("icp list -o json", "", 0, "[]\n"),
    ("icp register lib:1.0", "", 3, ""),
    ("run submit --trigger-id t1 nosuch-jar", "", 3, ""),
    ("doctor", "", 0, "revision 9: 0 violations\n"),
];

fn metactl(endpoint: &str, line: &str, stdin: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metactl"));
    command.args(["--endpoints", endpoint]).args(line.split(' '));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that reads no stdin may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Numbers that differ from run to run: ids behind `_id":` and the seconds a lease still has.
fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) =
        ["_id\":", "remaining("].iter().filter_map(|mark| Some(rest.find(mark)? + mark.len())).min()
    {
        out.push_str(&rest[..at]);
        out.push(if rest[..at].ends_with('(') { '~' } else { '#' });
        rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out + rest
}

fn session(endpoint: &str) {
    let (code, granted, _) = metactl(endpoint, "lease grant 600", "");
    assert_eq!(code, 0);
    let lease = granted.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(granted, format!("lease {lease} granted with TTL(600s)\n"));
    for (line, stdin, code, expected) in SESSION {
        let fill = |text: &str| text.replace("{lease}", &lease);
        let (got, stdout, stderr) = metactl(endpoint, &fill(line), stdin);
        assert_eq!(got, *code, "{line}: {stdout}{stderr}");
        assert_eq!(masked(&stdout), fill(expected), "{line}");
        // stdout is data, stderr is talk: a failure says one line, a success says none.
        let lines = stderr.lines().count();
        assert_eq!(
            lines,
            usize::from(*code != 0 && stdout.is_empty() && !line.ends_with("--fail")),
            "{line}: {stderr}"
        );
    }
    let (code, status, _) = metactl(endpoint, "endpoint status", "");
    let (head, row) = status.split_once('\n').unwrap();
    assert!(code == 0 && head.starts_with("ENDPOINT") && row.starts_with(endpoint), "{status}");
    let column = head.split_whitespace().position(|name| name == "LEADER").unwrap();
    assert_eq!(row.split_whitespace().nth(column), Some("true"), "scripts cut out this column: {status}");
    let (code, members, _) = metactl(endpoint, "member list", "");
    assert!(code == 0 && members.contains("started  r1 "), "{members}");
    assert_eq!(metactl(endpoint, "endpoint health --cluster", "").0, 0);
    let (code, page, _) = metactl(endpoint, "cluster status", "");
    assert!(code == 0 && page.contains("leader") && page.contains("dispatchers: 0"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_with_a_replica() {
    let (_dir, replica) = lone::replica().await;
    let endpoint = replica.client_addr().to_string();
    tokio::task::spawn_blocking(move || session(&endpoint)).await.unwrap();
    replica.shutdown().await;
}
