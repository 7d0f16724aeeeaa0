//! GGUF files that are wrong in every place they can be wrong in, and files changed at random: an error or a file,
//! soon, and for little memory.
#![allow(clippy::unwrap_used)]

#[path = "support/counting.rs"]
mod counting;

use counting::{LIVE, PEAK};
use glassbox::weights::{Checkpoint, GgufWriter, Summary, Value};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Memory is counted for the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What may be asked of an open file.
fn touch_everything(file: &Checkpoint) {
    let _ = Summary::of(file);
    for (key, value) in file.metadata() {
        if let Value::Array(array) = value {
            assert_eq!(array.values().count(), array.len());
        }
        let _ = (file.str(key), file.u64(key), file.f32(key), file.bool(key), file.texts(key));
        let _ = (file.f32s(key), file.i32s(key), file.u32s(key), file.bools(key), file.per_layer(key, 2));
    }
    for info in file.tensors() {
        let tensor = file.tensor(&info.name).unwrap();
        assert_eq!(tensor.to_f32().len(), info.elements());
        assert_eq!(tensor.row(info.rows() - 1).len(), info.row_bytes());
    }
}

const MOST_BYTES: usize = 64 << 20;
const MOST_TIME: Duration = Duration::from_secs(1);

/// Whether it opens. An error names the file, and both come soon and for little.
fn opens(what: &str, bytes: Vec<u8>) -> bool {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = Instant::now();
    let opened = Checkpoint::from_bytes(Path::new("malformed.gguf"), bytes);
    let opens = match &opened {
        Ok(file) => {
            touch_everything(file);
            true
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains("malformed.gguf") && said.len() < 2000, "{what}: {said}");
            false
        }
    };
    let extra = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    assert!(start.elapsed() < MOST_TIME, "{what}: {:?}", start.elapsed());
    assert!(extra < MOST_BYTES, "{what}: {extra} bytes were taken");
    opens
}

// ---- the corpus ----

/// What a place of a file holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Magic,
    Version,
    /// Of things that follow, or bytes of a string.
    Count,
    ValueType,
    NumDims,
    Dim,
    TensorType,
    Offset,
    Name,
    Value,
}

/// A file, and what lies where.
#[derive(Default)]
struct Laid {
    bytes: Vec<u8>,
    fields: Vec<(Kind, Range<usize>)>,
}

impl Laid {
    fn put(&mut self, kind: Kind, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.fields.push((kind, start..self.bytes.len()));
    }

    fn string(&mut self, kind: Kind, text: &str) {
        self.put(Kind::Count, &(text.len() as u64).to_le_bytes());
        self.put(kind, text.as_bytes());
    }

    fn key(&mut self, name: &str, value_type: u32) {
        self.string(Kind::Name, name);
        self.put(Kind::ValueType, &value_type.to_le_bytes());
    }

    fn array(&mut self, name: &str, element: u32, len: u64) {
        self.key(name, 9);
        self.put(Kind::ValueType, &element.to_le_bytes());
        self.put(Kind::Count, &len.to_le_bytes());
    }

