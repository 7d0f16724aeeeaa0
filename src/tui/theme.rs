//! Colour by role. A theme file gives each role two colours: the true one and the nearest of the
//! sixteen every terminal has. Where colour is refused (`NO_COLOR`) roles differ by weight alone.

use crate::base::nearest;
use crate::config::Background;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use std::collections::BTreeMap;
use std::path::Path;

/// How many colours the terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    None,
    Sixteen,
    Indexed,
    True,
}

/// What a piece of the screen is, not how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The answer, and whatever has no other role.
    Text,
    /// Labels and facts beside the text.
    Muted,
    /// Free blocks, unfilled bars: seen when looked for.
    Faint,
    Border,
    /// The border and title of what has the focus.
    Focus,
    Accent,
    User,
    Thought,
    Good,
    Warn,
    Bad,
    Code,
    Heading,
    Link,
    Key,
    /// A background: the selected row.
    Selection,
}

pub const ROLES: [(&str, Role); 16] = [
    ("text", Role::Text),
    ("muted", Role::Muted),
    ("faint", Role::Faint),
    ("border", Role::Border),
    ("focus", Role::Focus),
    ("accent", Role::Accent),
    ("user", Role::User),
    ("thought", Role::Thought),
    ("good", Role::Good),
    ("warn", Role::Warn),
    ("bad", Role::Bad),
    ("code", Role::Code),
    ("heading", Role::Heading),
    ("link", Role::Link),
    ("key", Role::Key),
    ("selection", Role::Selection),
];

/// Sequences are told apart by these, in the order they started, and by their numbers.
const SEQUENCE_HUES: [Role; 6] =
    [Role::Accent, Role::Good, Role::Warn, Role::Thought, Role::User, Role::Code];

#[derive(Clone, Debug)]
pub struct Theme {
    pub name: String,
    pub depth: Depth,
    /// What its colours were chosen for, and the text on it.
    backdrop: Option<(Color, Color)>,
    /// Whether that is painted, where nobody says otherwise.
    paints: bool,
    /// Told apart from the one worn before: lines that were styled by that one are drawn anew.
    pub generation: u32,
    styles: BTreeMap<Role, Style>,
}

const BUILT_IN: [(&str, &str); 9] = [
    ("dark", include_str!("../../themes/dark.toml")),
    ("light", include_str!("../../themes/light.toml")),
    ("contrast", include_str!("../../themes/contrast.toml")),
    ("catppuccin-mocha", include_str!("../../themes/catppuccin-mocha.toml")),
    ("catppuccin-latte", include_str!("../../themes/catppuccin-latte.toml")),
    ("gruvbox-dark", include_str!("../../themes/gruvbox-dark.toml")),
    ("gruvbox-light", include_str!("../../themes/gruvbox-light.toml")),
    ("nord", include_str!("../../themes/nord.toml")),
    ("tokyo-night", include_str!("../../themes/tokyo-night.toml")),
];

/// A theme as its file says it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ThemeFile {
    /// What the colours were chosen for.
    background: Ground,
    /// Whether that is painted, or the terminal keeps its own.
    #[serde(default)]
    paint: bool,
    /// `["#rrggbb", "ansi-name"]` for each role.
    roles: BTreeMap<String, [String; 2]>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Ground {
    True(String),
    Both([String; 2]),
}

