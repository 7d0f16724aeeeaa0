use super::byte_level::{ByteLevel, spell};
use super::characters::Characters;
use super::normalizer::{Normalizer, normalize};
use super::pre_tokenizer::PreTokenizer;
use super::reply::{Families, Mark, Reasoning, ToolFormat, guess_reasoning, guess_tools};
use super::sentence_piece::SentencePiece;
use super::specials::{Segment, SpecialTokens, Specials, is_plain_token};
use super::template::{ChatTemplate, TemplateError};
use super::vocab::{Algorithm, END_THINK, Kind, Pieces, THINK, VocabError, VocabSpec};
use super::{OutputOptions, OutputParser};
use crate::protocol::{
    Failure, FailureKind, Grammar, Guided, REASONING_PARSERS, TOOL_CALL_PARSERS, TokenId, ToolChoice, Tools,
};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::sync::Arc;

/// All that one model's files say about text: its tokenizer, its chat template, the tokens that
/// begin and end things. Made once, shared by reference.
pub struct TextModel {
    /// What happens to text between special tokens, before more of them are looked for.
    normalizers: Vec<Normalizer>,
    encoder: Encoder,
    pieces: Arc<Pieces>,
    specials: SpecialTokens,
    /// Those that are found in normalized text.
    normalized_specials: Option<SpecialTokens>,
    /// The space that all text begins with is not shown.
    strips_space: bool,
    end_tokens: Vec<TokenId>,
    /// Set where prompts begin with it.
    pub(super) prompt_bos: Option<TokenId>,
    pub(super) bos: Option<TokenId>,
    pub(super) template: Result<ChatTemplate, TemplateError>,
    /// Where chats with tools have one of their own.
    tool_template: Option<Result<ChatTemplate, TemplateError>>,
    /// `bos_token` and its like, as templates see them.
    named_tokens: Map<String, Json>,
    pub(super) families: Arc<Families>,
    /// The template's source, where there is one.
    pub(super) source: String,
    architecture: String,
}

enum Encoder {
    ByteLevel(Box<ByteLevel>),
    SentencePiece(SentencePiece),
    Characters(Box<Characters>),
}

impl TextModel {
    /// A chat template that is not valid Jinja is no error here: prompts of plain text need none.
    pub fn new(spec: VocabSpec) -> Result<TextModel, VocabError> {
        let spec = spec.with_recipe();
        let algorithm = spec.check()?;
        let kinds = spec.kinds()?;
        let pieces = Pieces::new(&spec, algorithm, kinds.clone())?;
        let specials = SpecialTokens::new(&spec, &kinds, algorithm == Algorithm::SentencePiece);
        let (encoder, pre_adds_bos) = encoder(&spec, &kinds, &pieces, algorithm)?;
        let strips_space = match (&spec.recipe, &encoder) {
            (Some(recipe), _) => recipe.strips_space,
            (None, Encoder::SentencePiece(encoder)) => encoder.has_space_prefix(),
            _ => false,
        };
        let source = spec.chat_template.as_deref();
        let mut model = TextModel {
            normalizers: spec.recipe.as_ref().map_or_else(Vec::new, |recipe| recipe.normalizers.clone()),
            encoder,
            pieces: Arc::new(pieces),
            specials,
            normalized_specials: SpecialTokens::of_normalized(&spec, &kinds),
            strips_space,
            end_tokens: spec.end_tokens(),
            prompt_bos: spec.bos.filter(|_| spec.add_bos.unwrap_or(pre_adds_bos)),
            bos: spec.bos,
            template: source.map_or(Err(TemplateError::Missing), ChatTemplate::new),
            tool_template: spec.tool_template.as_deref().map(ChatTemplate::new),
            named_tokens: named_tokens(&spec),
            families: Arc::default(),
            source: source.unwrap_or_default().to_owned(),
            architecture: spec.architecture.clone(),
        };
        model.guess_families();
        Ok(model)
    }

