/// `1 token`, `2 tokens`.
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_not_several() {
        assert_eq!([0, 1, 2].map(|n| super::counted(n, "token")), ["0 tokens", "1 token", "2 tokens"]);
    }
}
