use super::byte_level::{ByteLevel, spell};
use super::pre_tokenizer::PreTokenizer;
use super::sentence_piece::SentencePiece;
use super::specials::{Segment, SpecialTokens, Specials};
use super::template::{ChatTemplate, TemplateError};
use super::vocab::{Algorithm, END_THINK, Pieces, THINK, VocabError, VocabSpec};
use super::{OutputOptions, OutputParser};
use crate::protocol::TokenId;
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::sync::Arc;

/// All that one model's files say about text: its tokenizer, its chat template, the tokens that
/// begin and end things. Made once, shared by reference.
pub struct TextModel {
    encoder: Encoder,
    pieces: Arc<Pieces>,
    specials: SpecialTokens,
    end_tokens: Vec<TokenId>,
    /// Set where prompts begin with it.
    pub(super) prompt_bos: Option<TokenId>,
    pub(super) bos: Option<TokenId>,
    pub(super) template: Result<ChatTemplate, TemplateError>,
    /// `bos_token` and its like, as templates see them.
    named_tokens: Map<String, Json>,
    knows_think: bool,
}

enum Encoder {
    ByteLevel(ByteLevel),
    SentencePiece(SentencePiece),
}

impl TextModel {
    /// A chat template that is not valid Jinja is no error here: prompts of plain text need none.
    pub fn new(spec: VocabSpec) -> Result<TextModel, VocabError> {
        let algorithm = spec.check()?;
        let kinds = spec.kinds()?;
        let pieces = Pieces::new(&spec, algorithm, kinds.clone())?;
        let specials = SpecialTokens::new(&spec, &kinds, algorithm == Algorithm::SentencePiece);
        let (encoder, pre_adds_bos) = match algorithm {
            Algorithm::ByteLevel => {
                let pre = PreTokenizer::named(spec.pre.as_deref())?;
                let adds_bos = pre.add_bos;
                (Encoder::ByteLevel(ByteLevel::new(&spec, &kinds, pre)?), adds_bos)
            }
            Algorithm::SentencePiece => {
                (Encoder::SentencePiece(SentencePiece::new(&spec, &kinds, &pieces)), true)
            }
        };
        let source = spec.chat_template.as_deref();
        Ok(TextModel {
            encoder,
            pieces: Arc::new(pieces),
            specials,
            end_tokens: spec.end_tokens(),
            prompt_bos: spec.bos.filter(|_| spec.add_bos.unwrap_or(pre_adds_bos)),
            bos: spec.bos,
            template: source.map_or(Err(TemplateError::Missing), ChatTemplate::new),
            named_tokens: named_tokens(&spec),
            knows_think: source.is_some_and(mentions_think) || spec.tokens.iter().any(|text| text == THINK),
        })
    }

    /// A toy vocabulary: ids 0 to 255 are the bytes, 256 is the end token `<eos>`, 257 and 258 are
    /// `<think>` and `</think>`. Its chat template joins the messages' contents with line breaks.
    pub fn bytes() -> TextModel {
        let mut tokens: Vec<String> = (0..=255).map(|byte| spell(byte).to_string()).collect();
        tokens.extend(["<eos>", THINK, END_THINK].map(String::from));
        let template = "{% for message in messages %}{{ message.content }}{{ '\\n' if not loop.last }}{% endfor %}";
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
        self.knows_think |= mentions_think(source);
        Ok(self)
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

    /// Which tags separate thoughts from the answer: `think`, where vocabulary or template know them.
    pub fn reasoning_parser(&self) -> Option<&str> {
        self.knows_think.then_some("think")
    }

    /// Token ids of `text`, without BOS.
    pub fn encode(&self, text: &str, specials: Specials) -> Vec<TokenId> {
        self.encode_defused(text, specials, None)
    }

    /// The same, leaving out the `mark` that kept special tokens from being found.
    pub(super) fn encode_defused(&self, text: &str, specials: Specials, mark: Option<char>) -> Vec<TokenId> {
        let mut ids = Vec::new();
        let text = self.canonical(text);
        self.specials.split(&text, specials, |segment| match segment {
            Segment::Token(id) => ids.push(id),
            Segment::Text(text) => match mark.filter(|&mark| text.contains(mark)) {
                Some(mark) => self.encode_plain(&text.replace(mark, ""), &mut ids),
                None => self.encode_plain(text, &mut ids),
            },
        });
        ids
    }

    fn encode_plain(&self, text: &str, ids: &mut Vec<TokenId>) {
        match &self.encoder {
            Encoder::ByteLevel(encoder) => encoder.encode(text, ids),
            Encoder::SentencePiece(encoder) => encoder.encode(text, ids),
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
    pub fn piece(&self, id: TokenId) -> &[u8] {
        self.pieces.bytes(id)
    }

    /// For display: bytes that are no character are U+FFFD.
    pub fn piece_text(&self, id: TokenId) -> String {
        String::from_utf8_lossy(self.piece(id)).into_owned()
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
        let template = self.template.as_ref().map_err(TemplateError::clone)?;
        template.render(&Json::Object(input))
    }

    /// A reader for one reply's tokens.
    pub fn output(&self, options: OutputOptions) -> OutputParser {
        let strip_space = matches!(&self.encoder, Encoder::SentencePiece(encoder) if encoder.has_space_prefix());
        let reasoning = options.parse_reasoning && self.knows_think;
        OutputParser::new(self.pieces.clone(), strip_space, reasoning, options)
    }
}

fn mentions_think(template: &str) -> bool {
    template.contains(THINK) || template.contains(END_THINK)
}

fn named_tokens(spec: &VocabSpec) -> Map<String, Json> {
    let named = [("bos_token", spec.bos), ("eos_token", spec.eos), ("unk_token", spec.unk)];
    let texts = named.into_iter().filter_map(|(name, id)| Some((name.to_owned(), json!(spec.tokens[id? as usize]))));
    texts.collect()
}