    /// Which families write like this model, as far as its files tell.
    fn guess_families(&mut self) {
        let has_token = |text: &str| self.specials.find(text).is_some();
        let reasoning = guess_reasoning(&self.source, has_token, &self.architecture);
        let tools = Some(guess_tools(&self.source, has_token));
        self.set_families(reasoning, tools);
    }

    fn set_families(&mut self, reasoning: Option<Reasoning>, tools: Option<&'static ToolFormat>) {
        let mark = |text: &str| {
            let id = self.specials.find(text)?;
            Some((id, Mark { text: text.into(), silent: self.pieces.is_control(id) }))
        };
        let mut texts: Vec<&str> = tools.map_or_else(Vec::new, |format| format.markers().collect());
        texts.extend(reasoning.iter().flat_map(Reasoning::markers));
        let marks = texts.into_iter().filter_map(mark).collect();
        self.families = Arc::new(Families { reasoning, tools, marks });
    }

    /// With these parsers instead of those that the files suggest: a name, `none`, or `auto`.
    pub fn with_parsers(mut self, reasoning: &str, tools: &str) -> Result<TextModel, String> {
        let Families { reasoning: mut thoughts, tools: mut calls, .. } = (*self.families).clone();
        match reasoning {
            "auto" => {}
            "none" => thoughts = None,
            name => {
                thoughts = Some(
                    Reasoning::named(name).ok_or_else(|| unknown("reasoning", name, REASONING_PARSERS))?,
                )
            }
        }
        match tools {
            "auto" => {}
            "none" => calls = None,
            name => {
                calls = Some(
                    ToolFormat::named(name).ok_or_else(|| unknown("tool call", name, TOOL_CALL_PARSERS))?,
                )
            }
        }
        self.set_families(thoughts, calls);
        Ok(self)
    }

    /// A toy vocabulary: ids 0 to 255 are the bytes, 256 is the end token `<eos>`, 257 and 258 are
    /// `<think>` and `</think>`. Its chat template joins the messages' contents with line breaks.
    pub fn bytes() -> TextModel {
        let bytes = (0..=255).map(|byte| spell(byte).to_string());
        let tokens = bytes.chain(["<eos>", THINK, END_THINK].map(String::from)).collect();
        let template =
            "{% for message in messages %}{{ message.content }}{{ '\\n' if not loop.last }}{% endfor %}";
        TextModel::new(VocabSpec {
            model: "gpt2".into(),
            pre: Some("gpt-2".into()),
            types: [vec![1; 256], vec![3, 4, 4]].concat(),
            tokens,
            eos: Some(256),
            chat_template: Some(template.into()),
            ..VocabSpec::default()
        })
        .expect("a complete vocabulary without merges")
    }

    /// With another chat template than the file's, from `--chat-template`.
    pub fn with_chat_template(mut self, source: &str) -> Result<TextModel, TemplateError> {
        self.template = Ok(ChatTemplate::new(source)?);
        self.tool_template = None;
        self.source = source.to_owned();
        self.guess_families();
        Ok(self)
    }

    /// Whether there are thoughts to tell from the answer, whatever template and vocabulary say.
    pub fn with_reasoning(mut self, thinks: bool) -> Self {
        let known = self.families.reasoning.clone().or_else(|| Reasoning::named("think"));
        self.set_families(known.filter(|_| thinks), self.families.tools);
        self
    }

    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The tokens that end an answer, ascending.
    pub fn end_tokens(&self) -> &[TokenId] {
        &self.end_tokens
    }

    pub fn has_chat_template(&self) -> bool {
        self.template.is_ok()
    }

    /// Which family's markers separate thoughts from the answer.
    pub fn reasoning_parser(&self) -> Option<&str> {
        self.families.reasoning.as_ref().map(|family| &*family.name)
    }

