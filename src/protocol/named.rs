/// An enum whose variants have names that people type: `name`, `ALL`, `FromStr`, `Display`, and serde
/// by the same name.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant,)+];
            pub const NAMES: &[&str] = &[$($text,)+];
            /// For messages: what would have been right.
            pub const EXPECTED: &str = concat!("one of", $(" ", $text,)+);

            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = &'static str;

            fn from_str(typed: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.iter().copied().find(|one| one.name() == typed.replace('_', "-"));
                found.ok_or(Self::EXPECTED)
            }
        }
    };
}

pub(crate) use named;
