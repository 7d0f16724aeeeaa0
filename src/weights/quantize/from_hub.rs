//! A hub's folder as a GGUF file has it: the same numbers in another order, or with 1 added.

use super::QuantizeError;
use crate::weights::checkpoint::{Checkpoint, Source, TensorInfo};
use crate::weights::{BlockFormat, decode, encode};
use std::sync::Arc;

/// Families whose query and key rows a GGUF file has in interleaved pairs, where a hub has halves of a head.
const INTERLEAVED: [&str; 3] = ["llama", "granite", "smollm3"];
/// Families whose norms a GGUF file has with 1 added.
const NORM_PLUS_ONE: [&str; 3] = ["gemma", "gemma2", "gemma3"];
/// Families that are the same in both.
#[rustfmt::skip] // as many as fit on a line
const SAME: [&str; 14] = [
    "command-r", "glm4", "glm4moe", "gpt-oss", "gpt2", "gptneox", "olmo2", "phi2", "phi3", "qwen2", "qwen2moe",
    "qwen3", "qwen3moe", "starcoder2",
];

/// What a tensor needs on its way.
#[derive(Clone, Copy)]
enum Change {
    /// Rows of so many heads.
    Interleave {
        heads: usize,
    },
    AddOne,
}

/// The same model as a GGUF file would have it.
pub(super) fn as_gguf(file: &Checkpoint) -> Result<Checkpoint, QuantizeError> {
    if !file.is_hub() {
        return Ok(file.clone());
    }
    let architecture = file.architecture()?;
    let interleaved = INTERLEAVED.contains(&architecture);
    let plus_one = NORM_PLUS_ONE.contains(&architecture);
    if !interleaved && !plus_one && !SAME.contains(&architecture) {
        let (path, architecture) = (file.path().to_owned(), architecture.to_owned());
        return Err(QuantizeError::Family { path, architecture });
    }
    let count = |key: &str| Ok::<_, QuantizeError>(file.u64(&format!("{architecture}.attention.{key}"))?);
    let heads = count("head_count")?.unwrap_or(0) as usize;
    let kv_heads = count("head_count_kv")?.map_or(heads, |heads| heads as usize);
    let change = |info: &TensorInfo| {
        let heads = match info.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'))?.1 {
            "attn_q.weight" | "attn_q.bias" => heads,
            "attn_k.weight" | "attn_k.bias" => kv_heads,
            _ => return None,
        };
        (heads > 0).then_some(Change::Interleave { heads })
    };
    let is_norm = |info: &TensorInfo| info.name.ends_with("norm.weight");
    Ok(file.mapped(|info, source| match change(info).filter(|_| interleaved) {
        Some(change) => changed(info, source, change),
        None if plus_one && is_norm(info) => changed(info, source, Change::AddOne),
        None => None,
    }))
}

fn changed(info: &TensorInfo, source: &Source, change: Change) -> Option<(TensorInfo, Source)> {
    let source = source.clone();
    let from = info.clone();
    let to = match change {
        Change::AddOne => info.in_format(BlockFormat::F32)?,
        Change::Interleave { .. } => TensorInfo { offset: 0, ..info.clone() },
    };
    let make = move |files: &crate::weights::checkpoint::Files| {
        let blocks = source.read(files)?;
        match change {
            Change::AddOne => {
                let mut weights = vec![0.0; from.elements()];
                decode(from.format, &blocks, &mut weights);
                weights.iter_mut().for_each(|weight| *weight += 1.0);
                Ok(encode(BlockFormat::F32, &weights))
            }
            Change::Interleave { heads } => interleave(&blocks, &from, heads),
        }
    };
    Some((to, Source::Made(Arc::new(make))))
}

/// Row `i` of a head's first half becomes row `2i`, and that of its second half row `2i + 1`. A bias has rows of one.
fn interleave(blocks: &[u8], info: &TensorInfo, heads: usize) -> Result<Vec<u8>, String> {
    let rows = if info.dims.len() == 1 { info.row_len() } else { info.rows() };
    if !rows.is_multiple_of(2 * heads) || !blocks.len().is_multiple_of(rows) {
        return Err(format!("{rows} rows are not {heads} heads of pairs"));
    }
    let (half, bytes) = (rows / heads / 2, blocks.len() / rows);
    let mut out = Vec::with_capacity(blocks.len());
    for head in blocks.chunks_exact(2 * half * bytes) {
        let (first, second) = head.split_at(half * bytes);
        for (first, second) in first.chunks_exact(bytes).zip(second.chunks_exact(bytes)) {
            out.extend_from_slice(first);
            out.extend_from_slice(second);
        }
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_each_head_become_pairs() {
        let info = TensorInfo {
            name: "blk.0.attn_q.weight".into(),
            dims: vec![1, 8],
            format: BlockFormat::F16,
            offset: 0,
            bytes: 16,
        };
        let blocks: Vec<u8> = (0..16).collect(); // rows of two bytes
        let rows = |blocks: Vec<u8>| blocks.chunks_exact(2).map(|row| row[0] / 2).collect::<Vec<_>>();
        assert_eq!(rows(interleave(&blocks, &info, 2).unwrap()), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(rows(interleave(&blocks, &info, 1).unwrap()), [0, 4, 1, 5, 2, 6, 3, 7]);
        assert!(interleave(&blocks, &info, 3).is_err());
        let bias = TensorInfo { dims: vec![8], ..info };
        assert_eq!(rows(interleave(&blocks, &bias, 1).unwrap()), [0, 4, 1, 5, 2, 6, 3, 7]);
    }
}
