//! The map of the KV blocks: a cell a block where there is room, else 2, 4, 8 … blocks a cell.
//!
//! Blocks are looked at once, cells are styled once, and neighbours of one style are one span: a map of
//! 100,000 blocks costs a pass over them and as many spans as there are changes of colour.

use super::kv_class::{Class, class, kinds};
use crate::protocol::{KvView, Medium};
use crate::tui::app::App;
use crate::tui::kv_panel::BlockColours;
use crate::tui::theme::Role;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use std::collections::BTreeSet;

/// Changed by the newest steps: taken, hit or copied; and given back or dropped.
const CHANGED: char = '◆';
const LEFT: char = '◇';
/// Of the prefix that was selected in the tree.
const MARKED: char = '◈';
/// How full a cell of several blocks is.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];

/// What the map is drawn of.
pub struct Map<'a> {
    app: &'a App,
    /// Blocks that have just changed.
    changed: &'a BTreeSet<u32>,
    /// The selected block, while the panel has the focus.
    selected: Option<usize>,
    /// Of each block, those of the tiers beside the device behind the others.
    classes: Vec<Class>,
    /// How many there are by the rows of the legend.
    pub counts: [usize; 8],
    /// Blocks up to the last that is used: the free ones behind it say nothing.
    pub used: usize,
}

/// How the blocks are laid out in some room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub width: usize,
    pub rows: usize,
    pub per_cell: usize,
    /// Rows of cells in a line.
    pub levels: usize,
    pub shown: usize,
}

#[derive(Clone, Copy)]
struct Cell {
    class: Class,
    shape: char,
}

impl<'a> Map<'a> {
    /// Of the state after `step`.
    pub fn of(
        app: &'a App,
        kv: &KvView,
        step: u64,
        changed: &'a BTreeSet<u32>,
        selected: Option<usize>,
    ) -> Self {
        let classes = classes(app.panels.kv.colours, kv, step);
        let mut counts = [0; 8];
        classes.iter().for_each(|class| counts[class.kind as usize] += 1);
        let used = match app.panels.kv.colours {
            BlockColours::Tier => classes.len(),
            _ => kv.blocks.iter().rposition(|b| b.references > 0 || b.cached).map_or(0, |last| last + 1),
        };
        Self { app, changed, selected, classes, counts, used }
    }

    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// A cell a block while the used ones fit, then two, four and so on.
    pub fn plan(&self, width: usize, rows: usize) -> Plan {
        let kv = &self.app.panels.kv;
        let is_dense = kv.dense && self.app.theme.has_colours() && !self.app.options.ascii;
        let levels = if is_dense { 2 } else { 1 };
        let cells = (width * rows * levels).max(1);
        let needed = self.used.max(self.selected.map_or(0, |block| block + 1));
        let per_cell = needed.div_ceil(cells).max(1).next_power_of_two();
        Plan { width, rows, per_cell, levels, shown: (cells * per_cell).min(self.len()) }
    }

