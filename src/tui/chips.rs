//! Chips: large pastes and files, which stand in the input as a few words.

use super::{format, sanitize};

/// What a few words in the input stand for.
pub struct Chip {
    /// Of a file, as it was typed.
    pub path: Option<String>,
    pub content: String,
    pub tokens: Option<usize>,
    /// What it was called in the input, the present name last: undo brings back earlier ones.
    labels: Vec<String>,
}

/// Every chip since the input was last empty. One that was deleted stays, for undo.
#[derive(Default)]
pub struct Chips(Vec<Chip>);

impl Chip {
    pub fn label(&self) -> &str {
        self.labels.last().map_or("", String::as_str)
    }

    fn file_label(&self, path: &str) -> String {
        let lines = match self.content.lines().count() {
            1 => "1 line".to_owned(),
            n => format!("{} lines", format::count(n as u64)),
        };
        let tokens = self.tokens.map_or(String::new(), |n| format!(" {} tok", format::count(n as u64)));
        format!("[@{} {lines}{tokens}]", sanitize::one_line(path))
    }
}

impl Chips {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = &Chip> {
        self.0.iter()
    }

    pub fn add_paste(&mut self, content: String) -> &str {
        let number = self.0.len() + 1;
        let size = format::bytes(content.len() as u64);
        let label = match content.lines().count() {
            0 | 1 => format!("[paste {number}: {size}]"),
            lines => format!("[paste {number}: {lines} lines, {size}]"),
        };
        self.add(Chip { path: None, content, tokens: None, labels: vec![label] })
    }

    pub fn add_file(&mut self, path: &str, content: String) -> &str {
        let mut chip = Chip { path: Some(path.to_owned()), content, tokens: None, labels: Vec::new() };
        chip.labels.push(chip.file_label(path));
        // Attached twice, it is the newer of the two.
        self.0.retain(|other| other.path.as_deref() != Some(path));
        self.add(chip)
    }

    /// The tokens of a file are known: its old name and its new one.
    pub fn counted(&mut self, path: &str, tokens: usize) -> Option<(String, String)> {
        let chip = self.0.iter_mut().find(|chip| chip.path.as_deref() == Some(path))?;
        let old = chip.label().to_owned();
        chip.tokens = Some(tokens);
        let new = chip.file_label(path);
        chip.labels.push(new.clone());
        Some((old, new))
    }

    /// The chips in a line: where, in characters, and how many.
    pub fn places(&self, line: &str) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        let (mut rest, mut at) = (line, 0);
        while let Some(c) = rest.chars().next() {
            let wide = self.named_at(rest).map_or(0, |(_, name)| name.chars().count());
            if wide > 0 {
                places.push((at, wide));
            }
            let step = wide.max(1);
            let bytes =
                if wide > 0 { rest.chars().take(wide).map(char::len_utf8).sum() } else { c.len_utf8() };
            (rest, at) = (&rest[bytes..], at + step);
        }
        places
    }

    /// What is sent: pastes in their place, files in front.
    pub fn unfolded(&self, text: &str) -> String {
        let mut files = String::new();
        let mut told = Vec::new();
        let text = self.replaced(text, |chip| match &chip.path {
            None => chip.content.clone(),
            Some(path) => {
                if !told.contains(path) {
                    files.push_str(&block(path, &chip.content));
                    told.push(path.clone());
                }
                path.clone()
            }
        });
        files + &text
    }

    /// What is remembered: files by their names, to be read anew.
    pub fn typed(&self, text: &str) -> String {
        self.replaced(text, |chip| chip.path.as_ref().map_or(chip.content.clone(), |path| format!("@{path}")))
    }

    /// How it is shown once it is sent: pastes in their place, files as chips.
    pub fn shown(&self, text: &str) -> String {
        self.replaced(text, |chip| match chip.path {
            None => chip.content.clone(),
            Some(_) => chip.label().to_owned(),
        })
    }

    /// Without what stands for something else.
    pub fn replaced_by_nothing(&self, text: &str) -> String {
        self.replaced(text, |_| " ".into())
    }

    fn add(&mut self, chip: Chip) -> &str {
        self.0.push(chip);
        self.0.last().map_or("", Chip::label)
    }

    fn named_at(&self, text: &str) -> Option<(&Chip, &str)> {
        if !text.starts_with('[') {
            return None;
        }
        let name = |chip: &'_ Chip| chip.labels.iter().position(|label| text.starts_with(label.as_str()));
        self.0.iter().find_map(|chip| name(chip).map(|i| (chip, chip.labels[i].as_str())))
    }

    fn replaced(&self, text: &str, mut by: impl FnMut(&Chip) -> String) -> String {
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find('[') {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            match self.named_at(rest) {
                Some((chip, name)) => {
                    out.push_str(&by(chip));
                    rest = &rest[name.len()..];
                }
                None => {
                    out.push('[');
                    rest = &rest[1..];
                }
            }
        }
        out + rest
    }
}

/// A file as the model reads it: its name, and its content between fences that it does not contain.
fn block(path: &str, content: &str) -> String {
    let runs = content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((runs + 1).max(3));
    let kind = path.rsplit_once('.').map_or("", |(_, kind)| kind);
    let kind = if kind.chars().all(|c| c.is_ascii_alphanumeric()) { kind } else { "" };
    let end = if content.ends_with('\n') || content.is_empty() { "" } else { "\n" };
    format!("{path}:\n{fence}{kind}\n{content}{end}{fence}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_sent_in_front_between_fences_they_do_not_contain() {
        let mut chips = Chips::default();
        let label = chips.add_file("src/main.rs", "fn main() {}".into()).to_owned();
        assert_eq!(label, "[@src/main.rs 1 line]");
        let text = format!("What is {label}?");
        assert_eq!(chips.unfolded(&text), "src/main.rs:\n```rs\nfn main() {}\n```\n\nWhat is src/main.rs?");
        assert_eq!(chips.typed(&text), "What is @src/main.rs?");
        let label = chips.add_file("a.md", "```\nx\n```\n".into()).to_owned();
        assert!(chips.unfolded(&label).starts_with("a.md:\n````md\n```\nx\n```\n````\n\n"));
    }

    #[test]
    fn a_name_that_undo_brings_back_still_stands_for_its_file() {
        let mut chips = Chips::default();
        let before = chips.add_file("a", "x\ny".into()).to_owned();
        let (old, new) = chips.counted("a", 1_234).expect("it is there");
        assert_eq!((old.as_str(), new.as_str()), (before.as_str(), "[@a 2 lines 1,234 tok]"));
        assert_eq!(chips.unfolded(&old), chips.unfolded(&new));
        assert_eq!(chips.places(&format!("é {new} z")), [(2, new.chars().count())]);
    }

    #[test]
    fn what_a_paste_says_is_no_chip() {
        let mut chips = Chips::default();
        let one = chips.add_paste("[paste 2: 1 B]".into()).to_owned();
        let two = chips.add_paste("b".into()).to_owned();
        assert_eq!(chips.unfolded(&format!("{one} {two}")), "[paste 2: 1 B] b");
    }
}
