//! Files that claim to be huge must cost nothing: counted by an allocator of this test's own.
#![allow(clippy::unwrap_used)]

#[path = "support/counting.rs"]
mod counting;

use counting::{LIVE, PEAK};
use glassbox::weights::{Checkpoint, GgufWriter};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn header(tensors: u64, keys: u64) -> Vec<u8> {
    [b"GGUF\x03\0\0\0".as_slice(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
}

fn key(name: &str, kind: u32) -> Vec<u8> {
    [(name.len() as u64).to_le_bytes().as_slice(), name.as_bytes(), &kind.to_le_bytes()].concat()
}

fn array_of(element: u32, len: u64) -> Vec<u8> {
    [header(0, 1), key("a", 9), element.to_le_bytes().to_vec(), len.to_le_bytes().to_vec()].concat()
}

// One test, because it counts for the whole process.
#[test]
fn claims_are_checked_before_memory_is_taken() {
    let padded = |mut bytes: Vec<u8>, len: usize| {
        bytes.resize(len.max(bytes.len()), 0);
        bytes
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        // L03: the file is 43 bytes long.
        ("array of 2^63 u8", padded(array_of(0, 1 << 63), 43)),
        ("array of 2^63 strings", array_of(8, 1 << 63)),
        ("array of 2^61 u64, whose bytes wrap", array_of(10, 1 << 61)),
        ("array of arrays", padded(array_of(9, 1), 200)),
        // L04: a string of 1 GiB in 160 bytes.
        (
            "string of 1 GiB",
            padded([header(0, 1), key("s", 8), (1u64 << 30).to_le_bytes().to_vec()].concat(), 160),
        ),
        ("key of 2^64 - 1 bytes", [header(0, 1), u64::MAX.to_le_bytes().to_vec()].concat()),
        ("2^64 - 1 keys", padded(header(0, u64::MAX), 160)),
        ("2^40 tensors", padded(header(1 << 40, 0), 160)),
        ("alignment 2^30", GgufWriter::new("x").put("general.alignment", 1u32 << 30).to_bytes()),
    ];
    for (name, bytes) in cases {
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let start = Instant::now();
        let error = Checkpoint::from_bytes(Path::new("hostile.gguf"), bytes).expect_err(name).to_string();
        let extra = PEAK.load(Ordering::Relaxed) - before;
        assert!(start.elapsed() < Duration::from_millis(100), "{name}: {:?}", start.elapsed());
        assert!(extra < 1 << 20, "{name}: {extra} bytes were taken");
        assert!(error.contains("hostile.gguf"), "{error}");
    }
}
