use super::command::CommandLine;
use super::schema;
use crate::base::nearest;
use crate::protocol::Tool;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// What is wrong with a file of declarations, and where.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ToolsError {
    /// `file:line`
    pub place: String,
    pub message: String,
}

/// A file of declarations, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    pub tools: Vec<LocalTool>,
    pub servers: Vec<McpServer>,
}

/// `[[tool]]`: a local command.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalTool {
    pub tool: Tool,
    pub command: CommandLine,
    /// The default: a call is only shown.
    pub dry_run: bool,
    pub limits: Limits,
    pub place: Place,
}

/// `[[mcp]]`: a server over stdio. It is started when the tools are opened.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    pub name: String,
    pub argv: Vec<String>,
    pub dry_run: bool,
    pub limits: Limits,
    pub place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub timeout: Duration,
    /// Bytes of the result.
    pub max_output: usize,
}

/// Where a program runs and what it sees of the environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    pub cwd: Option<PathBuf>,
    /// Variables it gets beside `PATH`.
    pub env: Vec<String>,
}

const TIMEOUT_S: f64 = 30.0;
const MAX_OUTPUT: u64 = 16 << 10;

/// Reads the declarations of a file.
///
/// # Errors
/// The file cannot be read, or something in it is wrong: file, line, table and key are named.
pub fn declared(path: &Path) -> Result<Declared, ToolsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| ToolsError { place: path.display().to_string(), message: e.to_string() })?;
    parse(path, &text)
}

type Checked<T> = Result<T, ToolsError>;

pub fn parse(path: &Path, text: &str) -> Checked<Declared> {
    let source = Source { path, text };
    let root = DeTable::parse(text)
        .map_err(|e| source.wrong(e.span().map_or(0, |span| span.start), e.message().to_owned()))?;
    let mut declared = Declared::default();
    for (key, content) in root.get_ref() {
        let name = key.get_ref().as_ref();
        if !["tool", "mcp"].contains(&name) {
            let message = unknown("table", name, &["tool", "mcp"]);
            return Err(source.wrong(key.span().start, message));
        }
        for row in source.rows(name, content.get_ref(), key.span().start)? {
            match name {
                "tool" => declared.tools.push(local_tool(&row)?),
                _ => declared.servers.push(server(&row)?),
            }
        }
    }
    Ok(declared)
}

fn local_tool(row: &Row) -> Checked<LocalTool> {
    const KEYS: [&str; 9] =
        ["name", "description", "parameters", "command", "dry_run", "timeout_s", "cwd", "env", "max_output"];
    row.check_keys(&KEYS)?;
    let name = row.name.clone();
    let description = row.text("description")?.unwrap_or_default();
    let parameters = row.json("parameters")?.unwrap_or_else(|| Value::Object(Default::default()));
    let parameters = schema::of_parameters(parameters).map_err(|why| row.wrong("parameters", &why))?;
    let argv = row.texts("command")?.ok_or_else(|| row.wrong("command", "command is missing"))?;
    let command = CommandLine::parse(&row.rooted(argv), &parameters)
        .map_err(|why| row.wrong("command", &format!("command: {why}")))?;
    let (limits, place) = (row.limits()?, row.place()?);
    let dry_run = row.flag("dry_run")?.unwrap_or(true);
    Ok(LocalTool { tool: Tool { name, description, parameters }, command, dry_run, limits, place })
}

fn server(row: &Row) -> Checked<McpServer> {
    row.check_keys(&["name", "command", "dry_run", "timeout_s", "cwd", "env", "max_output"])?;
    let argv = row.texts("command")?.unwrap_or_default();
    if argv.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(row.wrong("command", "command must name a program"));
    }
    let (limits, place) = (row.limits()?, row.place()?);
    let dry_run = row.flag("dry_run")?.unwrap_or(false);
    Ok(McpServer { name: row.name.clone(), argv: row.rooted(argv), dry_run, limits, place })
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("known are {}", known.join(", ")),
    };
    format!("unknown {what} {name:?}; {hint}")
}

struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

/// One table of `[[tool]]` or `[[mcp]]`.
struct Row<'a> {
    source: &'a Source<'a>,
    /// `tool` or `mcp`.
    kind: &'a str,
    name: String,
    at: usize,
    table: &'a DeTable<'a>,
}

impl<'a> Source<'a> {
    fn line_of(&self, offset: usize) -> usize {
        1 + self.text[..offset.min(self.text.len())].matches('\n').count()
    }

    fn wrong(&self, offset: usize, message: String) -> ToolsError {
        ToolsError { place: format!("{}:{}", self.path.display(), self.line_of(offset)), message }
    }

    fn rows(&'a self, kind: &'a str, content: &'a DeValue<'a>, at: usize) -> Checked<Vec<Row<'a>>> {
        let not_tables = || self.wrong(at, format!("{kind} must be written as [[{kind}]]"));
        let DeValue::Array(items) = content else { return Err(not_tables()) };
        let mut rows: Vec<Row> = Vec::new();
        for item in items {
            let DeValue::Table(table) = item.get_ref() else { return Err(not_tables()) };
            let mut row = Row { source: self, kind, name: String::new(), at: item.span().start, table };
            row.name = row.text("name")?.ok_or_else(|| row.wrong("name", "name is missing"))?;
            row.check_name()?;
            if let Some(first) = rows.iter().find(|other| other.name == row.name) {
                let line = self.line_of(first.at);
                return Err(row.wrong("name", &format!("there is one of this name in line {line} already")));
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

impl Row<'_> {
    /// `tools.toml:3: [[tool]] weather: MESSAGE`, at the key's line where the key is there.
    fn wrong(&self, key: &str, message: &str) -> ToolsError {
        let at = self.table.iter().find(|(k, _)| k.get_ref() == key).map_or(self.at, |(k, _)| k.span().start);
        let space = if self.name.is_empty() { "" } else { " " };
        self.source.wrong(at, format!("[[{}]]{space}{}: {message}", self.kind, self.name))
    }

    fn check_keys(&self, known: &[&str]) -> Checked<()> {
        let unknown_key =
            self.table.keys().map(|key| key.get_ref().as_ref()).find(|key| !known.contains(key));
        unknown_key.map_or(Ok(()), |key| Err(self.wrong(key, &unknown("key", key, known))))
    }

    /// What every model's format for calls can carry.
    fn check_name(&self) -> Checked<()> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if (1..=64).contains(&self.name.len()) && self.name.chars().all(good) {
            return Ok(());
        }
        Err(self.wrong("name", "name must be 1 to 64 letters, digits, _ or -"))
    }

    fn get(&self, key: &str) -> Option<&DeValue<'_>> {
        self.table.iter().find(|(k, _)| k.get_ref() == key).map(|(_, value)| value.get_ref())
    }

