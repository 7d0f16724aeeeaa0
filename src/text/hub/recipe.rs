use super::error::Wrong;
use crate::protocol::TokenId;
use crate::text::normalizer::Normalizer;
use crate::text::pre_tokenizer::{Behaviour, Cut, CutAt, GPT2};
use serde_json::Value as Json;

/// The steps of a `tokenizer.json`, in the order in which they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// Before added tokens are looked for that are found in normalized text.
    pub normalizers: Vec<Normalizer>,
    /// Of the pre-tokenizer, before it cuts.
    pub prefixes: Vec<Normalizer>,
    pub cuts: Vec<Cut>,
    /// Tokens are bytes, spelt as printable characters.
    pub spelt: bool,
    /// Cuts that see the bytes as they are spelt.
    pub spelt_cuts: Vec<Cut>,
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub ignore_merges: bool,
    /// Of neighbours that are no tokens, one unknown token stands for all.
    pub fuse_unknown: bool,
    /// U+2581 is shown as a space.
    pub bars: bool,
    /// The first space of all is not shown.
    pub strips_space: bool,
}

const BAR: &str = "▁";

impl Recipe {
    /// What the name `gemma4` in a GGUF stands for: a list of merges over characters, bars for spaces.
    pub(in crate::text) fn gemma4() -> Self {
        Recipe {
            normalizers: vec![Normalizer::Replace { from: " ".into(), to: BAR.into() }],
            fuse_unknown: true,
            bars: true,
            ..Recipe::default()
        }
    }
}

/// The steps of a sequence, of sequences in it too, with the field that each stands in.
fn flat<'j>(field: &str, key: &str, step: &'j Json) -> Vec<(String, &'j Json)> {
    match step {
        Json::Null => Vec::new(),
        _ if kind(step) == "Sequence" => {
            let steps = step[key].as_array().into_iter().flatten().enumerate();
            steps.flat_map(|(i, step)| flat(&format!("{field}.{key}[{i}]"), key, step)).collect()
        }
        step => vec![(field.to_owned(), step)],
    }
}

fn kind(step: &Json) -> &str {
    step["type"].as_str().unwrap_or_default()
}

fn unsupported(field: &str, step: &Json, known: &str) -> Wrong {
    Wrong::at(&format!("{field}.type"), format!("{} is not supported; {known} are", step["type"]))
}

fn text<'j>(field: &str, step: &'j Json, key: &str) -> Result<&'j str, Wrong> {
    let missing = || Wrong::at(&format!("{field}.{key}"), "a text is expected");
    step[key].as_str().ok_or_else(missing)
}

fn flag(field: &str, step: &Json, key: &str, default: bool) -> Result<bool, Wrong> {
    match &step[key] {
        Json::Null => Ok(default),
        Json::Bool(flag) => Ok(*flag),
        other => Err(Wrong::at(&format!("{field}.{key}"), format!("{other} is neither true nor false"))),
    }
}

pub(super) fn normalizer(json: &Json, recipe: &mut Recipe) -> Result<(), Wrong> {
    for (field, step) in flat("normalizer", "normalizers", json) {
        recipe.normalizers.push(match kind(step) {
            "NFC" => Normalizer::Nfc,
            "NFD" => Normalizer::Nfd,
            "NFKC" => Normalizer::Nfkc,
            "NFKD" => Normalizer::Nfkd,
            "Lowercase" => Normalizer::Lowercase,
            "Prepend" => Normalizer::Prepend(text(&field, step, "prepend")?.to_owned()),
            "Replace" => Normalizer::Replace {
                from: literal(&field, step)?.to_owned(),
                to: text(&field, step, "content")?.to_owned(),
            },
            "Strip" => Normalizer::Strip {
                left: flag(&field, step, "strip_left", true)?,
                right: flag(&field, step, "strip_right", true)?,
            },
            _ => {
                let known = "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip and Sequence";
                return Err(unsupported(&field, step, known));
            }
        });
    }
    Ok(())
}

