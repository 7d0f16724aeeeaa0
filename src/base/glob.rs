/// Whether a name is of a pattern: `*` is any text, `?` any one character, letter case does not count.
pub fn glob(pattern: &str, name: &str) -> bool {
    let fold = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let (pattern, name) = (fold(pattern), fold(name));
    let (mut p, mut n) = (0, 0);
    // Where the newest star stands, and what of the name it has taken.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        for (pattern, name) in [
            ("qwen*", "Qwen2.5-0.5B-Instruct"),
            ("*", ""),
            ("*-?b", "qwen2.5-7b"),
            ("a*b*c", "a-b-b-c-c"),
            ("*/qwen*", "Qwen/Qwen3"),
            ("smollm2-135m", "SmolLM2-135M"),
            ("É*", "école"),
        ] {
            assert!(glob(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("qwen*", "my-qwen"), ("", "x"), ("?", ""), ("a*b", "a-b-c"), ("[q]*", "q")] {
            assert!(!glob(pattern, name), "{pattern} {name}");
        }
    }
}
