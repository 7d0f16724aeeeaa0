//! GBNF (llama.cpp) and the EBNF of xgrammar, rewritten as Lark.
//!
//! What no rule reaches through itself is a regular language, and becomes one terminal: exactly what
//! was written. Between the parts of a recursive rule, text is read as a lexer reads it, the longest
//! match first. Where a grammar counts on a shorter one, less is allowed than it says, never more.

mod parse;

use parse::{Expr, Rule, parse};
use std::fmt::Write;

/// Deepest nesting of groups, and longest chain of rules that begin in one another.
const DEEPEST: usize = 200;
/// Recursive rules of one grammar.
const MOST_RECURSIVE: usize = 1000;

/// # Errors
/// Names the line, the rule and what is wrong with it.
pub fn to_lark(source: &str) -> Result<String, String> {
    let rules = parse(source, DEEPEST)?;
    let root = rules.iter().position(|rule| rule.name == "root").ok_or("there is no rule `root`")?;
    let facts = Facts::of(&rules)?;
    let mut out = Writer { rules: &rules, facts, text: String::new(), made: 0 };
    for at in 0..rules.len() {
        out.rule(at);
    }
    let root = out.in_rule(&Expr::Rule(root));
    Ok(format!("start: {root}\n{}", out.text))
}

/// What is known of each rule.
struct Facts {
    /// How long the chain of rules is that it begins; `None` where one of them reaches itself.
    depth: Vec<Option<usize>>,
    nullable: Vec<bool>,
}

impl Facts {
    fn of(rules: &[Rule]) -> Result<Self, String> {
        let refers: Vec<Vec<usize>> = rules.iter().map(|rule| rule.expr.refers()).collect();
        let mut depth: Vec<Option<usize>> = vec![None; rules.len()];
        let mut too_deep = None;
        grow(rules.len(), |at| {
            if depth[at].is_some() || too_deep.is_some() {
                return false;
            }
            depth[at] = refers[at].iter().try_fold(1, |most, to| Some(most.max(1 + depth[*to]?)));
            too_deep = depth[at].filter(|depth| *depth > DEEPEST).map(|_| at);
            depth[at].is_some()
        });
        if let Some(at) = too_deep {
            return Err(rules[at].says(&format!("too deep: it begins a chain of more than {DEEPEST} rules")));
        }
        if depth.iter().filter(|depth| depth.is_none()).count() > MOST_RECURSIVE {
            return Err(format!("too deep: more than {MOST_RECURSIVE} rules reach themselves"));
        }
        let mut ends = vec![false; rules.len()];
        grow(rules.len(), |at| !ends[at] && rules[at].expr.ends(&ends) && set(&mut ends[at]));
        if let Some(at) = ends.iter().position(|ends| !ends) {
            let at = endless(at, &refers, &ends);
            return Err(rules[at].says("it can never end: every way through it needs itself"));
        }
        let mut nullable = vec![false; rules.len()];
        grow(rules.len(), |at| !nullable[at] && rules[at].expr.nullable(&nullable) && set(&mut nullable[at]));
        Ok(Self { depth, nullable })
    }

    fn is_regular(&self, expr: &Expr) -> bool {
        expr.refers().iter().all(|at| self.depth[*at].is_some())
    }
}

/// Down from a rule without an end, to one that it is the fault of.
fn endless(mut at: usize, refers: &[Vec<usize>], ends: &[bool]) -> usize {
    let mut seen = vec![false; ends.len()];
    while !std::mem::replace(&mut seen[at], true) {
        at = refers[at].iter().copied().find(|to| !ends[*to]).unwrap_or(at);
    }
    at
}

/// Calls `step` for all of them until none changes.
fn grow(rules: usize, mut step: impl FnMut(usize) -> bool) {
    let mut changed = true;
    while std::mem::take(&mut changed) {
        // Backwards: rules mostly come before those they name.
        for at in (0..rules).rev() {
            changed |= step(at);
        }
    }
}

fn set(fact: &mut bool) -> bool {
    *fact = true;
    true
}

