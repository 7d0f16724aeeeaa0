//! Any text as a chat template, and in its messages: an error or a prompt, before long.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/text_fuzz.rs"]
mod target;

fuzz_target!(|input: (&str, &str)| {
    let (said, source) = input;
    target::template(source, said);
});
