/// Rules and terminals of one grammar: each may begin in the next, and the compiler follows such a
/// chain on its stack.
const MOST_DEFINITIONS: usize = 2000;

/// # Errors
/// What would take a compiler too deep, or is no grammar at all.
pub fn check(source: &str) -> Result<(), String> {
    let names = source.lines().filter_map(defined);
    let definitions = names.clone().count();
    if definitions > MOST_DEFINITIONS {
        return Err(format!(
            "too deep: {definitions} rules, of which each may begin in the next; at most {MOST_DEFINITIONS}"
        ));
    }
    match names.into_iter().any(|name| name.trim_start_matches(['?', '!']) == "start") {
        true => Ok(()),
        false => Err("there is no rule `start`".into()),
    }
}

/// The name that a line begins the definition of. Lark knows no other place for one.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let end = line.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '?' | '!')))?;
    let (name, rest) = line.split_at(end);
    let begins = matches!(rest.trim_start().chars().next(), Some(':' | '[' | '.' | '{'));
    (!name.is_empty() && begins).then_some(name)
}
