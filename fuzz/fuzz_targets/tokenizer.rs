//! Any bytes as a tokenizer.json, and any text: an error, or ids of that tokenizer.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/text_fuzz.rs"]
mod target;

fuzz_target!(|input: (&str, &[u8])| {
    let (text, bytes) = input;
    target::tokenizer(bytes, text);
});
