//! Archives that would harm whoever unpacks them, built byte by byte. Nobody here unpacks any.

use std::io::{Cursor, Write};
use std::os::unix::fs::MetadataExt;

use crate::rig::{Rig, form};

/// One entry, as its two heads are to tell of it.
#[derive(Clone)]
struct Entry {
    name: &'static str,
    content: Vec<u8>,
    mode: u32,
    flags: u16,
    /// What the heads say instead of the truth.
    crc: Option<u32>,
    size: Option<u32>,
    local_name: Option<&'static str>,
    /// Its content is that of the first entry.
    overlaps: bool,
}

fn file(name: &'static str, content: &[u8]) -> Entry {
    Entry {
        name,
        content: content.to_vec(),
        mode: 0o100_644,
        flags: 0,
        crc: None,
        size: None,
        local_name: None,
        overlaps: false,
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8)
            .fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (!(crc & 1)).wrapping_add(1)))
    })
}

/// Stored, never compressed.
fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = if entry.overlaps { 0 } else { bytes.len() as u32 };
        let size = entry.size.unwrap_or(entry.content.len() as u32);
        let crc = entry.crc.unwrap_or_else(|| crc32(&entry.content));
        let facts = |name: &str| {
            let (flags, zero) = (entry.flags.to_le_bytes(), [0; 4]);
            let numbers = [crc, size, size].map(u32::to_le_bytes).concat();
            [&[20, 0][..], &flags, &[0, 0], &zero, &numbers, &(name.len() as u16).to_le_bytes(), &[0, 0]]
                .concat()
        };
        if !entry.overlaps {
            let name = entry.local_name.unwrap_or(entry.name);
            bytes.extend([b"PK\x03\x04", &facts(name)[..], name.as_bytes(), &entry.content].concat());
        }
        let attributes = [&[0; 6][..], &(entry.mode << 16).to_le_bytes(), &offset.to_le_bytes()].concat();
        directory.extend(
            [b"PK\x01\x02\x14\x03", &facts(entry.name)[..], &attributes, entry.name.as_bytes()].concat(),
        );
    }
    let (count, start) = ((entries.len() as u16).to_le_bytes(), (bytes.len() as u32).to_le_bytes());
    let size = (directory.len() as u32).to_le_bytes();
    [&bytes[..], &directory, b"PK\x05\x06\0\0\0\0", &count, &count, &size, &start, &[0, 0]].concat()
}

/// 64 MiB of one letter, as a manifest.
fn bomb() -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("META-INF/MANIFEST.MF", zip::write::SimpleFileOptions::default()).unwrap();
    (0..64).for_each(|_| writer.write_all(&[b'a'; 1 << 20]).unwrap());
    writer.finish().unwrap().into_inner()
}

/// Archives, each with what is wrong with it.
pub fn archives() -> Vec<(&'static str, Vec<u8>)> {
    let manifest = || file("META-INF/MANIFEST.MF", b"Main-Class: Main\n");
    let link = |name| Entry { mode: 0o120_777, ..file(name, b"/etc/passwd") };
    let inner = zip(&[file("../../x", b"evil")]);
    let whole = zip(&[manifest()]);
    vec![
        ("a symbolic link", zip(&[link("link"), manifest()])),
        (
            "a link, and a file through it",
            zip(&[link("link"), file("link", b"evil"), file("link/x", b"evil")]),
        ),
        (
            "paths that leave it",
            zip(&[file("../../x", b"e"), file("/etc/x", b"e"), file("..\\x", b"e"), manifest()]),
        ),
        ("a directory and a file", zip(&[file("a/", b""), file("a", b"x"), manifest()])),
        ("names twice", zip(&[file("a", b"1"), file("a", b"2"), file("A", b"3"), manifest(), manifest()])),
        ("a bomb", bomb()),
        ("12,000 entries", zip(&vec![file("same", b""); 12_000])),
        ("entries that overlap", zip(&[manifest(), Entry { overlaps: true, ..manifest() }])),
        ("an archive in it", zip(&[file("inner.jar", &inner), manifest()])),
        ("a wrong checksum", zip(&[Entry { crc: Some(7), ..manifest() }])),
        ("no end", whole[..whole.len() - 10].to_vec()),
        ("an end alone", whole[whole.len() - 22..].to_vec()),
        ("two names of one entry", zip(&[Entry { local_name: Some("META-INF/OTHERFEST.MF"), ..manifest() }])),
        ("sizes of 4 GiB", zip(&[Entry { size: Some(u32::MAX), ..manifest() }])),
        ("encrypted", zip(&[Entry { flags: 1, ..manifest() }])),
        ("a set-uid program", zip(&[Entry { mode: 0o104_755, ..file("run", b"#!/bin/sh") }, manifest()])),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_holds_archives_as_they_are() {
    let rig = Rig::start().await;
    let archives = archives();
    let names: Vec<String> = (0..archives.len()).map(|i| format!("lib/{i}.jar")).collect();
    let files: Vec<(&[u8], &[u8])> =
        names.iter().zip(&archives).map(|(name, (_, bytes))| (name.as_bytes(), &bytes[..])).collect();
    let created = rig.put("/icp/archives/1.0.0", form(&files)).await;
    assert_eq!(created.status, 200, "{}", created.text);
    let lib = rig.directory.path().join("work/icp/archives/1.0.0/lib");
    assert_eq!(std::fs::read_dir(&lib).unwrap().count(), archives.len(), "nothing was unpacked");
    for (name, (case, bytes)) in names.iter().zip(&archives) {
        let at = lib.join(name.strip_prefix("lib/").unwrap());
        let facts = std::fs::symlink_metadata(&at).unwrap();
        assert_eq!((facts.mode() & 0o7777, facts.is_file()), (0o444, true), "{case}");
        assert_eq!(&std::fs::read(at).unwrap(), bytes, "{case}");
    }
    rig.remove("/icp/archives/1.0.0").await;
    rig.is_clean("archives").await;
    rig.cluster.stop().await;
}