/// Writes each group as a definition of its own: Lark never sees a nesting.
struct Writer<'a> {
    rules: &'a [Rule],
    facts: Facts,
    text: String,
    made: usize,
}

impl Writer<'_> {
    fn rule(&mut self, at: usize) {
        let rule = &self.rules[at];
        let name = self.name(at);
        let body = match self.facts.depth[at] {
            Some(_) => self.terminal_body(&rule.expr),
            None => self.rule_body(&rule.expr),
        };
        self.define(&name, &body);
    }

    /// In capitals for a terminal. The number keeps names apart that differ only in what Lark has not.
    fn name(&self, at: usize) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let name: String = self.rules[at].name.chars().map(plain).collect();
        match self.facts.depth[at] {
            Some(_) => format!("R{at}-{}", name.to_ascii_uppercase()),
            None => format!("r{at}-{}", name.to_ascii_lowercase()),
        }
    }

    fn define(&mut self, name: &str, body: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{name}: {body}");
    }

    fn fresh(&mut self, prefix: char, body: &str) -> String {
        self.made += 1;
        let name = format!("{prefix}{}", self.made);
        self.define(&name, body);
        name
    }

    fn terminal_body(&mut self, expr: &Expr) -> String {
        match expr {
            Expr::Seq(parts) if parts.is_empty() => "\"\"".into(),
            Expr::Seq(parts) => self.join(parts, " ", Self::terminal),
            Expr::Alt(ways) => self.join(ways, " | ", Self::terminal),
            Expr::Repeat(inner, least, most) => repeated(&self.terminal(inner), *least, *most),
            _ => self.terminal(expr),
        }
    }

    /// One word of a terminal's definition.
    fn terminal(&mut self, expr: &Expr) -> String {
        match expr {
            Expr::Text(text) => quoted(text),
            Expr::Class(class) => format!("/{class}/"),
            Expr::Rule(at) => self.name(*at),
            _ => {
                let body = self.terminal_body(expr);
                self.fresh('T', &body)
            }
        }
    }

    fn rule_body(&mut self, expr: &Expr) -> String {
        match expr {
            Expr::Seq(parts) => {
                let parts = self.merged(parts);
                self.join(&parts, " ", Self::in_rule)
            }
            Expr::Alt(ways) => self.join(ways, " | ", Self::in_rule),
            Expr::Repeat(inner, least, most) => repeated(&self.in_rule(inner), *least, *most),
            _ => self.in_rule(expr),
        }
    }

    /// One word of a rule's definition.
    fn in_rule(&mut self, expr: &Expr) -> String {
        if self.facts.is_regular(expr) {
            let name = self.terminal(expr);
            return match expr.nullable(&self.facts.nullable) {
                // No terminal of a rule may be empty: it is there, or it is not.
                true => format!("{}?", self.fresh('N', &format!("{name} & /(?s:.+)/"))),
                false => name,
            };
        }
        match expr {
            Expr::Rule(at) => self.name(*at),
            _ => {
                let body = self.rule_body(expr);
                self.fresh('g', &body)
            }
        }
    }

    /// Neighbours that are regular are so together.
    fn merged(&self, parts: &[Expr]) -> Vec<Expr> {
        let mut merged: Vec<Expr> = Vec::new();
        for run in parts.chunk_by(|a, b| self.facts.is_regular(a) && self.facts.is_regular(b)) {
            merged.push(if let [one] = run { one.clone() } else { Expr::Seq(run.to_vec()) });
        }
        merged
    }

    fn join(&mut self, parts: &[Expr], with: &str, word: fn(&mut Self, &Expr) -> String) -> String {
        parts.iter().map(|part| word(self, part)).collect::<Vec<_>>().join(with)
    }
}

fn repeated(word: &str, least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => format!("{word}*"),
        (1, None) => format!("{word}+"),
        (0, Some(1)) => format!("{word}?"),
        (_, Some(0)) => "\"\"".into(),
        (least, None) => format!("{word}{{{least},}}"),
        (least, Some(most)) => format!("{word}{{{least},{most}}}"),
    }
}

/// As Lark reads strings, which is as JSON does, without raw control characters.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
