use super::{Quit, Status};
use crate::base::nearest;
use crate::config::RunArgs;
use std::io::{self, Read};
use std::path::Path;

/// Where piped text would come from.
pub struct Stdin<'a> {
    pub reader: &'a mut dyn Read,
    /// A terminal is read only when asked for with `-`.
    pub is_terminal: bool,
}

/// The model and the prompt among the words of a command line; `known` are the names of models.
///
/// With `-m` all words are the prompt. Of several words the first is the model. A single word is a
/// model when it names one, nearly names one, or looks like a path; else it is the prompt.
pub fn split_words(args: &RunArgs, known: &[String]) -> (Option<String>, Option<String>) {
    let prompt_of = |words: &[String]| {
        let words = words.iter().map(String::as_str).chain(args.prompt.as_deref()).collect::<Vec<_>>();
        (!words.is_empty()).then(|| words.join(" "))
    };
    match (&args.model, args.words.split_first()) {
        (Some(model), _) => (Some(model.clone()), prompt_of(&args.words)),
        (None, Some((first, rest))) if !rest.is_empty() || means_a_model(first, known) => {
            (Some(first.clone()), prompt_of(rest))
        }
        (None, _) => (None, prompt_of(&args.words)),
    }
}

fn means_a_model(word: &str, known: &[String]) -> bool {
    let names = known.iter().map(String::as_str);
    if word.is_empty() || word == "-" || word.chars().any(char::is_whitespace) {
        return false;
    }
    let path_like = word.ends_with(".gguf") || ["/", "./", "../", "~/"].iter().any(|p| word.starts_with(p));
    path_like || nearest(word, names).is_some()
}

/// stdin, then the files, then the words, an empty line between them.
pub fn assemble(args: &RunArgs, words: Option<&str>, stdin: Stdin) -> Result<String, Quit> {
    let dash = words == Some("-") || args.file.iter().any(|path| path.as_os_str() == "-");
    let mut parts = Vec::new();
    if dash || !stdin.is_terminal {
        parts.push(decode(read_all(stdin.reader, "stdin")?, "stdin")?);
    }
    for path in args.file.iter().filter(|path| path.as_os_str() != "-") {
        parts.push(read_file(path)?);
    }
    parts.extend(words.filter(|words| *words != "-").map(str::to_owned));

    let last = parts.len().saturating_sub(1);
    let parts: Vec<&str> = parts
        .iter()
        .enumerate()
        .map(|(i, part)| if i < last { part.trim_end_matches(['\n', '\r']) } else { part.as_str() })
        .filter(|part| !part.is_empty())
        .collect();
    match parts.iter().all(|part| part.trim().is_empty()) {
        false => Ok(parts.join("\n\n")),
        true => Err(Quit::new(Status::Usage, "there is no prompt").advise(
            "give it as an argument, with -f FILE, or on stdin: glassbox run \"Why is the sky blue?\"",
        )),
    }
}

/// A text file that the user named.
pub fn read_file(path: &Path) -> Result<String, Quit> {
    let name = path.display().to_string();
    let mut file = std::fs::File::open(path).map_err(|e| {
        let status = match e.kind() {
            io::ErrorKind::NotFound => Status::NoInput,
            _ => Status::Failed,
        };
        Quit::new(status, format!("cannot read {name}: {e}"))
    })?;
    decode(read_all(&mut file, &name)?, &name)
}

fn read_all(reader: &mut dyn Read, name: &str) -> Result<Vec<u8>, Quit> {
    let mut bytes = Vec::new();
    reader
        .read_to_end(&mut bytes)
        .map_err(|e| Quit::new(Status::Failed, format!("cannot read {name}: {e}")))?;
    Ok(bytes)
}

/// Text from bytes, or where they stop being text. A byte order mark in front is dropped.
pub fn decode(bytes: Vec<u8>, name: &str) -> Result<String, Quit> {
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let byte = e.as_bytes()[at];
        Quit::new(Status::Data, format!("{name} is not UTF-8 text: byte 0x{byte:02x} at offset {at}"))
            .advise("convert it first, for example with iconv -t UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> RunArgs {
        RunArgs { words: words.iter().map(|w| (*w).to_owned()).collect(), ..RunArgs::default() }
    }

    fn split(words: &[&str]) -> (Option<String>, Option<String>) {
        split_words(&args(words), &["smollm2-135m".into(), "gemma-3-270m".into()])
    }

    fn piped(args: &RunArgs, words: Option<&str>, bytes: &[u8]) -> Result<String, Quit> {
        assemble(args, words, Stdin { reader: &mut &bytes[..], is_terminal: false })
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_single_word_is_a_model_only_when_it_means_one() {
        assert_eq!(split(&["gemma-3-270m"]), (some("gemma-3-270m"), None));
        assert_eq!(split(&["smolm2-135m"]), (some("smolm2-135m"), None), "a slip is not a prompt");
        assert_eq!(split(&["./any.gguf"]), (some("./any.gguf"), None));
        assert_eq!(split(&["Hello"]), (None, some("Hello")));
        assert_eq!(split(&["Is a/b a path?"]), (None, some("Is a/b a path?")));
        assert_eq!(split(&["-"]), (None, some("-")));
        assert_eq!(split(&[]), (None, None));
    }

    #[test]
    fn of_several_words_the_first_is_the_model_unless_m_names_it() {
        assert_eq!(split(&["nosuch", "hi"]), (some("nosuch"), some("hi")));
        assert_eq!(split(&["m", "two", "words"]), (some("m"), some("two words")));
        let with_m = RunArgs { model: some("x"), ..args(&["two", "words"]) };
        assert_eq!(split_words(&with_m, &[]), (some("x"), some("two words")));
        let with_p = RunArgs { prompt: some("p"), ..args(&["smollm2-135m"]) };
        assert_eq!(split_words(&with_p, &["smollm2-135m".into()]), (some("smollm2-135m"), some("p")));
    }

    #[test]
    fn stdin_comes_first_then_files_then_the_words() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.txt");
        std::fs::write(&file, "from a file\n").unwrap();
        let args = RunArgs { file: vec![file], ..RunArgs::default() };
        assert_eq!(
            piped(&args, Some("a question"), b"from a pipe\n\n").unwrap(),
            "from a pipe\n\nfrom a file\n\na question"
        );
        assert_eq!(piped(&RunArgs::default(), Some("only words"), b"").unwrap(), "only words");
        assert_eq!(piped(&RunArgs::default(), Some("-"), b"piped\n").unwrap(), "piped\n");
    }

    #[test]
    fn a_terminal_is_not_read_unless_asked() {
        let mut typed = &b"typed"[..];
        let no = assemble(&args(&[]), None, Stdin { reader: &mut typed, is_terminal: true });
        assert_eq!(no.unwrap_err().status, Status::Usage);
        let yes = assemble(&args(&[]), Some("-"), Stdin { reader: &mut typed, is_terminal: true });
        assert_eq!(yes.unwrap(), "typed");
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_offset() {
        let refused = piped(&RunArgs::default(), Some("x"), b"abc\xff\xfe").unwrap_err();
        assert_eq!(refused.status, Status::Data);
        assert_eq!(refused.message, "stdin is not UTF-8 text: byte 0xff at offset 3");
        assert_eq!(decode(b"\xef\xbb\xbfhi".to_vec(), "f").unwrap(), "hi");
    }

    #[test]
    fn a_missing_file_is_named() {
        let refused = read_file(Path::new("/nonexistent/notes.txt")).unwrap_err();
        assert_eq!(refused.status, Status::NoInput);
        assert!(refused.message.contains("/nonexistent/notes.txt"));
    }
}
