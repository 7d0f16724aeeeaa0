//! What rendered lines depend on besides their text.

use crate::tui::theme::Theme;

/// A width and the colours. Lines are kept under its `key`.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    pub width: u16,
    pub theme: &'a Theme,
    pub key: u64,
}

impl<'a> Look<'a> {
    pub fn new(width: u16, theme: &'a Theme) -> Self {
        // Not 0: that is of lines that were never made.
        Self { width, theme, key: (u64::from(theme.generation) << 16 | u64::from(width)) | 1 << 63 }
    }

    /// The same colours at another width.
    pub fn at(self, width: u16) -> Self {
        Self { width, key: self.key & !0xffff | u64::from(width), ..self }
    }
}
