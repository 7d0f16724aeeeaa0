//! A model of random weights in the shape of a known one, to measure an engine without a download: it says
//! nothing, at the speed of a model that does.
//!
//!     synthetic_model OUT.gguf --like llama-8b|llama-1b|tiny --format Q4_K|BF16|Q8_0
//!
//! Q4_K is as a file of Q4_K_M: some matrices and the head are Q6_K. Nothing larger than a stretch of a matrix
//! is ever in memory; the stretch is written again until the matrix is full. Tokens are single bytes and,
//! up to the size of the vocabulary, names that nothing is split into.

use glassbox::weights::{BlockFormat, GgufWriter, MetaValue};
use half::f16;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

struct Shape {
    name: &'static str,
    layers: usize,
    dim: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    feed_forward: usize,
    vocab: usize,
    context: u32,
    /// The head is the embedding.
    tied: bool,
}

#[rustfmt::skip]
const SHAPES: [Shape; 3] = [
    Shape {
        name: "llama-8b", layers: 32, dim: 4096, heads: 32, kv_heads: 8, head_dim: 128, feed_forward: 14336,
        vocab: 128_256, context: 131_072, tied: false,
    },
    Shape {
        name: "llama-1b", layers: 16, dim: 2048, heads: 32, kv_heads: 8, head_dim: 64, feed_forward: 8192,
        vocab: 128_256, context: 131_072, tied: true,
    },
    Shape {
        name: "tiny", layers: 2, dim: 256, heads: 4, kv_heads: 2, head_dim: 64, feed_forward: 512,
        vocab: 512, context: 4096, tied: false,
    },
];

struct Tensor {
    name: String,
    dims: Vec<usize>,
    format: BlockFormat,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("synthetic_model: {error}");
            eprintln!(
                "usage: synthetic_model OUT.gguf --like llama-8b|llama-1b|tiny --format Q4_K|BF16|Q8_0"
            );
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut path, mut shape, mut format) = (None, &SHAPES[0], BlockFormat::Q4_K);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--like" => {
                let name = arguments.next().ok_or("--like what?")?;
                shape = SHAPES.iter().find(|s| s.name == name).ok_or(format!("no shape {name}"))?;
            }
            "--format" => {
                let name = arguments.next().ok_or("--format what?")?;
                let known = [BlockFormat::Q4_K, BlockFormat::BF16, BlockFormat::Q8_0];
                format = known.into_iter().find(|f| f.name() == name).ok_or(format!("no format {name}"))?;
            }
            _ => path = Some(argument),
        }
    }
    write(&path.ok_or("where to?")?, shape, format)
}

fn write(path: &str, shape: &Shape, format: BlockFormat) -> Result<(), Box<dyn Error>> {
    let (writer, tensors) = (metadata(shape, format), tensors(shape, format));
    let mut out = BufWriter::with_capacity(8 << 20, File::create(path)?);
    let sizes: Vec<usize> = tensors.iter().map(Tensor::bytes).collect();
    let head = writer.head(
        tensors.iter().zip(&sizes).map(|(t, bytes)| (t.name.as_str(), t.dims.as_slice(), t.format, *bytes)),
    );
    out.write_all(&head)?;
    let mut written = head.len();
    let mut random = Random(1);
    for (tensor, bytes) in tensors.iter().zip(sizes) {
        let padding = writer.padding(written);
        out.write_all(&vec![0; padding])?;
        let stretch = tensor.stretch(&mut random, bytes);
        let mut left = bytes;
        while left > 0 {
            let next = left.min(stretch.len());
            out.write_all(&stretch[..next])?;
            left -= next;
        }
        written += padding + bytes;
    }
    out.flush()?;
    println!("{path}: {} MiB", written >> 20);
    Ok(())
}

fn metadata(shape: &Shape, format: BlockFormat) -> GgufWriter {
    let number = |n: usize| n as u32;
    let tokens = tokens(shape.vocab);
    let kinds: Vec<i32> = tokens.iter().map(|text| if text.starts_with("<|") { 3 } else { 1 }).collect();
    GgufWriter::new("llama")
        .put("general.name", format!("synthetic {} {}", shape.name, format.name()))
        .put("llama.block_count", number(shape.layers))
        .put("llama.context_length", shape.context)
        .put("llama.embedding_length", number(shape.dim))
        .put("llama.feed_forward_length", number(shape.feed_forward))
        .put("llama.attention.head_count", number(shape.heads))
        .put("llama.attention.head_count_kv", number(shape.kv_heads))
        .put("llama.attention.key_length", number(shape.head_dim))
        .put("llama.attention.value_length", number(shape.head_dim))
        .put("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
        .put("llama.rope.dimension_count", number(shape.head_dim))
        .put("llama.rope.freq_base", 500_000f32)
        .put("llama.vocab_size", number(shape.vocab))
        .put("tokenizer.ggml.model", "gpt2")
        .put("tokenizer.ggml.pre", "llama-bpe")
        .put("tokenizer.ggml.tokens", tokens)
        .put("tokenizer.ggml.token_type", kinds)
        .put("tokenizer.ggml.merges", MetaValue::Strings(Vec::new()))
        .put("tokenizer.ggml.bos_token_id", number(shape.vocab - 2))
        .put("tokenizer.ggml.eos_token_id", number(shape.vocab - 1))
}

/// The 256 bytes as byte-level BPE writes them (Radford et al. 2019), then names.
fn tokens(vocab: usize) -> Vec<String> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100;
    let bytes = (0..256u32).map(|byte| {
        let code = if printable(byte) {
            byte
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code).expect("below 0x200 all are characters").to_string()
    });
    bytes.chain((256..vocab).map(|i| format!("<|{i}|>"))).collect()
}

