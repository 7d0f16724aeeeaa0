//! Panel 4: which paths are alive? The tree of open beams with their summed log-probabilities, what
//! was let go and by how much it lost, the answers found, and the blocks that the beams share.

use super::{branches, paint};
use crate::protocol::{BeamRow, BeamView, EndedView, PrunedView};
use crate::tui::app::App;
use crate::tui::branches::has_branches;
use crate::tui::format;
use crate::tui::history;
use crate::tui::keymap::Place;
use crate::tui::sanitize::one_line;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// With less room the tree comes first.
const LOW: usize = 10;
/// Cells of a number on the right.
const NUMBER: usize = 8;

/// The beams of the newest search, and under them the branches of the conversation: each gets what it
/// needs, or half.
pub fn lines(app: &App, area: Rect, focused: bool) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let seen = history::seen(app);
    let is_branched = has_branches(&app.chat);
    match seen.snapshot.beams.as_deref() {
        None if is_branched => branches::lines(app, area, focused),
        None => none(app, width),
        Some(view) if !is_branched => beams(app, view, (width, height)),
        Some(view) => {
            let for_branches = (branches::height(app) + 1).min(height / 2);
            let mut lines = beams(app, view, (width, height - for_branches));
            lines.resize(height - for_branches, Line::default());
            let below = Rect { y: area.y + lines.len() as u16, height: for_branches as u16, ..area };
            lines.extend(branches::lines(app, below, focused));
            lines
        }
    }
}

/// How there would be something to see.
fn none(app: &App, width: usize) -> Vec<Line<'static>> {
    let muted = app.theme.style(Role::Muted);
    let beams = match app.beam {
        Some(beam) => format!("the next message is answered by {} beams", beam.width),
        None => "no search yet: /beam 4 answers by beam search".to_owned(),
    };
    let again = app.keymap.hint(Place::Anywhere, "regenerate", "answers again");
    let again = again.unwrap_or("/regen answers again".into());
    let branches = format!("no branches yet: /fork goes on anew from a token, {again}");
    [beams, branches].iter().flat_map(|text| wrap(&Line::styled(text.clone(), muted), width, 2)).collect()
}

fn beams(app: &App, view: &BeamView, (width, height): (usize, usize)) -> Vec<Line<'static>> {
    let mut all = head(app, view, width);
    let tree = tree(app, view, width);
    let ended = view.ended.iter().enumerate().map(|(i, ended)| answer(app, i, ended, width));
    let ended: Vec<Line> = heading(app, "answers", "score", width, ended).collect();
    let pruned = view.pruned.iter().map(|lost| pruned(app, lost, width));
    let pruned: Vec<Line> = heading(app, "let go", "behind by", width, pruned).collect();
    // Each part is seen, however low the panel.
    let room = height.saturating_sub(all.len());
    let least = |lines: &[Line], share: usize| lines.len().min((room * share / 6).max(2));
    let low = room < LOW;
    let of_ended = if low && !view.over { 0 } else { least(&ended, 2) };
    let of_pruned = if low { 0 } else { least(&pruned, 1) };
    let for_tree = room.saturating_sub(of_ended + of_pruned).max(1);
    let tree = if tree.len() <= for_tree { tree } else { flat(app, view, width) };
    let of_tree = tree.len().min(for_tree);
    let mut left = room.saturating_sub(of_tree + of_ended + of_pruned);
    let mut more = |lines: &[Line], had: usize| {
        // A heading alone says nothing.
        let more = if had == 0 && left < 2 { 0 } else { (lines.len() - had).min(left) };
        left -= more;
        had + more
    };
    let (of_ended, of_pruned) = (more(&ended, of_ended), more(&pruned, of_pruned));
    all.extend(tree.into_iter().take(of_tree));
    all.extend(ended.into_iter().take(of_ended));
    all.extend(pruned.into_iter().take(of_pruned));
    let top = app.panels.scroll.min(all.len().saturating_sub(height));
    all.into_iter().skip(top).collect()
}

fn head(app: &App, view: &BeamView, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let state = if view.over { "over" } else { "searching" };
    let role = if view.over { Role::Muted } else { Role::Good };
    let muted = |text: String| Span::styled(text, theme.style(Role::Muted));
    let first = [
        Span::styled(state.to_owned(), theme.style(role)),
        muted(format!("width {}", view.params.width)),
        muted(format!("{} tok", format::count(view.depth))),
        muted(format!("length penalty {}", format::decimal(view.params.length_penalty))),
        muted(format!("{} ended", view.ended.len())),
    ];
    let mut lines = vec![paint::fitting(first, width, theme)];
    if !view.over {
        let blocks = [
            muted(format!("{} blocks", view.blocks)),
            muted(format!("{} shared", view.shared)),
            muted(format!("{} saved by sharing", view.saved)),
        ];
        lines.push(paint::fitting(blocks, width, theme));
    }
    lines
}

/// Nothing where there are no lines.
fn heading<'a>(
    app: &App,
    title: &str,
    number: &str,
    width: usize,
    lines: impl Iterator<Item = Line<'a>>,
) -> impl Iterator<Item = Line<'a>> {
    let style = app.theme.style(Role::Heading);
    let text = format::pad(title, width.saturating_sub(format::width(number) + 1));
    let title = Line::from(vec![
        Span::styled(text, style),
        Span::styled(format!(" {number}"), app.theme.style(Role::Muted)),
    ]);
    let mut lines = lines.peekable();
    let title = lines.peek().is_some().then_some(title);
    title.into_iter().chain(lines)
}

