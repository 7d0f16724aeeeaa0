use std::fmt;
use std::str::FromStr;

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(pub [u8; 32]);

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0:?} is no SHA-256: 64 hexadecimal digits are expected")]
pub struct BadDigest(String);

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let bad = || BadDigest(text.to_owned());
        // Also keeps the slices below on character borders.
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut digest = [0; 32];
        for (i, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(Digest(digest))
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        text.parse()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // D05: a digest is 64 hexadecimal digits and never a path.
    #[test]
    fn only_64_hex_digits_are_a_digest() {
        let good = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
        assert_eq!(good.parse::<Digest>().unwrap().to_string(), good);
        assert_eq!(good.to_uppercase().parse::<Digest>().unwrap().to_string(), good);
        let traversal = format!("../../{}", &good[6..]);
        let signs = "+1".repeat(32); // which from_str_radix alone would take
        let wide = "\u{E9}".repeat(32); // 64 bytes
        for bad in ["", &good[1..], &format!("{good}0"), &format!("sha256:{good}"), &traversal, &signs, &wide]
        {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
