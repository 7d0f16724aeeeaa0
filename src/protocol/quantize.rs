use std::fmt;
use std::str::FromStr;

/// What the matrices of a model are encoded as when it is quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// Four bits and a half a weight: blocks of 256 with a scale and a minimum for every 32.
    Q4K,
    Q5K,
    /// Six bits and a half.
    Q6K,
    /// Eight bits and a half: a scale for every 32.
    Q8_0,
    /// In blocks the same as [`WeightFormat::Q8_0`]; in a hub's folder a scale for each row.
    Int8,
    /// e4m3.
    Fp8,
}

impl WeightFormat {
    pub const ALL: [WeightFormat; 6] = [
        WeightFormat::Q4K,
        WeightFormat::Q5K,
        WeightFormat::Q6K,
        WeightFormat::Q8_0,
        WeightFormat::Int8,
        WeightFormat::Fp8,
    ];
    /// For messages: what would have been right.
    pub const EXPECTED: &str = "one of q4_k q5_k q6_k q8_0 int8 fp8";

    pub fn name(self) -> &'static str {
        match self {
            WeightFormat::Q4K => "q4_k",
            WeightFormat::Q5K => "q5_k",
            WeightFormat::Q6K => "q6_k",
            WeightFormat::Q8_0 => "q8_0",
            WeightFormat::Int8 => "int8",
            WeightFormat::Fp8 => "fp8",
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WeightFormat {
    type Err = &'static str;

    /// In either case, and with a hyphen for the underscore.
    fn from_str(typed: &str) -> Result<Self, Self::Err> {
        let typed = typed.to_lowercase().replace('-', "_");
        WeightFormat::ALL.into_iter().find(|format| format.name() == typed).ok_or(WeightFormat::EXPECTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_and_named_where_it_is_wrong() {
        for format in WeightFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            assert!(WeightFormat::EXPECTED.contains(format.name()));
        }
        assert_eq!("Q4-K".parse(), Ok(WeightFormat::Q4K));
        assert_eq!("q3_k".parse::<WeightFormat>(), Err(WeightFormat::EXPECTED));
    }
}
