//! Damage is refused, never taken for the end of the log.
//!
//! The one exception: damage to the very last record (of any kind) reads as a torn write and costs that
//! record.

use super::*;

/// A log of `records` tiny entries, `per_sync` in each sync, and the offset of its last record.
fn tiny_log(records: u64, per_sync: u64, segment_bytes: u64) -> (MemDisk, Model) {
    let disk = MemDisk::new();
    let (wal, _) = open(&disk, tiny(segment_bytes)).unwrap();
    for index in 0..records {
        wal.append([entry(index, 1, vec![index as u8])]).unwrap();
        if (index + 1) % per_sync == 0 {
            wal.sync().unwrap();
        }
    }
    wal.sync().unwrap();
    let model = Model::of(&wal);
    (disk, model)
}

fn files(disk: &MemDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let names = disk.list(dir()).unwrap();
    names
        .iter()
        .map(|name| dir().join(name))
        .map(|path| (path.clone(), disk.contents(&path).unwrap()))
        .collect()
}

/// Where the last record of a segment starts: tiny entries take 40 bytes.
const TINY_RECORD_BYTES: usize = 40;

fn written_end(bytes: &[u8]) -> usize {
    (bytes.iter().rposition(|b| *b != 0).unwrap() + 1).next_multiple_of(8)
}

/// Opens refused, complete, and one record short.
#[derive(Debug, Default, PartialEq, Eq)]
struct Opens {
    refused: usize,
    complete: usize,
    short: usize,
}

impl std::iter::Sum for Opens {
    fn sum<I: Iterator<Item = Self>>(opens: I) -> Self {
        opens.fold(Self::default(), |a, b| Self {
            refused: a.refused + b.refused,
            complete: a.complete + b.complete,
            short: a.short + b.short,
        })
    }
}

/// Flips every bit of every file in turn, on a few threads, each with a disk of its own.
fn flip_every_bit(disk: &MemDisk, whole: &Model, segment_bytes: u64) -> Opens {
    const THREADS: usize = 4;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let disk = disk.crash(0);
                scope.spawn(move || flip_bits(&disk, whole, segment_bytes, thread, THREADS))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

fn flip_bits(disk: &MemDisk, whole: &Model, segment_bytes: u64, from: usize, step: usize) -> Opens {
    let mut opens = Opens::default();
    let files = files(disk);
    let last_file = files.len() - 1;
    for (number, (path, good)) in files.iter().enumerate() {
        let last_record = written_end(good) - TINY_RECORD_BYTES..written_end(good);
        for bit in (from..good.len() * 8).step_by(step) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            disk.put(path, bad);
            match open(disk, tiny(segment_bytes)) {
                Err(WalError::Damaged { .. }) => opens.refused += 1,
                Err(e) => panic!("bit {bit} of {}: {e}", path.display()),
                Ok((wal, _)) => {
                    let in_last = number == last_file && last_record.contains(&(bit / 8));
                    let mut expected = whole.clone();
                    if in_last && wal.last() != whole.entries.values().next_back().map(|e| e.position) {
                        expected.entries.pop_last();
                        opens.short += 1;
                    } else {
                        opens.complete += 1;
                    }
                    assert_eq!(Model::of(&wal), expected, "bit {bit} of {}", path.display());
                }
            }
        }
        disk.put(path, good.clone());
    }
    opens
}

#[test]
fn every_bit_of_a_thousand_synced_records() {
    let size = (format::SEGMENT_HEADER_BYTES + 1000 * TINY_RECORD_BYTES) as u64 + 64;
    let (disk, whole) = tiny_log(1000, 1, size);
    assert_eq!(files(&disk).len(), 1);
    let Opens { refused, complete, short } = flip_every_bit(&disk, &whole, size);
    assert_eq!(short, TINY_RECORD_BYTES * 8, "only the last record, any bit of it");
    assert_eq!(complete, 64 * 8, "the zeros behind");
    assert_eq!(refused, (size as usize - 64 - TINY_RECORD_BYTES) * 8);
}

#[test]
fn every_bit_of_records_that_one_sync_wrote() {
    let (disk, whole) = tiny_log(60, 60, 4096);
    let Opens { refused, short, .. } = flip_every_bit(&disk, &whole, 4096);
    assert_eq!(short, TINY_RECORD_BYTES * 8, "only the last record, though nothing proves the sync");
    assert_eq!(refused, (format::SEGMENT_HEADER_BYTES + 59 * TINY_RECORD_BYTES) * 8);
}

#[test]
fn every_bit_of_many_segments() {
    let (disk, whole) = tiny_log(60, 3, 1024);
    assert!(files(&disk).len() >= 5);
    let Opens { short, .. } = flip_every_bit(&disk, &whole, 1024);
    assert_eq!(short, TINY_RECORD_BYTES * 8);
}

