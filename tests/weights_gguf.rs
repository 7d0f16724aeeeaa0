//! The GGUF reader on good files, and on files that lie.
#![allow(clippy::unwrap_used)]

use glassbox::weights::{BlockFormat, Checkpoint, CheckpointError, GgufWriter, MetaValue, Value};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf").join(name)
}

/// Metadata of every kind, and two tensors.
fn small() -> GgufWriter {
    GgufWriter::new("llama")
        .put("llama.block_count", 2u32)
        .put("llama.rope.freq_base", 10_000.0f32)
        .put("a.signed", -3i32)
        .put("a.wide", u64::MAX)
        .put("a.flag", true)
        .put("tokenizer.ggml.tokens", MetaValue::Strings(vec!["a".into(), "\u{1F638}".into(), String::new()]))
        .put("tokenizer.ggml.scores", vec![0.5f32, -1.0, 0.0])
        .put("tokenizer.ggml.token_type", vec![1i32, 1, 3])
        .put("a.flags", vec![true, false])
        .tensor_f32("norm.weight", &[4], &[1.0, 2.0, 3.0, 4.0])
        .tensor("out.weight", &[32, 2], BlockFormat::Q8_0, (0..68).collect())
}

fn read(bytes: Vec<u8>) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::from_bytes(Path::new("test.gguf"), bytes)
}

fn error_of(bytes: Vec<u8>) -> String {
    read(bytes).expect_err("the file is bad").to_string()
}

/// Everything a reader may touch, so that a wrong offset shows.
fn touch_everything(file: &Checkpoint) -> usize {
    let mut sum = 0;
    for (key, value) in file.metadata() {
        sum += key.len();
        if let Value::Array(array) = value {
            sum += array.values().map(|value| format!("{value:?}").len()).sum::<usize>();
            sum += array.string_bytes().map(<[u8]>::len).sum::<usize>();
        }
        let _ = (file.str(key), file.u64(key), file.f32(key), file.bool(key), file.texts(key));
        let _ = (file.f32s(key), file.i32s(key), file.u32s(key), file.bools(key), file.per_layer(key, 2));
    }
    for info in file.tensors() {
        let tensor = file.tensor(&info.name).unwrap();
        sum += tensor.data.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        sum += tensor.row(info.rows() - 1).len() + tensor.to_f32().len();
    }
    sum
}

#[test]
fn metadata_comes_back_with_its_types() {
    for version in [2, 3] {
        let file = read(small().version(version).to_bytes()).unwrap();
        assert_eq!(file.kind(), glassbox::weights::Kind::Gguf { version });
        assert_eq!(file.architecture().unwrap(), "llama");
        assert_eq!(file.u64("llama.block_count").unwrap(), Some(2));
        assert_eq!(file.u64("a.wide").unwrap(), Some(u64::MAX));
        assert_eq!(file.f32("llama.rope.freq_base").unwrap(), Some(10_000.0));
        assert_eq!(file.bool("a.flag").unwrap(), Some(true));
        let texts = file.texts("tokenizer.ggml.tokens").unwrap().unwrap();
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["a", "\u{1F638}", ""].map(str::as_bytes));
        assert_eq!(file.f32s("tokenizer.ggml.scores").unwrap().unwrap(), [0.5, -1.0, 0.0]);
        assert_eq!(file.i32s("tokenizer.ggml.token_type").unwrap().unwrap(), [1, 1, 3]);
        assert_eq!(file.u32s("tokenizer.ggml.token_type").unwrap().unwrap(), [1, 1, 3]);
        assert_eq!(file.bools("a.flags").unwrap().unwrap(), [true, false]);
        assert_eq!(file.per_layer("llama.block_count", 2).unwrap().unwrap(), [2, 2]);
        assert_eq!(file.per_layer("tokenizer.ggml.token_type", 3).unwrap().unwrap(), [1, 1, 3]);
        assert_eq!(file.u64("absent").unwrap(), None);
    }
}