/// The text of `{"pattern": {"String": text}}`.
fn literal<'j>(field: &str, step: &'j Json) -> Result<&'j str, Wrong> {
    let literal = step["pattern"]["String"].as_str().filter(|text| !text.is_empty());
    let wrong = || {
        let problem = format!("{} is not supported; a text in \"String\" is", step["pattern"]);
        Wrong::at(&format!("{field}.pattern"), problem)
    };
    literal.ok_or_else(wrong)
}

pub(super) fn pre_tokenizer(json: &Json, recipe: &mut Recipe) -> Result<(), Wrong> {
    for (field, step) in flat("pre_tokenizer", "pretokenizers", json) {
        let cut = match kind(step) {
            "ByteLevel" => byte_level(&field, step, recipe)?,
            "Metaspace" => metaspace(&field, step, recipe)?,
            "Split" => Some(split(&field, step)?),
            "Digits" => Some(digits(&field, step)?),
            "Punctuation" => Some(cut(CutAt::Punctuation, behaviour(&field, step, "Isolated")?)),
            "Whitespace" => Some(Cut { invert: true, ..cut(pattern(r"\w+|[^\w\s]+"), Behaviour::Removed) }),
            "WhitespaceSplit" => Some(cut(CutAt::WhiteSpace, Behaviour::Removed)),
            "CharDelimiterSplit" => {
                let delimiter = text(&field, step, "delimiter")?.to_owned();
                Some(cut(CutAt::Literal(delimiter), Behaviour::Removed))
            }
            _ => {
                let known = "ByteLevel, Metaspace, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, \
                    CharDelimiterSplit and Sequence";
                return Err(unsupported(&field, step, known));
            }
        };
        // `ByteLevel` cuts first and spells then.
        let cuts = match kind(step) != "ByteLevel" && recipe.spelt {
            true => &mut recipe.spelt_cuts,
            false => &mut recipe.cuts,
        };
        cuts.extend(cut);
    }
    Ok(())
}

fn cut(at: CutAt, behaviour: Behaviour) -> Cut {
    Cut { at, behaviour, invert: false }
}

fn pattern(source: &str) -> CutAt {
    CutAt::Pattern(source.to_owned())
}

fn byte_level(field: &str, step: &Json, recipe: &mut Recipe) -> Result<Option<Cut>, Wrong> {
    if recipe.spelt {
        return Err(Wrong::at(field, "bytes are spelt twice"));
    }
    if flag(field, step, "add_prefix_space", true)? {
        prefix(field, recipe, " ", false)?;
    }
    recipe.spelt = true;
    Ok(flag(field, step, "use_regex", true)?.then(|| Cut::isolated(GPT2)))
}

fn metaspace(field: &str, step: &Json, recipe: &mut Recipe) -> Result<Option<Cut>, Wrong> {
    let bar = text(field, step, "replacement")?;
    if !recipe.cuts.is_empty() || recipe.spelt {
        return Err(Wrong::at(field, "Metaspace behind another step is not supported"));
    }
    recipe.prefixes.push(Normalizer::Replace { from: " ".into(), to: bar.to_owned() });
    match scheme(field, step)? {
        "always" => prefix(field, recipe, bar, false)?,
        "first" => prefix(field, recipe, bar, true)?,
        _ => {}
    }
    let splits = flag(field, step, "split", true)?;
    Ok(splits.then(|| cut(CutAt::Literal(bar.to_owned()), Behaviour::MergedWithNext)))
}

/// `always`, `first` or `never`.
fn scheme<'j>(field: &str, step: &'j Json) -> Result<&'j str, Wrong> {
    let never = !flag(field, step, "add_prefix_space", true)?;
    match step["prepend_scheme"].as_str() {
        _ if never => Ok("never"),
        None => Ok("always"),
        Some(scheme @ ("always" | "first" | "never")) => Ok(scheme),
        Some(other) => {
            let problem = format!("{other:?} is none of always, first and never");
            Err(Wrong::at(&format!("{field}.prepend_scheme"), problem))
        }
    }
}