#[test]
fn the_last_record_cut_at_every_byte_is_a_torn_tail() {
    let (disk, whole) = tiny_log(50, 1, 1 << 16);
    let (path, good) = files(&disk).remove(0);
    let end = written_end(&good);
    for cut in end - TINY_RECORD_BYTES..end {
        for shorten_file in [false, true] {
            let mut bad = good.clone();
            if shorten_file {
                bad.truncate(cut);
            } else {
                bad[cut..].fill(0);
            }
            disk.put(&path, bad);
            let (wal, _) = open(&disk, tiny(1 << 16)).unwrap();
            let mut expected = whole.clone();
            // The last bytes may be zeros anyway.
            if wal.last().unwrap().index == 48 {
                expected.entries.pop_last();
            }
            assert_eq!(Model::of(&wal), expected, "cut at {cut}");
            let next = expected.next_index();
            wal.append([entry(next, 2, "after the cut")]).unwrap();
            wal.sync().unwrap();
            expected.entries.insert(next, entry(next, 2, "after the cut"));
            drop(wal);
            let (wal, recovered) = open(&disk.crash(0), tiny(1 << 16)).unwrap();
            assert_eq!((Model::of(&wal), recovered.torn_tail), (expected, None), "cut at {cut}");
            // A shortened file had no room left.
            disk.lose(&dir().join("wal-0000000000000002.log"));
        }
    }
}

#[test]
fn the_last_4_kib_zeroed_reads_as_an_earlier_end() {
    let (disk, whole) = tiny_log(500, 1, 1 << 16);
    let (path, good) = files(&disk).remove(0);
    let end = written_end(&good);
    let mut bad = good.clone();
    bad[end - 4096..].fill(0);
    disk.put(&path, bad);
    let (wal, _) = open(&disk, tiny(1 << 16)).unwrap();
    let left = Model::of(&wal).entries;
    assert_eq!(left.len(), 500 - 4096usize.div_ceil(TINY_RECORD_BYTES));
    assert!(left.iter().all(|(index, entry)| whole.entries[index] == *entry));
    // Anywhere else zeros are damage.
    let mut bad = good.clone();
    bad[end - 8192..end - 4096].fill(0);
    disk.put(&path, bad);
    let refused = open(&disk, tiny(1 << 16)).err().unwrap().to_string();
    assert!(refused.contains("wal-0000000000000001.log is damaged at offset"), "{refused}");
}

#[test]
fn a_missing_segment_is_refused() {
    let (disk, whole) = tiny_log(60, 1, 1024);
    let files = files(&disk);
    for (path, good) in &files[..files.len() - 1] {
        disk.lose(path);
        assert!(matches!(open(&disk, tiny(1024)), Err(WalError::Damaged { .. })), "{}", path.display());
        disk.put(path, good.clone());
    }
    // One segment under the name of another.
    disk.put(&files[1].0, files[2].1.clone());
    assert!(matches!(open(&disk, tiny(1024)), Err(WalError::Damaged { .. })));
    disk.put(&files[1].0, files[1].1.clone());
    // The end of one that has a successor.
    let mut bad = files[1].1.clone();
    let end = written_end(&bad);
    bad[end - TINY_RECORD_BYTES..].fill(0);
    disk.put(&files[1].0, bad);
    let refused = open(&disk, tiny(1024)).err().unwrap().to_string();
    assert!(refused.contains("records are missing here"), "{refused}");
    disk.put(&files[1].0, files[1].1.clone());
    assert_eq!(Model::of(&open(&disk, tiny(1024)).unwrap().0), whole);
}

#[test]
fn a_payload_that_looks_like_a_log_is_none() {
    let (other, _) = tiny_log(20, 1, 4096);
    let copy = files(&other).remove(0).1;
    let disk = MemDisk::new();
    let (wal, _) = open(&disk, WalOptions { salt: 8, ..tiny(1 << 16) }).unwrap();
    wal.append([entry(0, 1, "first")]).unwrap();
    wal.sync().unwrap();
    // Shifted so that the copied records lie at every alignment they could be found at.
    for index in 1..9 {
        wal.append([entry(index, 1, copy[512 + index as usize..].to_vec())]).unwrap();
    }
    wal.sync().unwrap();
    let (path, good) = files(&disk).remove(0);
    let end = written_end(&good);
    // Only the last record is torn; the copies in it do not make that damage.
    let mut bad = good.clone();
    bad[end - 8..].fill(0);
    disk.put(&path, bad);
    let (wal, recovered) = open(&disk, tiny(1 << 16)).unwrap();
    assert_eq!(wal.last().unwrap().index, 7);
    assert!(recovered.torn_tail.is_some());
}

#[test]
fn a_damaged_entry_is_noticed_when_it_is_read() {
    let disk = MemDisk::new();
    let (wal, _) = open(&disk, WalOptions { cache_bytes: 0, ..tiny(1 << 16) }).unwrap();
    wal.append((0..10).map(|i| entry(i, 1, vec![9; 100]))).unwrap();
    wal.sync().unwrap();
    let (path, mut bad) = files(&disk).remove(0);
    bad[format::SEGMENT_HEADER_BYTES + 5 * 144 + 60] ^= 4;
    disk.put(&path, bad);
    assert_eq!(wal.read(0..5).unwrap().len(), 5);
    let refused = wal.read(5..6).unwrap_err().to_string();
    assert!(refused.contains("entry 5 has a wrong checksum"), "{refused}");
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let (disk, _) = tiny_log(1, 1, 4096);
    let (path, good) = files(&disk).remove(0);
    let mut newer = good.clone();
    newer[8] = 2;
    newer[12..16].fill(0);
    let crc = crc32c::crc32c(&newer[..512]).to_le_bytes();
    newer[12..16].copy_from_slice(&crc);
    disk.put(&path, newer);
    let refused = open(&disk, tiny(4096)).err().unwrap().to_string();
    assert!(refused.contains("version 2 where this binary reads 1"), "{refused}");
}
