//! Everything that can be done, in one list to be searched.

use super::theme;
use crate::protocol::{PARAMS, SCHEDULING};
use crate::tui::app::App;
use crate::tui::keymap::{self, Action, Place};
use crate::tui::layout::Arrangement;
use crate::tui::overlay::Overlay;
use crate::tui::picker::{Choice, Item, Picker};
use crate::tui::{sanitize, slash};

/// Actions, commands, parameters, layouts, themes and open chats; what was chosen before comes first.
pub fn open(app: &mut App) {
    let mut items: Vec<Item> = actions(app).collect();
    items.extend(chats(app));
    items.extend(commands());
    items.extend(parameters(app));
    items.extend(layouts());
    items.extend(themes(app));
    let newness =
        |item: &Item| app.chosen.iter().position(|label| *label == item.label).unwrap_or(usize::MAX);
    items.sort_by_key(newness);
    app.overlay = Some(Overlay::Picker(Box::new(Picker::new("palette", items))));
}

fn actions(app: &App) -> impl Iterator<Item = Item> {
    let named = app.keymap.bindings().filter(|b| !b.help.is_empty() && b.is_for_palette());
    named.map(|binding| Item {
        label: binding.help.to_owned(),
        detail: String::new(),
        note: binding.keys.first().map(|key| keymap::name(*key)).unwrap_or_default(),
        choice: Choice::Action(binding.action),
    })
}

fn commands() -> impl Iterator<Item = Item> {
    slash::COMMANDS.iter().map(|c| Item {
        label: format!("/{} {}", c.name, c.arguments).trim_end().to_owned(),
        detail: c.help.to_owned(),
        note: String::new(),
        choice: match c.arguments {
            "" => Choice::Command(format!("/{}", c.name)),
            _ => Choice::Draft(format!("/{} ", c.name)),
        },
    })
}

fn parameters(app: &App) -> Vec<Item> {
    let item = |name: &str, now: String, help: &str| Item {
        label: format!("set {name}"),
        detail: help.to_owned(),
        note: now,
        choice: Choice::Draft(format!("/set {name} ")),
    };
    let sampling = PARAMS.iter().map(|spec| item(spec.name, (spec.get)(&app.params).to_string(), spec.help));
    let scheduler = app.scheduler();
    let scheduling =
        SCHEDULING.iter().map(|spec| item(spec.name, (spec.get)(scheduler).to_string(), spec.help));
    sampling.chain(scheduling).collect()
}

fn layouts() -> impl Iterator<Item = Item> {
    let named = Arrangement::ALL.map(|a| (a.name(), a.help()));
    let own = [("present", "one panel and the chat, spaced"), ("reset", "as it comes for this size")];
    named.into_iter().chain(own).map(|(name, help)| Item {
        label: format!("layout {name}"),
        detail: help.to_owned(),
        note: String::new(),
        choice: Choice::Command(format!("/layout {name}")),
    })
}

fn themes(app: &App) -> impl Iterator<Item = Item> {
    theme::names(app).map(|name| Item {
        label: format!("theme {name}"),
        detail: String::new(),
        note: if name == app.theme.name { "worn now" } else { "" }.to_owned(),
        choice: Choice::Theme(name.to_owned()),
    })
}

fn chats(app: &App) -> Vec<Item> {
    if app.tabs.len() < 2 {
        return Vec::new();
    }
    let item = |(tab, chat): (usize, &crate::tui::chat::Chat)| Item {
        label: format!("chat {}", tab + 1),
        detail: chat.title.as_deref().map(sanitize::one_line).unwrap_or_default(),
        note: if tab == app.tabs.active() { "in view" } else { "" }.to_owned(),
        choice: Choice::Tab(tab),
    };
    app.tabs.all(&app.chat).enumerate().map(item).collect()
}

impl keymap::Binding {
    /// Whether it makes sense from anywhere.
    fn is_for_palette(&self) -> bool {
        use Action::{
            Answer, Decrease, Down, EditValue, First, Increase, Last, Narrower, PanelLeft, PanelUp, Shorter,
            Submit, Up, Zoom,
        };
        let of_a_panel = matches!(
            self.action,
            Down | Up
                | First
                | Last
                | Increase
                | Decrease
                | EditValue
                | PanelUp
                | PanelLeft
                | Narrower
                | Shorter
                | Zoom
        );
        let elsewhere = matches!(self.place, Place::In(_) | Place::Replay | Place::Question);
        !of_a_panel && !elsewhere && !matches!(self.action, Answer(_) | Submit)
    }
}