impl Theme {
    /// A built-in theme, or `NAME.toml` in the themes folder.
    pub fn load(name: &str, folder: Option<&Path>, depth: Depth) -> anyhow::Result<Self> {
        if let Some(theme) = Self::built_in(name, depth) {
            return Ok(theme);
        }
        let folder = folder.ok_or_else(|| anyhow::anyhow!("no theme {name:?}; there are {}", names()))?;
        let path = folder.join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&path).map_err(|e| {
            anyhow::anyhow!("no theme {name:?}: {}: {e}; built in are {}", path.display(), names())
        })?;
        Self::parse(name, &text, depth)
    }

    pub fn built_in(name: &str, depth: Depth) -> Option<Self> {
        let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(name, text, depth).expect("tests read every built-in theme"))
    }

    /// Names of the built-in themes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    pub fn parse(name: &str, text: &str, depth: Depth) -> anyhow::Result<Self> {
        let file: ThemeFile = toml::from_str(text).map_err(|e| anyhow::anyhow!("theme {name}: {e}"))?;
        if let Some(unknown) = file.roles.keys().find(|key| !ROLES.iter().any(|(role, _)| role == key)) {
            let near = nearest(unknown, ROLES.iter().map(|(role, _)| *role));
            let hint = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
            anyhow::bail!("theme {name}: unknown role {unknown:?}{hint}");
        }
        let mut styles = BTreeMap::new();
        for (key, role) in ROLES {
            let [hex_colour, ansi] =
                file.roles.get(key).ok_or_else(|| anyhow::anyhow!("theme {name}: no role {key:?}"))?;
            styles.insert(role, style(role, hex(hex_colour)?, ansi.parse()?, depth));
        }
        let backdrop = backdrop(&file.background, depth)?;
        let text = styles[&Role::Text].fg;
        let backdrop = backdrop.map(|ground| (ground, text.unwrap_or_default()));
        Ok(Self { name: name.to_owned(), depth, backdrop, paints: file.paint, generation: 0, styles })
    }

    /// Lays the theme's background under a finished picture.
    pub fn paint(&self, background: Background, buf: &mut Buffer) {
        let paints = match background {
            Background::Auto => self.paints,
            Background::Paint => true,
            Background::Terminal => false,
        };
        let Some((ground, text)) = self.backdrop.filter(|_| paints) else { return };
        for cell in &mut buf.content {
            if cell.bg == Color::Reset {
                cell.bg = ground;
            }
            if cell.fg == Color::Reset {
                cell.fg = text;
            }
        }
    }

    pub fn style(&self, role: Role) -> Style {
        self.styles.get(&role).copied().unwrap_or_default()
    }

    /// Roles differ by colour, not by weight alone.
    pub fn has_colours(&self) -> bool {
        self.style(Role::Accent).fg.is_some()
    }

    /// The colour of the `index`-th sequence.
    pub fn sequence(&self, index: usize) -> Style {
        self.style(SEQUENCE_HUES[index % SEQUENCE_HUES.len()])
    }
}

/// The default for this terminal: the light one where `COLORFGBG` says that it is light.
pub fn by_itself() -> &'static str {
    let ground = std::env::var("COLORFGBG").unwrap_or_default();
    match ground.rsplit(';').next() {
        Some("7" | "15") => "light",
        _ => "dark",
    }
}

impl Depth {
    /// From `NO_COLOR`, `COLORTERM` and `TERM`.
    pub fn detect(no_color: bool) -> Self {
        let var = |name| std::env::var(name).unwrap_or_default();
        if no_color || !var("NO_COLOR").is_empty() || var("TERM") == "dumb" {
            return Depth::None;
        }
        match (var("COLORTERM").as_str(), var("TERM")) {
            ("truecolor" | "24bit", _) => Depth::True,
            (_, term) if term.contains("256color") || term.contains("direct") => Depth::Indexed,
            _ => Depth::Sixteen,
        }
    }
}

fn names() -> String {
    Theme::names().collect::<Vec<_>>().join(", ")
}

fn backdrop(background: &Ground, depth: Depth) -> anyhow::Result<Option<Color>> {
    let (colour, ansi) = match background {
        Ground::True(colour) => (colour, None),
        Ground::Both([colour, ansi]) => (colour, Some(ansi.parse()?)),
    };
    let (r, g, b) = hex(colour)?;
    Ok(match depth {
        Depth::None => None,
        Depth::Sixteen => ansi,
        Depth::Indexed => Some(Color::Indexed(nearest_index(r, g, b))),
        Depth::True => Some(Color::Rgb(r, g, b)),
    })
}

fn style(role: Role, (r, g, b): (u8, u8, u8), ansi: Color, depth: Depth) -> Style {
    let mut weight = weight(role, depth);
    if depth == Depth::Sixteen && role == Role::Muted && ansi == Color::Gray {
        // The sixteen have no grey between text and border.
        weight |= Modifier::DIM;
    }
    let colour = match depth {
        Depth::None => return Style::new().add_modifier(weight),
        Depth::Sixteen => ansi,
        Depth::Indexed if ansi == Color::Reset => ansi,
        Depth::Indexed => Color::Indexed(nearest_index(r, g, b)),
        Depth::True if ansi == Color::Reset => ansi,
        Depth::True => Color::Rgb(r, g, b),
    };
    let style = if role == Role::Selection { Style::new().bg(colour) } else { Style::new().fg(colour) };
    style.add_modifier(weight)
}

fn weight(role: Role, depth: Depth) -> Modifier {
    match (role, depth) {
        (Role::Heading, _) => Modifier::BOLD,
        (Role::Link, _) => Modifier::UNDERLINED,
        (Role::Thought, Depth::None) => Modifier::ITALIC,
        (Role::Focus | Role::Accent | Role::User | Role::Bad | Role::Key, Depth::None) => Modifier::BOLD,
        (Role::Muted | Role::Faint | Role::Border, Depth::None) => Modifier::DIM,
        (Role::Selection, Depth::None) => Modifier::REVERSED,
        _ => Modifier::empty(),
    }
}

