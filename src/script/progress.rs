use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::time::Duration;

/// A bar of bytes on stderr: only where that is a terminal, from when there is something to count, and
/// gone when dropped.
pub struct Progress {
    bar: ProgressBar,
    /// Nothing was counted yet, so nothing is drawn.
    waits: Cell<bool>,
}

impl Progress {
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), waits: Cell::new(false) }
    }

    /// Shows bytes, rate and time left.
    pub fn bytes(label: &str) -> Self {
        Self::new(label, "{msg}  {bytes} of {total_bytes}  {binary_bytes_per_sec}  {eta} left  [{bar:24}]")
    }

    /// For what mostly takes a moment: shows bytes only.
    pub fn loading() -> Self {
        Self::new("", "{msg}  {bytes} of {total_bytes}  [{bar:24}]")
    }

    /// Repetitions of something.
    pub fn counting(label: &str) -> Self {
        Self::new(label, "{msg}  {pos} of {len}  [{bar:24}]")
    }

    fn new(label: &str, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("a template without mistakes");
        let bar = ProgressBar::hidden();
        bar.set_style(style.progress_chars("##-"));
        bar.set_message(label.to_owned());
        Self { bar, waits: Cell::new(true) }
    }

    pub fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        if total > 0 && self.waits.replace(false) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        }
    }

    /// What is going on, or for how long it has been: `verifying`.
    pub fn say(&self, label: &str) {
        if self.bar.message() != label {
            self.bar.set_message(label.to_owned());
        }
    }

    /// A transfer that waits for its first byte still shows that it lives.
    pub fn keep_drawing(&self) {
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_before_there_is_something_to_count() {
        let progress = Progress::loading();
        progress.set(0, 0);
        assert!(progress.waits.get());
        progress.set(0, 9);
        assert!(!progress.waits.get());
        assert!(!Progress::hidden().waits.get(), "and a hidden one never is");
    }
}
