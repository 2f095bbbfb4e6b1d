//! What a package store promises: the same tree, every byte verified, nothing hostile, nothing lost in transfer.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use icp_store::{
    Digest, FetchError, Fetcher, FileState, Manifest, PackageStore, StoreError, StoreOptions, Wanted, peer,
};

fn open(dir: &Path) -> PackageStore {
    PackageStore::open(dir, StoreOptions { min_free_bytes: 0 }).unwrap()
}

fn publish(store: &PackageStore, op: &str, name: &str, files: &[(&str, &[u8])]) -> Manifest {
    let mut staging = store.stage(op).unwrap();
    for (path, bytes) in files {
        let mut writer = staging.create_file(path).unwrap();
        bytes.chunks(3).for_each(|chunk| writer.write(chunk).unwrap());
        staging.add(writer).unwrap();
    }
    let sealed = staging.seal().unwrap();
    let manifest = sealed.manifest.clone();
    sealed.publish(name, "1.0.0").unwrap();
    manifest
}

/// D3.
#[test]
fn nested_directories_are_kept_and_the_tree_is_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let files: [(&str, &[u8]); 2] = [("d.jar", b"1"), ("a/b/c.jar", b"2")];
    publish(&store, "op1", "u", &files);
    let root = dir.path().join("icp/u/1.0.0");
    for (path, bytes) in files {
        assert_eq!(fs::read(root.join(path)).unwrap(), bytes);
        assert_eq!(fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777, 0o444);
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 2, "exactly the user's tree");
    for sub in ["", "a", "a/b"] {
        assert_eq!(fs::metadata(root.join(sub)).unwrap().permissions().mode() & 0o777, 0o555, "{sub}");
    }
    let class_path = store.class_path("u", "1.0.0", "op1").unwrap();
    assert_eq!(class_path, [root.join("a/b/c.jar"), root.join("d.jar")]);
    assert!(matches!(store.class_path("u", "1.0.0", "op2"), Err(StoreError::OtherOp { .. })));
    assert!(matches!(store.class_path("u", "2.0.0", "op1"), Err(StoreError::Absent { .. })));
}

#[test]
fn every_flipped_bit_a_missing_and_an_extra_file_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    publish(&store, "op1", "u", &[("a/x", b"hello"), ("y", b"there")]);
    let root = dir.path().join("icp/u/1.0.0");
    let victim = root.join("a/x");
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o644)).unwrap();
    for bit in 0..5 * 8 {
        let mut bytes = b"hello".to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&victim, &bytes).unwrap();
        let report = store.verify("u", "1.0.0").unwrap();
        assert_eq!(report.files["a/x"], FileState::Corrupt, "bit {bit}");
        assert_eq!(report.files["y"], FileState::Ok);
    }
    fs::write(&victim, b"hello").unwrap();
    assert!(store.verify("u", "1.0.0").unwrap().is_clean());
    for sub in [&root, &root.join("a")] {
        fs::set_permissions(sub, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::remove_file(&victim).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("a/z")).unwrap();
    let report = store.verify("u", "1.0.0").unwrap();
    assert_eq!(report.files["a/x"], FileState::Missing);
    assert_eq!(report.files["a/z"], FileState::Extra);
}

#[test]
fn hostile_paths_and_names_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("work"));
    for bad in ["../x", "/etc/x", "a/../../x", "a\\b", "con", "a\0b", ""] {
        let mut staging = store.stage("op1").unwrap();
        assert!(matches!(staging.create_file(bad), Err(StoreError::Path(_))), "{bad:?} was taken");
        staging.discard().unwrap();
    }
    let mut staging = store.stage("op1").unwrap();
    let writer = staging.create_file("Lib/a").unwrap();
    staging.add(writer).unwrap();
    for clash in ["lib/b", "Lib/a", "Lib/A", "Lib", "Lib/a/b"] {
        assert!(matches!(staging.create_file(clash), Err(StoreError::Path(_))), "{clash} was taken");
    }
    staging.discard().unwrap();
    for bad in ["..", "a/b", "", "x@y", ".hidden", "nul"] {
        assert!(store.layout().package(bad, "1").is_err() && store.stage(bad).is_err(), "{bad:?} was taken");
    }
    assert!(store.stage("empty").unwrap().seal().is_err(), "a package without files was taken");
    store.discard("empty").unwrap();
    assert_eq!(fs::read_dir(store.layout().staging()).unwrap().count(), 0);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "something was written beside the work directory"
    );
}

