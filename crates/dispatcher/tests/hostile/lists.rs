//! The list first, the files afterwards: lists that lie, and files that are not what was listed.

use serde_json::{Value, json};

use crate::names::{bad_names, clashes};
use crate::rig::{Reply, Rig, Then};

const PATH: &str = "/icp/bad/1.0.0";

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn file(path: &str, content: &[u8]) -> Value {
    json!({ "path": path, "size": content.len(), "blake3": digest(content) })
}

impl Rig {
    async fn list(&self, body: &[u8]) -> Reply {
        let length = body.len();
        let head = format!(
            "PUT {PATH}?timeout_ms=60000 HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.send(&[head.as_bytes(), body].concat(), Then::Read).await
    }

    async fn file(&self, path: &str, headers: &str, body: &[u8], then: Then) -> Reply {
        let head = format!("PUT {PATH}/files/{path} HTTP/1.1\r\nhost: h\r\n{headers}\r\n");
        self.send(&[head.as_bytes(), body].concat(), then).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_cannot_be_is_refused() {
    let rig = Rig::start().await;
    let refused = async |case: &str, body: &[u8], status: u16, why: &str| {
        let reply = rig.list(body).await;
        assert_eq!(reply.status, status, "{case}: {}", reply.text);
        assert!(reply.text.contains("\"errors\"") && reply.text.contains(why), "{case}: {}", reply.text);
        rig.is_clean(case).await;
    };
    let names = bad_names(&rig.outside());
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let more = [("a\0b", "the character"), ("a\u{1}b", "the character"), ("a\nb", "the character")];
    let names = names.iter().map(|(name, why)| (text(name), *why));
    for (name, why) in names.chain(more.map(|(name, why)| (name.to_owned(), why))) {
        let list = json!({ "files": [file("good", b"x"), file(&name, b"evil")] }).to_string();
        refused(&name, list.as_bytes(), 400, &why.replace('\\', "\\\\")).await;
    }
    for (paths, why) in clashes() {
        let files: Vec<Value> = paths.iter().map(|path| file(path, b"x")).collect();
        refused(why, json!({ "files": files }).to_string().as_bytes(), 400, why).await;
    }
    let many: Vec<Value> = (0..4097).map(|i| file(&format!("f{i}"), b"")).collect();
    refused("too many", json!({ "files": many }).to_string().as_bytes(), 400, "more than 4096 files").await;

    let one = |size: Value, hash: &str| json!({ "files": [{ "path": "a", "size": size, "blake3": hash }] });
    let good = digest(b"x");
    let twice = json!({ "files": [
        { "path": "a", "size": 1, "blake3": good }, { "path": "b", "size": 2, "blake3": good },
    ] });
    for (case, list, why) in [
        ("no file", json!({ "files": [] }), "at least one file"),
        ("no list", json!({}), "files"),
        ("an array", json!([]), ""),
        ("another field", json!({ "files": [file("a", b"x")], "owner": "root" }), "owner"),
        ("a negative size", one(json!(-1), &good), "size"),
        ("a size with a fraction", one(json!(1.5), &good), "size"),
        ("a size as text", one(json!("1"), &good), "size"),
        ("a size beyond numbers", one(json!(1e300), &good), "size"),
        ("a short hash", one(json!(1), "beef"), "list of files"),
        (
            "a hash that is a path",
            one(json!(1), "../../../../../../../../../../../../../../../../../../../../x.x"),
            "",
        ),
        ("a size that the hash has not", one(json!(7), &digest(b"")), "cannot have 7 bytes"),
        ("two sizes of one hash", twice, "cannot have 2 bytes"),
    ] {
        refused(case, list.to_string().as_bytes(), 400, why).await;
    }
    refused("nothing", b"", 400, "list of files").await;
    refused("no end", b"{\"files\":[", 400, "list of files").await;
    refused("no text", b"{\"files\":[{\"path\":\"\xff\"}]}", 400, "list of files").await;
    refused("depth", "[".repeat(100_000).as_bytes(), 400, "list of files").await;
    refused("5 MiB", &[b' '; 5 << 20], 413, "larger than").await;
    let exabytes = one(json!(u64::MAX), &digest(b"never")).to_string();
    refused("all there is", exabytes.as_bytes(), 507, "not enough disk space").await;
    rig.serves().await;
    rig.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_not_as_listed_are_refused() {
    let rig = Rig::start().await;
    let content = vec![b'c'; 100_000];
    let begun = rig.list(json!({ "files": [file("a.jar", &content)] }).to_string().as_bytes()).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    let answer: Value = serde_json::from_str(&begun.text).unwrap();
    let (op, hash) = (answer["op"].as_str().unwrap(), digest(&content));
    let wrong = vec![b'w'; content.len()];
    let long = [&content[..], b"more"].concat();
    let at = |offset: &str| format!("{hash}?op={op}&offset={offset}");
    let of = |body: &[u8]| format!("content-length: {}\r\n", body.len());
    for (case, path, headers, body, status, why) in [
        (
            "a file that is not listed",
            format!("{}?op={op}", digest(b"x")),
            of(b"x"),
            &b"x"[..],
            404,
            "no file with hash",
        ),
        ("a hash that is a path", format!("..%2F..%2F..%2Fx?op={op}"), of(b"x"), b"x", 400, ""),
        ("a hash that is none", format!("{}?op={op}", "g".repeat(64)), of(b"x"), b"x", 400, ""),
        ("an operation that is a path", format!("{hash}?op=..%2F..%2Fx"), of(b"x"), b"x", 404, "is over"),
        ("no operation", hash.clone(), of(b"x"), b"x", 400, "op"),
        ("an offset beyond the end", at("18446744073709551615"), of(b"x"), b"x", 409, "OFFSET"),
        ("an offset beyond numbers", at("18446744073709551616"), of(b"x"), b"x", 400, "offset"),
        ("a negative offset", at("-1"), of(b"x"), b"x", 400, "offset"),
        (
            "another parameter",
            format!("{}&path=/etc/x", at("0")),
            of(b"x"),
            b"x",
            400,
            "unknown query parameter",
        ),
        (
            "a chunk that is no number",
            at("0"),
            "transfer-encoding: chunked\r\n".into(),
            b"xyz\r\n",
            400,
            "broke off",
        ),
        ("other bytes", at("0"), of(&wrong), &wrong, 422, "HASH"),
        ("more bytes than listed", at("0"), of(&long), &long, 400, "100000 bytes by the list"),
    ] {
        let reply = rig.file(&path, &headers, body, Then::Read).await;
        assert_eq!(reply.status, status, "{case}: {}", reply.text);
        assert!(reply.text.contains(why), "{case}: {}", reply.text);
    }
    // Gone at 99 %: what came is kept for the next try, which ends the create.
    rig.file(&at("0"), &of(&content), &content[..99_000], Then::Vanish).await;
    let upload = format!("{PATH}/upload?op={op}");
    let sent = rig
        .cluster
        .until(|| async {
            let received = rig.cluster.get(0, &upload).await.json["missing"][0]["received"].as_u64()?;
            let rest = &content[usize::try_from(received).unwrap()..];
            let sent = rig.file(&at(&received.to_string()), &of(rest), rest, Then::Read).await;
            // More came meanwhile: from there.
            (sent.status != 409).then_some(sent)
        })
        .await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    rig.cluster
        .until(|| async { (rig.cluster.get(0, PATH).await.json["status"] == "READY").then_some(()) })
        .await;
    let tree = rig.directory.path().join("work/icp/bad/1.0.0");
    assert_eq!(std::fs::read(tree.join("a.jar")).unwrap(), content);
    assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 1);
    rig.remove(PATH).await;
    rig.is_clean("a list and its file").await;

    // A list whose files never come ends with its time, and leaves nothing.
    let list = json!({ "files": [file("a.jar", &content)] }).to_string();
    let headers = [("content-type", "application/json")];
    let path = format!("{PATH}?timeout_ms=500");
    assert_eq!(rig.cluster.send(0, "PUT", &path, &headers, list.into()).await.status, 202);
    rig.is_clean("files that never came").await;
    rig.serves().await;
    rig.cluster.stop().await;
}
