use serde::Serialize;

/// A part of a model's name and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamePart {
    /// As written.
    pub text: String,
    pub means: String,
}

/// Reads names as hubs give them: family, version, size, what it was trained for, how it is stored.
/// `Llama-2-7b-hf` is Llama, version 2, 7 billion parameters, in the layout of transformers. What
/// no rule knows stands for itself.
pub fn name_parts(name: &str) -> Vec<NamePart> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.strip_suffix(".gguf").unwrap_or(name);
    let mut parts: Vec<NamePart> = Vec::new();
    for (i, text) in words(name).into_iter().enumerate() {
        let means = match i {
            0 => first(text),
            _ => meaning(text).unwrap_or_default(),
        };
        match parts.last_mut() {
            // A word that says nothing alone belongs to the one before: `Qwen2.5-Coder`.
            Some(last) if means.is_empty() && !last.means.is_empty() && i == 1 => {
                last.text = format!("{}-{text}", last.text);
                last.means = format!("{}, {text}", last.means);
            }
            _ => parts.push(NamePart { text: text.to_owned(), means }),
        }
    }
    parts.iter_mut().filter(|part| part.means.is_empty()).for_each(|part| part.means = part.text.clone());
    parts
}

/// Cut at `-`, and at `_` and `.` where a word of ours begins: `Q4_K_M` and `v0.3` stay whole.
fn words(name: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for word in name.split('-').filter(|word| !word.is_empty()) {
        match word.rsplit_once('.') {
            Some((before, after)) if quantisation(after).is_some() => words.extend([before, after]),
            _ => words.push(word),
        }
    }
    words
}

/// The family, with the version where it is written to it: `Qwen2.5`, `gemma`.
fn first(text: &str) -> String {
    let at = text.find(|c: char| c.is_ascii_digit()).filter(|at| *at > 0);
    match at {
        Some(at) if text[at..].chars().all(|c| c.is_ascii_digit() || c == '.') => {
            format!("{} version {}", &text[..at], &text[at..])
        }
        _ => format!("{text} family"),
    }
}

fn meaning(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let said = match lower.as_str() {
        "hf" => "in the layout of transformers (Hugging Face)",
        "chat" => "trained to chat",
        "instruct" | "it" | "inst" => "trained to follow instructions",
        "base" | "pt" => "pre-trained only",
        "thinking" | "reasoning" => "trained to think before it answers",
        "gguf" => "a GGUF file",
        "ggml" => "a file of GGUF's predecessor",
        "mlx" => "in the layout of MLX",
        "distill" | "distilled" => "trained on another model's answers",
        "dpo" => "trained on preferences (DPO)",
        "orpo" => "trained on preferences (ORPO)",
        "sft" => "fine-tuned on examples",
        "rlhf" => "trained with human feedback",
        "code" | "coder" => "for code",
        "math" => "for mathematics",
        "vl" | "vision" => "sees images",
        "text" => "text only",
        "moe" => "a mixture of experts",
        "mini" | "small" | "medium" | "large" | "xl" | "nano" | "tiny" => "a size of the family",
        "awq" => "quantised with AWQ",
        "gptq" => "quantised with GPTQ",
        "fp8" => "8-bit floats",
        "int8" | "w8a8" => "8-bit integers",
        "int4" | "4bit" | "w4a16" => "4-bit integers",
        "8bit" => "8-bit integers",
        "mxfp4" => "4-bit floats with a scale for 32 (MXFP4)",
        "bf16" => "16-bit floats (bf16)",
        "fp16" | "f16" => "16-bit floats (f16)",
        "fp32" | "f32" => "32-bit floats",
        _ => {
            return quantisation(text)
                .or_else(|| context(&lower))
                .or_else(|| size(&lower))
                .or_else(|| version(&lower));
        }
    };
    Some(said.to_owned())
}