#[test]
fn equal_files_share_their_bytes_and_go_with_their_last_user() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let manifest = publish(&store, "op1", "u", &[("lib.jar", b"shared"), ("copy.jar", b"shared")]);
    publish(&store, "op2", "v", &[("other.jar", b"shared")]);
    let blob = store.blob(&manifest.files()[0].blake3).unwrap();
    assert_eq!(fs::metadata(&blob).unwrap().nlink(), 4, "three files and the blob");
    assert!(store.retire("u", "1.0.0", "op1").unwrap());
    store.empty_trash("op1").unwrap();
    assert_eq!(fs::read(dir.path().join("icp/v/1.0.0/other.jar")).unwrap(), b"shared");
    assert!(matches!(store.retire("v", "1.0.0", "op1"), Err(StoreError::OtherOp { .. })));
    assert!(store.retire("v", "1.0.0", "op2").unwrap());
    store.empty_trash("op2").unwrap();
    assert!(!blob.exists());
}

/// An operation that is tried again finds what its first try had verified, whatever is collected meanwhile.
#[test]
fn what_an_operation_received_stays_as_long_as_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let entry = {
        let mut staging = store.stage("op1").unwrap();
        let mut writer = staging.create_file("big.jar").unwrap();
        writer.write(b"verified").unwrap();
        staging.add(writer).unwrap()
    };
    let mut again = store.stage("op1").unwrap();
    assert_eq!(store.collect_blobs().unwrap(), 0, "it is being received");
    assert!(again.reuse(&entry).unwrap());
    again.seal().unwrap().publish("u", "1.0.0").unwrap();
    assert_eq!(store.unfinished().unwrap(), Default::default());
    assert!(store.retire("u", "1.0.0", "op1").unwrap());
    assert_eq!(store.unfinished().unwrap().into_iter().collect::<Vec<_>>(), ["op1"], "in the trash");
    assert!(store.drop_unfinished("op1").unwrap() && !store.drop_unfinished("op1").unwrap());
    assert_eq!((store.collect_blobs().unwrap(), store.collect_blobs().unwrap()), (1, 0));
    assert_eq!(store.blob(&entry.blake3), None);
}

/// Two packages with one file: while one goes, the other comes. It must neither fail nor lose the file's hash, by
/// which other nodes ask for it.
#[test]
fn a_blob_that_is_being_taken_is_not_collected() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let digest = Digest::of(b"shared");
    let (rounds, over) = (40, std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                store.collect_blobs().unwrap();
            }
        });
        for i in 0..rounds {
            let op = format!("op{i}");
            let mut staging = store.stage(&op).unwrap();
            let entry = icp_store::FileEntry { path: "a.jar".into(), size: 6, blake3: digest };
            if !staging.reuse(&entry).unwrap() {
                fs::write(staging.part(&entry), b"shared").unwrap();
                staging.add_part(&entry).unwrap();
            }
            staging.seal().unwrap().publish("v", "1.0.0").unwrap();
            assert!(store.blob(&digest).is_some(), "round {i}: nobody can ask for it");
            assert!(store.retire("v", "1.0.0", &op).unwrap());
            // Without collecting: the other thread may, while the next round takes the blob.
            store.drop_unfinished(&op).unwrap();
        }
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn too_little_space_is_refused_before_a_byte_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackageStore::open(dir.path(), StoreOptions { min_free_bytes: u64::MAX }).unwrap();
    let refused = store.check_space(1).unwrap_err();
    assert_eq!(refused.code(), "ENOSPC");
    assert!(refused.to_string().contains("not enough disk space"), "{refused}");
}

/// A peer that serves blobs; `cut` ends each answer after so many bytes, `lie` flips the first byte.
#[derive(Clone, Default)]
struct FakePeer {
    blobs: Arc<HashMap<String, Vec<u8>>>,
    cut: Option<usize>,
    lie: bool,
    asked: Arc<AtomicUsize>,
}

async fn blob(State(peer): State<FakePeer>, UrlPath(hash): UrlPath<String>, headers: HeaderMap) -> Response {
    peer.asked.fetch_add(1, Ordering::SeqCst);
    let Some(bytes) = peer.blobs.get(&hash) else { return StatusCode::NOT_FOUND.into_response() };
    let range = headers.get(header::RANGE).map(|r| r.to_str().unwrap().to_owned());
    let from = range.map(|r| r[6..r.len() - 1].parse::<usize>().unwrap());
    let mut body = bytes[from.unwrap_or(0)..].to_vec();
    if peer.lie {
        body[0] ^= 1;
    }
    body.truncate(peer.cut.unwrap_or(usize::MAX));
    let status = if from.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    (status, body).into_response()
}