    pub fn draw(&self, plan: Plan) -> Vec<Line<'static>> {
        let Plan { per_cell, levels, .. } = plan;
        let blocks = &self.classes[..plan.shown];
        let mut cells: Vec<Cell> =
            blocks.chunks(per_cell).map(|blocks| self.cell(blocks, per_cell)).collect();
        if levels == 1 {
            self.name_owners(&mut cells, per_cell);
        }
        self.mark(&mut cells, per_cell);
        let selected = self.selected.map(|block| block / per_cell);
        match levels {
            1 => self.plain_lines(&cells, plan.width, selected),
            _ => self.dense_lines(&cells, plan.width, selected),
        }
    }

    fn colours(&self) -> BlockColours {
        self.app.panels.kv.colours
    }

    /// The commonest of what fills the blocks; of empty ones the most telling. Age counts differently:
    /// the newest.
    fn cell(&self, blocks: &[Class], per_cell: usize) -> Cell {
        let colours = self.colours();
        let kinds = kinds(colours);
        let shape = |class: Class| kinds[class.kind as usize].shape;
        if let [class] = blocks {
            return Cell { class: *class, shape: shape(*class) };
        }
        let most_telling = || *blocks.iter().min_by_key(|class| class.kind).expect("a cell has blocks");
        if colours == BlockColours::Age {
            let newest = most_telling();
            return Cell { class: newest, shape: shape(newest) };
        }
        let full = blocks.iter().filter(|class| kinds[class.kind as usize].full);
        let (commonest, full) = commonest(full.copied());
        let Some(class) = commonest else {
            let class = most_telling();
            return Cell { class, shape: shape(class) };
        };
        let shape = match colours {
            BlockColours::Owner | BlockColours::Tier => {
                SHADES[((full * SHADES.len()).div_ceil(per_cell) - 1).min(SHADES.len() - 1)]
            }
            _ => shape(class),
        };
        Cell { class, shape }
    }

    /// Where another owner's blocks begin stands its letter; several blocks a cell only before more of
    /// its own, because the letter hides how full they are.
    fn name_owners(&self, cells: &mut [Cell], per_cell: usize) {
        let owners: Vec<_> = cells.iter().map(|cell| cell.class.owner).collect();
        for (i, cell) in cells.iter_mut().enumerate() {
            let begins = i == 0 || owners[i - 1] != owners[i];
            let goes_on = owners.get(i + 1) == Some(&owners[i]);
            if let Some(owner) = owners[i].filter(|_| begins && (per_cell == 1 || goes_on)) {
                cell.shape = App::letter_of(owner.into());
            }
        }
    }

    /// What changed, and what was marked.
    fn mark(&self, cells: &mut [Cell], per_cell: usize) {
        let kinds = kinds(self.colours());
        for block in self.changed {
            if let Some(cell) = cells.get_mut(*block as usize / per_cell) {
                cell.shape = if kinds[cell.class.kind as usize].full { CHANGED } else { LEFT };
            }
        }
        for block in &self.app.panels.kv.marked {
            if let Some(cell) = cells.get_mut(*block as usize / per_cell) {
                cell.shape = MARKED;
            }
        }
    }

    fn style(&self, cell: Cell) -> Style {
        let style = cell.class.style(self.colours(), &self.app.theme);
        let is_letter = cell.shape.is_ascii_uppercase();
        if is_letter || cell.shape == MARKED { style.add_modifier(Modifier::BOLD) } else { style }
    }

    fn plain_lines(&self, cells: &[Cell], width: usize, selected: Option<usize>) -> Vec<Line<'static>> {
        let chosen = self.app.theme.style(Role::Selection);
        let line = |(row, cells): (usize, &[Cell])| {
            let mut runs = Runs::default();
            for (i, cell) in cells.iter().enumerate() {
                let style = self.style(*cell);
                let is_chosen = selected == Some(row * width + i);
                runs.push(cell.shape, if is_chosen { style.patch(chosen) } else { style });
            }
            runs.line()
        };
        cells.chunks(width).enumerate().map(line).collect()
    }

    /// Every second row of cells is the lower half of a line.
    fn dense_lines(&self, cells: &[Cell], width: usize, selected: Option<usize>) -> Vec<Line<'static>> {
        let line = |(row, cells): (usize, &[Cell])| {
            let (upper, lower) = cells.split_at(width.min(cells.len()));
            let mut runs = Runs::default();
            for (i, cell) in upper.iter().enumerate() {
                let first = row * 2 * width + i;
                let is_chosen = selected.is_some_and(|at| at == first || at == first + width);
                let (shape, style) = self.halves(*cell, lower.get(i).copied());
                match is_chosen {
                    true => runs.push(
                        '+',
                        self.app.theme.style(Role::Focus).patch(self.app.theme.style(Role::Selection)),
                    ),
                    false => runs.push(shape, style),
                }
            }
            runs.line()
        };
        cells.chunks(width * 2).enumerate().map(line).collect()
    }

    fn halves(&self, upper: Cell, lower: Option<Cell>) -> (char, Style) {
        let kinds = kinds(self.colours());
        let colour = |cell: Cell| {
            let is_empty =
                kinds[cell.class.kind as usize].role == Role::Faint && !matches!(cell.shape, CHANGED | LEFT);
            let role = match cell.shape {
                CHANGED | LEFT | MARKED => self.app.theme.style(Role::Heading),
                _ => cell.class.style(self.colours(), &self.app.theme),
            };
            role.fg.filter(|_| !is_empty)
        };
        match (colour(upper), lower.and_then(colour)) {
            (None, None) => ('·', self.app.theme.style(Role::Faint)),
            (Some(upper), None) => ('▀', Style::new().fg(upper)),
            (None, Some(lower)) => ('▄', Style::new().fg(lower)),
            (Some(upper), Some(lower)) if upper == lower => ('█', Style::new().fg(upper)),
            (Some(upper), Some(lower)) => ('▀', Style::new().fg(upper).bg(lower)),
        }
    }
}

/// Of each block. Behind the device's come those of the other tiers, of which only the number is known.
fn classes(colours: BlockColours, kv: &KvView, step: u64) -> Vec<Class> {
    let mut classes: Vec<Class> = kv.blocks.iter().map(|block| class(colours, block, step)).collect();
    for tier in kv.tiers.iter().filter(|_| colours == BlockColours::Tier) {
        let kind = match tier.medium {
            Medium::Device => 0,
            Medium::Host => 1,
            Medium::Disk => 2,
        };
        let used = tier.used.min(tier.blocks);
        classes.extend(std::iter::repeat_n(Class { kind, owner: None }, used));
        classes.extend(std::iter::repeat_n(Class { kind: 3, owner: None }, tier.blocks - used));
    }
    classes
}

/// The commonest of the classes, the first of equals; and how many there are in all.
fn commonest(classes: impl Iterator<Item = Class>) -> (Option<Class>, usize) {
    let mut seen: Vec<(Class, usize)> = Vec::new();
    let mut all = 0;
    let mut last = 0;
    for class in classes {
        all += 1;
        // Neighbours are mostly alike.
        if seen.get(last).is_none_or(|(known, _)| *known != class) {
            last = seen.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
                seen.push((class, 0));
                seen.len() - 1
            });
        }
        seen[last].1 += 1;
    }
    let most = seen.iter().map(|(_, n)| *n).max();
    (seen.iter().find(|(_, n)| Some(*n) == most).map(|(class, _)| *class), all)
}

/// Neighbours of one style are one span.
#[derive(Default)]
struct Runs {
    spans: Vec<Span<'static>>,
    text: String,
    style: Style,
}

impl Runs {
    fn push(&mut self, shape: char, style: Style) {
        if style != self.style {
            self.end();
            self.style = style;
        }
        self.text.push(shape);
    }

    fn end(&mut self) {
        if !self.text.is_empty() {
            self.spans.push(Span::styled(std::mem::take(&mut self.text), self.style));
        }
    }

    fn line(mut self) -> Line<'static> {
        self.end();
        Line::from(self.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_counts_all_and_prefers_the_first_of_equals() {
        let class = |kind| Class { kind, owner: Some(kind) };
        let classes = [1, 2, 2, 1, 3].map(class);
        assert_eq!(commonest(classes.into_iter()), (Some(class(1)), 5));
        assert_eq!(commonest(std::iter::empty()), (None, 0));
    }
}
