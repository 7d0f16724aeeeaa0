//! The fuzz targets `tokenizer` and `template` without a nightly tool chain: real files, changed at random
//! from a seed. `GLASSBOX_FUZZ_RUNS=1000000 cargo test --test text_fuzz -- --ignored` is the long way.
#![allow(clippy::unwrap_used)]

#[path = "support/text_fuzz.rs"]
mod target;

use std::path::Path;
use std::time::{Duration, Instant};

/// A xorshift of 64 bits (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// One to eight changes: bytes, stretches, words of a dictionary, pieces of another file.
fn changed(random: &mut Random, bytes: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(20)).min(bytes.len());
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(bytes.len() - random.below(bytes.len() / 8 + 1)),
            4 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            5 => {
                let from = random.below(other.len() + 1);
                let to = (from + random.below(60)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            // A word of the dictionary in the place of another, so that it means something more often.
            6 => {
                let (old, new) = (random.of(words), random.of(words));
                let found: Vec<usize> =
                    (0..bytes.len()).filter(|at| bytes[*at..].starts_with(old.as_bytes())).collect();
                if !found.is_empty() {
                    let at = found[random.below(found.len())];
                    bytes.splice(at..at + old.len(), new.bytes());
                }
            }
            _ => drop(bytes.splice(at..at, random.of(words).bytes())),
        }
    }
    bytes
}

const JSON_WORDS: &[&str] = &[
    "true",
    "false",
    "null",
    "0",
    "1",
    "-1",
    "3",
    "300",
    "65535",
    "4294967295",
    "18446744073709551616",
    "1e400",
    "\"\"",
    "\"a\"",
    "\"▁\"",
    "\" \"",
    "[]",
    "{}",
    "[",
    "]",
    "{",
    "}",
    ",",
    "BPE",
    "Sequence",
    "ByteLevel",
    "Metaspace",
    "Split",
    "Digits",
    "Punctuation",
    "Whitespace",
    "WhitespaceSplit",
    "Isolated",
    "Removed",
    "MergedWithPrevious",
    "MergedWithNext",
    "Contiguous",
    "Replace",
    "Prepend",
    "NFC",
    "NFKD",
    "Lowercase",
    "Strip",
    "first",
    "always",
    "never",
    "special",
    "normalized",
    "lstrip",
    "rstrip",
    "single_word",
    "byte_fallback",
    "fuse_unk",
    "ignore_merges",
    "unk_token",
    "\\\\s+(?!\\\\S)|\\\\s+",
    "\\\\p{L}+",
    "(?=a)",
    "a{1000}",
    "<0x0A>",
    "\\u0000",
    "\\ud800",
];

const JINJA_WORDS: &[&str] = &[
    "{{",
    "}}",
    "{%",
    "%}",
    "{%-",
    "-%}",
    "{#",
    "#}",
    " for ",
    " in ",
    "endfor",
    " if ",
    "endif",
    " else ",
    "elif",
    " set ",
    "namespace",
    "macro",
    "endmacro",
    " is ",
    " not ",
    "defined",
    "none",
    "messages",
    "message",
    "tools",
    "role",
    "content",
    "loop",
    ".index0",
    "range(",
    "1000000000",
    "-1",
    "|",
    "tojson",
    "trim",
    "length",
    "join",
    "replace(",
    "split(",
    "strip(",
    "[::-1]",
    "[",
    "]",
    "(",
    ")",
    "'",
    "\"",
    "+",
    "*",
    "~",
    "//",
    "%",
    "**",
    "raise_exception(",
    "strftime_now(",
    ".items()",
    "bos_token",
    "generation",
    "call",
    "filter",
    "break",
    "continue",
    "\u{e9}",
];

const TEXTS: &[&str] =
    &["", " a b  c\n", "<s>aé字<left> x", "▁▁ab 12345", "<|im_start|>user", "\u{0}'s it's IT'S ''"];