    fn text(&self, key: &str) -> Checked<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text.to_string())),
            Some(_) => Err(self.wrong(key, &format!("{key} must be a text"))),
        }
    }

    fn texts(&self, key: &str) -> Checked<Option<Vec<String>>> {
        let wrong = || self.wrong(key, &format!("{key} must be a list of texts"));
        let Some(value) = self.get(key) else { return Ok(None) };
        let DeValue::Array(items) = value else { return Err(wrong()) };
        let text = |item: &DeValue| match item {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(wrong()),
        };
        items.iter().map(|item| text(item.get_ref())).collect::<Checked<_>>().map(Some)
    }

    fn flag(&self, key: &str) -> Checked<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(DeValue::Boolean(yes)) => Ok(Some(*yes)),
            Some(_) => Err(self.wrong(key, &format!("{key} must be true or false"))),
        }
    }

    fn number(&self, key: &str, range: RangeInclusive<f64>) -> Checked<Option<f64>> {
        let number = match self.get(key) {
            None => return Ok(None),
            Some(DeValue::Integer(x)) if x.radix() == 10 => x.as_str().parse().ok(),
            Some(DeValue::Float(x)) => x.as_str().parse().ok(),
            Some(_) => None,
        };
        let (from, to) = (range.start(), range.end());
        let wanted = || self.wrong(key, &format!("{key} must be a number from {from} to {to}"));
        number.filter(|x| range.contains(x)).map(Some).ok_or_else(wanted)
    }

    fn json(&self, key: &str) -> Checked<Option<Value>> {
        let value = self.get(key).map(|value| json_of(value).map_err(|why| self.wrong(key, &why)));
        value.transpose()
    }

    fn limits(&self) -> Checked<Limits> {
        let timeout = self.number("timeout_s", 0.01..=3600.0)?.unwrap_or(TIMEOUT_S);
        let max_output = self.number("max_output", 64.0..=1e7)?.map_or(MAX_OUTPUT, |x| x as u64);
        Ok(Limits { timeout: Duration::from_secs_f64(timeout), max_output: max_output as usize })
    }

    fn place(&self) -> Checked<Place> {
        let cwd = self.text("cwd")?.map(|cwd| self.folder().join(cwd));
        if let Some(cwd) = cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
            return Err(self.wrong("cwd", &format!("cwd: there is no folder {}", cwd.display())));
        }
        let env = self.texts("env")?.unwrap_or_default();
        match env.iter().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            Some(name) => Err(self.wrong("env", &format!("env lists names of variables, not {name:?}"))),
            None => Ok(Place { cwd, env }),
        }
    }

    /// A relative program with a slash, as a relative `cwd`, is meant from the file's folder.
    fn rooted(&self, mut argv: Vec<String>) -> Vec<String> {
        if let Some(program) = argv.first_mut().filter(|p| p.contains('/') && !p.contains(['{', '}'])) {
            *program = self.folder().join(&*program).display().to_string();
        }
        argv
    }

    fn folder(&self) -> PathBuf {
        let folder = self.source.path.parent().unwrap_or(Path::new(""));
        std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
    }
}