fn hex(text: &str) -> anyhow::Result<(u8, u8, u8)> {
    let wrong = || anyhow::anyhow!("a colour is written #rrggbb, not {text:?}");
    let digits = text.strip_prefix('#').filter(|d| d.len() == 6 && d.is_ascii()).ok_or_else(wrong)?;
    let part = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong());
    Ok((part(0)?, part(2)?, part(4)?))
}

/// The nearest of xterm's 6x6x6 cube and 24 greys.
fn nearest_index(r: u8, g: u8, b: u8) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let level = |x: u8| (0..6).min_by_key(|i| LEVELS[*i].abs_diff(x)).unwrap_or(0);
    let distance = |(x, y, z): (u8, u8, u8)| {
        [(x, r), (y, g), (z, b)].iter().map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2)).sum::<u32>()
    };
    let (i, j, k) = (level(r), level(g), level(b));
    let cube = (LEVELS[i], LEVELS[j], LEVELS[k]);
    let grey = ((u16::from(r) + u16::from(g) + u16::from(b)) / 3).saturating_sub(8).min(230) / 10;
    let shade = (8 + grey * 10) as u8;
    if distance((shade, shade, shade)) < distance(cube) {
        232 + grey as u8
    } else {
        (16 + 36 * i + 6 * j + k) as u8
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_built_in_theme_has_every_role_at_every_depth() {
        for (name, _) in BUILT_IN {
            for depth in [Depth::None, Depth::Sixteen, Depth::Indexed, Depth::True] {
                let theme = Theme::load(name, None, depth).unwrap();
                let coloured = ROLES.iter().any(|(_, role)| {
                    let s = theme.style(*role);
                    s.fg.is_some() || s.bg.is_some()
                });
                assert_eq!(coloured, depth != Depth::None, "{name} {depth:?}");
            }
        }
        assert!(
            Theme::load("nope", None, Depth::True).unwrap_err().to_string().contains("dark, light, contrast")
        );
    }

    #[test]
    fn text_is_readable_on_its_background_and_where_a_row_is_selected() {
        // WCAG AA: 4.5 for text. Borders and faint fillings carry no text that is needed.
        let text = |role: &str| !matches!(role, "faint" | "border" | "selection");
        for (name, source) in BUILT_IN {
            let file: ThemeFile = toml::from_str(source).unwrap();
            let (Ground::True(ground) | Ground::Both([ground, _])) = &file.background;
            for ground in [ground, &file.roles["selection"][0]] {
                for (role, [colour, _]) in file.roles.iter().filter(|(role, _)| text(role)) {
                    let ratio = contrast(hex(colour).unwrap(), hex(ground).unwrap());
                    assert!(ratio >= 4.5, "{name} {role} {colour} on {ground}: {ratio:.2}");
                }
            }
            // What is not read is still seen.
            for role in ["border", "selection"] {
                let ratio = contrast(hex(&file.roles[role][0]).unwrap(), hex(ground).unwrap());
                assert!(ratio >= 1.15, "{name} {role}: {ratio:.2}");
            }
        }
    }

    #[test]
    fn a_wrong_theme_says_what_is_wrong() {
        let (_, dark) = BUILT_IN[0];
        for (text, said) in [
            (dark.replace("muted ", "mutd "), "unknown role \"mutd\"; did you mean \"muted\"?"),
            (dark.replace("#d7dae0", "red"), "a colour is written #rrggbb"),
            (dark.replace("key ", "#"), "no role \"key\""),
            ("background = 3".into(), "theme mine"),
        ] {
            let error = Theme::parse("mine", &text, Depth::True).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_painted_theme_leaves_no_cell_to_the_terminal() {
        use ratatui::layout::Rect;
        for depth in [Depth::None, Depth::Sixteen, Depth::Indexed, Depth::True] {
            for name in Theme::names() {
                let theme = Theme::built_in(name, depth).unwrap();
                let mut buffer = Buffer::empty(Rect::new(0, 0, 3, 1));
                theme.paint(Background::Auto, &mut buffer);
                let painted = buffer.content.iter().all(|c| c.bg != Color::Reset && c.fg != Color::Reset);
                assert_eq!(painted, name != "dark" && depth != Depth::None, "{name} {depth:?}");
            }
        }
    }

    fn contrast(a: (u8, u8, u8), b: (u8, u8, u8)) -> f64 {
        let linear = |x: u8| {
            let x = f64::from(x) / 255.0;
            if x <= 0.04045 { x / 12.92 } else { ((x + 0.055) / 1.055).powf(2.4) }
        };
        let luminance =
            |(r, g, b): (u8, u8, u8)| 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        let (x, y) = (luminance(a), luminance(b));
        (x.max(y) + 0.05) / (x.min(y) + 0.05)
    }

    #[test]
    fn the_nearest_of_256_is_near() {
        assert_eq!(nearest_index(255, 0, 0), 196);
        assert_eq!(nearest_index(128, 128, 128), 244);
    }
}