    /// Which family's calls are looked for, where tools are offered.
    pub fn tool_call_parser(&self) -> Option<&'static str> {
        self.families.tools.map(|format| format.name)
    }

    /// What an answer must be where `tool_choice` asks for calls: the family's own format, with the
    /// arguments' schemas. Thoughts may come first.
    pub fn guided_calls(&self, tools: &Tools) -> Result<Option<Guided>, Failure> {
        if matches!(tools.choice, ToolChoice::Auto | ToolChoice::None) || tools.tools.is_empty() {
            return Ok(None);
        }
        let none = || Failure::new(FailureKind::Template, "tool_choice needs a tool call parser; it is none");
        let lark = super::reply::grammar(&self.families, tools).ok_or_else(none)?;
        Ok(Some(Guided { grammar: Grammar::Lark(lark), in_reasoning: false }))
    }

    /// The tokens that close thoughts, for a budget that is used up.
    pub fn closes_thoughts(&self) -> Vec<TokenId> {
        let forced = self.families.reasoning.as_ref().map_or("", |family| &*family.forced);
        self.encode(forced, Specials::Parse)
    }

    /// The one token that opens thoughts, where there is such a token.
    pub fn think_token(&self) -> Option<TokenId> {
        let ids = self.reasoning_parser().map(|_| self.encode(THINK, Specials::Parse))?;
        if let [id] = ids[..] { Some(id) } else { None }
    }

    /// Token ids of `text`, without BOS.
    pub fn encode(&self, text: &str, specials: Specials) -> Vec<TokenId> {
        self.encode_defused(text, specials, None)
    }

    /// The same, leaving out the `mark` that kept special tokens from being found.
    pub(super) fn encode_defused(&self, text: &str, specials: Specials, mark: Option<char>) -> Vec<TokenId> {
        let mut ids = Vec::new();
        let text = self.canonical(text);
        let mut is_first = true;
        self.specials.split(&text, specials, |segment| {
            match segment {
                Segment::Token(id) => ids.push(id),
                Segment::Text(text) => match mark.filter(|&mark| text.contains(mark)) {
                    // Somebody tried to write a token here: none is looked for.
                    Some(mark) => {
                        self.encode_between(&text.replace(mark, ""), is_first, Specials::Text, &mut ids)
                    }
                    None => self.encode_between(text, is_first, specials, &mut ids),
                },
            }
            is_first = false;
        });
        ids
    }

    /// `text` holds none of the tokens that are found in text as it is; `is_first`: nothing stands before.
    fn encode_between(&self, text: &str, is_first: bool, specials: Specials, ids: &mut Vec<TokenId>) {
        let text = normalize(&self.normalizers, text, is_first);
        let Some(found) = &self.normalized_specials else { return self.encode_plain(&text, is_first, ids) };
        let mut is_first = is_first;
        found.split(&text, specials, |segment| {
            match segment {
                Segment::Token(id) => ids.push(id),
                Segment::Text(text) => self.encode_plain(text, is_first, ids),
            }
            is_first = false;
        });
    }

    fn encode_plain(&self, text: &str, is_first: bool, ids: &mut Vec<TokenId>) {
        match &self.encoder {
            Encoder::ByteLevel(encoder) => encoder.encode(text, is_first, ids),
            Encoder::SentencePiece(encoder) => encoder.encode(text, ids),
            Encoder::Characters(encoder) => encoder.encode(text, is_first, ids),
        }
    }

    /// SentencePiece cannot tell U+2581 from a space.
    fn canonical<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.encoder {
            Encoder::SentencePiece(_) if text.contains('▁') => text.replace('▁', " ").into(),
            _ => text.into(),
        }
    }

    /// `text` with `mark` inside everything that would be read as a special token.
    pub(super) fn defuse(&self, text: &str, mark: char) -> String {
        self.specials.defuse(&self.canonical(text), mark).into_owned()
    }

    /// The bytes a token stands for; of a control token its own name. Nothing for an unknown id.
    pub fn piece(&self, id: TokenId) -> Cow<'_, [u8]> {
        self.pieces.bytes(id)
    }

    /// For display: bytes that are no character are U+FFFD.
    pub fn piece_text(&self, id: TokenId) -> String {
        String::from_utf8_lossy(&self.piece(id)).into_owned()
    }

    pub fn is_control(&self, id: TokenId) -> bool {
        self.pieces.is_control(id)
    }

    /// The template's output for `{"messages": [...], "tools": [...], ...}`, exactly. Special tokens in
    /// messages are not defused: this shows what a template does.
    pub fn render(&self, input: &Json) -> Result<String, TemplateError> {
        let mut input = input.as_object().ok_or(TemplateError::Input)?.clone();
        for (name, text) in &self.named_tokens {
            input.entry(name).or_insert(text.clone());
        }
        let offers_tools = input.get("tools").and_then(Json::as_array).is_some_and(|tools| !tools.is_empty());
        let of_tools = self.tool_template.as_ref().filter(|_| offers_tools);
        let template = of_tools.unwrap_or(&self.template).as_ref().map_err(TemplateError::clone)?;
        template.render(&Json::Object(input))
    }

    /// A reader for one reply's tokens.
    pub fn output(&self, options: OutputOptions) -> OutputParser {
        OutputParser::new(self.pieces.clone(), self.families.clone(), self.strips_space, options)
    }
}

