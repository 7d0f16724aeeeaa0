//! Panels change their places and sizes.

use crate::tui::app::{App, Effect, Focus};
use crate::tui::chat::Level;
use crate::tui::hits::Target;
use crate::tui::keymap::Action;
use crate::tui::layout::{Arrangement, Layout, Side};
use crate::tui::panels::{Panel, SizeClass};
use crate::tui::view::least;

/// Cells that one press of a key gives or takes.
const STEP: u16 = 2;

/// A key that moves the panel with the focus, or changes its size.
pub fn act(app: &mut App, action: Action) {
    let (Focus::Panel(panel), class) = (app.focus, app.class()) else { return };
    let layout = app.panels.layout_mut(class);
    let moved = match action {
        Action::PanelUp => layout.move_in_column(panel, false),
        Action::PanelDown => layout.move_in_column(panel, true),
        Action::PanelLeft => layout.move_to(panel, Side::Left),
        Action::PanelRight => layout.move_to(panel, Side::Right),
        Action::Narrower => resize(layout, panel, false),
        Action::Wider => resize(layout, panel, true),
        Action::Shorter => return grow(app, panel, false),
        Action::Taller => return grow(app, panel, true),
        _ => return,
    };
    if !moved {
        let text = match layout.arrangement {
            Arrangement::Compact => "there is one panel; /layout balanced makes a column of them",
            Arrangement::Balanced if matches!(action, Action::PanelLeft | Action::PanelRight) => {
                "there is one column; /layout wide makes two"
            }
            _ => return,
        };
        app.say(text);
    }
}

fn resize(layout: &mut Layout, panel: Panel, wider: bool) -> bool {
    if layout.arrangement == Arrangement::Compact {
        return false;
    }
    let side = layout.side(panel);
    let width = layout.width(side);
    layout.set_width(side, if wider { width + STEP } else { width.saturating_sub(STEP) });
    true
}

/// The panel's lower edge moves; of the last in a column the upper one.
fn grow(app: &mut App, panel: Panel, taller: bool) {
    let class = app.class();
    let column = app.panels.layout(class).column(app.panels.layout(class).side(panel));
    if app.panels.layout(class).arrangement == Arrangement::Compact {
        return grow_drawer(app, panel, taller);
    }
    let Some(at) = column.iter().position(|p| *p == panel) else { return };
    let neighbour = column.get(at + 1).or_else(|| column.get(at.checked_sub(1)?));
    let Some(neighbour) = neighbour.copied() else { return };
    settle(app, &column);
    let (gains, loses) = if taller { (panel, neighbour) } else { (neighbour, panel) };
    let heights = &mut app.panels.layout_mut(class).heights;
    let (Some(more), Some(less)) = (heights.get(&gains).copied(), heights.get(&loses).copied()) else {
        return;
    };
    if less > least(loses) {
        heights.extend([(gains, more + 1), (loses, less - 1)]);
    }
}

fn grow_drawer(app: &mut App, panel: Panel, taller: bool) {
    let Some(drawn) = app.hits.area(Target::Panel(panel)).map(|area| area.height) else { return };
    let layout = app.panels.layout_mut(SizeClass::of(app.size));
    let rows = layout.drawer.unwrap_or(drawn);
    layout.drawer =
        Some(if taller { rows.saturating_add(1).min(app.size.1) } else { rows.saturating_sub(1).max(2) });
}

/// From now on the panels of a column have the heights that they were drawn with.
fn settle(app: &mut App, column: &[Panel]) {
    let class = app.class();
    let hits = &app.hits;
    let drawn = |p: &Panel| hits.area(Target::Panel(*p)).filter(|a| a.height > 1).map(|a| (*p, a.height));
    let drawn: Vec<(Panel, u16)> = column.iter().filter_map(drawn).collect();
    let heights = &mut app.panels.layout_mut(class).heights;
    if !drawn.iter().all(|(panel, _)| heights.contains_key(panel)) {
        heights.extend(drawn);
    }
}

/// The line beside a column of panels is drawn to `x`.
pub fn drag_divider(app: &mut App, side: Side, x: u16) {
    let (class, whole) = (app.class(), app.size.0);
    let width = match side {
        Side::Left => x + 1,
        Side::Right => whole.saturating_sub(x),
    };
    app.panels.layout_mut(class).set_width(side, width);
}

/// A panel's title is drawn to row `y`: what it gains, the one above it loses.
pub fn drag_title(app: &mut App, panel: Panel, y: u16) {
    let (class, hits) = (app.class(), &app.hits);
    let layout = app.panels.layout(class);
    if app.panels.zoomed || app.panels.presenting {
        return;
    }
    let Some(area) = hits.area(Target::Panel(panel)) else { return };
    if layout.arrangement == Arrangement::Compact {
        let rows = area.bottom().saturating_sub(y).max(2);
        app.panels.layout_mut(class).drawer = Some(rows);
        return;
    }
    let column = layout.column(layout.side(panel));
    let Some(above) = column.iter().position(|p| *p == panel).and_then(|at| column.get(at.checked_sub(1)?))
    else {
        return;
    };
    let Some(upper) = hits.area(Target::Panel(*above)) else { return };
    if upper.height == 1 || area.height == 1 {
        return;
    }
    let most = area.bottom().saturating_sub(least(panel)).max(upper.y);
    let y = y.clamp((upper.y + least(*above)).min(most), most);
    let two = [(*above, y - upper.y), (panel, area.bottom() - y)];
    settle(app, &column);
    app.panels.layout_mut(class).heights.extend(two);
}

/// `/layout wide`
pub fn command(app: &mut App, typed: &str) {
    let class = app.class();
    if class == SizeClass::Tiny && typed != "present" {
        return app.say("the window is too small for panels");
    }
    match typed {
        "" => tell(app),
        "reset" => *app.panels.layout_mut(class) = Layout::of(class),
        "present" => return present(app),
        name => match Arrangement::ALL.into_iter().find(|a| a.name() == name) {
            Some(arrangement) => *app.panels.layout_mut(class) = Layout::new(arrangement),
            None => {
                let text = format!("/layout takes compact, balanced, wide, reset or present, not {name:?}");
                return app.chat.note(Level::Bad, text);
            }
        },
    }
    app.panels.zoomed = false;
    if !typed.is_empty() {
        app.panels.presenting = false;
        app.say(format!(
            "layout {}, kept for windows of this size",
            app.panels.layout(class).arrangement.name()
        ));
    }
}

fn present(app: &mut App) {
    app.panels.presenting = !app.panels.presenting;
    app.panels.zoomed = false;
    app.say(match app.panels.presenting {
        true => "presenting: 1-6 choose the panel, /layout present ends it",
        false => "as it was before the presentation",
    });
}

fn tell(app: &mut App) {
    let now = app.panels.layout(app.class()).arrangement;
    let row = |a: Arrangement| {
        let mark = if a == now { "  now" } else { "" };
        format!("{:<10}  {}{mark}", a.name(), a.help())
    };
    let mut rows: Vec<String> = Arrangement::ALL.map(row).into();
    rows.push("present     one panel and the chat, spaced for people far away".into());
    rows.push("reset       as it comes for a window of this size".into());
    app.chat.note(Level::Info, rows.join("\n"));
}

/// What a later session is to find is written whenever it has changed.
pub fn keep(app: &mut App, effects: &mut Vec<Effect>) {
    if app.options.layout.is_none() || app.pointer.held.is_some() {
        return;
    }
    let mut kept = app.kept.clone();
    app.panels.keep(&mut kept);
    if kept != app.kept {
        effects.push(Effect::Keep(kept.text()));
        app.kept = kept;
    }
}
