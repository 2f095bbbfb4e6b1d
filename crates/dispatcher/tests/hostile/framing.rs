//! What is around the files: lengths that lie, chunks that do not end, broken forms, clients that are slow or go.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{BOUNDARY, Reply, Rig, Then, end, form, part, read_reply, request, with_headers};

const PATH: &str = "/icp/bad/1.0.0";

fn chunked(chunks: &[u8]) -> Vec<u8> {
    with_headers("PUT", PATH, "transfer-encoding: chunked\r\n", chunks)
}

fn lengths(headers: &str, body: &[u8]) -> Vec<u8> {
    with_headers("PUT", PATH, headers, body)
}

/// A body in one chunk, and its end.
fn chunk(body: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
}

/// Requests, what the client does then, and what the refusal says. An answer may get lost where the client broke off.
fn broken() -> Vec<(&'static str, Vec<u8>, Then, &'static str)> {
    let good = form(&[(b"a.jar", b"content"), (b"b.jar", b"more")]);
    let cut = &good[..good.len() - 20];
    let large = b"x".repeat(100_000);
    let big = |before: &str| request("PUT", PATH, &[before.as_bytes(), &large].concat());
    let typed = |content_type: &str| {
        lengths(&format!("content-type: {content_type}\r\ncontent-length: {}\r\n", good.len()), &good)
    };
    let length = |text: &str| lengths(&format!("content-length: {text}\r\n"), &good);
    let headers: String = (0..40).map(|i| format!("x-{i}: y\r\n")).collect();
    let headers =
        format!("--{BOUNDARY}\r\n{headers}content-disposition: form-data; filename=\"a\"\r\n\r\nx\r\n");
    vec![
        ("a chunk without a size", chunked(b"xyz\r\nabc\r\n"), Then::Read, ""),
        ("a chunk of no number's size", chunked(b"fffffffffffffffff\r\nabc\r\n"), Then::Read, ""),
        ("a chunk that is longer than it says", chunked(b"3\r\nabcdef\r\n0\r\n\r\n"), Then::Read, ""),
        ("a chunk that is shorter than it says", chunked(b"ffff\r\nabc\r\n0\r\n\r\n"), Then::End, ""),
        ("no last chunk", chunked(&chunk(&good)[..good.len()]), Then::End, ""),
        ("a length that is too large", length("100000"), Then::End, ""),
        ("a length that is too small", length(&cut.len().to_string()), Then::Read, "broke off"),
        ("a negative length", length("-1"), Then::Read, ""),
        ("a length that is no number", length("many"), Then::Read, ""),
        ("a length beyond numbers", length("99999999999999999999999"), Then::Read, ""),
        ("two lengths", lengths("content-length: 5\r\ncontent-length: 6\r\n", &good), Then::Read, ""),
        ("a length of nothing", lengths("content-length: 0\r\n", b""), Then::Read, "broke off"),
        ("cut off at 99 %", request("PUT", PATH, &good)[..good.len()].to_vec(), Then::End, ""),
        ("no boundary", typed("multipart/form-data"), Then::Read, "no form"),
        ("another boundary", typed("multipart/form-data; boundary=other"), Then::Read, "broke off"),
        ("no end", request("PUT", PATH, cut), Then::Read, "broke off"),
        ("nothing", request("PUT", PATH, b""), Then::Read, "broke off"),
        ("no form at all", request("PUT", PATH, &large), Then::Read, "65536 bytes stand around"),
        ("no end of a boundary", big(&format!("--{BOUNDARY}")), Then::Read, "broke off"),
        ("no end of a head", big(&format!("--{BOUNDARY}\r\nx-a: ")), Then::Read, "65536 bytes stand around"),
        (
            "too many headers of a part",
            request("PUT", PATH, &end(vec![headers.into_bytes()])),
            Then::Read,
            "",
        ),
        (
            "a part without a head",
            request("PUT", PATH, &end(vec![part(b"", b"x")])),
            Then::Read,
            "at least one",
        ),
        (
            "a bare boundary",
            request("PUT", PATH, format!("--{BOUNDARY}\r\n").as_bytes()),
            Then::Read,
            "broke off",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_body_is_refused_and_leaves_nothing() {
    let rig = Rig::start().await;
    for (number, (case, mut bytes, then, why)) in broken().into_iter().enumerate() {
        let Reply { status, text } = rig.send(&bytes, then).await;
        let lost = status == 0 && then == Then::End;
        assert!(status == 400 || lost, "{case}: {status} {text}");
        assert!(lost || text.contains(why), "{case}: {text}");
        rig.is_clean(case).await;
        // The same of a client that is gone, under a name of its own: nobody tells when it was noticed.
        bytes.splice(9..12, format!("g{number:02}").into_bytes());
        rig.send(&bytes[..bytes.len() - 1], Then::Vanish).await;
        rig.is_clean(&format!("{case}, and a client that is gone")).await;
    }
    let plain = with_headers("PUT", PATH, "content-type: text/plain\r\ncontent-length: 3\r\n", b"abc");
    assert_eq!(rig.send(&plain, Then::Read).await.status, 415);
    rig.is_clean("plain text").await;
    rig.serves().await;
    rig.cluster.stop().await;
}

/// What is unusual and right is taken: Java's clients send chunks, curl asks first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusual_bodies_that_are_whole_are_taken() {
    let rig = Rig::start().await;
    let good = form(&[(b"a.jar", b"content")]);
    let pieces: Vec<u8> = good.iter().flat_map(|byte| [b"1\r\n", &[*byte][..], b"\r\n"].concat()).collect();
    let preamble = [b"to be ignored\r\n", &good[..], b"and this too"].concat();
    let upper = "Content-Type: Multipart/Form-Data; boundary=B0undary\r\ncontent-type: x";
    let upper = upper.split("\r\n").next().unwrap();
    let typed =
        format!("PUT {PATH} HTTP/1.1\r\nhost: h\r\n{upper}\r\ncontent-length: {}\r\n\r\n", good.len());
    let note =
        end(vec![part(b"form-data; name=\"note\"", &b"x".repeat(200_000)), good[..good.len() - 14].to_vec()]);
    for (case, bytes) in [
        ("one chunk", chunked(&chunk(&good))),
        ("a chunk a byte", chunked(&[&pieces[..], b"0\r\n\r\n"].concat())),
        ("text before and after", request("PUT", PATH, &preamble)),
        ("upper case", [typed.as_bytes(), &good].concat()),
        ("a text before the file", request("PUT", PATH, &note)),
        ("a form in a form", request("PUT", PATH, &form(&[(b"a", &form(&[(b"../x", b"y")]))]))),
        ("an empty file", request("PUT", PATH, &form(&[(b"empty", b"")]))),
    ] {
        let reply = rig.send(&bytes, Then::Read).await;
        assert_eq!(reply.status, 200, "{case}: {}", reply.text);
        rig.remove(PATH).await;
        rig.is_clean(case).await;
    }
    // Asks first: told to go on if the head is fine, told why not if it is not, before it sent anything.
    for (path, wanted) in [(PATH, "HTTP/1.1 100"), ("/icp/bad/latest", "HTTP/1.1 400")] {
        let mut socket = TcpStream::connect(rig.cluster.dispatchers[0].rest_address).await.unwrap();
        let headers = format!("expect: 100-continue\r\ncontent-length: {}\r\n", good.len());
        socket.write_all(&with_headers("PUT", path, &headers, b"")).await.unwrap();
        let mut first = [0; 12];
        tokio::time::timeout(crate::support::PATIENCE, socket.read_exact(&mut first)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&first), wanted);
        if path == PATH {
            socket.write_all(&good).await.unwrap();
            let mut rest = [0; 13];
            socket.read_exact(&mut rest).await.unwrap();
            assert_eq!(read_reply(&mut socket).await.status, 200);
        }
    }
    rig.remove(PATH).await;
    rig.serves().await;
    rig.cluster.stop().await;
}

/// The reason gets to a client that goes on sending, however much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_client_reads_why() {
    let rig = Rig::start().await;
    let large = vec![b'x'; 32 << 20];
    let bad = form(&[(b"../x", b""), (b"large", &large)]);
    for (case, bytes, status, why) in [
        ("a bad path first", request("PUT", PATH, &bad), 400, "`..`"),
        ("a bad parameter", request("PUT", "/icp/bad/1.0.0?node=x", &bad), 400, "did you mean"),
        ("a bad version", request("PUT", "/icp/bad/latest", &bad), 400, "latest"),
        ("a body for nobody", request("PUT", "/nowhere", &bad), 404, "nowhere"),
        (
            "no form",
            with_headers("PUT", PATH, "content-type: a/b\r\ncontent-length: 33554432\r\n", &large),
            415,
            "",
        ),
        ("a broken form", request("PUT", PATH, &large), 400, "65536"),
    ] {
        let reply = rig.send(&bytes, Then::Read).await;
        assert_eq!(reply.status, status, "{case}: {}", reply.text);
        assert!(reply.text.contains(why), "{case}: {}", reply.text);
        rig.is_clean(case).await;
    }
    rig.serves().await;
    rig.cluster.stop().await;
}