/// `Q4_K_M`: bits, kind of blocks, which mix.
fn quantisation(text: &str) -> Option<String> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.strip_prefix("IQ").or_else(|| upper.strip_prefix('Q'))?;
    let (bits, rest) = (digits.chars().next()?.to_digit(10)?, &digits[1..]);
    let known =
        ["", "_0", "_1", "_K", "_K_S", "_K_M", "_K_L", "_XXS", "_XS", "_S", "_M", "_NL"].contains(&rest);
    (known && (1..=8).contains(&bits)).then(|| format!("quantised to about {bits} bits ({upper})"))
}

/// `7b`, `8x7B`, `270m`, and `A3B`: parameters that a token uses.
fn size(text: &str) -> Option<String> {
    if let Some(active) = text.strip_prefix('a').and_then(amount) {
        return Some(format!("{active} parameters active for a token"));
    }
    if let Some((experts, each)) = text.split_once('x') {
        let (experts, each) = (experts.parse::<u32>().ok()?, amount(each)?);
        return Some(format!("{experts} experts of {each} parameters"));
    }
    amount(text).map(|amount| format!("{amount} parameters"))
}

fn amount(text: &str) -> Option<String> {
    let (at, _) = text.char_indices().next_back()?;
    let (digits, unit) = text.split_at(at);
    let unit = match unit {
        "b" => "billion",
        "m" => "million",
        "t" => "trillion",
        _ => return None,
    };
    let plain = digits.starts_with(|c: char| c.is_ascii_digit()) && digits.parse::<f64>().is_ok();
    plain.then(|| format!("{digits} {unit}"))
}

/// `128k`, `4K`.
fn context(text: &str) -> Option<String> {
    let thousands = text.strip_suffix('k')?.parse::<u32>().ok()?;
    Some(format!("a context of {thousands},000 tokens or a little more"))
}

/// `2`, `v0.3`, `2507` (a year and a month).
fn version(text: &str) -> Option<String> {
    let digits = text.strip_prefix('v').unwrap_or(text);
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    if !plain {
        return None;
    }
    let month = (digits.len() == 4).then(|| (digits[..2].parse::<u32>(), digits[2..].parse::<u32>()));
    match month {
        Some((Ok(year @ 23..=39), Ok(month @ 1..=12))) => Some(format!("of {month:02}/20{year}")),
        _ => Some(format!("version {digits}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> String {
        name_parts(name).into_iter().map(|part| part.means).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn names_are_read_part_by_part() {
        for (name, means) in [
            (
                "Llama-2-7b-hf",
                "Llama family, version 2, 7 billion parameters, in the layout of transformers (Hugging Face)",
            ),
            (
                "meta-llama/Llama-2-13b-chat-hf",
                "Llama family, version 2, 13 billion parameters, trained to chat, in the layout of transformers (Hugging Face)",
            ),
            (
                "Mixtral-8x7B-Instruct-v0.1",
                "Mixtral family, 8 experts of 7 billion parameters, trained to follow instructions, version 0.1",
            ),
            (
                "Qwen3-30B-A3B-Instruct-2507",
                "Qwen version 3, 30 billion parameters, 3 billion parameters active for a token, trained to follow instructions, of 07/2025",
            ),
            (
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "SmolLM version 2, 135 million parameters, trained to follow instructions, quantised to about 4 bits (Q4_1)",
            ),
            ("gemma-3-270m", "gemma family, version 3, 270 million parameters"),
            ("qwen2.5-coder-0.5b", "qwen version 2.5, for code, 0.5 billion parameters"),
            (
                "Phi-3-mini-128k-instruct",
                "Phi family, version 3, a size of the family, a context of 128,000 tokens or a little more, trained to follow instructions",
            ),
            (
                "TinyLlama-1.1B-Chat-v1.0",
                "TinyLlama family, 1.1 billion parameters, trained to chat, version 1.0",
            ),
        ] {
            assert_eq!(read(name), means, "{name}");
        }
    }

    #[test]
    fn no_name_is_too_odd() {
        for name in
            ["", "-", "--7b", "é", "a-é-7b", "b", "x-xb", "x-ab", "x-8x", ".gguf", "Q", "x-v", "x-1.2.3b"]
        {
            let _ = name_parts(name);
        }
        assert_eq!(read("model-of-mine"), "model family, of, mine");
    }
}
