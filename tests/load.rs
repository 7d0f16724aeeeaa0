//! Files that cannot be run are refused with the key or tensor that is wrong; nothing is guessed.
#![allow(clippy::unwrap_used)]

mod support;

use glassbox::compute::Backend;
use glassbox::model::{LoadError, LoadOptions, Loaded, Outputs, load};
use glassbox::weights::{BlockFormat, Checkpoint, GgufWriter};
use std::path::Path;
use support::{Driven, batch, cpu, fixture};

const DIM: usize = 32;
const VOCAB: usize = 8;

/// A llama of one layer, as `change` leaves it.
struct Tiny {
    architecture: &'static str,
    whole: Vec<(&'static str, u32)>,
    rope_scaling: Option<&'static str>,
    tensors: Vec<(&'static str, Vec<usize>)>,
}

impl Tiny {
    fn new() -> Self {
        let (kv, ffn) = (16, 64);
        Self {
            architecture: "llama",
            whole: vec![
                ("block_count", 1),
                ("context_length", 64),
                ("embedding_length", DIM as u32),
                ("feed_forward_length", ffn as u32),
                ("attention.head_count", 2),
                ("attention.head_count_kv", 1),
            ],
            rope_scaling: None,
            tensors: vec![
                ("token_embd.weight", vec![DIM, VOCAB]),
                ("output_norm.weight", vec![DIM]),
                ("blk.0.attn_norm.weight", vec![DIM]),
                ("blk.0.attn_q.weight", vec![DIM, DIM]),
                ("blk.0.attn_k.weight", vec![DIM, kv]),
                ("blk.0.attn_v.weight", vec![DIM, kv]),
                ("blk.0.attn_output.weight", vec![DIM, DIM]),
                ("blk.0.ffn_norm.weight", vec![DIM]),
                ("blk.0.ffn_gate.weight", vec![DIM, ffn]),
                ("blk.0.ffn_up.weight", vec![DIM, ffn]),
                ("blk.0.ffn_down.weight", vec![ffn, DIM]),
            ],
        }
    }

    fn set(mut self, key: &'static str, value: u32) -> Self {
        self.whole.retain(|(k, _)| *k != key);
        self.whole.push((key, value));
        self
    }

    fn load(self) -> Result<Loaded, LoadError> {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        let mut writer =
            GgufWriter::new(self.architecture).put(&key("attention.layer_norm_rms_epsilon"), 1e-5f32);
        for (name, value) in &self.whole {
            writer = writer.put(&key(name), *value);
        }
        if let Some(kind) = self.rope_scaling {
            writer = writer.put(&key("rope.scaling.type"), kind);
        }
        for (name, dims) in &self.tensors {
            let bytes = vec![0; 4 * dims.iter().product::<usize>()];
            writer = writer.tensor(name, dims, BlockFormat::F32, bytes);
        }
        let file = Checkpoint::from_bytes(Path::new("tiny.gguf"), writer.to_bytes()).unwrap();
        let options = LoadOptions { max_batched_tokens: 16, ..LoadOptions::default() };
        load(&file, cpu(1), &options, &|_, _| ())
    }

    fn refused(self) -> String {
        self.load().err().expect("refused").to_string()
    }
}

#[test]
fn the_tiny_model_itself_loads() {
    let loaded = Tiny::new().load().unwrap();
    assert_eq!((loaded.layers, loaded.kv.max_model_len), (1, 64));
    assert_eq!(loaded.kv_bytes_per_token, 2 * 16 * 2);
}

#[test]
fn an_unknown_architecture_is_named_with_what_is_supported() {
    let refused = Tiny { architecture: "yeti9", ..Tiny::new() }.refused();
    assert!(["yeti9", "gemma3", "llama", "qwen2"].iter().all(|name| refused.contains(name)), "{refused}");
}

#[test]
fn a_missing_tensor_is_named() {
    let mut tiny = Tiny::new();
    tiny.tensors.retain(|(name, _)| *name != "blk.0.ffn_up.weight");
    assert!(tiny.refused().contains("blk.0.ffn_up.weight"));
}

/// Left out in silence, it would make every answer subtly wrong.
#[test]
fn a_tensor_without_a_place_is_named() {
    let mut tiny = Tiny::new();
    tiny.tensors.push(("blk.0.attn_sinks.weight", vec![2]));
    assert!(tiny.refused().contains("blk.0.attn_sinks.weight"));
}

#[test]
fn a_wrong_shape_is_shown_beside_the_right_one() {
    let mut tiny = Tiny::new();
    tiny.tensors.iter_mut().find(|(name, _)| *name == "blk.0.attn_k.weight").unwrap().1 = vec![DIM, 24];
    let refused = tiny.refused();
    assert!(refused.contains("[32, 24]") && refused.contains("[32, 16]"), "{refused}");
}

#[test]
fn impossible_numbers_are_refused_with_their_key() {
    for (key, value) in [
        ("block_count", 0),
        ("embedding_length", u32::MAX),
        ("attention.head_count_kv", 3),
        ("attention.key_length", 7),
        ("attention.value_length", 8),
        ("rope.dimension_count", 64),
        ("context_length", 0),
    ] {
        let refused = Tiny::new().set(key, value).refused();
        assert!(refused.contains(key) || refused.contains("attn_q"), "{key} = {value}: {refused}");
    }
}

#[test]
fn a_rope_scaling_we_do_not_know_is_refused_and_not_ignored() {
    let refused = Tiny { rope_scaling: Some("ntk"), ..Tiny::new() }.refused();
    assert!(refused.contains("llama.rope.scaling.type is ntk") && refused.contains("yarn"), "{refused}");
    let refused = Tiny { rope_scaling: Some("linear"), ..Tiny::new() }.refused();
    assert!(refused.contains("llama.rope.scaling.factor"), "{refused}");
    let refused = Tiny { rope_scaling: Some("longrope"), ..Tiny::new() }.refused();
    assert!(refused.contains("rope_factors_short.weight"), "{refused}");
}

/// A window of nothing would hide a token from itself.
#[test]
fn a_window_of_no_tokens_is_refused_where_there_must_be_one() {
    for architecture in ["gemma2", "gemma3"] {
        let tiny = Tiny { architecture, ..Tiny::new() }.set("attention.sliding_window", 0);
        let refused = tiny.refused();
        assert!(refused.contains(&format!("{architecture}.attention.sliding_window is 0")), "{refused}");
    }
}

/// Whatever is packed would else be there twice.
#[cfg(target_os = "linux")]
#[test]
fn packed_weights_leave_nothing_of_the_file_in_memory() {
    let (cols, rows) = (1024, 20_000);
    let blocks = vec![1; rows * cols / 32 * BlockFormat::Q8_0.block_bytes()];
    let writer = GgufWriter::new("llama").tensor("w", &[cols, rows], BlockFormat::Q8_0, blocks);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.gguf");
    std::fs::write(&path, writer.to_bytes()).unwrap();

    let file = Checkpoint::open(&path).unwrap();
    let tensor = file.tensor("w").unwrap();
    assert!(tensor.data.iter().any(|byte| *byte > 0) && resident_kib(&path) > 0);
    support::cpu(2).matrix(std::slice::from_ref(&tensor)).unwrap();
    let left = resident_kib(&path);
    assert!(left < 256, "{left} KiB of {} are still mapped", tensor.data.len() >> 10);
}

/// Of a file's maps into this process, what takes memory.
#[cfg(target_os = "linux")]
fn resident_kib(path: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let ours = maps.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
    let rss = ours.filter_map(|line| line.strip_prefix("Rss:")).next().unwrap();
    rss.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_state_that_nobody_has_room_for_is_refused() {
    let mut tiny = Tiny { architecture: "mamba2", ..Tiny::new() };
    let large = 1 << 24;
    tiny.whole.extend([("ssm.conv_kernel", large), ("ssm.inner_size", large), ("ssm.time_step_rank", 1024)]);
    tiny.whole.extend([("ssm.group_count", 1), ("ssm.state_size", large)]);
    let refused = tiny.refused();
    assert!(refused.contains("mamba2.embedding_length is 32: with"), "{refused}");
    assert!(refused.contains("a layer's state is too large"), "{refused}");
}

fn with_states(name: &str, longer_blocks: bool) -> Loaded {
    let file = Checkpoint::open(&fixture(name)).unwrap();
    let options = LoadOptions { longer_blocks, max_batched_tokens: 16, ..LoadOptions::default() };
    load(&file, cpu(1), &options, &|_, _| ()).unwrap()
}

/// Of tests/fixtures/gguf/mamba2.gguf, three layers: three inputs of 128 + 2 x 2 x 16 channels, and 128 rows
/// of 16.
const MAMBA_STATES: usize = 3 * 4 * (3 * 192 + 128 * 16);

/// A block is as long as a state at least. Keys and values fill it as well, where nobody asked for its size.
#[test]
fn blocks_grow_where_states_are_larger_than_keys_and_values() {
    // One layer attends, with 2 heads of 32; the states of three: 3 inputs of 128 channels, 4 heads of 16 x 16.
    let (token, state) = (2 * 2 * 32 * 2, 4 * (3 * 128 + 4 * 16 * 16));
    let hybrid = |longer_blocks| {
        let loaded = with_states("checkpoints/qwen3_5_text", longer_blocks);
        (loaded.kv.block_size, loaded.kv_bytes_per_token, loaded.state_bytes)
    };
    assert_eq!(hybrid(false), (16, state / 16, 3 * state));
    assert_eq!(hybrid(true), (32, token, 3 * 32 * token));
    let pure = with_states("gguf/mamba2.gguf", true);
    assert_eq!((pure.kv.block_size, pure.kv.max_model_len), (256, 1 << 20));
    assert_eq!((pure.kv_bytes_per_token, pure.state_bytes), (0, MAMBA_STATES));
    let attends = Tiny::new().load().unwrap();
    assert_eq!((attends.kv.block_size, attends.state_bytes), (16, 0));
}

#[test]
fn a_pass_reads_the_states_of_each_sequence_once() {
    let mut runner = with_states("gguf/mamba2.gguf", true).runner;
    let mut read = |rows: &[(u32, &'static [u32])]| {
        let row = |(block, tokens): &(u32, &'static [u32])| Driven {
            seq: u64::from(*block),
            tokens,
            start: 0,
            blocks: vec![*block],
            outputs: Outputs::None,
        };
        let rows: Vec<Driven> = rows.iter().map(row).collect();
        let before = runner.usage();
        let launched = runner.launch(&batch(&rows)).unwrap();
        runner.sample(launched, &[]).unwrap();
        let after = runner.usage();
        (after.bytes_read - before.bytes_read, after.flops - before.flops)
    };
    let (one, two) = (read(&[(1, &[5, 6])]), read(&[(1, &[5]), (2, &[6])]));
    assert_eq!(two.0 - one.0, MAMBA_STATES as u64);
    assert_eq!(two.1, one.1, "as many tokens");
}
