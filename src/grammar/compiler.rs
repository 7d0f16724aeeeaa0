use super::vocabulary::Vocabulary;
use super::{Guide, ebnf, lark, schema};
use crate::protocol::Grammar;
use crate::text::TextModel;
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{Matcher, ParserFactory};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// Makes guides for one model's vocabulary. Equal grammars are compiled once.
///
/// ```
/// use glassbox::grammar::Compiler;
/// use glassbox::{protocol::Grammar, text::TextModel};
///
/// let compiler = Compiler::new(TextModel::bytes().into());
/// let mut guide = compiler.compile(&Grammar::Regex("[0-9]{2}".into()))?;
/// assert!(!guide.commit(b'4'.into())?);
/// assert!(guide.commit(b'2'.into())?);
/// # Ok::<(), glassbox::grammar::GrammarError>(())
/// ```
pub struct Compiler {
    text: Arc<TextModel>,
    /// Made when first needed: a moment's work for a large vocabulary.
    factory: OnceLock<Result<ParserFactory, GrammarError>>,
    /// Used last first.
    ready: Mutex<Vec<(Grammar, Guide)>>,
}

/// Why a grammar cannot be used. Names the rule or the schema's path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrammarError(String);

/// Compiled grammars kept.
const KEPT: usize = 16;
/// Bytes of a grammar's text.
const LONGEST: usize = 1 << 20;
/// The compiler follows rules within rules on its stack; what they may take is bounded before.
const STACK: usize = 256 << 20;

impl Compiler {
    pub fn new(text: Arc<TextModel>) -> Self {
        Self { text, factory: OnceLock::new(), ready: Mutex::new(Vec::new()) }
    }

    /// A guide at the beginning of the grammar. May take long; nothing that it is given takes for
    /// ever.
    ///
    /// # Errors
    /// The grammar is wrong, or too large.
    pub fn compile(&self, grammar: &Grammar) -> Result<Guide, GrammarError> {
        if let Some(guide) = self.compiled(grammar) {
            return Ok(guide);
        }
        let guide = thread::scope(|scope| {
            let build = || self.build(grammar);
            let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK);
            let built = thread.spawn_scoped(scope, build).map_err(|e| GrammarError(e.to_string()))?;
            built.join().unwrap_or_else(|_| Err(GrammarError::failed()))
        })?;
        self.keep(grammar, &guide);
        Ok(guide)
    }

    /// The same, where an equal grammar was compiled before.
    pub fn compiled(&self, grammar: &Grammar) -> Option<Guide> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ready.iter().position(|(known, _)| known == grammar)?;
        ready[..=at].rotate_right(1);
        Some(ready[0].1.fork())
    }

    fn keep(&self, grammar: &Grammar, guide: &Guide) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.insert(0, (grammar.clone(), guide.fork()));
        ready.truncate(KEPT);
    }

    fn build(&self, grammar: &Grammar) -> Result<Guide, GrammarError> {
        let source = Source::of(grammar)?;
        let factory = self.factory.get_or_init(|| factory(&self.text)).as_ref().map_err(Clone::clone)?;
        let made = Matcher::new(factory.create_parser(source.grammar()));
        let mut guide = Guide::new(made, self.text.clone());
        let checked = guide.state().and_then(|_| guide.mask());
        checked.map_err(|e| GrammarError(source.explain(&e.0, |part| self.refuses(factory, part))))?;
        Ok(guide)
    }

    /// Why a part of a schema, on its own, cannot be used.
    fn refuses(&self, factory: &ParserFactory, part: serde_json::Value) -> Option<String> {
        let matcher = Matcher::new(factory.create_parser(TopLevelGrammar::from_json_schema(part)));
        matcher.get_error().map(|error| GrammarError::new(error).0)
    }
}