fn prefix(field: &str, recipe: &mut Recipe, prefix: &str, first_only: bool) -> Result<(), Wrong> {
    if !recipe.cuts.is_empty() {
        return Err(Wrong::at(field, "a prefix of every word is not supported, only one of the text"));
    }
    recipe.prefixes.push(Normalizer::PrependMissing { prefix: prefix.to_owned(), first_only });
    Ok(())
}

fn split(field: &str, step: &Json) -> Result<Cut, Wrong> {
    let at = match (step["pattern"]["Regex"].as_str(), step["pattern"]["String"].as_str()) {
        (Some(regex), _) => pattern(regex),
        (None, Some(text)) if !text.is_empty() => CutAt::Literal(text.to_owned()),
        _ => return Err(Wrong::at(&format!("{field}.pattern"), "neither \"Regex\" nor \"String\" is there")),
    };
    let behaviour = behaviour(field, step, "")?;
    Ok(Cut { at, behaviour, invert: flag(field, step, "invert", false)? })
}

fn digits(field: &str, step: &Json) -> Result<Cut, Wrong> {
    let single = flag(field, step, "individual_digits", false)?;
    Ok(cut(CutAt::Digits, if single { Behaviour::Isolated } else { Behaviour::Contiguous }))
}

fn behaviour(field: &str, step: &Json, default: &str) -> Result<Behaviour, Wrong> {
    let known = [
        ("Isolated", Behaviour::Isolated),
        ("Removed", Behaviour::Removed),
        ("MergedWithPrevious", Behaviour::MergedWithPrevious),
        ("MergedWithNext", Behaviour::MergedWithNext),
        ("Contiguous", Behaviour::Contiguous),
    ];
    let name = step["behavior"].as_str().unwrap_or(default);
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, behaviour)| *behaviour);
    found.ok_or_else(|| Wrong::at(&format!("{field}.behavior"), format!("{name:?} is unknown")))
}

pub(super) fn decoder(json: &Json, recipe: &mut Recipe) -> Result<(), Wrong> {
    for (field, step) in flat("decoder", "decoders", json) {
        match kind(step) {
            "ByteLevel" | "ByteFallback" | "Fuse" => {}
            "Replace" if literal(&field, step)? == BAR && step["content"] == " " => recipe.bars = true,
            "Strip" if step["content"] == " " && step["start"].as_u64() <= Some(1) && step["stop"] == 0 => {
                recipe.strips_space = step["start"] == 1;
            }
            "Metaspace" if step["replacement"] == BAR => {
                recipe.bars = true;
                recipe.strips_space = scheme(&field, step)? != "never";
            }
            _ => {
                let known = "ByteLevel, ByteFallback, Fuse, Sequence, Metaspace and Replace of ▁, and Strip of one \
                    space at the start";
                return Err(Wrong::at(&field, format!("{step} is not supported; {known} are")));
            }
        }
    }
    Ok(())
}

/// The one token that a post-processor puts before all text.
pub(super) fn bos(json: &Json) -> Option<TokenId> {
    flat("post_processor", "processors", json).into_iter().find_map(|(_, step)| match kind(step) {
        "TemplateProcessing" => {
            let name = |at: usize| step["single"].get(at)?["SpecialToken"]["id"].as_str();
            // Where there are more, as in GLM, they are the template's to write.
            let name = name(0).filter(|_| name(1).is_none())?;
            step["special_tokens"][name]["ids"].get(0)?.as_u64()?.try_into().ok()
        }
        "RobertaProcessing" | "BertProcessing" => step["cls"].get(1)?.as_u64()?.try_into().ok(),
        _ => None,
    })
}
