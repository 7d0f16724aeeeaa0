//! What a model, a file or a server may say to take over a terminal (BUGLOG X01, X02, X05).

/// A class of hostile text.
pub struct Payload {
    pub class: &'static str,
    pub text: String,
    /// What of it must be readable on the screen.
    pub shown: &'static str,
}

pub fn payloads() -> Vec<Payload> {
    let zalgo = format!("z{}a{}lgo", "\u{301}\u{316}".repeat(200), "\u{20e3}".repeat(50));
    let table: [(&str, &str, &str); 17] = [
        ("colour", "\x1b[5;35mX\x1b[0m", "\\x1b[5;35mX"),
        ("cursor and erase", "\x1b[7;3H\x1b[2J\x1b[1K\x1b[3;9r", "\\x1b[7;3H\\x1b[2J"),
        ("modes", "\x1b[?1049l\x1b[?25l\x1b[?1000h\x1b[20t", "\\x1b[?1049l\\x1b[?25l"),
        ("queries", "\x1b[6n\x1b[c\x1b[>q\x1bZ", "\\x1b[6n\\x1b[c"),
        ("clipboard", "\x1b]52;c;SGVsbG8=\x07", "\\x1b]52;c;SGVsbG8=\\x07"),
        ("title", "\x1b]0;owned\x07\x1b]2;owned\x1b\\", "\\x1b]0;owned\\x07"),
        ("open link", "\x1b]8;;http://evil.example\x1b\\link", "\\x1b]8;;"),
        ("device control", "\x1bP1$r0q\x1b\\", "\\x1bP1$r0q"),
        ("other strings", "\x1b_apc\x1b\\ \x1b^pm\x1b\\ \x1bXsos\x1b\\", "\\x1b_apc"),
        ("reset", "\x1bc\x1b7\x1b#8", "\\x1bc\\x1b7"),
        ("eight-bit", "\u{9b}2J\u{9d}0;t\u{9c}\u{85}\u{90}q\u{9c}", "\\u{9b}2J\\u{9d}0;t"),
        ("never ended", "\x1b]52;c;dW50ZXJtaW5hdGVk", "\\x1b]52;c;dW50"),
        ("bidirectional", "\u{202e}a\u{2066}b\u{2069}\u{202c}\u{200f}", "\\u{202e}a\\u{2066}b"),
        ("invisible", "\u{200b}a\u{feff}b\u{e0041}c\u{2060}\u{ad}", "\\u{200b}a\\u{feff}b\\u{e0041}c"),
        ("controls", "a\x08c\x07d\0e\x7ff", "a\\x08c\\x07d\\x00e\\x7ff"),
        ("marks", "\u{e000}\u{e100}\u{e0ff}x", "\\u{e000}"),
        ("combining run", &zalgo, "lgo"),
    ];
    let payload = |(class, text, shown): (_, &str, _)| Payload { class, text: text.to_owned(), shown };
    table.map(payload).into()
}