/// A client may be as slow as it likes within the time of its create, and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_ends_with_its_time() {
    let rig = Rig::start().await;
    let good = form(&[(b"a.jar", b"content")]);
    let head =
        with_headers("PUT", "/icp/bad/1.0.0?timeout_ms=1000", "content-length: 100000\r\n", &good[..80]);
    let begun = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut socket = TcpStream::connect(rig.cluster.dispatchers[0].rest_address).await.unwrap();
        socket.write_all(&head).await.unwrap();
        clients.push(socket);
    }
    let mut answers = Vec::new();
    for socket in clients {
        let (mut from, mut to) = socket.into_split();
        let dripping = async move {
            // The pause is the fault: a client that is slow, not one that waits for something.
            while to.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let reading = read_reply(&mut from);
        answers.push(tokio::select! { reply = reading => reply.status, () = dripping => 0 });
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    answers.sort_unstable();
    assert_eq!(answers, [409, 409, 504], "one had the name, and it was too slow");
    rig.is_clean("slow clients").await;
    // A disk that is too small for what the client says is not filled first.
    let huge = with_headers("PUT", PATH, "content-length: 1000000000000000\r\n", &good[..80]);
    let reply = rig.send(&huge, Then::Read).await;
    assert!(reply.text.contains("not enough disk space"), "{} {}", reply.status, reply.text);
    rig.is_clean("a petabyte").await;
    rig.serves().await;
    rig.cluster.stop().await;
}
