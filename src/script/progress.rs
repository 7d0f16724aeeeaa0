use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A bar of bytes on stderr: only where that is a terminal, and gone when dropped.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
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
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(style.progress_chars("##-"));
        bar.set_message(label.to_owned());
        Self(bar)
    }

    pub fn set(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// What is going on, or for how long it has been: `verifying`.
    pub fn say(&self, label: &str) {
        if self.0.message() != label {
            self.0.set_message(label.to_owned());
        }
    }

    /// A transfer that waits for its first byte still shows that it lives.
    pub fn keep_drawing(&self) {
        self.0.enable_steady_tick(Duration::from_millis(200));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
