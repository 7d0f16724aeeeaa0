//! Everything without a screen.
