//! Safetensors files that are wrong in one way each (BUGLOG L17 and more).

use super::small::llama;
use super::{ONE, bounded};
use glassbox::weights::Checkpoint;

/// A file of a header and so many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    claimed(header.len() as u64, header.as_bytes(), data)
}

/// The same with a length of the header that may not be true.
fn claimed(len: u64, header: &[u8], data: usize) -> Vec<u8> {
    [len.to_le_bytes().as_slice(), header, &vec![0; data]].concat()
}

fn tensor(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

/// One tensor, `a`.
fn one(dtype: &str, shape: &str, offsets: &str, data: usize) -> Vec<u8> {
    file(&format!("{{{}}}", tensor("a", dtype, shape, offsets)), data)
}

/// Two f32 of two elements, `a` and `b`.
fn two(first: &str, second: &str, data: usize) -> Vec<u8> {
    let (a, b) = (tensor("a", "F32", "[2]", first), tensor("b", "F32", "[2]", second));
    file(&format!("{{{a},{b}}}"), data)
}

fn header(text: &str) -> Vec<u8> {
    file(text, 8)
}

/// What is wrong, the file, and a part of what is said about it.
fn cases() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let a = tensor("a", "F32", "[2]", "[0,8]");
    let deep = format!("{{\"a\":{}}}", "[".repeat(50_000));
    let wide = format!("{{{}}}", [a.as_str(); 3].join(","));
    let field = |text: &str| header(&format!("{{\"a\":{{{text}}}}}"));
    vec![
        // Of the file.
        ("empty", Vec::new(), "ends after 0 bytes"),
        ("seven bytes", vec![0; 7], "ends after 7 bytes"),
        ("a length and nothing more", vec![2, 0, 0, 0, 0, 0, 0, 0], "2 bytes long, and 0 follow"),
        ("zeros", vec![0; 1024], "does not start with {"),
        ("all ones", vec![0xFF; 1024], "at most 100000000 are possible"),
        ("a header of 2^64 - 1 bytes", claimed(u64::MAX, b"{}", 0), "at most 100000000 are possible"),
        ("a header of 100,000,001 bytes", claimed(100_000_001, b"{}", 0), "at most 100000000"),
        ("a header longer than the file", claimed(100_000_000, b"{}", 0), "and 2 follow"),
        ("a header of no bytes", claimed(0, b"{}", 0), "does not start with {"),
        (
            "a header cut off",
            claimed(20, header(&format!("{{{a}}}")).get(8..).unwrap(), 0),
            "its header: EOF",
        ),
        ("a header one byte too long", claimed(3, b"{}\x01", 0), "its header: trailing characters"),
        ("a pickle", b"\x80\x04\x95\x0c\0\0\0\0\0\0\0\x8c\x02os".to_vec(), "Python pickle"),
        ("a zip", b"PK\x03\x04\x14\0\0\0\0\0\0\0".to_vec(), "zip archive"),
        ("a pointer", b"version https://git-lfs.github.com/spec/v1\noid".to_vec(), "Git LFS pointer"),
        ("a page", b"<!DOCTYPE html><html></html>".to_vec(), "at most 100000000"),
        ("a GGUF file", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "its header is"),
        // Of the header's JSON.
        ("a list", file("[]", 0), "does not start with {"),
        ("a space first", file(" {}", 0), "does not start with {"),
        ("a byte order mark", file("\u{feff}{}", 0), "does not start with {"),
        ("no JSON", header("{a}"), "its header: key must be a string"),
        ("single quotes", header("{'a': 1}"), "its header: key must be a string"),
        ("a comma too many", header(&format!("{{{a},}}")), "its header: trailing comma"),
        ("a comment", header(&format!("{{{a}}}//x")), "its header: trailing characters"),
        ("two objects", header(&format!("{{{a}}}{{}}")), "its header: trailing characters"),
        ("NUL", claimed(a.len() as u64 + 3, format!("{{{a}\0}}").as_bytes(), 8), "its header: expected"),
        ("no UTF-8", claimed(9, b"{\"\xff\xfe\":1}", 8), "its header: invalid unicode"),
        ("half a surrogate", header(r#"{"\ud800":1}"#), "its header:"),
        ("a tab in a name", header("{\"a\tb\":1}"), "its header: control character"),
        ("deep", header(&deep), "its header: invalid type: sequence"),
        ("a name twice", header(&wide), "\"a\" appears twice"),
        (
            "metadata twice",
            header(&format!(r#"{{"__metadata__":{{}},"__metadata__":{{}},{a}}}"#)),
            "appears twice",
        ),
        ("metadata of numbers", header(&format!(r#"{{"__metadata__":{{"n":1}},{a}}}"#)), "expected a string"),
        (
            "metadata of objects",
            header(&format!(r#"{{"__metadata__":{{"n":{{}}}},{a}}}"#)),
            "expected a string",
        ),
        (
            "a key of metadata twice",
            header(&format!(r#"{{"__metadata__":{{"n":"","n":""}},{a}}}"#)),
            "\"n\" appears twice",
        ),
        ("metadata no object", header(&format!(r#"{{"__metadata__":"pt",{a}}}"#)), "expected an object"),
        // Of one tensor's description.
        ("a number for a tensor", header(r#"{"a":1}"#), "invalid type: integer"),
        ("null for a tensor", header(r#"{"a":null}"#), "invalid type: null"),
        ("a tensor without a type", field(r#""shape":[2],"data_offsets":[0,8]"#), "missing field `dtype`"),
        ("a tensor without a shape", field(r#""dtype":"F32","data_offsets":[0,8]"#), "missing field `shape`"),
        ("a tensor without a place", field(r#""dtype":"F32","shape":[2]"#), "missing field `data_offsets`"),
        (
            "a field more",
            field(r#""dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1"#),
            "unknown field `x`",
        ),
        (
            "a type twice",
            field(r#""dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]"#),
            "duplicate field",
        ),
        (
            "a shape twice",
            field(r#""shape":[2],"dtype":"F32","shape":[2],"data_offsets":[0,8]"#),
            "duplicate field",
        ),
        ("an unknown type", one("F31", "[2]", "[0,8]", 8), "its type \"F31\" is none"),
        ("a type in small letters", one("f32", "[2]", "[0,8]", 8), "is none that we know"),
        ("a number for a type", field(r#""dtype":32,"shape":[2],"data_offsets":[0,8]"#), "expected a string"),
        ("a negative dimension", one("F32", "[-2]", "[0,8]", 8), "invalid value: integer `-2`"),
        ("half a dimension", one("F32", "[2.5]", "[0,8]", 8), "invalid type: floating point"),
        ("a dimension in quotes", one("F32", "[\"2\"]", "[0,8]", 8), "invalid type: string"),
        ("a shape in a shape", one("F32", "[[2]]", "[0,8]", 8), "invalid type: sequence"),
        ("no list for a shape", one("F32", "2", "[0,8]", 8), "invalid type: integer"),
        (
            "a dimension of 2^64",
            one("F32", "[18446744073709551616]", "[0,8]", 8),
            "invalid type: floating point",
        ),
        (
            "elements beyond 2^64",
            one("F32", "[4294967296,4294967296]", "[0,8]", 8),
            "no size a file can have",
        ),
        ("bytes beyond 2^64", one("F32", "[4611686018427387904]", "[0,0]", 0), "no size a file can have"),
        ("bits beyond 2^64", one("F64", "[1152921504606846976]", "[0,0]", 0), "no size a file can have"),
        (
            "2^50 elements",
            one("F32", "[1125899906842624]", "[0,4503599627370496]", 8),
            "the file has 8 bytes of data",
        ),
        ("nine dimensions", one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]", 8), "9 dimensions"),
        (
            "a million dimensions",
            one("F32", &format!("[{}1]", "1,".repeat(999_999)), "[0,4]", 4),
            "dimensions",
        ),
        ("half a byte", one("F4", "[3]", "[0,2]", 2), "no size a file can have"),
        // Of its place.
        ("one offset", one("F32", "[2]", "[0]", 8), "invalid length 1"),
        ("three offsets", one("F32", "[2]", "[0,8,8]", 8), "trailing characters"),
        ("no list for offsets", one("F32", "[2]", "8", 8), "invalid type: integer"),
        ("a negative offset", one("F32", "[2]", "[-8,0]", 8), "invalid value: integer `-8`"),
        ("half an offset", one("F32", "[2]", "[0,8.5]", 8), "invalid type: floating point"),
        ("offsets turned", one("F32", "[2]", "[8,0]", 8), "lie at 8..0"),
        ("too few bytes for its shape", one("F32", "[2]", "[0,4]", 4), "its shape needs 8 bytes"),
        ("too many bytes for its shape", one("F32", "[2]", "[0,12]", 12), "its shape needs 8 bytes"),
        ("beyond the file", one("F32", "[2]", "[0,8]", 4), "the file has 4 bytes of data"),
        (
            "at 2^63",
            one("F32", "[2]", "[9223372036854775808,9223372036854775816]", 8),
            "a hole of 9223372036854775808",
        ),
        (
            "at the end of numbers",
            one("F32", "[2]", "[18446744073709551607,18446744073709551615]", 8),
            "a hole",
        ),
        ("a hole at first", one("F32", "[2]", "[8,16]", 16), "a hole of 8 bytes"),
        ("a hole between", two("[0,8]", "[16,24]", 24), "a hole of 8 bytes"),
        ("an overlap", two("[0,8]", "[4,12]", 12), "overlap"),
        ("the same place twice", two("[0,8]", "[0,8]", 8), "overlap"),
        ("bytes past the end", one("F32", "[2]", "[0,8]", 9), "1 bytes after the last tensor"),
        ("a megabyte past the end", two("[0,8]", "[8,16]", 1 << 20), "after the last tensor belong to none"),
        ("data and no tensor", file("{}", 8), "8 bytes after the last tensor"),
    ]
}

#[test]
fn each_malformed_safetensors_file_is_refused_with_its_reason() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let config = llama().to_string();
    let cases = cases();
    assert!(cases.len() >= 58, "{}", cases.len());
    for (case, bytes, said) in &cases {
        let opened =
            bounded(case, || Checkpoint::from_hub_bytes("m".as_ref(), config.as_bytes(), bytes.clone()));
        let error = opened.expect_err(case).to_string();
        assert!(error.starts_with("m/model.safetensors: "), "{case}: {error}");
        assert!(error.contains(said), "{case}: {error}");
    }
    println!("{} malformed safetensors files", cases.len());
}

/// Odd, and right: nothing to refuse.
#[test]
fn what_the_format_allows_is_read() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let config = llama().to_string();
    let padded = format!("{{{}}}       ", tensor("a", "F32", "[2]", "[0,8]"));
    let empty_between = format!(
        "{{{},{},{}}}",
        tensor("a", "F32", "[2]", "[0,8]"),
        tensor("b", "F32", "[0,4611686018427387904]", "[8,8]"),
        tensor("c", "F32", "[]", "[8,12]")
    );
    for (case, bytes, tensors) in [
        ("spaces after the header", file(&padded, 8), 1),
        ("tensors in another order", two("[8,16]", "[0,8]", 16), 2),
        ("an empty tensor and a scalar", file(&empty_between, 12), 2),
        ("a header of 640 bytes, which starts as a pickle does", file(&format!("{padded:<640}"), 8), 1),
        ("nothing", file("{}", 0), 0),
    ] {
        let opened = bounded(case, || Checkpoint::from_hub_bytes("m".as_ref(), config.as_bytes(), bytes));
        assert_eq!(opened.unwrap().tensors().len(), tensors, "{case}");
    }
}