fn tensors(shape: &Shape, format: BlockFormat) -> Vec<Tensor> {
    let Shape { dim, heads, kv_heads, head_dim, feed_forward, vocab, layers, .. } = *shape;
    let finer = if format == BlockFormat::Q4_K { BlockFormat::Q6_K } else { format };
    let tensor =
        |name: &str, dims: &[usize], format| Tensor { name: name.into(), dims: dims.to_vec(), format };
    let mut all = vec![tensor("token_embd.weight", &[dim, vocab], if shape.tied { finer } else { format })];
    all.push(tensor("output_norm.weight", &[dim], BlockFormat::F32));
    if !shape.tied {
        all.push(tensor("output.weight", &[dim, vocab], finer));
    }
    for layer in 0..layers {
        // llama.cpp's choice of layers that get more bits.
        let (eighth, last) = (layers / 8, layers * 7 / 8);
        let more = layer < eighth || layer >= last || (layer - eighth) % 3 == 2;
        let wide = if more { finer } else { format };
        let mut add = |name: &str, dims: &[usize], format| {
            all.push(tensor(&format!("blk.{layer}.{name}.weight"), dims, format));
        };
        add("attn_norm", &[dim], BlockFormat::F32);
        add("attn_q", &[dim, heads * head_dim], format);
        add("attn_k", &[dim, kv_heads * head_dim], format);
        add("attn_v", &[dim, kv_heads * head_dim], wide);
        add("attn_output", &[heads * head_dim, dim], format);
        add("ffn_norm", &[dim], BlockFormat::F32);
        add("ffn_gate", &[dim, feed_forward], format);
        add("ffn_up", &[dim, feed_forward], format);
        add("ffn_down", &[feed_forward, dim], wide);
    }
    all
}

impl Tensor {
    fn bytes(&self) -> usize {
        let elements: usize = self.dims.iter().product();
        elements / self.format.block_len() * self.format.block_bytes()
    }

    /// Its first bytes, whole blocks: what follows is the same again. Rows times activations of about 1 are
    /// about 1, so that no number of a pass is too large.
    fn stretch(&self, random: &mut Random, bytes: usize) -> Vec<u8> {
        const MOST: usize = 4 << 20;
        let scale = (self.dims[0] as f32).sqrt().recip();
        let block = self.format.block_bytes();
        let count = (bytes / block).min(MOST / block);
        let mut out = Vec::with_capacity(count * block);
        for _ in 0..count {
            self.block(random, scale, &mut out);
        }
        out
    }

    fn block(&self, random: &mut Random, scale: f32, out: &mut Vec<u8>) {
        let half = |x: f32| f16::from_f32(x).to_le_bytes();
        match self.format {
            BlockFormat::F32 => out.extend(1f32.to_le_bytes()),
            BlockFormat::BF16 => {
                // Between 1 and 2 times a power of two, of either sign.
                let bits = (scale.to_bits() >> 16) as u16 & 0x7f80 | random.word() as u16 & 0x807f;
                out.extend(bits.to_le_bytes());
            }
            BlockFormat::Q8_0 => {
                out.extend(half(scale / 73.0));
                random.bytes(32, out);
            }
            // d * scale * q - dmin * min: around 0 when dmin is 7.5 d.
            BlockFormat::Q4_K => {
                let d = scale / (31.0 * 4.6);
                out.extend(half(d));
                out.extend(half(7.5 * d));
                random.bytes(12 + 128, out);
            }
            BlockFormat::Q6_K => {
                random.bytes(128 + 64 + 16, out);
                out.extend(half(scale / (73.0 * 18.5)));
            }
            other => unreachable!("{} is not written", other.name()),
        }
    }
}

struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn bytes(&mut self, count: usize, out: &mut Vec<u8>) {
        let end = out.len() + count;
        while out.len() < end {
            out.extend(self.word().to_le_bytes());
        }
        out.truncate(end);
    }
}
