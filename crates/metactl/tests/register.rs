//! `icp register` against a dispatcher that gives each of its answers: rows are data, the reason is talk, and the exit
//! code tells differing files from everything else.

mod lone;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;

const DIFFER: &str = r#"{"errors":["they differ"],"reason":"NOT_EQUAL","rows-left-out":3,
    "rows":[{"node":"b","file":"lib/dep.jar","state":"DIFFERENT"}]}"#;
const MISSING: &str = r#"{"errors":["no node has a file"],"reason":"CONTENT_MISSING",
    "rows":[{"node":"a","file":"*","state":"MISSING"}]}"#;
const EXISTS: &str = r#"{"errors":["EXISTS: lib:1.0 already exists"]}"#;
const READY: &str = r#"{"status":"READY","rows":[{"node":"a","file":"*","state":"OK"}]}"#;

/// Answers, in order, what the dispatcher says: status and body.
const ANSWERS: [(u16, &str); 5] = [(200, READY), (409, DIFFER), (404, MISSING), (409, EXISTS), (409, DIFFER)];

/// Serves the answers; hands back the request lines it read.
fn dispatcher(listener: TcpListener) -> Vec<String> {
    let mut asked = Vec::new();
    for (status, body) in ANSWERS {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        asked.push(lines.next().unwrap().unwrap());
        assert!(lines.any(|line| line.unwrap().is_empty()), "the request has no end");
        let length = body.len();
        write!(&stream, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            .unwrap();
    }
    asked
}

fn metactl(endpoint: &str, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metactl"));
    let output = command.args(["--endpoints", endpoint]).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn session(endpoint: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let record = format!(
        r#"{{"v":1,"roles":["dispatcher"],"rest_address":"{address}","slots":0,"version":"x","boot":"b"}}"#
    );
    assert_eq!(metactl(endpoint, &["put", "/node/d1", &record]).0, 0);
    let asked = std::thread::spawn(move || dispatcher(listener));
    let register = |more: &[&str]| metactl(endpoint, &[&["icp", "register", "lib:1.0"], more].concat());

    let ready = register(&["--from", "/opt/my libs", "--nodes", "a,b", "--timeout", "7s"]);
    assert_eq!(ready, (0, "NODE  FILE  STATE\na     *     OK\n".into(), String::new()));
    let (code, stdout, stderr) = register(&[]);
    assert_eq!((code, stdout.as_str()), (1, "NODE  FILE         STATE\nb     lib/dep.jar  DIFFERENT\n"));
    assert!(stderr.contains("they differ") && stderr.contains("3 more rows"), "{stderr}");
    let (code, stdout, stderr) = register(&[]);
    assert_eq!((code, stdout.as_str()), (5, "NODE  FILE  STATE\na     *     MISSING\n"), "{stderr}");
    let (code, stdout, stderr) = register(&[]);
    assert_eq!((code, stdout.as_str()), (4, ""), "{stderr}");
    assert!(stderr.contains("already exists"), "{stderr}");
    let (code, stdout, _) = register(&["-o", "json"]);
    assert!(code == 1 && stdout.lines().count() == 1 && stdout.contains("\"DIFFERENT\""), "{stdout}");

    let asked = asked.join().unwrap();
    let first = &asked[0];
    assert!(first.starts_with("POST /icp/lib/1.0/register?nodes=a,b&timeout_ms=7000&from="), "{first}");
    assert!(asked[1].contains("?nodes=all&timeout_ms=300000 "), "{}", asked[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_has_its_rows_its_sentence_and_its_exit_code() {
    let (_dir, replica) = lone::replica().await;
    let endpoint = replica.client_addr().to_string();
    tokio::task::spawn_blocking(move || session(&endpoint)).await.unwrap();
    replica.shutdown().await;
}
