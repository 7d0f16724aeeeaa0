use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// One change to text before it is cut, by the names that a tokenizer.json has for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Normalizer {
    /// Unicode's canonical composition (UAX 15).
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    Replace {
        from: String,
        to: String,
    },
    /// In front of all text that is not empty.
    Prepend(String),
    /// The same, unless it stands there already; `first_only`: not behind a special token.
    PrependMissing {
        prefix: String,
        first_only: bool,
    },
    /// White space at the ends goes.
    Strip {
        left: bool,
        right: bool,
    },
    /// Runs of spaces count as one, those at either end as none.
    SingleSpaces,
}

/// All of them, one after the other; `is_first`: nothing stands before `text`, not even a token.
pub(super) fn normalize<'t>(all: &[Normalizer], text: &'t str, is_first: bool) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for normalizer in all {
        if let Some(changed) = normalizer.apply(&text, is_first) {
            text = Cow::Owned(changed);
        }
    }
    text
}

impl Normalizer {
    /// Nothing where nothing changes.
    fn apply(&self, text: &str, is_first: bool) -> Option<String> {
        match self {
            Normalizer::Nfc => {
                let is_nfc = text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes;
                (!is_nfc).then(|| text.nfc().collect())
            }
            Normalizer::Nfd => (!text.is_ascii()).then(|| text.nfd().collect()),
            Normalizer::Nfkc => (!text.is_ascii()).then(|| text.nfkc().collect()),
            Normalizer::Nfkd => (!text.is_ascii()).then(|| text.nfkd().collect()),
            // Letter by letter: a sigma does not look whether it ends a word.
            Normalizer::Lowercase => Some(text.chars().flat_map(char::to_lowercase).collect()),
            Normalizer::Replace { from, to } => text.contains(from.as_str()).then(|| text.replace(from, to)),
            Normalizer::Prepend(prefix) => (!text.is_empty()).then(|| prefix.clone() + text),
            Normalizer::PrependMissing { prefix, first_only } => {
                let missing = !text.is_empty() && !text.starts_with(prefix.as_str());
                (missing && (is_first || !first_only)).then(|| prefix.clone() + text)
            }
            Normalizer::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                Some(if *right { text.trim_end() } else { text }.to_owned())
            }
            Normalizer::SingleSpaces => {
                Some(text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::{NormalizedString, Normalizer as _};

    #[test]
    fn a_prefix_is_prepended_where_it_should_be() {
        let prepend = [Normalizer::Prepend("▁".into())];
        assert_eq!(normalize(&prepend, "▁a", false), "▁▁a");
        assert_eq!(normalize(&prepend, "", false), "");
        let missing = |first_only| [Normalizer::PrependMissing { prefix: "▁".into(), first_only }];
        assert_eq!(normalize(&missing(false), "a", false), "▁a");
        assert_eq!(normalize(&missing(true), "a", false), "a");
        assert_eq!(normalize(&missing(true), "a", true), "▁a");
        assert_eq!(normalize(&missing(true), "▁a", true), "▁a");
    }

    #[test]
    fn they_apply_in_their_order() {
        let all = [
            Normalizer::SingleSpaces,
            Normalizer::Prepend(" ".into()),
            Normalizer::Replace { from: " ".into(), to: "▁".into() },
        ];
        assert_eq!(normalize(&all, " a  b ", true), "▁a▁b");
        assert_eq!(normalize(&[Normalizer::Strip { left: true, right: false }], " a ", true), "a ");
    }

    proptest! {
        #[test]
        fn unicode_forms_equal_those_of_the_tokenizers_library(text in "[a-zÀ-ſ\u{301}\u{327}ﬁ각ᄀ\u{1161}½Ａ豈 ]{0,12}") {
            type Reference<'a> = &'a dyn Fn(&mut NormalizedString);
            let pairs: [(Normalizer, Reference); 4] = [
                (Normalizer::Nfc, &|text| tokenizers::normalizers::NFC.normalize(text).expect("NFC")),
                (Normalizer::Nfd, &|text| tokenizers::normalizers::NFD.normalize(text).expect("NFD")),
                (Normalizer::Nfkc, &|text| tokenizers::normalizers::NFKC.normalize(text).expect("NFKC")),
                (Normalizer::Nfkd, &|text| tokenizers::normalizers::NFKD.normalize(text).expect("NFKD")),
            ];
            for (normalizer, library) in pairs {
                let mut expected = NormalizedString::from(text.as_str());
                library(&mut expected);
                let found = normalize(std::slice::from_ref(&normalizer), &text, true);
                prop_assert_eq!(&*found, expected.get(), "{:?}", normalizer);
            }
        }
    }
}
