//! Names and paths: of files in a form, of packages, nodes and jars in a path.

use serde_json::json;

use crate::rig::{Rig, form, request};

/// Names of one file, and what the refusal says.
pub fn bad_names(outside: &str) -> Vec<(Vec<u8>, &'static str)> {
    let mut names: Vec<(Vec<u8>, &str)> = [
        ("../../x", "`..`"),
        ("../../../../../../../../../../tmp/x", "`..`"),
        ("..\\..\\x", "'\\\\'"),
        ("a/../../x", "`..`"),
        ("....//x", "ends with a dot"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("C:\\x", "':'"),
        ("C:x", "':'"),
        ("\\\\server\\share\\x", "'\\\\'"),
        ("", "empty"),
        (".", "`.`"),
        ("..", "`..`"),
        ("./x", "`.`"),
        ("CON", "Windows device"),
        ("lib/nul.jar", "Windows device"),
        ("x.", "ends with a dot"),
        ("x ", "ends with a dot or a space"),
        ("a\u{85}b", "the character"),
    ]
    .map(|(name, why)| (name.as_bytes().to_vec(), why))
    .into();
    names.push((outside.into(), "absolute"));
    names.push((vec![b'n'; 300], "longer than 255"));
    names.push((b"p/".repeat(70).into_iter().chain(*b"x").collect(), "deeper than"));
    names.push((
        [&b"d".repeat(200)[..], b"/"].concat().repeat(6).into_iter().chain(*b"x").collect(),
        "longer than",
    ));
    names
}

/// Paths that cannot be in one package.
pub fn clashes() -> [(&'static [&'static str], &'static str); 6] {
    [
        (&["a", "a"], "there twice"),
        (&["A", "a"], "only in case"),
        (&["Lib/x", "lib/y"], "only in case"),
        (&["\u{e9}.jar", "\u{c9}.jar"], "only in case"),
        (&["a", "a/b"], "a file and a directory"),
        (&["a/b", "a"], "a file and a directory"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_takes_no_path_that_could_leave_it() {
    let rig = Rig::start().await;
    let refused = async |case: &str, body: Vec<u8>, why: &str| {
        let reply = rig.put("/icp/bad/1.0.0", body).await;
        assert_eq!(reply.status, 400, "{case}: {}", reply.text);
        assert!(reply.text.contains("\"errors\"") && reply.text.contains(why), "{case}: {}", reply.text);
        rig.is_clean(case).await;
    };
    for (name, why) in bad_names(&rig.outside()) {
        let case = String::from_utf8_lossy(&name).into_owned();
        // JSON escapes what is quoted in it once more.
        let why = why.replace('\\', "\\\\");
        refused(&case, form(&[(&name, b"evil")]), &why).await;
        // A good file before it goes with it.
        refused(&case, form(&[(b"good.jar", b"good"), (&name, b"evil")]), &why).await;
    }
    // What no header can hold, and what is no text.
    for name in [&b"a\0b"[..], b"a\x01b", b"a\nb", b"a\rb", b"a\r\nx: y"] {
        refused(&format!("{name:?}"), form(&[(name, b"evil")]), "").await;
    }
    refused("not UTF-8", form(&[(b"a\xffb", b"evil")]), "file name cannot be read").await;
    for (paths, why) in clashes() {
        let files: Vec<(&[u8], &[u8])> = paths.iter().map(|path| (path.as_bytes(), &b"x"[..])).collect();
        refused(&format!("{paths:?}"), form(&files), why).await;
    }
    refused("no file", form(&[]), "at least one file").await;
    let names: Vec<String> = (0..4097).map(|i| format!("d{}/f{i}", i % 7)).collect();
    let many: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), &b""[..])).collect();
    refused("too many", form(&many), "more than 4096 files").await;
    rig.serves().await;
    rig.cluster.stop().await;
}

/// A name that only looks as if it led somewhere is a name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_decoded_twice() {
    let rig = Rig::start().await;
    let names = ["..%2f..%2fx", "%2e%2e/x", "a%00b", "~/x", "$HOME/x", "-rf", "a'b;c", "&amp;"];
    let files: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), &b"x"[..])).collect();
    let reply = rig.put("/icp/odd/1.0.0", form(&files)).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    for name in names {
        assert!(rig.directory.path().join("work/icp/odd/1.0.0").join(name).is_file(), "{name}");
    }
    rig.remove("/icp/odd/1.0.0").await;
    rig.is_clean("odd names").await;
    rig.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_of_the_api_leads_nowhere_else() {
    let rig = Rig::start().await;
    let long = "n".repeat(129);
    let names = [
        "..%2F..%2Fetc",
        "%2e%2e",
        "..",
        ".",
        "..%252f..%252fetc",
        "%252e%252e",
        "..%5C..%5Cx",
        "a%00b",
        "a%0Ab",
        "CON",
        "C:",
        "%FF",
        "%C0%AE%C0%AE",
        "%2Fetc%2Fpasswd",
        "-x",
        "a%20b",
        &long,
    ];
    let body = form(&[(b"a", b"x")]);
    for name in names {
        for path in [
            format!("/icp/{name}/1.0.0"),
            format!("/icp/good/{name}"),
            format!("/icp/{name}"),
            format!("/icp/{name}/1.0.0/register"),
            format!("/icp/{name}/1.0.0/check"),
            format!("/icp/{name}/1.0.0/pull?node=d1"),
            format!("/icp/good/1.0.0/pull?node={name}"),
            format!("/icp/{name}/1.0.0/refs"),
            format!("/icp/{name}/1.0.0/upload?op=x"),
            format!("/icp/good/1.0.0/upload?op={name}"),
            format!("/icp/{name}/1.0.0/files/{name}?op=x"),
            format!("/icp/good/1.0.0/files/{name}?op={name}"),
            format!("/nodes/{name}/icp"),
            format!("/run-async/{name}"),
            format!("/jobs/{name}/attempts/1/stdout"),
            format!("/jobs/{}/attempts/{name}/{name}", "a".repeat(32)),
            format!("/jars/{name}"),
            format!("/jars/{name}/run"),
            format!("/{name}/{name}/etc/passwd"),
        ] {
            for method in ["GET", "PUT", "POST", "DELETE"] {
                // 500 is Flink's answer to a run of a JAR that it does not know.
                let as_flink = method == "POST" && path.ends_with("/run");
                let reply = rig.send(&request(method, &path, &body), crate::rig::Then::Read).await;
                let refused = matches!(reply.status, 400 | 404 | 405) || (as_flink && reply.status == 500);
                assert!(refused, "{method} {path}: {} {}", reply.status, reply.text);
                assert!(!reply.text.contains("root:"), "{method} {path}: {}", reply.text);
                assert!(reply.text.starts_with("{\"errors\":["), "{method} {path}: {}", reply.text);
            }
        }
        rig.is_clean(name).await;
    }
    let from = format!("/icp/good/1.0.0/register?from={}", "/etc");
    let reply = rig.cluster.post(0, &from, "").await;
    assert_eq!((reply.status, &reply.json["reason"]), (400, &json!("NOT_ALLOWED")), "{}", reply.text);
    rig.is_clean("a directory that is not allowed").await;
    rig.serves().await;
    rig.cluster.stop().await;
}
