use super::gguf::Value;
use super::{Checkpoint, CheckpointError};

/// What `models show` says of a file.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    pub architecture: String,
    /// `general.name`.
    pub title: Option<String>,
    pub licence: Option<String>,
    /// Weights of all tensors, as their shapes say.
    pub parameters: u64,
    pub file_bytes: u64,
    /// The mix that the file says it is (`Q4_K_M`); without that, the format of most bytes.
    pub quantization: String,
    /// By bytes, largest first.
    pub formats: Vec<FormatShare>,
    pub layers: Option<u64>,
    pub heads: Option<u64>,
    /// Keys and values kept for one token, in numbers, over all layers.
    pub kv_values_per_token: Option<u64>,
    /// Tokens it was trained for.
    pub context: Option<u64>,
    pub vocabulary: Option<u64>,
    pub has_chat_template: bool,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct FormatShare {
    pub format: &'static str,
    pub tensors: usize,
    pub bytes: u64,
    /// glassbox can compute with it.
    pub supported: bool,
}

impl Summary {
    pub fn of(file: &Checkpoint) -> Result<Summary, CheckpointError> {
        let architecture = file.architecture()?.to_owned();
        let text = |key: &str| file.str(key).ok().flatten().map(str::to_owned);
        let number = |key: &str| file.u64(&format!("{architecture}.{key}")).ok().flatten();
        let formats = formats(file);
        Ok(Summary {
            title: text("general.name"),
            licence: text("general.license"),
            parameters: parameters(file),
            file_bytes: file.file_bytes(),
            quantization: quantization(file, &formats),
            formats,
            layers: number("block_count"),
            heads: number("attention.head_count"),
            kv_values_per_token: kv_values_per_token(file, &architecture),
            context: number("context_length"),
            vocabulary: file
                .value("tokenizer.ggml.tokens")
                .and_then(Value::as_array)
                .map(|tokens| tokens.len() as u64),
            has_chat_template: text("tokenizer.chat_template").is_some(),
            architecture,
        })
    }

    /// With keys and values of `bytes_per_value` bytes.
    pub fn kv_bytes_per_token(&self, bytes_per_value: u64) -> Option<u64> {
        self.kv_values_per_token?.checked_mul(bytes_per_value)
    }
}

fn parameters(file: &Checkpoint) -> u64 {
    let known = file.tensors().map(|tensor| &tensor.dims);
    let others = file.unsupported().iter().map(|tensor| &tensor.dims);
    let elements = |dims: &Vec<usize>| dims.iter().map(|dim| *dim as u64).product::<u64>();
    known.chain(others).map(elements).sum()
}

fn formats(file: &Checkpoint) -> Vec<FormatShare> {
    let known = file.tensors().map(|tensor| (tensor.format.name(), tensor.bytes, true));
    let others = file.unsupported().iter().map(|tensor| (tensor.format, tensor.bytes, false));
    let mut shares: Vec<FormatShare> = Vec::new();
    for (format, bytes, supported) in known.chain(others) {
        match shares.iter_mut().find(|share| share.format == format) {
            Some(share) => {
                share.tensors += 1;
                share.bytes += bytes as u64;
            }
            None => shares.push(FormatShare { format, tensors: 1, bytes: bytes as u64, supported }),
        }
    }
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.format.cmp(b.format)));
    shares
}

fn quantization(file: &Checkpoint, formats: &[FormatShare]) -> String {
    let said = file.u64("general.file_type").ok().flatten().and_then(file_type_name);
    said.or(formats.first().map(|share| share.format)).unwrap_or("no tensors").to_owned()
}

/// `general.file_type`, as llama.cpp numbers it.
fn file_type_name(number: u64) -> Option<&'static str> {
    const NAMES: &[(u64, &str)] = &[
        (0, "F32"),
        (1, "F16"),
        (2, "Q4_0"),
        (3, "Q4_1"),
        (7, "Q8_0"),
        (8, "Q5_0"),
        (9, "Q5_1"),
        (10, "Q2_K"),
        (11, "Q3_K_S"),
        (12, "Q3_K_M"),
        (13, "Q3_K_L"),
        (14, "Q4_K_S"),
        (15, "Q4_K_M"),
        (16, "Q5_K_S"),
        (17, "Q5_K_M"),
        (18, "Q6_K"),
        (19, "IQ2_XXS"),
        (20, "IQ2_XS"),
        (21, "Q2_K_S"),
        (22, "IQ3_XS"),
        (23, "IQ3_XXS"),
        (24, "IQ1_S"),
        (25, "IQ4_NL"),
        (26, "IQ3_S"),
        (27, "IQ3_M"),
        (28, "IQ2_S"),
        (29, "IQ2_M"),
        (30, "IQ4_XS"),
        (31, "IQ1_M"),
        (32, "BF16"),
        (36, "TQ1_0"),
        (37, "TQ2_0"),
        (38, "MXFP4"),
    ];
    NAMES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// For models whose layers all keep keys and values of every token.
