use super::schema;
use crate::base::nearest;
use serde_json::{Map, Value};

/// A command as it is declared: `["weather", "--city={city}"]`.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandLine {
    program: String,
    /// Each is one argument of the program, whatever the model puts into it.
    arguments: Vec<Vec<Piece>>,
    /// Arguments go as JSON to stdin, because there is no placeholder for them.
    to_stdin: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Parameter(String),
}

/// What a call runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    pub argv: Vec<String>,
    pub stdin: Option<String>,
}

impl CommandLine {
    /// `{name}` stands for a parameter of the schema; `{{` and `}}` for braces.
    ///
    /// # Errors
    /// What is wrong with the command.
    pub fn parse(argv: &[String], schema: &Value) -> Result<Self, String> {
        let known = schema::names(schema);
        let (program, rest) = argv.split_first().ok_or("must name a program")?;
        if program.trim().is_empty() {
            return Err("must name a program".into());
        }
        let program = match &pieces(program, &known)?[..] {
            [Piece::Text(text)] => text.clone(),
            _ => {
                return Err(
                    "the program's name cannot be a placeholder: the model would choose what runs".into()
                );
            }
        };
        let arguments: Vec<_> =
            rest.iter().map(|argument| pieces(argument, &known)).collect::<Result<_, _>>()?;
        let used = |piece: &Piece| matches!(piece, Piece::Parameter(_));
        let to_stdin = !known.is_empty() && !arguments.iter().flatten().any(used);
        Ok(Self { program, arguments, to_stdin })
    }

    pub fn program(&self) -> &str {
        &self.program
    }

    /// As it is declared, for lists.
    pub fn shown(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Parameter(name) => format!("{{{name}}}"),
        };
        let arguments = self.arguments.iter().map(|pieces| pieces.iter().map(piece).collect::<String>());
        std::iter::once(self.program.clone()).chain(arguments).collect::<Vec<_>>().join(" ")
    }

    /// The program's arguments, one for each that is declared. Those whose parameter was not given are
    /// left out.
    ///
    /// # Errors
    /// For the model: a value that no argument can hold, or that the program would take for an option.
    pub fn fill(&self, given: &Map<String, Value>) -> Result<Filled, String> {
        let mut argv = vec![self.program.clone()];
        let mut options_end = false;
        for pieces in &self.arguments {
            let mut argument = String::new();
            let mut is_whole = true;
            for piece in pieces {
                match piece {
                    Piece::Text(text) => argument.push_str(text),
                    Piece::Parameter(name) => match given.get(name).filter(|value| !value.is_null()) {
                        Some(value) => {
                            check_option(name, value, argument.is_empty() && !options_end)?;
                            argument.push_str(&text_of(value));
                        }
                        None => is_whole = false,
                    },
                }
            }
            if argument.contains('\0') {
                return Err("an argument cannot hold a NUL character".into());
            }
            options_end |= pieces[..] == [Piece::Text("--".into())];
            argv.extend(is_whole.then_some(argument));
        }
        let stdin = self.to_stdin.then(|| Value::Object(given.clone()).to_string());
        Ok(Filled { argv, stdin })
    }
}

