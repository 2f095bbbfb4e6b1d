//! `POST /jars/upload` and a JAR sent along with a run: answered as Flink does, with nothing on the disk but the JAR.

use serde_json::{Value, json};

use crate::archives::archives;
use crate::rig::{BOUNDARY, Reply, Rig, Then, end, form, part, request, with_headers};

const UPLOAD: &str = "/jars/upload";

impl Rig {
    async fn upload(&self, form: &[u8]) -> Reply {
        self.send(&request("POST", UPLOAD, form), Then::Read).await
    }

    /// Takes a JAR that was uploaded back, and says what `GET /jars` said of it.
    async fn take_back(&self, case: &str) -> Value {
        let listed = self.cluster.get(0, "/jars").await.json["files"][0].clone();
        let id = records::keys::encode_segment(listed["id"].as_str().unwrap());
        let packages = self.directory.path().join("work/icp");
        let trees: Vec<_> = std::fs::read_dir(packages).unwrap().flatten().collect();
        let jars = trees.iter().filter(|tree| tree.path().join("1/job.jar").is_file()).count();
        assert_eq!(jars, 1, "{case}: {trees:?}");
        assert_eq!(self.cluster.delete(0, &format!("/jars/{id}")).await.status, 200, "{case}");
        self.is_clean(case).await;
        listed
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jar_is_called_by_its_base_name_alone() {
    let rig = Rig::start().await;
    let outside = format!("{}.jar", rig.outside());
    for (name, kept) in [
        ("../../../evil.jar", "evil.jar"),
        ("../../../../../../../../tmp/evil.jar", "evil.jar"),
        (&*outside, "outside.jar"),
        ("..\\..\\evil.jar", "evil.jar"),
        ("C:\\evil.jar", "evil.jar"),
        ("a/../../evil.jar", "evil.jar"),
        ("....//evil.jar", "evil.jar"),
        ("CON.jar", "CON.jar"),
        ("..%2f..%2fevil.jar", "..%2f..%2fevil.jar"),
        ("..jar", "..jar"),
        (".jar", ".jar"),
        ("<script>.jar", "<script>.jar"),
    ] {
        let reply = rig.upload(&form(&[(name.as_bytes(), b"no jar")])).await;
        assert_eq!(reply.status, 200, "{name}: {}", reply.text);
        let listed = rig.take_back(name).await;
        assert_eq!((&listed["name"], &listed["entry"]), (&json!(kept), &json!([])), "{name}");
        let id = listed["id"].as_str().unwrap();
        assert!(!id.contains('/') && id.ends_with(&format!("_{kept}")), "{id}");
    }
    for (name, text) in [
        (&b""[..], "Only Jar files are allowed."),
        (b".", "Only Jar files are allowed."),
        (b"..", "Only Jar files are allowed."),
        (b"/etc/passwd", "Only Jar files are allowed."),
        (b"evil.jar/", "Only Jar files are allowed."),
        (b"evil.jar/..", "Only Jar files are allowed."),
        (&[&b"n".repeat(300)[..], b".jar"].concat(), "Only Jar files are allowed."),
        (b"a\x01.jar", "Exactly 1 file must be sent, received 0."),
        (b"a\0.jar", "Exactly 1 file must be sent, received 0."),
        (b"a\n.jar", "Exactly 1 file must be sent, received 0."),
        (b"a\xff.jar", "Exactly 1 file must be sent, received 0."),
    ] {
        let case = String::from_utf8_lossy(name).into_owned();
        let reply = rig.upload(&form(&[(name, b"evil")])).await;
        assert_eq!(reply.status, 400, "{case}: {}", reply.text);
        assert!(reply.text.contains(text), "{case}: {}", reply.text);
        rig.is_clean(&case).await;
    }
    rig.serves().await;
    rig.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_not_one_jar_is_refused_as_flink_does() {
    let rig = Rig::start().await;
    let jar = form(&[(b"a.jar", b"content")]);
    let post = |body: &[u8]| request("POST", UPLOAD, body);
    let headed = |headers: &str| with_headers("POST", UPLOAD, headers, &jar);
    let text = part(b"form-data; name=\"note\"", b"x");
    let large = [format!("--{BOUNDARY}\r\nx-a: ").as_bytes(), &b"x".repeat(100_000)].concat();
    let many: Vec<(&[u8], &[u8])> = vec![(b"a.jar", b""); 1000];
    for (case, bytes, then, why) in [
        (
            "two files",
            post(&form(&[(b"a.jar", b"x"), (b"b.jar", &[b'x'; 200_000])])),
            Then::Read,
            "received 2.",
        ),
        ("a thousand files", post(&form(&many)), Then::Read, "received 1000."),
        ("a text", post(&end(vec![text])), Then::Read, "Received unknown attribute note."),
        ("no part", post(&end(vec![])), Then::Read, "received 0."),
        ("nothing", post(b""), Then::Read, "received 0."),
        ("cut off", post(&jar[..jar.len() - 20]), Then::Read, "received 0."),
        ("no end of a head", post(&large), Then::Read, "received 0."),
        ("a length that is too large", headed("content-length: 100000\r\n"), Then::End, "received 0."),
        ("a length that is too small", headed("content-length: 80\r\n"), Then::Read, "received 0."),
        ("no last chunk", headed("transfer-encoding: chunked\r\n"), Then::Read, ""),
        (
            "no boundary",
            headed("content-type: multipart/form-data\r\ncontent-length: 5\r\n"),
            Then::Read,
            "EmptyRequestBody",
        ),
        ("no form", headed("content-type: a/b\r\ncontent-length: 5\r\n"), Then::Read, "EmptyRequestBody"),
    ] {
        let Reply { status, text } = rig.send(&bytes, then).await;
        let lost = status == 0 && then == Then::End;
        assert!(status == 400 || lost, "{case}: {status} {text}");
        assert!(lost || text.contains(why), "{case}: {text}");
        rig.is_clean(case).await;
        rig.send(&bytes[..bytes.len() - 1], Then::Vanish).await;
        rig.is_clean(&format!("{case}, and a client that is gone")).await;
    }
    rig.serves().await;
    rig.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_would_harm_is_taken_and_not_unpacked() {
    let rig = Rig::start().await;
    for (case, bytes) in archives() {
        let reply = rig.upload(&form(&[(b"a.jar", &bytes)])).await;
        assert_eq!(reply.status, 200, "{case}: {}", reply.text);
        let listed = rig.take_back(case).await;
        let entries = listed["entry"].as_array().unwrap();
        assert!(entries.iter().all(|entry| entry["name"] == "Main"), "{case}: {listed}");
        assert!(entries.len() <= 1, "{case}: {listed}");
    }
    rig.serves().await;
    rig.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_takes_one_jar_and_no_second_source_of_it() {
    let rig = Rig::start().await;
    let jar = || {
        form(&[(b"a.jar", b"x")])[..].strip_suffix(format!("--{BOUNDARY}--\r\n").as_bytes()).unwrap().to_vec()
    };
    let text =
        |name: &str, text: &str| part(format!("form-data; name=\"{name}\"").as_bytes(), text.as_bytes());
    let request_json = |text: &str| part(b"form-data; name=\"request\"", text.as_bytes());
    for (case, parts, why) in [
        ("a JAR and a jarId", vec![jar(), text("jarId", "x.jar")], "a JAR and a jarId"),
        ("a JAR and a jarId in JSON", vec![request_json(r#"{"jarId":"x"}"#), jar()], "a JAR and a jarId"),
        ("two JARs", vec![jar(), jar()], "two files"),
        ("65 parts", vec![text("a", "b"); 65], "more than 64 parts"),
        ("a path that leaves", vec![text("triggerId", "../x"), jar()], "\\\"..\\\""),
        ("JSON that is none", vec![request_json("{"), jar()], ""),
        ("JSON without end", vec![request_json(&"[".repeat(100_000)), jar()], ""),
        ("no JAR", vec![text("triggerId", "T1")], "neither"),
    ] {
        let reply = rig.send(&request("POST", "/run-async", &end(parts)), Then::Read).await;
        assert_eq!(reply.status, 400, "{case}: {}", reply.text);
        assert!(reply.text.contains(why), "{case}: {}", reply.text);
        rig.is_clean(case).await;
    }
    let large = end(vec![text("programArgs", &"x".repeat(2 << 20)), jar()]);
    assert_eq!(rig.send(&request("POST", "/run-async", &large), Then::Read).await.status, 413);
    rig.is_clean("a text of 2 MiB").await;
    rig.cluster.stop().await;
}
