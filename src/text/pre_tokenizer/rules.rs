/// Words as GGUF's `tokenizer.ggml.pre` names them: the patterns that the models' own tokenizers have, one
/// cut after the other.
pub(super) struct Rule {
    /// The first is the usual one; the others share its rule.
    pub names: &'static [&'static str],
    pub cuts: &'static [&'static str],
    pub nfc: bool,
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub ignore_merges: bool,
    pub add_bos: bool,
}

pub(super) const GPT2: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
const YOUTU: &str = "[\u{ac00}-\u{d7a3}\u{3131}-\u{318e}]+|[\u{ff01}\u{2026}\u{201c}\u{201d}\u{2018}\u{2019}\u{2014}\u{ff1a}\u{ff1b}\u{ff0c}\u{3001}-\u{303f}\u{fe30}-\u{fe4f}]+|[\u{3105}-\u{312f}]+|[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
const YOUTU_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+";
const ONE_DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = r"\p{N}{1,3}";
const CHINESE_OR_JAPANESE: &str = r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
const EAST_ASIAN: &str = r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";
const LINE_BREAK: &str = r"[\r\n]";
const LINES: &str = r"[^\n]+|[\n]+";
const DEEPSEEK_MARKS: &str =
    r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+";
/// Letters that have a case, as of the Unicode of 2018.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-",
    r"ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ",
    r"-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
);

const fn rule(names: &'static [&'static str], cuts: &'static [&'static str]) -> Rule {
    Rule { names, cuts, nfc: false, ignore_merges: false, add_bos: false }
}

pub(super) const RULES: &[Rule] = &[
    rule(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "mellum",
            "gigachat",
            "a.x-4.0",
            "modern-bert",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        &[GPT2],
    ),
    Rule { nfc: true, ..rule(&["olmo", "mpt"], &[GPT2]) },
    rule(
        &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[ONE_DIGIT, GPT2],
    ),
    Rule { nfc: true, ..rule(&["command-r"], &[ONE_DIGIT, GPT2]) },
    rule(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    Rule { nfc: true, ..rule(&["qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"], &[QWEN2]) },
    rule(&["stablelm2", "hunyuan", "solar-open", "grok-2"], &[QWEN2]),
    rule(&["laguna"], &[LINES, QWEN2]),
    rule(
        &["ufakzeka"],
        &[r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    ),
    rule(&["qwen35"], &[QWEN35]),
    Rule {
        ignore_merges: true,
        add_bos: true,
        ..rule(
            &[
                "llama-bpe",
                "llama3",
                "llama-v3",
                "falcon3",
                "falcon-h1",
                "pixtral",
                "midm-2.0",
                "lfm2",
                "jina-v5-nano",
            ],
            &[LLAMA3],
        )
    },
    Rule { ignore_merges: true, ..rule(&["glm4", "glm5"], &[LLAMA3]) },
    rule(&["chatglm-bpe", "dbrx", "smaug-bpe"], &[LLAMA3]),
    Rule { ignore_merges: true, ..rule(&["minicpm5"], &[THREE_DIGITS, MINICPM5]) },
    rule(&["deepseek-llm"], &[LINE_BREAK, DEEPSEEK_LETTERS, DEEPSEEK_MARKS, r"\s+$", EAST_ASIAN, r"\p{N}+"]),
    rule(&["deepseek-coder"], &[LINE_BREAK, r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, ONE_DIGIT]),
    rule(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[THREE_DIGITS, CHINESE_OR_JAPANESE, DEEPSEEK3],
    ),
    rule(&["spark2_5"], &[THREE_DIGITS, CHINESE_OR_JAPANESE, SPARK, ONE_DIGIT]),
    Rule { ignore_merges: true, ..rule(&["youtu"], &[YOUTU, YOUTU_WORDS]) },
    rule(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    rule(&["viking"], &[BLOOM, ONE_DIGIT]),
    Rule { ignore_merges: true, add_bos: true, ..rule(&["tekken"], &[TEKKEN]) },
    Rule { ignore_merges: true, ..rule(&["gpt-4o", "llama4"], &[GPT4O]) },
    rule(&["kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    Rule { ignore_merges: true, ..rule(&["kimi-k2"], &[KIMI]) },
    rule(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    rule(&["seed-coder"], &[SEED_CODER]),
    rule(&["exaone-moe"], &[EXAONE_MOE]),
    rule(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
];
