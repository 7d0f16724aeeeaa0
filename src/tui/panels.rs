//! The panels: which are open at which size, and what each remembers.

use super::changes::Changes;
use super::kv_panel::KvPanel;
use super::trial::Trial;
use crate::protocol::Stage;
use crate::protocol::{RequestId, SeqId};
use std::time::Duration;

/// By the numbers people switch them with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Panel {
    Sampling = 1,
    Kv = 2,
    Batch = 3,
    Beams = 4,
    Reasoning = 5,
    Metrics = 6,
}

impl Panel {
    pub const ALL: [Panel; 6] =
        [Panel::Sampling, Panel::Kv, Panel::Batch, Panel::Beams, Panel::Reasoning, Panel::Metrics];

    pub fn title(self) -> &'static str {
        match self {
            Panel::Sampling => "sampling",
            Panel::Kv => "kv blocks",
            Panel::Batch => "batch",
            Panel::Beams => "beams and branches",
            Panel::Reasoning => "reasoning",
            Panel::Metrics => "metrics",
        }
    }
}

/// How much room there is; what is shown is chosen, and remembered, for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeClass {
    /// Transcript, input and header only.
    Tiny,
    /// One column and a drawer for one panel.
    Compact,
    /// Chat beside a column of panels.
    Medium,
    /// Panels on both sides.
    Wide,
}

impl SizeClass {
    pub fn of((width, height): (u16, u16)) -> Self {
        match (width, height) {
            (w, h) if w < 60 || h < 15 => SizeClass::Tiny,
            (w, h) if w < 100 || h < 24 => SizeClass::Compact,
            (w, _) if w < 160 => SizeClass::Medium,
            _ => SizeClass::Wide,
        }
    }
}

/// Which panels are open, in each size class, and where each stands.
pub struct Panels {
    open: [Vec<Panel>; 4],
    pub zoomed: bool,
    /// A value being typed.
    pub typing: Option<String>,
    pub sampling: SamplingPanel,
    pub kv: KvPanel,
    pub batch: BatchPanel,
    /// The selected row of the branch tree.
    pub branch: usize,
    /// Of the panels that only scroll.
    pub scroll: usize,
}

/// What the sampling panel remembers.
pub struct SamplingPanel {
    /// The selected parameter.
    pub param: usize,
    /// The stage that is looked at.
    pub stage: Option<Stage>,
    pub changes: Changes,
    /// Other parameters are tried on the token that is looked at.
    pub trial: Option<Trial>,
}

#[derive(Default)]
pub struct BatchPanel {
    /// It lists the scheduler's settings.
    pub settings: bool,
    /// The selected one.
    pub setting: usize,
    /// Steps back from the newest. Every panel shows that step.
    pub step_back: usize,
    /// The sequence under the cursor.
    pub chosen: Option<SeqId>,
    /// It is shown in full.
    pub inspecting: bool,
    /// Asked for once: the same key again, until then, cancels the request.
    pub cancelling: Option<(RequestId, Duration)>,
    pub priority: Option<AskedPriority>,
}

/// A priority that the picture of this step does not show yet.
#[derive(Clone, Copy)]
pub struct AskedPriority {
    pub id: RequestId,
    pub priority: i32,
    pub step: u64,
}

impl Default for SamplingPanel {
    fn default() -> Self {
        let param = crate::protocol::PARAMS.iter().position(|s| s.name == "temperature").unwrap_or(0);
        Self { param, stage: None, changes: Changes::default(), trial: None }
    }
}

impl Default for Panels {
    fn default() -> Self {
        use Panel::{Batch, Kv, Metrics, Reasoning, Sampling};
        let open = [
            vec![],
            vec![Sampling],
            vec![Sampling, Kv, Batch],
            vec![Sampling, Kv, Batch, Reasoning, Metrics],
        ];
        Self {
            open,
            zoomed: false,
            typing: None,
            sampling: SamplingPanel::default(),
            kv: KvPanel::default(),
            batch: BatchPanel::default(),
            branch: 0,
            scroll: 0,
        }
    }
}

impl Panels {
    /// In number order.
    pub fn open(&self, class: SizeClass) -> &[Panel] {
        &self.open[class as usize]
    }

    /// Opens or closes; where one has room, opening it closes the other. True when it is open now.
    pub fn toggle(&mut self, class: SizeClass, panel: Panel) -> bool {
        let open = &mut self.open[class as usize];
        if let Some(at) = open.iter().position(|p| *p == panel) {
            open.remove(at);
            return false;
        }
        match class {
            SizeClass::Tiny => return false,
            SizeClass::Compact => *open = vec![panel],
            SizeClass::Medium | SizeClass::Wide => open.push(panel),
        }
        open.sort();
        true
    }
}
