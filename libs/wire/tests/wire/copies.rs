//! Golden vectors of the byte forms of a shard copy. `UPDATE_VECTORS=1` rewrites the file.

use forebay_core::rows_digest::RowsDigest;
use forebay_testkit::vectors::{check, read};
use forebay_wire::shard_copy::{PieceDigest, RowsBlock, block_rows, part_record, read_parts};
use forebay_wire::v1;
use serde_json::{Value, json};

const COMMAND: &str = "cargo test --workspace --test wire copies";

fn block(name: &str, rows: &[(&[u8], &[u8])]) -> Value {
    let (mut block, mut digest) = (RowsBlock::default(), RowsDigest::default());
    for (key, value) in rows {
        block.push(key, value);
        digest.add(key, value);
    }
    let row = |(key, value): &(&[u8], &[u8])| {
        let (key, value) = (hex::encode(key), hex::encode(value));
        json!({"key_hex": key, "value_hex": value})
    };
    json!({
        "name": name,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "block_hex": hex::encode(block.bytes()),
        "digest_hex": hex::encode(digest.sum.to_le_bytes()),
    })
}

fn piece_digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = PieceDigest::default();
    digest.add(bytes);
    digest.sum().to_le_bytes()
}

fn piece(name: &str, bytes: &[u8]) -> Value {
    let digest = piece_digest(bytes);
    json!({"name": name, "bytes_hex": hex::encode(bytes), "digest_hex": hex::encode(digest)})
}

fn record(name: &str, part: &v1::CopyPart) -> Value {
    json!({"name": name, "record_hex": hex::encode(part_record(part))})
}

fn vectors() -> Value {
    let long: Vec<u8> = (0..=255).cycle().take(600).collect();
    let end = |rows, is_range_end| {
        let digest = (1..=16).collect::<Vec<u8>>().into();
        Some(v1::CopyPartEnd { rows, digest, is_range_end })
    };
    let part = v1::CopyPart {
        range: 3,
        file: 1_000,
        last_key: b"duser-1".as_slice().into(),
        bytes: 1 << 40,
        end: end(7, false),
    };
    let last = v1::CopyPart { range: 0, end: end(0, true), ..v1::CopyPart::default() };
    let of_file =
        v1::CopyPart { range: 9, bytes: 1 << 20, end: end(0, false), ..v1::CopyPart::default() };
    json!({
        "spec": "proto/spec/copy.md",
        "description": "Blocks of rows, pieces of files, their digests, and records of parts.",
        "blocks": [
            block("no rows", &[]),
            block("an empty key and an empty value", &[(b"", b"")]),
            block("several", &[(b"a", b"1"), (b"b", b""), (b"c", b"value")]),
            block("long ones", &[(&long[..300], &long), (&long[1..301], &long[..241])]),
        ],
        "pieces": [piece("nothing", &[]), piece("some bytes", b"bytes"), piece("more", &long)],
        "records": [
            record("a part", &part),
            record("a range that ends without rows", &last),
            record("a piece of a file", &of_file),
        ],
    })
}

#[test]
fn copies_match_the_golden_vectors() {
    check("copy.json", &vectors(), COMMAND);
    let vectors: Value = read("copy.json");
    let text = |object: &Value, name: &str| hex::decode(object[name].as_str().unwrap()).unwrap();
    for vector in vectors["blocks"].as_array().unwrap() {
        let bytes = text(vector, "block_hex");
        let rows: Vec<_> = block_rows(&bytes).map(Result::unwrap).collect();
        let mut digest = RowsDigest::default();
        rows.iter().for_each(|(key, value)| digest.add(key, value));
        let expected_rows: Vec<_> = vector["rows"].as_array().unwrap().iter().collect();
        assert_eq!(rows.len(), expected_rows.len());
        for ((key, value), expected) in rows.iter().zip(expected_rows) {
            assert_eq!(
                (*key, *value),
                (&text(expected, "key_hex")[..], &text(expected, "value_hex")[..])
            );
        }
        assert_eq!(RowsDigest::of(digest.rows, &text(vector, "digest_hex")).unwrap(), digest);
    }
    for vector in vectors["pieces"].as_array().unwrap() {
        assert_eq!(text(vector, "digest_hex"), piece_digest(&text(vector, "bytes_hex")));
    }
    for vector in vectors["records"].as_array().unwrap() {
        let bytes = text(vector, "record_hex");
        let (parts, end) = read_parts(&bytes);
        assert_eq!((parts.len(), end), (1, bytes.len() as u64));
        assert_eq!(part_record(&parts[0]), bytes);
    }
    assert!(RowsDigest::of(1, &[0; 15]).is_err());
}
