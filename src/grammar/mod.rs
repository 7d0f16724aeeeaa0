//! What an answer must be: grammars compiled over a model's vocabulary, and the place in one.
//!
//! | file | what stands there |
//! |---|---|
//! | `compiler` | [`Compiler`]: a grammar to a [`Guide`], once for equal grammars; limits of size and effort |
//! | `guide` | [`Guide`]: where one sequence stands, which tokens may follow, which one must |
//! | `vocabulary` | a [`TextModel`](crate::text::TextModel)'s tokens as the trie that masks are made from |
//! | `schema` | JSON Schema: what is refused and where it stands; white space that cannot run away |
//! | `dates` | `format: date` as a pattern that knows leap years |
//! | `ebnf` | GBNF and EBNF (`root ::= ...`) to Lark |
//! | `lark` | what is checked of a Lark grammar before it is compiled |
//!
//! The matching itself is llguidance's: an Earley parser over lexemes that are derivatives of regular
//! expressions (<https://github.com/guidance-ai/llguidance>). Nothing here knows of an engine.

mod compiler;
mod dates;
mod ebnf;
mod guide;
mod lark;
mod schema;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use compiler::{Compiler, GrammarError};
pub use ebnf::to_lark;
pub use guide::{Guide, State};