fn json_of(value: &DeValue) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Boolean(yes) => (*yes).into(),
        DeValue::Integer(x) => {
            i64::from_str_radix(x.as_str(), x.radix()).map_err(|e| format!("{x}: {e}"))?.into()
        }
        DeValue::Float(x) => x.as_str().parse::<f64>().map_err(|e| format!("{x}: {e}"))?.into(),
        DeValue::Array(items) => {
            items.iter().map(|item| json_of(item.get_ref())).collect::<Result<Vec<_>, _>>()?.into()
        }
        DeValue::Table(table) => {
            let pair = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue>)| {
                let key: &toml::Spanned<std::borrow::Cow<str>> = key;
                Ok((key.get_ref().to_string(), json_of(value.get_ref())?))
            };
            Value::Object(table.iter().map(pair).collect::<Result<_, String>>()?)
        }
        DeValue::Datetime(_) => return Err("a date has no place in a schema".into()),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Declared, String> {
        parse(Path::new("/etc/tools.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_tool_is_dry_and_bounded_unless_it_says_otherwise() {
        let declared = read(
            "[[tool]]\nname = 'weather'\ndescription = 'Weather now'\nparameters = { city = 'string' }\n\
             command = ['weather', '{city}']\n\n\
             [[tool]]\nname = 'date'\ncommand = ['bin/date']\ndry_run = false\ntimeout_s = 1.5\ncwd = '/tmp'\n\
             env = ['LANG']\nmax_output = 100\n\n\
             [[mcp]]\nname = 'files'\ncommand = ['mcp-files', '/tmp']\n",
        )
        .unwrap();
        let [weather, date] = &declared.tools[..] else { panic!("{declared:?}") };
        assert!(
            weather.dry_run
                && weather.limits == Limits { timeout: Duration::from_secs(30), max_output: 16 << 10 }
        );
        assert_eq!(weather.tool.parameters["required"], serde_json::json!(["city"]));
        assert_eq!(weather.command.shown(), "weather {city}");
        assert!(!date.dry_run && date.place == Place { cwd: Some("/tmp".into()), env: vec!["LANG".into()] });
        assert_eq!(date.limits, Limits { timeout: Duration::from_millis(1500), max_output: 100 });
        // A relative program is found from the file's folder, whatever folder the chat was started in.
        assert_eq!(date.command.program(), "/etc/bin/date");
        assert_eq!(declared.servers[0].argv, ["mcp-files", "/tmp"]);
        assert_eq!(read(""), Ok(Declared::default()));
    }

    #[test]
    fn a_schema_may_be_written_as_tables() {
        let declared = read(
            "[[tool]]\nname = 'x'\ncommand = ['x', '{n}']\n[tool.parameters]\ntype = 'object'\nrequired = ['n']\n\
             [tool.parameters.properties.n]\ntype = 'integer'\nminimum = 1\ndescription = 'how many'\n",
        )
        .unwrap();
        let n = &declared.tools[0].tool.parameters["properties"]["n"];
        assert_eq!(n, &serde_json::json!({ "type": "integer", "minimum": 1, "description": "how many" }));
    }

    #[test]
    fn every_mistake_names_file_line_table_and_key() {
        let tool = "[[tool]]\nname = 'x'\ncommand = ['x']\n";
        for (text, wanted) in [
            ("[[tools]]\nname = 'x'", "1: unknown table \"tools\"; did you mean \"tool\"?"),
            ("[tool]\nname = 'x'", "1: tool must be written as [[tool]]"),
            ("tool = 3", "1: tool must be written as [[tool]]"),
            ("[[tool]]\ncommand = ['x']", "1: [[tool]]: name is missing"),
            ("[[tool]]\nname = 'a b'\ncommand = ['x']", "2: [[tool]] a b: name must be 1 to 64 letters"),
            ("[[tool]]\nname = 'x'", "1: [[tool]] x: command is missing"),
            ("[[mcp]]\nname = 'x'\ncommand = []", "3: [[mcp]] x: command must name a program"),
            (
                &format!("{tool}comand = ['x']"),
                "4: [[tool]] x: unknown key \"comand\"; did you mean \"command\"?",
            ),
            (
                &format!("{tool}colour = 'x'"),
                "4: [[tool]] x: unknown key \"colour\"; known are name, description",
            ),
            (&format!("{tool}dry_run = 'no'"), "4: [[tool]] x: dry_run must be true or false"),
            (&format!("{tool}timeout_s = 0"), "4: [[tool]] x: timeout_s must be a number from 0.01 to 3600"),
            (
                &format!("{tool}max_output = 3"),
                "4: [[tool]] x: max_output must be a number from 64 to 10000000",
            ),
            (&format!("{tool}env = ['A=b']"), "4: [[tool]] x: env lists names of variables, not \"A=b\""),
            (&format!("{tool}env = 'A'"), "4: [[tool]] x: env must be a list of texts"),
            (&format!("{tool}cwd = '/nowhere'"), "4: [[tool]] x: cwd: there is no folder /nowhere"),
            (&format!("{tool}description = 3"), "4: [[tool]] x: description must be a text"),
            (
                &format!("{tool}parameters = {{ a = 'int' }}"),
                "4: [[tool]] x: parameters.a: no type \"int\"; types are",
            ),
            (&format!("{tool}parameters = 3"), "4: [[tool]] x: parameters must be a table"),
            (&format!("{tool}\n{tool}"), "6: [[tool]] x: there is one of this name in line 1 already"),
            (
                "[[tool]]\nname = 'x'\ncommand = ['x', '{a}']",
                "3: [[tool]] x: command: {a} in \"{a}\" is no parameter",
            ),
            ("[[tool]]\nname = 'x'\ncommand = 'x'", "3: [[tool]] x: command must be a list of texts"),
            ("[[tool]\n", "1: "),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(&format!("/etc/tools.toml:{wanted}")), "{text}\n{said}");
        }
    }
}