async fn serve(peer: FakePeer) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let app = Router::new().route("/blobs/{hash}", get(blob)).with_state(peer);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

struct Source {
    _dir: tempfile::TempDir,
    peer: FakePeer,
    wanted: Wanted,
}

fn source() -> Source {
    let dir = tempfile::tempdir().unwrap();
    let big: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
    let files: [(&str, &[u8]); 3] = [("a/b/big", &big), ("small", b"s"), ("empty", b"")];
    let manifest = publish(&open(dir.path()), "op1", "u", &files);
    let blobs = files.iter().map(|(_, b)| (Digest::of(b).to_string(), b.to_vec())).collect();
    let peer = FakePeer { blobs: Arc::new(blobs), ..FakePeer::default() };
    let wanted = Wanted { op: "op1".into(), name: "u".into(), version: "1.0.0".into(), manifest };
    Source { _dir: dir, peer, wanted }
}

fn fetcher(dir: &Path) -> (PackageStore, Fetcher) {
    let store = open(dir);
    (store.clone(), Fetcher::new(store, peer::client()))
}

#[tokio::test]
async fn a_broken_transfer_is_resumed_at_the_next_source() {
    let source = source();
    let cut = FakePeer { cut: Some(60_000), ..source.peer.clone() };
    let dir = tempfile::tempdir().unwrap();
    let (store, fetcher) = fetcher(dir.path());
    let (a, b) = (serve(cut.clone()).await, serve(cut).await);
    fetcher.fetch(&source.wanted, &[a, b]).await.unwrap();
    assert!(store.verify("u", "1.0.0").unwrap().is_clean());
    assert_eq!(source.peer.asked.load(Ordering::SeqCst), 3, "two for the big file, one for the small one");
}

#[tokio::test]
async fn wrong_bytes_go_to_the_next_source_and_are_never_published() {
    let source = source();
    let liar = FakePeer { lie: true, asked: Arc::default(), ..source.peer.clone() };
    let dir = tempfile::tempdir().unwrap();
    let (store, fetcher) = fetcher(dir.path());
    let lies = serve(liar.clone()).await;
    let failure = fetcher.fetch(&source.wanted, std::slice::from_ref(&lies)).await.unwrap_err();
    assert!(matches!(&*failure, FetchError::NoSource { .. }), "{failure}");
    assert!(failure.to_string().contains("wrong bytes"), "{failure}");
    assert!(store.list().unwrap().is_empty());
    let honest = serve(source.peer.clone()).await;
    fetcher.fetch(&source.wanted, &[lies, honest]).await.unwrap();
    assert!(store.verify("u", "1.0.0").unwrap().is_clean());
    assert_eq!(liar.asked.load(Ordering::SeqCst), 2, "once a fetch: then it is not asked again");
}

/// D1, of the store.
#[tokio::test]
async fn twenty_users_make_one_download() {
    let source = source();
    let dir = tempfile::tempdir().unwrap();
    let (store, fetcher) = fetcher(dir.path());
    let from = [serve(source.peer.clone()).await];
    let all = (0..20).map(|_| fetcher.fetch(&source.wanted, &from));
    for outcome in futures_util::future::join_all(all).await {
        outcome.unwrap();
    }
    assert_eq!(source.peer.asked.load(Ordering::SeqCst), 2, "the empty file needs no request");
    assert!(store.verify("u", "1.0.0").unwrap().is_clean());
}

#[tokio::test]
async fn what_is_here_already_is_not_fetched_again() {
    let source = source();
    let dir = tempfile::tempdir().unwrap();
    let (store, fetcher) = fetcher(dir.path());
    publish(&store, "op0", "other", &[("s", b"s")]);
    let from = [serve(source.peer.clone()).await];
    fetcher.fetch(&source.wanted, &from).await.unwrap();
    assert_eq!(source.peer.asked.load(Ordering::SeqCst), 1, "only the big file");
    fetcher.fetch(&source.wanted, &[]).await.unwrap();
}

#[tokio::test]
async fn a_dead_source_is_named() {
    let source = source();
    let dir = tempfile::tempdir().unwrap();
    let (_store, fetcher) = fetcher(dir.path());
    let failure = fetcher.fetch(&source.wanted, &["127.0.0.1:1".into()]).await.unwrap_err();
    assert_eq!(failure.code(), "NO_SOURCE");
    assert!(failure.to_string().contains("127.0.0.1:1"), "{failure}");
}
