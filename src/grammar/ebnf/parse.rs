use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

/// `name ::= expr`, and the line it begins in.
pub struct Rule {
    pub name: String,
    pub line: usize,
    pub expr: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Text(String),
    /// A regular expression that matches one character.
    Class(String),
    Rule(usize),
    Seq(Vec<Expr>),
    Alt(Vec<Expr>),
    Repeat(Box<Expr>, u32, Option<u32>),
}

/// More repetitions than this are a mistake.
const MOST_REPEATED: u32 = 100_000;

impl Rule {
    pub fn says(&self, what: &str) -> String {
        format!("line {}: rule `{}`: {what}", self.line, self.name)
    }
}

impl Expr {
    /// The rules it names.
    pub fn refers(&self) -> Vec<usize> {
        match self {
            Expr::Rule(at) => vec![*at],
            Expr::Seq(parts) | Expr::Alt(parts) => parts.iter().flat_map(Expr::refers).collect(),
            Expr::Repeat(inner, ..) => inner.refers(),
            Expr::Text(_) | Expr::Class(_) => Vec::new(),
        }
    }

    /// Whether there is a way through it, where there is one through these rules.
    pub fn ends(&self, rules: &[bool]) -> bool {
        match self {
            Expr::Rule(at) => rules[*at],
            Expr::Seq(parts) => parts.iter().all(|part| part.ends(rules)),
            Expr::Alt(ways) => ways.iter().any(|way| way.ends(rules)),
            Expr::Repeat(inner, least, _) => *least == 0 || inner.ends(rules),
            Expr::Text(_) | Expr::Class(_) => true,
        }
    }

    /// Whether it may be empty, where these rules may.
    pub fn nullable(&self, rules: &[bool]) -> bool {
        match self {
            Expr::Rule(at) => rules[*at],
            Expr::Seq(parts) => parts.iter().all(|part| part.nullable(rules)),
            Expr::Alt(ways) => ways.iter().any(|way| way.nullable(rules)),
            Expr::Repeat(inner, least, most) => *least == 0 || *most == Some(0) || inner.nullable(rules),
            Expr::Text(text) => text.is_empty(),
            Expr::Class(_) => false,
        }
    }
}

pub fn parse(source: &str, deepest: usize) -> Result<Vec<Rule>, String> {
    let mut parser = Parser {
        chars: source.chars().peekable(),
        line: 1,
        rule: None,
        depth: 0,
        deepest,
        ids: HashMap::new(),
        named: Vec::new(),
        ahead: None,
    };
    let mut rules: Vec<(usize, Rule)> = Vec::new();
    parser.space();
    while parser.chars.peek().is_some() || parser.ahead.is_some() {
        rules.push(parser.rule()?);
    }
    if rules.is_empty() {
        return Err("the grammar is empty".into());
    }
    let mut sorted: Vec<Option<Rule>> = parser.named.iter().map(|_| None).collect();
    for (id, rule) in rules {
        if sorted[id].is_some() {
            return Err(rule.says("it is defined twice"));
        }
        sorted[id] = Some(rule);
    }
    let missing = sorted.iter().position(Option::is_none);
    if let Some(id) = missing {
        let (name, by, line) = &parser.named[id];
        return Err(format!("line {line}: rule `{by}`: there is no rule `{name}`"));
    }
    Ok(sorted.into_iter().flatten().collect())
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
    /// Whose definition is being read.
    rule: Option<String>,
    depth: usize,
    deepest: usize,
    ids: HashMap<String, usize>,
    /// By id: the name, who named it first, and where.
    named: Vec<(String, String, usize)>,
    /// The name of the next rule, read already: `::=` follows it.
    ahead: Option<(String, usize)>,
}