fn kv_values_per_token(file: &Checkpoint, architecture: &str) -> Option<u64> {
    let key = |name: &str| format!("{architecture}.{name}");
    let number = |name: &str| file.u64(&key(name)).ok().flatten();
    let layers = usize::try_from(number("block_count")?).ok()?;
    let heads = file.per_layer(&key("attention.head_count"), layers).ok().flatten()?;
    let kv_heads =
        file.per_layer(&key("attention.head_count_kv"), layers).ok().flatten().unwrap_or(heads.clone());
    if kv_heads.contains(&0) {
        return None;
    }
    let by_width = number("embedding_length")?.checked_div(u64::from(*heads.first()?));
    let key_len = number("attention.key_length").or(by_width)?;
    let value_len = number("attention.value_length").or(by_width)?;
    let kv_heads: u64 = kv_heads.iter().map(|count| u64::from(*count)).sum();
    kv_heads.checked_mul(key_len.checked_add(value_len)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::weights::{BlockFormat, GgufWriter};
    use std::path::Path;

    fn summary(writer: GgufWriter) -> Summary {
        Summary::of(&Checkpoint::from_bytes(Path::new("test.gguf"), writer.to_bytes()).unwrap()).unwrap()
    }

    fn llama() -> GgufWriter {
        GgufWriter::new("llama")
            .put("general.license", "mit")
            .put("llama.block_count", 3u32)
            .put("llama.context_length", 2048u32)
            .put("llama.embedding_length", 64u32)
            .put("llama.attention.head_count", 8u32)
            .tensor("a", &[32, 4], BlockFormat::Q8_0, vec![0; 136])
            .tensor("b", &[32], BlockFormat::Q8_0, vec![0; 34])
            .tensor_f32("c", &[8], &[0.0; 8])
    }

    #[test]
    fn counts_come_from_shapes_and_heads() {
        let summary = summary(llama().put("llama.attention.head_count_kv", 2u32));
        assert_eq!(
            (summary.parameters, summary.context, summary.layers),
            (128 + 32 + 8, Some(2048), Some(3))
        );
        assert_eq!(summary.licence.as_deref(), Some("mit"));
        assert_eq!(summary.quantization, "Q8_0");
        let shares: Vec<_> =
            summary.formats.iter().map(|s| (s.format, s.tensors, s.bytes, s.supported)).collect();
        assert_eq!(shares, [("Q8_0", 2, 170, true), ("F32", 1, 32, true)]);
        // 3 layers of 2 heads with 8 + 8 numbers.
        assert_eq!(summary.kv_values_per_token, Some(3 * 2 * 16));
        assert_eq!(summary.kv_bytes_per_token(2), Some(192));
        assert!(!summary.has_chat_template);
    }

    #[test]
    fn head_counts_may_differ_by_layer_and_be_all_the_heads() {
        assert_eq!(summary(llama()).kv_values_per_token, Some(3 * 8 * 16));
        let by_layer = llama()
            .put("llama.attention.head_count_kv", vec![1u32, 2, 4])
            .put("llama.attention.key_length", 10u32)
            .put("llama.attention.value_length", 20u32);
        assert_eq!(summary(by_layer).kv_values_per_token, Some(7 * 30));
    }

    #[test]
    fn what_the_file_says_it_is_comes_first() {
        let said = llama().put("general.file_type", 15u32).put("tokenizer.chat_template", "{{ messages }}");
        assert_eq!(summary(said.clone()).quantization, "Q4_K_M");
        assert!(summary(said).has_chat_template);
        assert_eq!(summary(llama().put("general.file_type", 9_999u32)).quantization, "Q8_0");
    }

    /// A cache that is planned by tokens alone would have no room for states.
    #[test]
    fn layers_without_keys_are_more_than_a_number_of_tokens() {
        let some = llama().put("llama.attention.head_count_kv", vec![2u32, 0, 2]);
        assert_eq!(summary(some).kv_values_per_token, None);
    }

    #[test]
    fn absurd_counts_do_no_harm() {
        let zero_heads = GgufWriter::new("llama")
            .put("llama.block_count", u32::MAX)
            .put("llama.embedding_length", 64u32)
            .put("llama.attention.head_count", 0u32);
        assert_eq!(summary(zero_heads).kv_values_per_token, None);
    }
}