/// What begins an argument must not look like an option that the person never wrote. A number may be
/// negative, and after `--` everything is a plain argument.
fn check_option(name: &str, value: &Value, begins: bool) -> Result<(), String> {
    if begins && !value.is_number() && text_of(value).starts_with('-') {
        return Err(format!("{name} must not begin with -, or the program would take it for an option"));
    }
    Ok(())
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn pieces(argument: &str, known: &[&str]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = argument;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..at + 1];
        if rest[at + 1..].starts_with(brace) {
            text.push_str(brace);
            rest = &rest[at + 2..];
            continue;
        }
        let end = rest[at..].find('}').filter(|_| brace == "{");
        let Some(end) = end else {
            return Err(format!("a single {brace} in {argument:?}; write {brace}{brace} for a brace"));
        };
        let name = &rest[at + 1..at + end];
        if !known.contains(&name) {
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean {{{near}}}?"),
                None => "write {{ and }} for braces".into(),
            };
            return Err(format!("{{{name}}} in {argument:?} is no parameter; {hint}"));
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Parameter(name.to_owned()));
        rest = &rest[at + end + 1..];
    }
    text.push_str(rest);
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn line(argv: &[&str], parameters: Value) -> Result<CommandLine, String> {
        let argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
        CommandLine::parse(&argv, &schema::of_parameters(parameters).unwrap())
    }

    fn filled(argv: &[&str], given: Value) -> Result<Filled, String> {
        let parameters = json!({ "city": "string", "days": "integer?", "all": "object?" });
        line(argv, parameters).unwrap().fill(given.as_object().unwrap())
    }

    #[test]
    fn placeholders_are_replaced_inside_their_argument() {
        let argv = ["weather", "--city={city}", "-d", "{days}", "{{x}}", "{all}"];
        let run =
            filled(&argv, json!({ "city": "New York; rm -rf ~ $(x) \"'`", "days": -3, "all": { "a": 1 } }));
        let wanted = ["weather", "--city=New York; rm -rf ~ $(x) \"'`", "-d", "-3", "{x}", "{\"a\":1}"];
        assert_eq!(run.unwrap(), Filled { argv: wanted.map(str::to_owned).to_vec(), stdin: None });
    }

    #[test]
    fn an_argument_whose_parameter_was_not_given_is_left_out() {
        let run = filled(&["w", "{city}", "--days={days}"], json!({ "city": "Oslo" })).unwrap();
        assert_eq!(run.argv, ["w", "Oslo"]);
        let run = filled(&["w", "{city}", "--days={days}"], json!({ "city": "Oslo", "days": null })).unwrap();
        assert_eq!(run.argv, ["w", "Oslo"]);
    }

    #[test]
    fn a_value_cannot_become_an_option() {
        let bad = json!({ "city": "--output=/etc/passwd" });
        assert!(filled(&["w", "{city}"], bad.clone()).unwrap_err().starts_with("city must not begin with -"));
        assert_eq!(filled(&["w", "--", "{city}"], bad.clone()).unwrap().argv[2], "--output=/etc/passwd");
        assert_eq!(filled(&["w", "--city={city}"], bad).unwrap().argv[1], "--city=--output=/etc/passwd");
        // An empty value in front does not open the door.
        let two = line(&["w", "{a}{b}"], json!({ "a": "string", "b": "string" })).unwrap();
        assert!(two.fill(json!({ "a": "", "b": "-x" }).as_object().unwrap()).is_err());
        assert!(filled(&["w", "{city}"], json!({ "city": "a\0b" })).unwrap_err().contains("NUL"));
    }

    #[test]
    fn without_placeholders_the_arguments_go_to_stdin() {
        let run = filled(&["w"], json!({ "city": "Oslo" })).unwrap();
        assert_eq!(run, Filled { argv: vec!["w".into()], stdin: Some("{\"city\":\"Oslo\"}".into()) });
        let none = line(&["date"], json!({})).unwrap().fill(&Map::new()).unwrap();
        assert_eq!(none.stdin, None);
    }

    #[test]
    fn a_wrong_command_is_explained() {
        let parameters = || json!({ "city": "string" });
        for (argv, wanted) in [
            (&[][..], "must name a program"),
            (&[" "], "must name a program"),
            (&["{city}"], "the program's name cannot be a placeholder"),
            (&["run-{city}"], "the program's name cannot be a placeholder"),
            (&["w", "{cty}"], "{cty} in \"{cty}\" is no parameter; did you mean {city}?"),
            (
                &["awk", "{print $1}"],
                "{print $1} in \"{print $1}\" is no parameter; write {{ and }} for braces",
            ),
            (&["w", "{city"], "a single { in \"{city\""),
            (&["w", "city}"], "a single } in \"city}\""),
        ] {
            let said = line(argv, parameters()).unwrap_err();
            assert!(said.starts_with(wanted), "{argv:?}: {said}");
        }
    }

    proptest! {
        /// Whatever the model says, the program gets the arguments that were declared, in number and order.
        #[test]
        fn no_value_makes_or_breaks_an_argument(city in "[^\0]*", days in any::<i64>()) {
            let parameters = json!({ "city": "string", "days": "integer" });
            let command = line(&["w", "a", "city={city}", "{days}", "z"], parameters).unwrap();
            let run = command.fill(json!({ "city": city, "days": days }).as_object().unwrap()).unwrap();
            prop_assert_eq!(run.argv, ["w".into(), "a".into(), format!("city={city}"), days.to_string(), "z".into()]);
        }
    }
}