/// A grammar as the parser takes it.
enum Source {
    Schema(serde_json::Value),
    Lark(&'static str, String),
}

impl Source {
    fn of(grammar: &Grammar) -> Result<Self, GrammarError> {
        let text = |what: &str, text: &str| match text.len() {
            0 => Err(GrammarError(format!("{what} is empty"))),
            bytes if bytes > LONGEST => {
                Err(GrammarError(format!("{what} has {bytes} bytes; at most {LONGEST}")))
            }
            _ => Ok(()),
        };
        match grammar {
            Grammar::Json => Ok(Self::Schema(schema::any_object())),
            Grammar::JsonSchema(source) => {
                text("the JSON schema", source)?;
                schema::read(source).map(Self::Schema).map_err(|e| GrammarError(format!("JSON schema: {e}")))
            }
            Grammar::Regex(regex) => {
                text("the regular expression", regex)?;
                let lark = GrammarWithLexer::from_regex(whole(regex)).lark_grammar.unwrap_or_default();
                Ok(Self::Lark("regular expression", lark))
            }
            Grammar::Choice(choices) => {
                text("the list of choices", &choices.concat())?;
                if choices.iter().any(String::is_empty) {
                    return Err(GrammarError("one of the choices is empty".into()));
                }
                let choices: Vec<String> = choices.iter().map(|choice| ebnf::quoted(choice)).collect();
                Ok(Self::Lark("choice", format!("start: CHOICE\nCHOICE: {}", choices.join(" | "))))
            }
            Grammar::Lark(source) => {
                text("the grammar", source)?;
                lark::check(source).map_err(|e| GrammarError(format!("grammar: {e}")))?;
                Ok(Self::Lark("grammar", source.clone()))
            }
            Grammar::Ebnf(source) => {
                text("the grammar", source)?;
                let lark = ebnf::to_lark(source).map_err(|e| GrammarError(format!("grammar: {e}")))?;
                Ok(Self::Lark("grammar", lark))
            }
        }
    }

    fn grammar(&self) -> TopLevelGrammar {
        match self {
            Self::Schema(schema) => TopLevelGrammar::from_json_schema(schema.clone()),
            Self::Lark(_, lark) => TopLevelGrammar::from_lark(lark.clone()),
        }
    }

    fn explain(&self, error: &str, refuses: impl Fn(serde_json::Value) -> Option<String>) -> String {
        match self {
            Self::Schema(schema) => format!("JSON schema: {}", schema::blame(schema, error, refuses)),
            Self::Lark(what, _) => format!("{what}: {error}"),
        }
    }
}

/// It matches the whole answer anyway.
fn whole(regex: &str) -> &str {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    match regex.strip_suffix('$') {
        Some(inner) if !inner.ends_with('\\') => inner,
        _ => regex,
    }
}

fn factory(text: &Arc<TextModel>) -> Result<ParserFactory, GrammarError> {
    let env: TokEnv = Arc::new(Vocabulary::new(text.clone()));
    let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
    let slices = SlicedBiasComputer::json_slices();
    let mut factory = ParserFactory::new(&env, capabilities, &slices).map_err(GrammarError::from)?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits {
        // One or two kilobytes each.
        max_lexer_states: 20_000,
        max_grammar_size: 300_000,
        verbose_errors: false,
        ..ParserLimits::default()
    };
    Ok(factory)
}

impl GrammarError {
    /// It was given up after so long.
    pub fn too_long(limit: std::time::Duration) -> Self {
        Self(format!("the grammar took more than {} seconds to compile", limit.as_secs()))
    }

    /// What cannot be, was.
    pub fn failed() -> Self {
        Self("the grammar's compiler failed".into())
    }

    pub(super) fn new(error: impl std::fmt::Display) -> Self {
        let text = error.to_string();
        let text = text.trim_end().trim_end_matches("<non-verbose/>").trim_end();
        Self(text.replace("; stopping", ""))
    }
}

impl From<anyhow::Error> for GrammarError {
    fn from(error: anyhow::Error) -> Self {
        Self::new(format!("{error:#}"))
    }
}