impl Parser<'_> {
    fn error<T>(&self, what: impl std::fmt::Display) -> Result<T, String> {
        let rule = self.rule.as_ref().map_or_else(String::new, |rule| format!("rule `{rule}`: "));
        Err(format!("line {}: {rule}{what}", self.line))
    }

    fn next(&mut self) -> Option<char> {
        let next = self.chars.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.chars.peek() == Some(&wanted);
        if found {
            self.next();
        }
        found
    }

    /// White space and comments.
    fn space(&mut self) {
        loop {
            match self.chars.peek() {
                Some('#') => while self.next().is_some_and(|c| c != '\n') {},
                Some(c) if c.is_whitespace() => drop(self.next()),
                _ => return,
            }
        }
    }

    fn id(&mut self, name: &str, line: usize) -> usize {
        let next = self.named.len();
        let by = self.rule.clone().unwrap_or_default();
        let id = *self.ids.entry(name.to_owned()).or_insert(next);
        if id == next {
            self.named.push((name.to_owned(), by, line));
        }
        id
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.chars.peek().copied().filter(|c| is_word(*c)) {
            name.push(c);
            self.next();
        }
        name
    }

    fn define(&mut self) -> Result<bool, String> {
        self.space();
        if !self.take(':') {
            return Ok(false);
        }
        match self.take(':') && self.take('=') {
            true => Ok(true),
            false => self.error("`::=` is expected after a rule's name"),
        }
    }

    fn rule(&mut self) -> Result<(usize, Rule), String> {
        let (name, line) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => {
                let (name, line) = (self.name(), self.line);
                if name.is_empty() || !self.define()? {
                    return self.error("a rule is expected, as `root ::= ...`");
                }
                (name, line)
            }
        };
        self.rule = Some(name.clone());
        let id = self.id(&name, line);
        let expr = self.alternatives()?;
        if self.ahead.is_none()
            && let Some(c) = self.chars.peek().copied()
        {
            return self.error(format!("{c:?} is not expected here"));
        }
        Ok((id, Rule { name, line, expr }))
    }

    fn alternatives(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > self.deepest {
            return self.error(format!("too deep: groups are nested more than {} times", self.deepest));
        }
        let mut ways = vec![self.sequence()?];
        while self.ahead.is_none() && self.take('|') {
            ways.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(one_or(ways, Expr::Alt))
    }

    fn sequence(&mut self) -> Result<Expr, String> {
        let mut parts = Vec::new();
        loop {
            self.space();
            let Some(part) = self.atom()? else { return Ok(one_or(parts, Expr::Seq)) };
            self.space();
            parts.push(self.repeats(part)?);
        }
    }

    /// `None` where the sequence ends, which it does before the next rule's name.
    fn atom(&mut self) -> Result<Option<Expr>, String> {
        Ok(Some(match self.chars.peek().copied() {
            Some(quote @ ('"' | '\'')) => self.text(quote)?,
            Some('[') => self.class()?,
            Some('.') => {
                self.next();
                Expr::Class("(?s:.)".into())
            }
            Some('(') => {
                self.next();
                let inner = self.alternatives()?;
                if self.ahead.is_some() || !self.take(')') {
                    return self.error("a `)` is missing");
                }
                inner
            }
            Some('<') => return self.error("tokens, as <...>, are not supported"),
            Some(c) if is_word(c) => {
                let (name, line) = (self.name(), self.line);
                if self.define()? {
                    self.ahead = Some((name, line));
                    return Ok(None);
                }
                Expr::Rule(self.id(&name, line))
            }
            _ => return Ok(None),
        }))
    }

    fn repeats(&mut self, mut part: Expr) -> Result<Expr, String> {
        loop {
            let (least, most) = match self.chars.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.next();
                    let counts = self.counts()?;
                    part = Expr::Repeat(Box::new(part), counts.0, counts.1);
                    continue;
                }
                _ => return Ok(part),
            };
            self.next();
            part = Expr::Repeat(Box::new(part), least, most);
        }
    }

    /// `m}`, `m,}`, `,n}` or `m,n}`.
    fn counts(&mut self) -> Result<(u32, Option<u32>), String> {
        let mut inside = String::new();
        loop {
            match self.next() {
                Some('}') => break,
                Some(c) if inside.len() < 32 => inside.push(c),
                _ => return self.error("a `}` is missing"),
            }
        }
        let number = |text: &str| text.trim().parse().ok().filter(|n| *n <= MOST_REPEATED);
        let counts = match inside.split_once(',') {
            None => number(&inside).map(|n| (n, Some(n))),
            Some((least, most)) => {
                let least = if least.trim().is_empty() { Some(0) } else { number(least) };
                let most = if most.trim().is_empty() { Some(None) } else { number(most).map(Some) };
                least.zip(most).filter(|(least, most)| most.is_none_or(|most| *least <= most))
            }
        };
        match counts {
            Some(counts) => Ok(counts),
            None => self.error(format!(
                "{{{inside}}} is not a repetition: write {{m}}, {{m,}} or {{m,n}}, up to {MOST_REPEATED}"
            )),
        }
    }

    fn text(&mut self, quote: char) -> Result<Expr, String> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some(c) if c == quote => return Ok(Expr::Text(text)),
                Some('\\') => text.push(self.escaped()?),
                Some('\n') | None => return self.error("a quotation mark is missing"),
                Some(c) => text.push(c),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c) if c.is_ascii_punctuation() => return Ok(c),
            Some(c) => return self.error(format!("\\{c} is not an escape")),
            None => return self.error("the grammar ends after a backslash"),
        };
        let hex: String = (0..digits).map_while(|_| self.next()).collect();
        match u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits).and_then(char::from_u32) {
            Some(c) => Ok(c),
            None => self.error(format!("{hex:?} is not the number of a character")),
        }
    }

    fn class(&mut self) -> Result<Expr, String> {
        self.next();
        let mut class = String::from(if self.take('^') { "[^" } else { "[" });
        let empty = class.len();
        loop {
            let from = match self.next() {
                Some(']') if class.len() > empty => return Ok(Expr::Class(class + "]")),
                Some(']') => return self.error("a character class is empty"),
                Some('\\') => self.escaped()?,
                Some(c) => c,
                None => return self.error("a `]` is missing"),
            };
            let mut to = from;
            if self.chars.peek() == Some(&'-') {
                self.next();
                to = match self.chars.peek() {
                    // At the end it stands for itself.
                    Some(']') => {
                        class += r"\x{2D}";
                        from
                    }
                    Some('\\') => {
                        self.next();
                        self.escaped()?
                    }
                    Some(_) => self.next().unwrap_or(from),
                    None => return self.error("a `]` is missing"),
                };
            }
            if from > to {
                return self.error(format!("the range {from:?} to {to:?} is empty"));
            }
            class += &format!(r"\x{{{:X}}}-\x{{{:X}}}", from as u32, to as u32);
        }
    }
}

fn one_or(mut parts: Vec<Expr>, many: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    match parts.len() {
        1 => parts.remove(0),
        _ => many(parts),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}