const SMALL: &str = r#"{"added_tokens":[{"id":9,"content":"<s>","special":true},{"id":10,"content":"<left>",
"lstrip":true,"rstrip":true,"normalized":true,"single_word":true}],"normalizer":{"type":"Sequence","normalizers":[
{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":
{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"a+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated",
"invert":false},{"type":"Digits","individual_digits":true}]},"post_processor":{"type":"TemplateProcessing","single":[
{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[9]}}},"decoder":
{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]},"model":{"type":"BPE","unk_token":"<unk>",
"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"vocab":{"<unk>":0,"a":1,"b":2,"▁":3,"▁a":4,"ab":5,
"<0x0A>":6,"1":7,"é":8},"merges":["▁ a",["a","b"]]}}"#;

const TEMPLATES: &[&str] = &[
    "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + \
     '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{%- if tools %}{{- tools | tojson(indent=4) }}{%- endif %}{%- set ns = namespace(n=0) %}{%- for m in messages[::-1] %}\
     {%- set ns.n = ns.n + loop.index0 %}{{- m.content.split('</think>')[-1].lstrip('\\n') | trim }}{%- endfor %}{{ ns.n }}",
    "{% macro show(x, y='z') %}{{ x ~ y | upper }}{% endmacro %}{% for m in messages %}{% if m.role == 'system' %}\
     {{ show(m.content) }}{% elif m.content is string and m.content is not none %}{{ m['content'] | replace('a', 'b') }}\
     {% else %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}{{ range(3) | join(', ') }}",
];

/// Others beside ours, where they are; they are not ours to copy.
fn golden_templates() -> Vec<String> {
    let root = std::env::var_os("GLASSBOX_GOLDEN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"),
        std::path::PathBuf::from,
    );
    let files = std::fs::read_dir(root.join("templates")).into_iter().flatten().flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    paths.sort();
    let json = |path: &std::path::PathBuf| {
        serde_json::from_slice::<serde_json::Value>(&std::fs::read(path).ok()?).ok()
    };
    paths.iter().filter_map(|path| json(path)?["template"].as_str().map(str::to_owned)).collect()
}

/// `run` on so many changed files; what it says of each, counted.
fn fuzz(name: &str, runs: u64, seeds: &[Vec<u8>], words: &[&str], run: impl Fn(&[u8], &str) -> bool) {
    let (start, mut used, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    for seed in 0..runs {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let (file, other) = (&seeds[random.below(seeds.len())], &seeds[random.below(seeds.len())]);
        let bytes = changed(&mut random, file, other, words);
        let text = random.of(TEXTS);
        let begin = Instant::now();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&bytes, text)));
        let taken = begin.elapsed();
        match outcome {
            Ok(is_used) => used += u64::from(is_used),
            Err(_) => panic!("{name}: seed {seed} and {text:?}: {:?}", String::from_utf8_lossy(&bytes)),
        }
        assert!(taken < Duration::from_secs(20), "{name}: seed {seed} took {taken:?}");
        slowest = slowest.max(taken);
    }
    println!("{name}: {runs} runs in {:?}, {used} of them valid, the slowest {slowest:?}", start.elapsed());
}

fn fuzz_tokenizer(runs: u64) {
    let seeds = [
        SMALL.as_bytes().to_vec(),
        SMALL.as_bytes().to_vec(),
        include_bytes!("fixtures/hub/tokenizer.json").to_vec(),
    ];
    // The long one is read more slowly, and says nothing else.
    let seeds = if runs > 100_000 { &seeds[..2] } else { &seeds[..] };
    fuzz("tokenizer", runs, seeds, JSON_WORDS, target::tokenizer);
}

fn fuzz_template(runs: u64) {
    let own = TEMPLATES.iter().map(|template| (*template).to_owned());
    let seeds: Vec<Vec<u8>> = own.chain(golden_templates()).map(String::into_bytes).collect();
    fuzz("template", runs, &seeds, JINJA_WORDS, |bytes, text| {
        target::template(&String::from_utf8_lossy(bytes), text)
    });
}

#[test]
fn changed_tokenizers_do_no_harm() {
    fuzz_tokenizer(2000);
}

#[test]
fn changed_templates_do_no_harm() {
    fuzz_template(1000);
}

fn many() -> u64 {
    std::env::var("GLASSBOX_FUZZ_RUNS").map_or(1_000_000, |runs| runs.parse().unwrap())
}

#[test]
#[ignore = "long"]
fn a_million_tokenizers() {
    fuzz_tokenizer(many());
}

#[test]
#[ignore = "long"]
fn a_million_templates() {
    fuzz_template(many());
}