/// And whether vocabularies of its kind begin prompts with BOS when the file does not say.
fn encoder(
    spec: &VocabSpec,
    kinds: &[Kind],
    pieces: &Pieces,
    algorithm: Algorithm,
) -> Result<(Encoder, bool), VocabError> {
    let pre = || match &spec.recipe {
        None => PreTokenizer::named(spec.pre.as_deref()),
        Some(recipe) => {
            let mut pre = PreTokenizer::new(recipe.prefixes.clone(), &recipe.cuts)?;
            pre.ignore_merges = recipe.ignore_merges;
            Ok(pre)
        }
    };
    // A GGUF's user-defined tokens are found in text before it is merged, whatever they say.
    let is_plain = |id: usize| spec.recipe.is_some() && is_plain_token(spec, id);
    match algorithm {
        Algorithm::ByteLevel => {
            let pre = pre()?;
            let adds_bos = pre.add_bos;
            Ok((Encoder::ByteLevel(Box::new(ByteLevel::new(spec, kinds, pre, is_plain)?)), adds_bos))
        }
        Algorithm::SentencePiece => {
            Ok((Encoder::SentencePiece(SentencePiece::new(spec, kinds, pieces)), true))
        }
        Algorithm::Characters => {
            let encoder = Characters::new(spec, kinds, pieces, pre()?, is_plain)?;
            Ok((Encoder::Characters(Box::new(encoder)), false))
        }
    }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let tags = if what == "reasoning" { ", or tags:<a>,</a>" } else { "" };
    format!("there is no {what} parser {name:?}; there are auto, none, {}{tags}", known.join(", "))
}

