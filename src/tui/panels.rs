//! The panels: which are open at which size, and what each remembers.

use super::changes::Changes;
use super::kept::Kept;
use super::kv_panel::KvPanel;
use super::layout::Layout;
use super::trial::Trial;
use crate::protocol::{RequestId, SeqId, Stage};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// By the numbers people switch them with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

    /// What it answers.
    pub fn question(self) -> &'static str {
        match self {
            Panel::Sampling => "why this token?",
            Panel::Kv => "where is the memory?",
            Panel::Batch => "what did this step do?",
            Panel::Beams => "which paths are alive?",
            Panel::Reasoning => "what was decided?",
            Panel::Metrics => "is it fast?",
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
    pub const ALL: [SizeClass; 4] = [SizeClass::Tiny, SizeClass::Compact, SizeClass::Medium, SizeClass::Wide];

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
    layouts: [Layout; 4],
    pub zoomed: bool,
    /// One panel and the chat, with room between the lines: for people who watch from afar.
    pub presenting: bool,
    /// The one that had the focus last: it stays open where there is not room for all.
    pub recent: Option<Panel>,
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
        Self {
            layouts: SizeClass::ALL.map(Layout::of),
            zoomed: false,
            presenting: false,
            recent: None,
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
    /// In number order, unless the person moved them about.
    pub fn open(&self, class: SizeClass) -> &[Panel] {
        if class == SizeClass::Tiny { &[] } else { &self.layout(class).open }
    }

    /// Opens or closes; where one has room, opening it closes the other. True when it is open now.
    pub fn toggle(&mut self, class: SizeClass, panel: Panel) -> bool {
        class != SizeClass::Tiny && self.layout_mut(class).toggle(panel)
    }

    pub fn layout(&self, class: SizeClass) -> &Layout {
        &self.layouts[class as usize]
    }

    pub fn layout_mut(&mut self, class: SizeClass) -> &mut Layout {
        &mut self.layouts[class as usize]
    }

    /// As an earlier session left them.
    pub fn restore(&mut self, kept: &Kept) {
        self.layouts = SizeClass::ALL.map(|class| kept.layout(class));
    }

    /// What a later session is to find.
    pub fn keep(&self, kept: &mut Kept) {
        SizeClass::ALL.into_iter().for_each(|class| kept.set_layout(class, self.layout(class)));
    }
}