    fn tensor(&mut self, name: &str, dims: &[u64], number: u32, offset: u64) {
        self.string(Kind::Name, name);
        self.put(Kind::NumDims, &(dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| self.put(Kind::Dim, &dim.to_le_bytes()));
        self.put(Kind::TensorType, &number.to_le_bytes());
        self.put(Kind::Offset, &offset.to_le_bytes());
    }
}

/// Bytes of a value of each type that is no string and no array.
const SIMPLE: [(u32, usize); 11] =
    [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (10, 8), (11, 8), (12, 8)];

/// A key of every type, an array of every type, and five tensors of as many formats.
fn good() -> Laid {
    let mut file = Laid::default();
    file.put(Kind::Magic, b"GGUF");
    file.put(Kind::Version, &3u32.to_le_bytes());
    file.put(Kind::Count, &5u64.to_le_bytes());
    file.put(Kind::Count, &(2 + 2 * SIMPLE.len() as u64 + 1).to_le_bytes());
    file.key("general.architecture", 8);
    file.string(Kind::Value, "llama");
    file.key("general.alignment", 4);
    file.put(Kind::Value, &32u32.to_le_bytes());
    for (number, bytes) in SIMPLE {
        file.key(&format!("one.{number}"), number);
        file.put(Kind::Value, &vec![1; bytes]);
        file.array(&format!("some.{number}"), number, 3);
        file.put(Kind::Value, &vec![1; 3 * bytes]);
    }
    file.array("tokenizer.ggml.tokens", 8, 3);
    ["a", "", "\u{1F638}"].into_iter().for_each(|text| file.string(Kind::Value, text));
    file.tensor("norm.weight", &[8], 0, 0);
    file.tensor("half.weight", &[4, 4], 1, 32);
    file.tensor("eight.weight", &[32, 2], 8, 64);
    file.tensor("k.weight", &[256, 1], 12, 160);
    file.tensor("codes.weight", &[256], 19, 320);
    file.bytes.resize(file.bytes.len().next_multiple_of(32), 0);
    let data = file.bytes.len();
    file.bytes.resize(data + 320 + 50, 1);
    file
}

/// What is put in the place of a field.
fn wrong(kind: Kind, was: &[u8]) -> Vec<Vec<u8>> {
    let word = |n: u32| n.to_le_bytes().to_vec();
    let wide = |n: u64| n.to_le_bytes().to_vec();
    let number = was.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    match kind {
        Kind::Magic => [b"FUGG", b"GGML", b"ggjt", b"PK\x03\x04", b"\0\0\0\0"].map(|m| m.to_vec()).to_vec(),
        Kind::Version => [0, 1, 4, 99, 0x0200_0000, 0x0300_0000, u32::MAX].map(word).to_vec(),
        Kind::Count => {
            let near = [number.wrapping_sub(1), number + 1, number + 7, number << 32, number | 1 << 40];
            [&near[..], &[1 << 31, 1 << 61, (1 << 61) + 1, 1 << 63, u64::MAX]]
                .concat()
                .into_iter()
                .map(wide)
                .collect()
        }
        Kind::ValueType => [13, 14, 255, 1 << 31, u32::MAX, 9, 8, 12].map(word).to_vec(),
        Kind::NumDims => [0, 3, 5, 255, 1 << 31, u32::MAX].map(word).to_vec(),
        Kind::Dim => {
            let all = [0, number + 1, (1 << 42) + 1, 1 << 32, 1 << 59, 1 << 62, 1 << 63, u64::MAX];
            all.map(wide).to_vec()
        }
        Kind::TensorType => [4, 5, 9, 28, 31, 36, 41, 99, 1 << 31, u32::MAX].map(word).to_vec(),
        Kind::Offset => {
            [1, 31, number + 32, 1 << 20, 1 << 40, 1 << 63, u64::MAX - 31, u64::MAX].map(wide).to_vec()
        }
        Kind::Name => vec![vec![0xFF; was.len()], vec![0; was.len()]],
        Kind::Value => vec![vec![0xFF; was.len()], vec![0; was.len()], vec![2; was.len()]],
    }
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let Laid { bytes: good, fields } = good();
    let mut corpus = Vec::new();
    for (index, (kind, place)) in fields.iter().enumerate() {
        for (n, put) in wrong(*kind, &good[place.clone()]).into_iter().enumerate() {
            let mut bytes = good.clone();
            bytes[place.clone()].copy_from_slice(&put);
            corpus.push((format!("field {index} ({kind:?}) at {}, change {n}", place.start), bytes));
        }
        corpus.push((format!("cut behind field {index}"), good[..place.end].to_vec()));
    }
    for i in 0..64 {
        corpus.push((format!("cut at {i}/64"), good[..good.len() * i / 64].to_vec()));
    }
    corpus.extend(names_that_appear_twice(&good, &fields));
    corpus.extend(others());
    corpus
}

/// Every name in the place of every other of the same length: keys and tensors twice.
fn names_that_appear_twice(good: &[u8], fields: &[(Kind, Range<usize>)]) -> Vec<(String, Vec<u8>)> {
    let names: Vec<_> =
        fields.iter().filter(|(kind, _)| *kind == Kind::Name).map(|(_, place)| place).collect();
    let pairs =
        names.iter().enumerate().flat_map(|(i, one)| names[..i].iter().map(move |other| (*one, *other)));
    pairs
        .filter(|(one, other)| one.len() == other.len())
        .map(|(one, other)| {
            let mut bytes = good.to_vec();
            bytes.copy_within(other.clone(), one.start);
            (format!("the name at {} twice", other.start), bytes)
        })
        .collect()
}

/// Alignments, byte order, other kinds of file.
fn others() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for alignment in [0u32, 1, 2, 3, 4, 7, 24, 33, 48, 1 << 21, 1 << 30, 1 << 31, u32::MAX] {
        let file =
            GgufWriter::new("x").put("general.alignment", alignment).tensor_f32("w", &[64], &[0.0; 64]);
        all.push((format!("alignment {alignment}"), file.to_bytes()));
    }
    let typed = GgufWriter::new("x").put("general.alignment", "32").to_bytes();
    all.push(("alignment of text".into(), typed));
    for version in [2u32, 3] {
        let big =
            [b"GGUF".as_slice(), &version.to_be_bytes(), &1u64.to_be_bytes(), &1u64.to_be_bytes()].concat();
        all.push((format!("big-endian {version}"), big));
    }
    for (what, bytes) in [
        ("nothing", &b""[..]),
        ("a zip", b"PK\x03\x04\x14\0\0\0\x08\0archive/data.pkl"),
        ("a pickle", b"\x80\x02}q\0X\x05\0\0\0model"),
        ("JSON", b"{\"model\": \"GGUF\"}"),
        ("a page", b"<!DOCTYPE html><html>404</html>"),
        ("a pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    ] {
        all.push((what.into(), bytes.to_vec()));
    }
    all
}

#[test]
fn every_wrong_file_is_an_error_or_opens_and_costs_little() {
    let _alone = alone();
    assert!(opens("the good one", good().bytes));
    let corpus = corpus();
    let (files, start) = (corpus.len(), Instant::now());
    let opened = corpus.into_iter().filter(|(what, bytes)| opens(what, bytes.clone())).count();
    println!("{files} files, of which {opened} open, in {:?}", start.elapsed());
    assert!(files - opened >= 700, "only {} of {files} are refused", files - opened);
}

// Found by changes at random: the length of a key's name made it swallow most of the file, and the error repeated it.
#[test]
fn an_error_does_not_repeat_a_name_of_a_megabyte() {
    let _alone = alone();
    let name = "\u{1}".repeat(1 << 20);
    let mut key = Laid::default();
    key.put(Kind::Magic, b"GGUF\x03\0\0\0");
    key.put(Kind::Count, &0u64.to_le_bytes());
    key.put(Kind::Count, &1u64.to_le_bytes());
    key.key(&name, 99);
    assert!(!opens("a key", key.bytes));
    let twice = GgufWriter::new("x").tensor_f32(&name, &[1], &[0.0]).tensor_f32(&name, &[1], &[0.0]);
    assert!(!opens("a tensor", twice.to_bytes()));
}

// ---- changes at random ----

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// One to six changes of a kind each.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: [u64; 12] = [0, 1, 2, 9, 13, 0xFF, 1 << 31, 1 << 32, 1 << 42, 1 << 61, 1 << 63, u64::MAX];
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(8) {
            _ if bytes.is_empty() => return,
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5)],
            3 | 4 => {
                let put = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
                let size = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
                bytes[at..at + size].copy_from_slice(&put[..size]);
            }
            5 => {
                let end = at + random.below(32.min(bytes.len() - at));
                bytes.drain(at..end);
            }
            6 => {
                let copied = bytes[at..at + random.below(32.min(bytes.len() - at))].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copied);
            }
            _ if random.below(4) == 0 => bytes.truncate(at),
            _ => bytes[at] = bytes[at].wrapping_add([1, 255][random.below(2)]),
        }
    }
}

fn run_mutations(runs: u64, seed: u64) -> u64 {
    let good = good().bytes;
    let mut opened = 0;
    for run in 0..runs {
        let mut random = Random(seed ^ run.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let mut bytes = good.clone();
        mutate(&mut bytes, &mut random);
        opened += u64::from(opens(&format!("run {run} of seed {seed}"), bytes));
    }
    opened
}

#[test]
fn no_change_makes_a_reader_panic() {
    let _alone = alone();
    let opened = run_mutations(5_000, 1);
    // Neither is everything refused before it is looked at, nor is everything taken.
    assert!((500..4_500).contains(&opened), "{opened}");
}

/// `cargo test --test weights_malformed -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn no_change_of_a_million_makes_a_reader_panic() {
    let _alone = alone();
    let start = Instant::now();
    let opened = run_mutations(1_000_000, 2);
    println!("1,000,000 runs, {opened} opened, in {:?}", start.elapsed());
}