/// What all have in common, then each branch under the one it comes from. A line that ends a path is an
/// open beam, in its sequence's colour.
fn tree(app: &App, view: &BeamView, width: usize) -> Vec<Line<'static>> {
    if view.open.is_empty() {
        return Vec::new();
    }
    let stem = match view.stem_tokens {
        0 => "the prompt".to_owned(),
        _ => fit_end(&one_line(&view.stem), width),
    };
    let mut lines = vec![Line::styled(stem, app.theme.style(Role::Text))];
    let all: Vec<&BeamRow> = view.open.iter().collect();
    branches(app, &all, 0, "", width, &mut lines);
    lines
}

/// Where the tree has no room: a line for each beam, best first.
fn flat(app: &App, view: &BeamView, width: usize) -> Vec<Line<'static>> {
    let said = |beam: &BeamRow| beam.tokens.iter().map(|(_, text)| text.as_str()).collect::<String>();
    let beam = |beam| branch(app, "", &format!("{}{}", view.stem, said(beam)), Some(beam), width);
    view.open.iter().map(beam).collect()
}

/// The beams that agree up to token `at`, grouped by what comes next.
fn branches(
    app: &App,
    beams: &[&BeamRow],
    at: usize,
    indent: &str,
    width: usize,
    lines: &mut Vec<Line<'static>>,
) {
    let mut groups: Vec<Vec<&BeamRow>> = Vec::new();
    for &beam in beams.iter().filter(|beam| beam.tokens.len() > at) {
        let same = |group: &&mut Vec<&BeamRow>| group[0].tokens[at].0 == beam.tokens[at].0;
        match groups.iter_mut().find(same) {
            Some(group) => group.push(beam),
            None => groups.push(vec![beam]),
        }
    }
    let last = groups.len().saturating_sub(1);
    for (i, group) in groups.iter().enumerate() {
        // As far as the group agrees it is one line.
        let agree = |at: usize| {
            let token = |beam: &BeamRow| beam.tokens.get(at).map(|token| token.0);
            token(group[0]).is_some() && group.iter().all(|beam| token(beam) == token(group[0]))
        };
        let end = (at..).find(|at| !agree(*at)).expect("tokens end somewhere");
        let text: String = group[0].tokens[at..end].iter().map(|(_, text)| text.as_str()).collect();
        let joint = if i == last { "└ " } else { "├ " };
        let open = group.iter().find(|beam| beam.tokens.len() == end);
        lines.push(branch(app, &format!("{indent}{joint}"), &text, open.copied(), width));
        let below = if i == last { "  " } else { "│ " };
        branches(app, group, end, &format!("{indent}{below}"), width, lines);
    }
}

fn branch(app: &App, lead: &str, text: &str, open: Option<&BeamRow>, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let blocks =
        open.filter(|_| width >= 56).map(|beam| format!("{:>4} blk {:>3} shared", beam.blocks, beam.shared));
    let tail = NUMBER + blocks.as_deref().map_or(0, format::width);
    let room = width.saturating_sub(format::width(lead) + tail);
    let style = match open {
        Some(beam) => theme.sequence(App::hue(beam.seq)),
        None => theme.style(Role::Muted),
    };
    let mut spans = vec![
        Span::styled(lead.to_owned(), theme.style(Role::Faint)),
        Span::styled(format::pad(&fit_end(&format::quoted(text), room), room), style),
    ];
    spans.extend(blocks.map(|blocks| Span::styled(blocks, theme.style(Role::Muted))));
    spans.extend(open.map(|beam| Span::styled(number(beam.sum), theme.style(Role::Text))));
    Line::from(spans)
}

fn answer(app: &App, place: usize, ended: &EndedView, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let lead = format!("{} {:>3} tok ", place + 1, ended.tokens);
    let room = width.saturating_sub(lead.len() + NUMBER);
    Line::from(vec![
        Span::styled(lead, theme.style(Role::Muted)),
        Span::styled(format::pad(&fit_end(&one_line(&ended.text), room), room), theme.style(Role::Text)),
        Span::styled(number(ended.score), theme.style(Role::Good)),
    ])
}

fn pruned(app: &App, lost: &PrunedView, width: usize) -> Line<'static> {
    let faint = app.theme.style(Role::Muted);
    let own = format::quoted(&lost.text);
    let room = width.saturating_sub(2 * NUMBER + format::width(&own) + 1);
    let before = format::pad(&fit_end(&one_line(&lost.before), room), room);
    Line::from(vec![
        Span::styled(format!("{before} {own}"), faint),
        Span::styled(number(lost.sum), faint),
        Span::styled(number(lost.behind), app.theme.style(Role::Warn)),
    ])
}

fn number(x: f64) -> String {
    format!("{x:>NUMBER$.3}")
}

/// The end of a text is what differs.
fn fit_end(text: &str, limit: usize) -> String {
    if format::width(text) <= limit {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars().rev() {
        if format::width(&kept) + format::width(c.encode_utf8(&mut [0; 4])) + 1 > limit {
            break;
        }
        kept.insert(0, c);
    }
    format!("…{kept}")
}
