//! The encoding of a batch as it lies in logs: positional, so these bytes must load for ever.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use meta_types::codec::{decode_body, encode_body};
use meta_types::{
    Batch, Command, Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyRange, LeaseStamp, Op,
    Origin, PutRequest, RangeRequest, Sequenced, SortOrder, SortTarget, Txn,
};

/// Every command, operation, compare and option at least once.
fn batches() -> Vec<Batch> {
    let put = PutRequest {
        key: "k".into(),
        value: Bytes::from_static(b"\0v\xff"),
        lease: -2,
        prev_kv: true,
        ignore_value: true,
        ignore_lease: true,
    };
    let delete = DeleteRangeRequest { range: KeyRange::prefix("p/"), prev_kv: true };
    let range = RangeRequest {
        range: KeyRange::between("a", "b"),
        limit: 1,
        revision: 2,
        sort_order: SortOrder::Descend,
        sort_target: SortTarget::Value,
        serializable: true,
        keys_only: true,
        count_only: true,
        min_mod_revision: 3,
        max_mod_revision: 4,
        min_create_revision: 5,
        max_create_revision: 6,
    };
    let compare = [
        (CompareResult::Equal, CompareTarget::Version(1)),
        (CompareResult::Greater, CompareTarget::CreateRevision(2)),
        (CompareResult::Less, CompareTarget::ModRevision(3)),
        (CompareResult::NotEqual, CompareTarget::Value("v".into())),
        (CompareResult::Equal, CompareTarget::Lease(-4)),
    ];
    let compare = compare.map(|(result, target)| Compare { range: KeyRange::one("c"), result, target });
    let orders = [SortOrder::None, SortOrder::Ascend];
    let ordered = orders.map(|sort_order| Op::Range(RangeRequest { sort_order, ..RangeRequest::get("g") }));
    let targets = [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod];
    let targeted =
        targets.map(|sort_target| Op::Range(RangeRequest { sort_target, ..RangeRequest::get("h") }));
    let txn = Txn {
        compare: compare.into(),
        success: vec![Op::Range(range), Op::Put(put.clone()), Op::DeleteRange(delete.clone())],
        failure: ordered.into_iter().chain(targeted).collect(),
    };
    let commands = [
        Command::RegisterOrigin,
        Command::Put(put),
        Command::DeleteRange(delete),
        Command::Txn(txn),
        Command::Compact(9),
        Command::LeaseGrant { id: 5, ttl: 60 },
        Command::LeaseRevoke { id: 5 },
        Command::LeaseKeepAlive { ids: vec![5, -6] },
        Command::LeaseExpire { term: 3, ids: vec![5] },
        Command::LeaseTick,
        Command::SetCluster { cluster_id: 77, name: "prod".into(), feature_level: 1 },
    ];
    let origin = Origin { member: 1, boot: u64::MAX };
    let batch = |(seq, command): (u64, Command)| Batch {
        origin,
        low_water: seq / 2,
        stamp: seq.is_multiple_of(2).then_some(LeaseStamp { term: seq, lease_time_ms: 1_000 * seq }),
        commands: vec![Sequenced { seq, command }],
    };
    (1..).zip(commands).map(batch).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn a_batch_is_encoded_as_ever() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/batch-v1.hex");
    let batches = batches();
    let written: String = batches.iter().map(|batch| hex(&encode_body(batch).unwrap()) + "\n").collect();
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        fs::write(&file, &written).unwrap();
    }
    let golden = fs::read_to_string(&file).unwrap();
    assert_eq!(written, golden, "the encoding is frozen: append variants, add structs, change nothing");
    let loaded: Vec<Batch> = golden.lines().map(|line| decode_body(&unhex(line)).unwrap()).collect();
    assert_eq!(loaded, batches);
}

#[test]
fn a_batch_cut_anywhere_is_refused() {
    for batch in batches() {
        let bytes = encode_body(&batch).unwrap();
        for end in 0..bytes.len() {
            assert!(decode_body::<Batch>(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        }
    }
}