fn named_tokens(spec: &VocabSpec) -> Map<String, Json> {
    let named =
        [("bos_token", spec.bos), ("eos_token", spec.eos), ("unk_token", spec.unk), ("pad_token", spec.pad)];
    let texts = named
        .into_iter()
        .filter_map(|(name, id)| Some((name.to_owned(), json!(spec.tokens.text(id? as usize)))));
    texts.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protocol::Part;
    use std::time::{Duration, Instant};

    const TINY: &str = include_str!("../../tests/fixtures/text/tiny_bpe.json");

    fn tiny() -> (TextModel, Json) {
        let json: Json = serde_json::from_str(TINY).unwrap();
        let strings = |key: &str| json[key].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
        let spec = VocabSpec {
            model: "gpt2".into(),
            pre: Some("gpt-2".into()),
            tokens: strings("tokens"),
            types: json["types"].as_array().unwrap().iter().map(|t| t.as_i64().unwrap() as i32).collect(),
            merges: strings("merges"),
            ..VocabSpec::default()
        };
        (TextModel::new(spec).unwrap(), json)
    }

    /// `<unk>`, `<s>`, the user-defined `<u>`, all bytes, then words, best first.
    fn sentence_piece(words: &[&str], add_space_prefix: bool) -> TextModel {
        let mut spec =
            VocabSpec { model: "llama".into(), bos: Some(1), unk: Some(0), ..VocabSpec::default() };
        let named = [("<unk>", 2), ("<s>", 3), ("<u>", 4)].map(|(text, kind)| (text.to_owned(), kind));
        let bytes = (0..=255).map(|byte| (format!("<0x{byte:02X}>"), 6));
        let words = words.iter().map(|word| ((*word).to_owned(), 1));
        let mut tokens = Vec::new();
        for (rank, (text, kind)) in named.into_iter().chain(bytes).chain(words).enumerate() {
            tokens.push(text);
            spec.types.push(kind);
            spec.scores.push(-(rank as f32));
        }
        spec.tokens = tokens.into();
        spec.add_space_prefix = Some(add_space_prefix);
        TextModel::new(spec).unwrap()
    }

    fn texts(model: &TextModel, ids: &[TokenId]) -> Vec<String> {
        ids.iter().map(|&id| model.piece_text(id)).collect()
    }

    fn shown(model: &TextModel, ids: &[TokenId]) -> Vec<String> {
        let mut parser = model.output(OutputOptions::default());
        let mut parts: Vec<Part> = ids.iter().flat_map(|&id| parser.push(id).parts).collect();
        parts.extend(parser.finish());
        parts
            .into_iter()
            .map(|part| match part {
                Part::Text(text) | Part::Reasoning(text) => text,
                Part::ToolCall(_) => unreachable!("no tools"),
            })
            .collect()
    }

    #[test]
    fn byte_level_ids_equal_the_reference() {
        let (model, json) = tiny();
        for case in json["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let expected: Vec<TokenId> =
                case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as TokenId).collect();
            assert_eq!(model.encode(text, Specials::Parse), expected, "{text:?}");
            assert_eq!(texts(&model, &expected).concat().contains('\u{FFFD}'), !text.is_ascii(), "{text:?}");
        }
    }

    #[test]
    fn a_hint_outweighs_template_and_vocabulary() {
        let parts = |model: TextModel| {
            let mut output =
                model.output(OutputOptions { parse_reasoning: true, ..OutputOptions::default() });
            let mut parts = Vec::new();
            for byte in b"<think>hm</think>42" {
                parts.extend(output.push(TokenId::from(*byte)).parts);
            }
            parts.extend(output.finish());
            parts.into_iter().any(|part| matches!(part, Part::Reasoning(_)))
        };
        assert!(parts(TextModel::bytes()), "its vocabulary has the tags");
        assert!(!parts(TextModel::bytes().with_reasoning(false)));
        assert_eq!(TextModel::bytes().with_reasoning(true).reasoning_parser(), Some("think"));
    }

    // BUGLOG T10.
    #[test]
    fn a_special_token_does_not_change_the_word_after_it() {
        let (model, _) = tiny();
        let start = model.encode("<|im_start|>", Specials::Parse);
        assert_eq!(start.len(), 1);
        let expected = [start, model.encode("user", Specials::Parse)].concat();
        assert_eq!(model.encode("<|im_start|>user", Specials::Parse), expected);
    }

    // BUGLOG T12, T13.
    #[test]
    fn the_prefix_space_comes_back_after_every_special_token() {
        let model = sentence_piece(&["▁G", "▁", "G"], true);
        let encode = |text| texts(&model, &model.encode(text, Specials::Parse));
        assert_eq!(encode("G"), [" G"]);
        assert_eq!(encode(" G"), [" ", " G"]);
        assert_eq!(encode("<s>G"), ["<s>", " G"]);
        assert_eq!(encode("G<u>G"), [" G", "<u>", " G"]);
        let bare = sentence_piece(&["▁G", "▁", "G"], false);
        assert_eq!(texts(&bare, &bare.encode("<s>G G", Specials::Parse)), ["<s>", "G", " G"]);
    }

    // BUGLOG T08.
    #[test]
    fn only_the_first_space_of_a_reply_is_stripped() {
        let model = sentence_piece(&["▁a", "▁b", "▁", "a", "b"], true);
        let ids = model.encode("a b", Specials::Text);
        assert_eq!(shown(&model, &ids), ["a", " b"]);
        let control_first = [vec![1], ids.clone(), ids].concat();
        assert_eq!(shown(&model, &control_first).concat(), "a b a b");
        let bare = sentence_piece(&["▁Hello"], false);
        assert_eq!(shown(&bare, &[259]), [" Hello"]);
    }

    // BUGLOG T09.
    #[test]
    fn byte_fallback_reads_back_as_characters() {
        let model = sentence_piece(&["▁"], false);
        let ids = model.encode("字字 é", Specials::Text);
        assert_eq!(ids.len(), 9);
        assert_eq!(shown(&model, &ids), ["字", "字", " ", "é"]);
    }

    // BUGLOG T05.
    #[test]
    fn ten_thousand_tokens_one_by_one() {
        let (model, _) = tiny();
        let text = "naïve 日本語 👍🏽 text ".repeat(400);
        let ids = model.encode(&text, Specials::Text);
        assert!(ids.len() >= 10_000, "{}", ids.len());
        assert_eq!(shown(&model, &ids).concat(), text);
    }

    // BUGLOG T15, T16.
    #[test]
    fn a_long_unbroken_run_is_not_quadratic() {
        let (model, _) = tiny();
        for c in ["a", "_", " "] {
            let text = c.repeat(400_000);
            let start = Instant::now();
            let ids = model.encode(&text, Specials::Parse);
            // A tenth of a second; at the 4 s reported for 50,000 a quadratic merge would take minutes.
            assert!(start.elapsed() < Duration::from_secs(20), "{c:?}: {:?}", start.elapsed());
            assert_eq!(ids.iter().map(|&id| model.piece(id).len()).sum::<usize>(), text.len());
        }
    }

    #[test]
    fn the_toy_vocabulary_is_bytes() {
        let model = TextModel::bytes();
        assert_eq!((model.vocab_size(), model.end_tokens()), (259, &[256][..]));
        assert_eq!(
            model.encode("hé <think>", Specials::Text),
            "hé <think>".bytes().map(u32::from).collect::<Vec<_>>()
        );
        assert_eq!(model.encode("a<think>", Specials::Parse), [97, 257]);
        assert_eq!((&*model.piece(0xE9), model.piece_text(0xE9).as_str()), (&[0xE9][..], "\u{FFFD}"));
        assert_eq!((model.piece_text(256).as_str(), model.piece_text(4000).as_str()), ("<eos>", ""));
        assert!(model.is_control(256) && !model.is_control(257));
        assert_eq!(model.reasoning_parser(), Some("think"));
        let rendered =
            model.render(&json!({ "messages": [{ "role": "user", "content": "<think>" }] })).unwrap();
        assert_eq!(rendered, "<think>");
    }

    #[test]
    fn reasoning_is_parsed_only_where_the_model_knows_it() {
        let (model, _) = tiny();
        assert_eq!(model.reasoning_parser(), None);
        let opened = model.with_chat_template("{{ '<think>' }}").unwrap();
        assert_eq!(opened.reasoning_parser(), Some("think"));
    }

    #[test]
    fn parsers_are_chosen_by_name_and_a_wrong_one_lists_them() {
        let names = |model: &TextModel| {
            (model.reasoning_parser().map(str::to_owned), model.tool_call_parser().map(str::to_owned))
        };
        let chosen = TextModel::bytes().with_parsers("granite", "kimi").unwrap();
        assert_eq!(names(&chosen), (Some("granite".into()), Some("kimi".into())));
        let kept = TextModel::bytes().with_parsers("auto", "auto").unwrap();
        assert_eq!(names(&kept), (Some("think".into()), Some("hermes".into())));
        assert_eq!(names(&TextModel::bytes().with_parsers("none", "none").unwrap()), (None, None));
        let error = TextModel::bytes().with_parsers("quen3", "auto").err().unwrap();
        assert!(
            error.contains("\"quen3\"") && error.contains("qwen3, glm") && error.contains("tags:<a>,</a>")
        );
        assert!(TextModel::bytes().with_parsers("auto", "x").err().unwrap().contains("hermes, llama3-json"));
    }
}
