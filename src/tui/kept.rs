//! What the screen keeps from one session to the next: its layouts and its theme, as a TOML file that
//! can be read and written by hand.

use super::layout::Layout;
use super::panels::SizeClass;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Chosen on the screen; a flag, a variable or config.toml goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<String>,
    /// Of each size of window; what is not here is as it comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compact: Option<Layout>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    medium: Option<Layout>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wide: Option<Layout>,
}

const HEAD: &str =
    "# Written by glassbox as panels and theme are changed on the screen; /layout reset begins anew.\n\n";

impl Kept {
    /// # Errors
    /// It is no TOML, or not of this kind: in one line, with its place.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| {
            let line = e.span().map(|span| text[..span.start].matches('\n').count() + 1);
            let what = e.message().lines().next().unwrap_or_default().to_owned();
            line.map_or(what.clone(), |line| format!("line {line}: {what}"))
        })
    }

    pub fn text(&self) -> String {
        HEAD.to_owned() + &toml::to_string(self).unwrap_or_default()
    }

    pub fn layout(&self, class: SizeClass) -> Layout {
        let kept = match class {
            SizeClass::Tiny => &None,
            SizeClass::Compact => &self.compact,
            SizeClass::Medium => &self.medium,
            SizeClass::Wide => &self.wide,
        };
        kept.clone().map_or_else(|| Layout::of(class), Layout::made_sound)
    }

    /// Only what differs from what is built in.
    pub fn set_layout(&mut self, class: SizeClass, layout: &Layout) {
        let changed = (*layout != Layout::of(class)).then(|| layout.clone());
        match class {
            SizeClass::Tiny => {}
            SizeClass::Compact => self.compact = changed,
            SizeClass::Medium => self.medium = changed,
            SizeClass::Wide => self.wide = changed,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tui::layout::Arrangement;
    use crate::tui::panels::Panel;

    #[test]
    fn layouts_are_read_as_they_were_written() {
        let mut kept = Kept { theme: Some("nord".into()), ..Kept::default() };
        let mut layout = Layout::new(Arrangement::Wide);
        layout.toggle(Panel::Beams);
        layout.heights.insert(Panel::Kv, 20);
        kept.set_layout(SizeClass::Wide, &layout);
        kept.set_layout(SizeClass::Medium, &Layout::of(SizeClass::Medium));
        let again = Kept::parse(&kept.text()).unwrap();
        assert_eq!(again, kept, "{}", kept.text());
        assert_eq!(again.layout(SizeClass::Wide), layout);
        assert!(!kept.text().contains("medium"), "{}", kept.text());
    }

    #[test]
    fn whatever_stands_in_the_file_can_be_drawn_or_is_refused() {
        let odd = "[medium]\narrangement = 'compact'\nopen = ['kv', 'kv', 'batch']\nright_width = 60000\n\
                   drawer = 0\n[medium.heights]\nkv = 0\n";
        let layout = Kept::parse(odd).unwrap().layout(SizeClass::Medium);
        assert_eq!((layout.open, layout.drawer), (vec![Panel::Kv], Some(2)));
        assert!(layout.right_width < 1000 && layout.heights[&Panel::Kv] > 0);
        for broken in ["theme = 3", "[medium]\nopen = ['laser']", "\u{0}", "[medium"] {
            assert!(!Kept::parse(broken).unwrap_err().contains('\n'), "{broken:?}");
        }
    }
}
