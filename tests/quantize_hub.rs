//! A hub's folder written as a GGUF file says what it said as a folder.
#![allow(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use glassbox::model::{LoadOptions, Outputs};
use glassbox::protocol::WeightFormat;
use glassbox::weights::{BlockFormat, Checkpoint, QuantizeError, write_gguf};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use support::{Driven, fixture, isa, load_with, logits, own_blocks, run};

const TOKENS: [u32; 12] = [5, 99, 17, 250, 3, 42, 42, 180, 7, 64, 121, 33];

/// Logits after every token, with the matrices as Q8_0.
fn says(file: &Checkpoint) -> Vec<Vec<f32>> {
    let options = LoadOptions {
        quantize: Some(WeightFormat::Q8_0),
        kv_cache_bytes: Some(16 << 20),
        ..LoadOptions::default()
    };
    let mut runner = load_with(file, 1, isa(), &options);
    let vocab = runner.limits().vocab_size;
    let tokens: Vec<u32> = TOKENS.iter().map(|token| token % vocab as u32).collect();
    let blocks = own_blocks(&*runner, 1, tokens.len());
    let driven = Driven { seq: 1, tokens: &tokens, start: 0, blocks, outputs: Outputs::All };
    logits(&run(&mut *runner, &[driven], vocab), vocab)
}

/// The largest difference, in parts of the range of the logits.
fn difference(one: &[Vec<f32>], other: &[Vec<f32>]) -> f32 {
    let all = || one.iter().flatten();
    let range = all().fold(f32::MIN, |m, x| m.max(*x)) - all().fold(f32::MAX, |m, x| m.min(*x));
    let differences = all().zip(other.iter().flatten()).map(|(one, other)| (one - other).abs());
    differences.fold(0.0, f32::max) / range
}

fn written(folder: &Path, to: &Path) -> Result<Checkpoint, QuantizeError> {
    let file = Checkpoint::open(folder)?;
    write_gguf(&file, BlockFormat::Q8_0, to, true, &mut |_, _| ControlFlow::Continue(()))?;
    Ok(Checkpoint::open(to)?)
}

/// In the repository, or beside it where that is here.
fn folder(name: &str) -> Option<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden/checkpoints").join(name);
    [fixture("checkpoints").join(name), shared]
        .into_iter()
        .find(|folder| folder.join("config.json").is_file())
}

fn says_the_same(names: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let Some(folder) = folder(name) else {
            println!("{name}: skipped, it is not here");
            continue;
        };
        let gguf = written(&folder, &dir.path().join("out.gguf")).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!gguf.is_hub());
        let difference = difference(&says(&Checkpoint::open(&folder).unwrap()), &says(&gguf));
        println!("{name}: {difference:.1e} of the range");
        // Where rows are permuted, products of pairs are added in another order, before the cache rounds to 16 bits.
        assert!(difference < 2e-3, "{name}: {difference} of the range");
    }
}

#[test]
fn rows_in_pairs_say_the_same() {
    says_the_same(&["llama_sharded", "llama_f16_linear_rope", "mistral", "mixtral", "granite", "smollm3"]);
}

#[test]
fn norms_with_one_added_say_the_same() {
    says_the_same(&["gemma2", "gemma", "gemma3_text"]);
}

#[test]
fn families_that_are_the_same_in_both_say_the_same() {
    says_the_same(&[
        "cohere",
        "gpt2",
        "gpt_neox",
        "phi",
        "glm4",
        "glm4_moe",
        "gpt_oss",
        "olmo2",
        "phi3",
        "phi3_longrope",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "starcoder2",
        "llama_yarn",
    ]);
}

#[test]
fn without_the_permutation_it_would_say_something_else() {
    // The same rows in a file that says it has pairs: what the test above would miss if it could not fail.
    let folder = folder("llama_sharded").unwrap();
    let file = Checkpoint::open(&folder).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let right = written(&folder, &dir.path().join("out.gguf")).unwrap();
    let name = "blk.0.attn_q.weight";
    let (was, is) = (file.tensor(name).unwrap().to_f32(), right.tensor(name).unwrap().to_f32());
    let row = file.info(name).unwrap().row_len();
    let head = file.u64("llama.embedding_length").unwrap().unwrap() as usize
        / file.u64("llama.attention.head_count").unwrap().unwrap() as usize;
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.01);
    let at = |weights: &[f32], i: usize| weights[i * row..][..row].to_vec();
    assert!(near(&at(&was, 0), &at(&is, 0)) && near(&at(&was, head / 2), &at(&is, 1)));
    assert!(!near(&at(&was, 1), &at(&is, 1)));
}

/// A tokenizer of bytes as GPT-2 writes them, and one merge.
fn byte_level() -> String {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 256..;
    let letter = |byte| char::from_u32(if printable(byte) { byte } else { others.next().unwrap() }).unwrap();
    let mut vocab: serde_json::Map<_, _> = (0..256)
        .map(letter)
        .zip(0..)
        .map(|(letter, id)| (letter.to_string(), serde_json::json!(id)))
        .collect();
    vocab.insert("lo".into(), 256.into());
    let bytes = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": bytes, "post_processor": bytes, "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocab, "merges": ["l o"]},
    })
    .to_string()
}

#[test]
fn the_tokenizer_of_a_folder_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    std::fs::create_dir(&model).unwrap();
    for file in std::fs::read_dir(folder("llama_sharded").unwrap()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), model.join(file.file_name())).unwrap();
    }
    std::fs::write(model.join("tokenizer.json"), byte_level()).unwrap();
    std::fs::write(model.join("chat_template.jinja"), "{{ messages[0].content }}!").unwrap();
    let gguf = written(&model, &dir.path().join("out.gguf")).unwrap();
    let (before, after) = (Checkpoint::open(&model).unwrap(), gguf);
    let text = |file: &Checkpoint| glassbox::open::text_model(file, None).unwrap();
    let ids = |file: &Checkpoint| text(file).encode("Hello, wörld!\n  2 + 2", glassbox::text::Specials::Text);
    assert!(!ids(&before).is_empty() && ids(&before) == ids(&after));
    assert!(text(&before).has_chat_template() && text(&after).has_chat_template());
}

#[test]
fn a_family_that_nobody_knows_the_difference_of_is_refused() {
    let Some(folder) = folder("mamba2") else { return println!("skipped: mamba2 is not here") };
    let dir = tempfile::tempdir().unwrap();
    let said = written(&folder, &dir.path().join("out.gguf")).unwrap_err().to_string();
    assert!(said.contains("\"mamba2\""), "{said}");
}