#[test]
fn a_key_of_another_type_or_missing_is_named() {
    let file = read(small().to_bytes()).unwrap();
    let error = file.u64("a.signed").unwrap_err().to_string();
    assert_eq!(error, r#"test.gguf: key "a.signed" is i32 -3, where an integer from 0 is expected"#);
    let error = file.f32("tokenizer.ggml.tokens").unwrap_err().to_string();
    assert!(error.contains("an array of 3 string, where a float"), "{error}");
    let error = file.require_u64("llama.context_length").unwrap_err().to_string();
    assert_eq!(error, r#"test.gguf has no key "llama.context_length""#);
    let error = file.tensor("output.weight").unwrap_err().to_string();
    assert_eq!(error, r#"test.gguf has no tensor "output.weight""#);
}

#[test]
fn tensors_lie_where_the_header_says() {
    for alignment in [8, 32, 4096] {
        let file = read(small().alignment(alignment).to_bytes()).unwrap();
        let norm = file.tensor("norm.weight").unwrap();
        assert_eq!(norm.to_f32(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(norm.info.offset % alignment as usize, 0);
        let out = file.tensor("out.weight").unwrap();
        assert_eq!((out.info.row_len(), out.info.rows(), out.info.row_bytes()), (32, 2, 34));
        assert_eq!(out.row(1), (34..68).collect::<Vec<u8>>());
    }
}

#[test]
fn real_converters_files_open_from_disk() {
    for (name, architecture, tensors) in
        [("llama.gguf", "llama", 31), ("qwen2.gguf", "qwen2", 38), ("gemma3_text_std.gguf", "gemma3", 80)]
    {
        let file = Checkpoint::open(&fixture(name)).unwrap();
        assert_eq!(file.architecture().unwrap(), architecture);
        assert_eq!(file.tensors().len(), tensors);
        assert_eq!(file.file_bytes(), fs::metadata(fixture(name)).unwrap().len());
        let before = touch_everything(&file);
        file.advise_sequential();
        file.advise_dontneed();
        assert_eq!(touch_everything(&file.clone()), before, "given-back pages read the same");
    }
}

// L01: a range past the end of the file must be an error before it is a signal.
#[test]
fn a_file_cut_at_every_64th_is_refused_and_names_the_tensor() {
    let whole = fs::read(fixture("llama.gguf")).unwrap();
    let data_start =
        Checkpoint::open(&fixture("llama.gguf")).unwrap().tensors().map(|t| t.offset).min().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.gguf");
    for part in 0..64 {
        let len = whole.len() * part / 64;
        fs::write(&path, &whole[..len]).unwrap();
        let error = Checkpoint::open(&path).expect_err("a cut file").to_string();
        assert!(error.contains("cut.gguf"), "{error}");
        if len >= data_start {
            assert!(error.contains("tensor \"") && error.contains("not all in the file"), "{error}");
        }
    }
    fs::write(&path, &whole).unwrap();
    Checkpoint::open(&path).unwrap();
}

/// The bytes of `file` with the first `find` replaced by `put`.
fn patched(file: &GgufWriter, find: &[u8], put: &[u8]) -> Vec<u8> {
    let mut bytes = file.to_bytes();
    let at = bytes.windows(find.len()).position(|window| window == find).expect("the bytes to patch");
    bytes.splice(at..at + find.len(), put.iter().copied());
    bytes
}

// L02: products of dimensions that wrap.
#[test]
fn shapes_that_overflow_are_refused() {
    let file = GgufWriter::new("x").tensor_f32("t", &[7, 9], &[0.0; 63]);
    let dims: Vec<u8> = [7u64, 9].iter().flat_map(|dim| dim.to_le_bytes()).collect();
    let with = |a: u64, b: u64| {
        let put: Vec<u8> = [a, b].iter().flat_map(|dim| dim.to_le_bytes()).collect();
        error_of(patched(&file, &dims, &put))
    };
    assert!(with((1 << 42) + 1, 1 << 22).contains("overflows"));
    assert!(with(1 << 62, 4).contains("overflows"));
    assert!(with(1 << 61, 1).contains("overflows"), "in bytes, not in elements");
    assert!(with((1 << 42) + 1, 1).contains("not all in the file"));
    assert!(with(u64::MAX, 1).contains("tensor \"t\""));
    assert!(with(0, 9).contains("a dimension of 0"));
}

// L04, second half: alignments that are no power of two or too large.
#[test]
fn odd_alignments_are_refused() {
    for alignment in [0, 1, 4, 24, 33, 1 << 21, 1 << 30, u32::MAX] {
        let error = error_of(GgufWriter::new("x").put("general.alignment", alignment).to_bytes());
        assert!(error.contains("general.alignment") && error.contains("power of two"), "{error}");
    }
    let error = error_of(GgufWriter::new("x").put("general.alignment", "32").to_bytes());
    assert!(error.contains("general.alignment"), "{error}");
    read(GgufWriter::new("x").put("general.alignment", 1u32 << 20).to_bytes()).unwrap();
}

// L07: one name for two things.
#[test]
fn duplicates_are_refused() {
    let error = error_of(small().tensor_f32("norm.weight", &[1], &[1.0]).to_bytes());
    assert!(error.contains(r#"tensor "norm.weight""#) && error.contains("twice"), "{error}");
    let error = error_of(small().put("a.flag", false).to_bytes());
    assert!(error.contains(r#"key "a.flag""#) && error.contains("twice"), "{error}");
}

// L08: a big-endian file says what it is.
#[test]
fn big_endian_files_are_named() {
    let mut bytes = small().to_bytes();
    bytes[4..8].copy_from_slice(&[0, 0, 0, 3]);
    assert_eq!(error_of(bytes), "test.gguf: big-endian GGUF is not supported");
}

#[test]
fn other_versions_are_named() {
    for version in [0, 1, 4] {
        let error = error_of(small().version(version).to_bytes());
        assert!(error.contains(&format!("version {version} is not supported")), "{error}");
    }
}

// L09: nothing but the magic, and less.
#[test]
fn files_of_0_to_64_bytes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.gguf");
    let good = small().to_bytes();
    for len in 0..=64 {
        fs::write(&path, &good[..len]).unwrap();
        let error = Checkpoint::open(&path).expect_err("a short file").to_string();
        assert!(error.contains("short.gguf"), "{error}");
    }
}

#[test]
fn files_that_are_something_else_say_so() {
    assert!(error_of(b"GGML\x01\0\0\0".to_vec()).contains(r#"it starts with "GGML\x01\x00\x00\x00""#));
    assert!(error_of(b"\x1b]0;title\x07".to_vec()).contains(r"\x1b"), "escapes are shown, not sent");
    assert!(error_of(b"version https://git-lfs.github.com/spec/v1\n".to_vec()).contains("Git LFS pointer"));
    let dir = tempfile::tempdir().unwrap();
    let empty = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(empty.contains("safetensors"), "{empty}");
    assert!(matches!(Checkpoint::open(&dir.path().join("absent")), Err(CheckpointError::Open { .. })));
}

#[test]
fn formats_we_cannot_compute_are_named() {
    let file = GgufWriter::new("x").tensor("blk.0.w", &[256], BlockFormat::F16, vec![0; 512]);
    let described =
        |number: u32| [1u32.to_le_bytes().as_slice(), &256u64.to_le_bytes(), &number.to_le_bytes()].concat();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("i8.gguf");
    fs::write(&path, patched(&file, &described(1), &described(24))).unwrap();

    let error = Checkpoint::open(&path).unwrap_err().to_string();
    assert!(error.contains(r#"tensor "blk.0.w" is I8, which glassbox cannot compute yet"#), "{error}");
    let looked_at = Checkpoint::inspect(&path).unwrap();
    assert_eq!(looked_at.unsupported()[0].bytes, 256);
    assert!(looked_at.tensor("blk.0.w").unwrap_err().to_string().contains("I8"));

    let error = error_of(patched(&file, &described(1), &described(999)));
    assert!(error.contains(r#"tensor "blk.0.w""#) && error.contains("its type is 999"), "{error}");
}

#[test]
fn rows_must_be_whole_blocks() {
    let error =
        error_of(GgufWriter::new("x").tensor("w", &[48, 2], BlockFormat::Q8_0, vec![0; 102]).to_bytes());
    assert!(error.contains("rows of 48 weights cannot be Q8_0 blocks of 32"), "{error}");
}

#[test]
fn tensors_that_overlap_or_are_misaligned_are_refused() {
    let file = GgufWriter::new("x").tensor_f32("a", &[16], &[0.0; 16]).tensor_f32("b", &[16], &[0.0; 16]);
    let at_64 = [0u32.to_le_bytes().as_slice(), &64u64.to_le_bytes()].concat();
    let at = |offset: u64| [0u32.to_le_bytes().as_slice(), &offset.to_le_bytes()].concat();
    let error = error_of(patched(&file, &at_64, &at(32)));
    assert!(error.contains(r#"tensor "b""#) && error.contains(r#"overlaps that of tensor "a""#), "{error}");
    let error = error_of(patched(&file, &at_64, &at(65)));
    assert!(error.contains("not a multiple of 32"), "{error}");
    let error = error_of(patched(&file, &at_64, &at(u64::MAX - 31)));
    assert!(error.contains("not all in the file"), "{error}");
}

// L16: a part opened alone.
#[test]
fn parts_of_split_models_say_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let part = |number: u16| small().put("split.no", number - 1).put("split.count", 2u16);
    let first = dir.path().join("big-00001-of-00002.gguf");
    part(1).write(&first).unwrap();
    let error = Checkpoint::open(&first).unwrap_err().to_string();
    assert!(
        error.contains("part 1 of 2") && error.contains("missing beside it: big-00002-of-00002.gguf"),
        "{error}"
    );

    let renamed = dir.path().join("renamed.gguf");
    part(2).write(&renamed).unwrap();
    let error = Checkpoint::open(&renamed).unwrap_err().to_string();
    assert!(error.contains("part 2 of 2"), "{error}");

    let error = Checkpoint::from_bytes(&dir.path().join("big-00002-of-00003.gguf"), part(1).to_bytes());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("its name says part 2 of 3, and inside it is part 1 of 2"), "{error}");

    let bytes = small().to_bytes();
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    for (number, half, other) in [(1, head, 2), (2, tail, 1)] {
        let path = dir.path().join(format!("cut.gguf.part{number}of2"));
        fs::write(&path, half).unwrap();
        let error = Checkpoint::open(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(error.contains(&format!("missing beside it: cut.gguf.part{other}of2")), "{error}");
    }
}

/// Three parts as llama.cpp writes them: settings in the first, tensors in all.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let names: Vec<PathBuf> =
        (1..=3).map(|number| dir.join(format!("big-{number:05}-of-00003.gguf"))).collect();
    for (number, path) in names.iter().enumerate() {
        let base = if number == 0 { small().put("split.tensors.count", 4i32) } else { GgufWriter::default() };
        let mut part = base.put("split.no", number as u16).put("split.count", 3u16);
        if number > 0 {
            part = part.tensor_f32(&format!("blk.{number}.weight"), &[2, 2], &[number as f32; 4]);
        }
        part.write(path).unwrap();
    }
    names
}

#[test]
fn a_split_model_opens_as_one_whichever_part_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let parts = parts(dir.path());
    for path in &parts {
        let file = Checkpoint::open(path).unwrap();
        let names: Vec<_> = file.tensors().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["norm.weight", "out.weight", "blk.1.weight", "blk.2.weight"]);
        assert_eq!(file.tensor("norm.weight").unwrap().to_f32(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(file.tensor("blk.2.weight").unwrap().to_f32(), [2.0; 4]);
        assert_eq!((file.architecture().unwrap(), file.path()), ("llama", path.as_path()));
        assert_eq!(file.file_bytes(), parts.iter().map(|p| fs::metadata(p).unwrap().len()).sum::<u64>());
        touch_everything(&file);
    }
    fs::remove_file(&parts[1]).unwrap();
    for path in [&parts[0], &parts[2]] {
        let error = Checkpoint::open(path).unwrap_err().to_string();
        assert!(error.ends_with("missing beside it: big-00002-of-00003.gguf"), "{error}");
    }
}

// L07: two tensors of one name, across parts.
#[test]
fn parts_that_do_not_go_together_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let parts = parts(dir.path());
    let error_with = |number: usize, part: GgufWriter| {
        let before = fs::read(&parts[number]).unwrap();
        part.write(&parts[number]).unwrap();
        let error = Checkpoint::open(&parts[0]).unwrap_err().to_string();
        fs::write(&parts[number], before).unwrap();
        error
    };
    let part =
        |number: u16, count: u16| GgufWriter::default().put("split.no", number).put("split.count", count);
    let twice = error_with(2, part(2, 3).tensor_f32("blk.1.weight", &[1], &[0.0]));
    assert!(
        twice.contains("00003-of-00003") && twice.contains("\"blk.1.weight\" is in an earlier part"),
        "{twice}"
    );
    let other = error_with(1, part(1, 4));
    assert!(other.contains("its name says part 2 of 3, and inside it is part 2 of 4"), "{other}");
    let few = error_with(2, part(2, 3));
    assert!(few.contains("3 tensors together, where the first promises 4"), "{few}");
    let typed = error_with(1, GgufWriter::default().put("split.no", "one").put("split.count", 3u16));
    assert!(typed.contains("split.no") && typed.contains("a string"), "{typed}");

    let whole = fs::read(&parts[1]).unwrap();
    fs::write(&parts[1], &whole[..whole.len() - 4]).unwrap();
    let cut = Checkpoint::open(&parts[0]).unwrap_err().to_string();
    assert!(cut.contains("00002-of-00003.gguf is damaged") && cut.contains("blk.1.weight"), "{cut}");
}

#[test]
fn strings_that_are_not_utf8_do_no_harm() {
    let file = patched(&small(), "\u{1F638}".as_bytes(), b"\xFF\xFE\xFD\xFC");
    let file = read(file).unwrap();
    let error = file.texts("tokenizer.ggml.tokens").unwrap_err().to_string();
    assert!(error.contains("tokenizer.ggml.tokens") && error.contains("UTF-8"), "{error}");
    let file = read(patched(&small(), b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0ll\xFFma")).unwrap();
    assert_eq!(file.architecture().unwrap(), "ll\u{FFFD}ma");
    let error = error_of(patched(&small(), b"a.flags", b"a.fl\xFFgs"));
    assert!(error.contains("a name that is not UTF-8"), "{error}");
}

#[test]
fn a_bool_that_is_neither_is_refused() {
    let one = [7u32.to_le_bytes().as_slice(), &[1]].concat();
    let two = [7u32.to_le_bytes().as_slice(), &[2]].concat();
    let error = error_of(patched(&small(), &one, &two));
    assert!(error.contains(r#"key "a.flag""#) && error.contains("not 2"), "{error}");
}

/// Bytes of a small file, some of them changed, and cut somewhere.
fn mutated(whole: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let len = whole.len();
    let interesting = prop_oneof![Just(0u8), Just(1), Just(0x7F), Just(0x80), Just(0xFF), any::<u8>()];
    let changes = proptest::collection::vec((0..len, interesting), 0..6);
    (changes, prop_oneof![3 => Just(len), 1 => 0..len]).prop_map(move |(changes, cut)| {
        let mut bytes = whole.clone();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_mutation_panics(bytes in mutated(small().to_bytes())) {
        if let Ok(file) = read(bytes) {
            touch_everything(&file);
        }
    }

    #[test]
    fn no_noise_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let with_magic = [b"GGUF\x03\0\0\0".as_slice(), &bytes].concat();
        if let Ok(file) = read(with_magic) {
            touch_everything(&file);
        }
    }
}

/// Every byte of the header of a converter's file, set to each of a few values.
#[test]
fn no_single_byte_of_a_real_header_panics() {
    let whole = fs::read(fixture("qwen2.gguf")).unwrap();
    let header = Checkpoint::open(&fixture("qwen2.gguf")).unwrap().tensors().next().unwrap().offset;
    let mut refused = 0;
    // The vocabulary is most of it and all alike: every 7th byte meets every kind of place.
    for at in (0..header).step_by(7) {
        for byte in [0, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            match read(bytes) {
                Ok(file) => assert!(file.tensors().len() <= 38),
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}
