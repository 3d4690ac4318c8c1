//! One message in, the new state and the side effects out.

use jiff::Timestamp;
use ratatui::text::Line;

use super::app::{App, Cmd, Layer, Msg};
use super::command::{Command, CommandId, When};
use super::entry;
use super::help;
use super::history::Stop;
use super::jump;
use super::key::{Code, Key, Named};
use super::logs::Logs;
use super::messages::Level;
use super::object::{self, ObjectRef};
use super::palette;
use super::picker::{Choice, Picked, Picker};
use super::prompt::{Prompt, Purpose};
use super::reports;
use super::session::Session;
use super::text_pane::{self, Body, TextPane};
use super::theme::Theme;
use super::view::{Opens, Sort, Target, View, ViewId};
use crate::model::Str;

/// Most bytes of a copied text: in base64 it is what tmux and most terminals still take.
const COPY_LIMIT: usize = 55_000;
const COPY_REFUSED: &str = "too long for the clipboard of a terminal (55 kB); copy less";

impl App {
    /// Takes a message that came at `now`.
    pub fn update(&mut self, msg: Msg, now: Timestamp) -> Vec<Cmd> {
        self.world.now = now;
        self.dirty = true;
        match msg {
            Msg::Key(key) => {
                self.messages.seen();
                // Keys typed ahead of the frame (`2y`) mean what they would have seen.
                if self.behind {
                    self.refresh(self.screen);
                }
                self.behind = true;
                return self.key(key);
            }
            Msg::Paste(text) => self.paste(&text),
            Msg::Resize => return vec![Cmd::Redraw],
            Msg::Deltas { generation, deltas } => {
                if generation == self.world.session.generation {
                    for delta in &deltas {
                        self.world.cluster.apply(delta);
                    }
                    return self.ask_why();
                }
            }
            Msg::Fetched { object, result } => self.fetched(&object, result),
            Msg::Resources { generation, result } => {
                if generation == self.world.session.generation {
                    self.offered(result);
                }
            }
            Msg::Browsed { ask, result } => self.world.browse.take(&ask, result, now),
            Msg::Session(session) => return self.enter(session),
            Msg::NotSwitched { context, why } => {
                self.world.connecting = None;
                let text = format!("{context} cannot be opened: {why}");
                self.note(Level::Error, crate::model::clean(&text, 1_000));
            }
            Msg::LogLines { turn, lines } => self.log_lines(turn, &lines),
            Msg::Links {
                generation,
                node,
                result,
            } => {
                if generation == self.world.session.generation {
                    self.links(&node, &result);
                }
            }
            Msg::Explained { turn, answer } => self.why_told(turn, answer),
            Msg::Output { turn, text } => self.output(turn, &text),
            Msg::Leader(leader) => self.world.leader = leader,
            Msg::Notice(level, text) => self.note(level, crate::model::clean(&text, 1_000)),
            Msg::Tick => {}
            Msg::Quit => return self.quit(),
        }
        Vec::new()
    }

    fn enter(&mut self, session: Session) -> Vec<Cmd> {
        if session.generation == self.world.session.generation {
            self.world.session = session;
            return Vec::new();
        }
        let keep = self.what_to_keep();
        self.world.enter(session);
        self.layers.clear();
        self.logs = Logs::default();
        self.whys.forget();
        self.history = super::history::History::default();
        self.wanted = None;
        // Its list was the other place's.
        if self.view().is_some_and(|v| v.id() == ViewId::Browse) {
            self.current = 0;
        }
        for view in &mut self.views {
            view.clear_marks();
            while view.leave() {}
            let _ = view.set_filter("");
            view.reset_sort();
            if let Some((first, _)) = view.lenses().first() {
                view.set_lens(first);
            }
        }
        self.restore_here();
        keep.into_iter().collect()
    }

    fn fetched(&mut self, object: &ObjectRef, result: Result<String, String>) {
        let lines = match result {
            Ok(text) => object::safe_lines(&text),
            Err(why) => {
                self.note(Level::Error, crate::model::clean(&why, 1_000));
                object::safe_lines(&why)
            }
        };
        for layer in &mut self.layers {
            if let Layer::Text(pane) = layer
                && pane.body == Body::Yaml(object.clone())
            {
                pane.set_lines(lines.clone());
            }
        }
    }

    fn paste(&mut self, text: &str) {
        self.fill_whole_palette();
        match self.layers.last_mut() {
            Some(Layer::Picker(picker)) => picker.paste(text),
            Some(Layer::Prompt(prompt)) => {
                if entry::paste(&mut prompt.input, text) {
                    self.typed();
                }
            }
            // A paste is never taken for keys: it could hold anything.
            Some(Layer::Text(_)) | None => {}
        }
    }

    fn key(&mut self, key: Key) -> Vec<Cmd> {
        let id = self.world.keymap.command(key);
        // These must work whatever is open and whatever the keymap says.
        match id {
            Some(CommandId::Quit | CommandId::Suspend | CommandId::Redraw) if key.ctrl => {}
            None if key.ctrl && key.code == Code::Char('c') => return self.quit(),
            _ => match self.layers.last_mut() {
                Some(Layer::Picker(_)) => {
                    if key.code != Code::Named(Named::Esc) {
                        self.fill_whole_palette();
                    }
                    let Some(Layer::Picker(picker)) = self.layers.last_mut() else {
                        return Vec::new();
                    };
                    let picked = picker.key(key);
                    return self.picked(picked);
                }
                Some(Layer::Prompt(_)) => return self.prompt_key(key),
                Some(Layer::Text(_)) | None => {}
            },
        }
        match id {
            Some(id) => self.give(id),
            None => {
                let help = self.world.keymap.key_of(CommandId::Help);
                let hint = help.map_or(String::new(), |k| format!("; {k} shows all keys"));
                self.note(Level::Info, format!("{key} has no meaning{hint}"));
                Vec::new()
            }
        }
    }

    fn picked(&mut self, picked: Picked) -> Vec<Cmd> {
        match picked {
            Picked::Open => Vec::new(),
            Picked::Refused(why) => {
                self.note(Level::Info, why);
                Vec::new()
            }
            Picked::Closed => {
                self.layers.pop();
                Vec::new()
            }
            Picked::Chosen(choice) => {
                self.layers.pop();
                match choice {
                    Choice::Command(id) => self.give(id),
                    Choice::Namespace(namespace) => self.show_namespace(namespace),
                    Choice::Context(name) => {
                        let back = self.world.keymap.key_of(CommandId::Back);
                        let stay = back.map_or(String::new(), |k| format!("; {k} stays here"));
                        self.note(Level::Info, format!("connecting to {name}{stay}"));
                        self.world.connecting = Some(name.clone());
                        vec![Cmd::SwitchContext(name)]
                    }
                    Choice::Go(target) => {
                        self.go(jump::view_of(&target), Some(target));
                        Vec::new()
                    }
                    Choice::Browse(resource) => self.browse(resource),
                    Choice::Lens(name) => {
                        self.on_view(|v| v.set_lens(name));
                        Vec::new()
                    }
                    Choice::Theme(name) => {
                        if let Some(theme) = Theme::built_in(name, self.world.depth) {
                            self.world.theme = theme;
                            self.note(
                                Level::Info,
                                format!("theme {name}; `theme` in config.toml keeps it"),
                            );
                        }
                        vec![Cmd::Redraw]
                    }
                    Choice::Signs(ascii) => {
                        self.world.glyphs = super::glyphs::Glyphs { ascii };
                        vec![Cmd::Redraw]
                    }
                    Choice::SortBy(column) => {
                        self.sort_by(column);
                        Vec::new()
                    }
                    Choice::Run(ask) => self.start(ask),
                    Choice::Nothing => Vec::new(),
                }
            }
        }
    }

    fn sort_by(&mut self, column: &'static str) {
        if let Some(view) = self.view_mut() {
            let falling = view
                .sort()
                .is_some_and(|s| s.column == column && !s.falling);
            view.set_sort(Sort { column, falling });
        }
    }

    fn show_namespace(&mut self, namespace: Option<Str>) -> Vec<Cmd> {
        if namespace == self.world.session.namespace {
            return Vec::new();
        }
        self.world.session.namespace.clone_from(&namespace);
        let mut cmds = vec![Cmd::SwitchNamespace(namespace)];
        if let Some(resource) = self.world.browse.resource().cloned() {
            cmds.extend(self.ask(resource));
        }
        cmds
    }

    /// Goes to a view, and there to a thing. The cursor is put on it when the view has its rows.
    pub(super) fn go(&mut self, view: ViewId, target: Option<Target>) {
        self.layers.clear();
        let here = self.stop();
        let before = self.current;
        if !self.open_view(view) {
            self.note(Level::Info, format!("there is no view {}", view.title()));
            return;
        }
        if let Some(here) = here
            && (before != self.current || target.is_some())
        {
            self.history.leave(here);
        }
        self.wanted = target;
    }

    fn return_to(&mut self, stop: Option<Stop>) {
        if let Some(stop) = stop {
            self.open_view(stop.view);
            self.wanted = stop.target;
        }
    }

    fn prompt_key(&mut self, key: Key) -> Vec<Cmd> {
        let Some(Layer::Prompt(prompt)) = self.layers.last_mut() else {
            return Vec::new();
        };
        match key.code {
            Code::Named(Named::Esc) => {
                let before = std::mem::take(&mut prompt.before);
                let purpose = prompt.purpose;
                self.layers.pop();
                self.apply(purpose, &before);
            }
            Code::Named(Named::Enter) if prompt.purpose == Purpose::Confirm => {
                if let Some(ask) = prompt.confirmed().cloned() {
                    self.layers.pop();
                    return self.start(ask);
                }
            }
            Code::Named(Named::Enter) => {
                // A line with a fault stays open: what is shown is not what is typed.
                if prompt.error.is_none() {
                    self.layers.pop();
                }
            }
            _ => {
                if entry::edit(&mut prompt.input, key) {
                    self.typed();
                }
            }
        }
        Vec::new()
    }

    /// Puts the typed line in force as it stands.
    fn typed(&mut self) {
        let Some(Layer::Prompt(prompt)) = self.layers.last() else {
            return;
        };
        let (purpose, text) = (prompt.purpose, prompt.input.value().to_owned());
        let fault = self.apply(purpose, &text);
        if let Some(Layer::Prompt(prompt)) = self.layers.last_mut() {
            prompt.error = fault;
        }
    }

    fn apply(&mut self, purpose: Purpose, text: &str) -> Option<super::view::FilterError> {
        match purpose {
            Purpose::Filter => self.view_mut().and_then(|v| v.set_filter(text).err()),
            Purpose::Search => {
                for layer in self.layers.iter_mut().rev() {
                    if let Layer::Text(pane) = layer {
                        pane.set_search(text);
                        break;
                    }
                }
                None
            }
            Purpose::Confirm => None,
        }
    }

    /// Gives a command, if it can be given here and now.
    pub fn give(&mut self, id: CommandId) -> Vec<Cmd> {
        if let CommandId::Own(at) = id {
            return self.give_action(at);
        }
        let Some(command) = Command::of(id) else {
            return Vec::new();
        };
        match (command.when)(&self.place()) {
            When::Yes => self.carry_out(id),
            When::Disabled(why) => {
                self.note(Level::Info, format!("{}: {why}", command.name));
                Vec::new()
            }
            When::No => {
                self.note(Level::Info, format!("{} has no meaning here", command.name));
                Vec::new()
            }
        }
    }

    fn carry_out(&mut self, id: CommandId) -> Vec<Cmd> {
        match id {
            CommandId::View(view) => self.go(view, None),
            CommandId::Move(motion) => match self.layers.last_mut() {
                Some(Layer::Text(pane)) => pane.motion(motion),
                _ => {
                    self.wanted = None;
                    if let Some(view) = self.view_mut() {
                        view.motion(motion);
                    }
                }
            },
            CommandId::Open => return self.open(),
            CommandId::Back => return self.back(),
            CommandId::Earlier | CommandId::Later => self.step(id == CommandId::Earlier),
            CommandId::Filter => self.start_filter(),
            CommandId::Palette => {
                self.open_palette();
                if self.world.browse.resources.is_empty() {
                    let generation = self.world.session.generation;
                    return vec![Cmd::ListResources { generation }];
                }
            }
            CommandId::Help => self.open_help(),
            CommandId::Mark => self.on_view(|v| v.toggle_mark()),
            CommandId::MarkRange => self.on_view(|v| v.mark_range()),
            CommandId::ClearMarks => self.on_view(|v| v.clear_marks()),
            CommandId::Describe => self.describe(),
            CommandId::Yaml => return self.fetch(),
            CommandId::Why => return self.explain(),
            CommandId::Logs => return self.follow_logs(),
            CommandId::Owner => self.jump(jump::owner),
            CommandId::ItsNode => self.jump(jump::node),
            CommandId::Links => return self.show_links(),
            CommandId::Copy => return self.copy(),
            CommandId::Sort => {
                if let Some(items) = self.view().map(palette::sort_columns) {
                    self.push_picker(Picker::new("sort by", items));
                }
            }
            CommandId::ReverseSort => self.on_view(|v| {
                if let Some(sort) = v.sort() {
                    v.set_sort(Sort {
                        falling: !sort.falling,
                        ..sort
                    });
                }
            }),
            CommandId::Namespace => {
                let items = palette::namespaces(self);
                let picker = Picker::new("namespace", items);
                self.push_picker(picker.offering(palette::typed_namespace));
            }
            CommandId::Context => {
                let items = palette::contexts(self);
                self.push_picker(Picker::new("context", items));
            }
            CommandId::Act(act) => self.on_view(|v| v.act(act)),
            CommandId::Lens => {
                if let Some(items) = self.view().map(palette::lenses) {
                    self.push_picker(Picker::new("lens", items));
                }
            }
            CommandId::Messages => self.open_messages(),
            CommandId::Sources => self.open_report(Body::Sources, "sources"),
            CommandId::Unreadable => self.open_report(Body::Unreadable, "unreadable"),
            CommandId::Refresh => return self.ask_again(),
            CommandId::Redraw => return vec![Cmd::Redraw],
            CommandId::Suspend => return vec![Cmd::Suspend],
            CommandId::Tour => self.open_tour(),
            CommandId::Quit => return self.quit(),
            CommandId::Own(at) => return self.give_action(at),
        }
        Vec::new()
    }

    fn on_view(&mut self, f: impl FnOnce(&mut dyn View)) {
        if let Some(view) = self.view_mut() {
            f(&mut **view);
        }
    }

    fn open(&mut self) -> Vec<Cmd> {
        if self.layers.is_empty() && self.view_mut().is_some_and(|v| v.enter()) {
            return Vec::new();
        }
        let opens = self.view().map(|v| v.opens(&self.world.ctx()));
        match opens {
            Some(Opens::Place(view, target)) => self.go(view, Some(target)),
            Some(Opens::Filtered(view, filter)) => {
                self.go(view, None);
                self.on_view(|v| {
                    // A filter that a view gives is one that the other can read.
                    let _ = v.set_filter(&filter);
                });
            }
            Some(Opens::Description) => self.describe(),
            Some(Opens::Yaml) => return self.fetch(),
            None => {}
        }
        Vec::new()
    }

    fn back(&mut self) -> Vec<Cmd> {
        if let Some(closed) = self.layers.pop() {
            return match closed {
                Layer::Text(pane) => match pane.body {
                    Body::Logs(_) => self.stop_logs(),
                    Body::Output(_) => self.stop_output(),
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            };
        }
        if self.world.connecting.take().is_some() {
            let here = self.world.session.context.clone();
            self.note(Level::Info, format!("stays in {here}"));
            return vec![Cmd::StayHere];
        }
        self.on_view(|v| {
            if v.filter().is_empty() && v.leave() {
                return;
            }
            // No filter is always a sound filter.
            let _ = v.set_filter("");
        });
        Vec::new()
    }

    fn step(&mut self, back: bool) {
        if let Some(Layer::Text(pane)) = self.layers.last_mut() {
            if back {
                pane.previous_hit();
            } else {
                pane.next_hit();
            }
            return;
        }
        let Some(here) = self.stop() else { return };
        let to = if back {
            self.history.back(here)
        } else {
            self.history.forward(here)
        };
        self.return_to(to);
    }

    fn start_filter(&mut self) {
        let prompt = match self.layers.last() {
            Some(Layer::Text(pane)) => Prompt::new(Purpose::Search, pane.search()),
            _ => {
                let filter = self.view().map_or("", |v| v.filter());
                Prompt::new(Purpose::Filter, filter)
            }
        };
        self.layers.push(Layer::Prompt(Box::new(prompt)));
    }

    pub(super) fn push_text(&mut self, pane: TextPane) {
        self.layers.push(Layer::Text(Box::new(pane)));
    }

    fn open_help(&mut self) {
        let open = |l: &Layer| matches!(l, Layer::Text(p) if p.body == Body::Help);
        if self.layers.last().is_some_and(open) {
            self.layers.pop();
            return;
        }
        let columns = self.view().map(View::filter_columns).unwrap_or_default();
        let world = &self.world;
        let place = self.place();
        let mut lines = help::lines(&world.keymap, &place, &world.theme, &columns);
        let own = self
            .actions()
            .iter()
            .map(|a| (a, self.action_when(a, &place)));
        lines.extend(help::own(own, &world.theme));
        self.push_text(TextPane::new(Body::Help, "keys", lines));
    }

    fn quit(&mut self) -> Vec<Cmd> {
        self.what_to_keep().into_iter().chain([Cmd::Quit]).collect()
    }

    fn open_report(&mut self, body: Body, title: &str) {
        let lines = self.report_lines(&body).unwrap_or_default();
        self.push_text(TextPane::new(body, title, lines));
    }

    /// The text of a pane that follows the cluster and is about no single thing.
    pub(super) fn report_lines(&self, body: &Body) -> Option<Vec<Line<'static>>> {
        let ctx = self.world.ctx();
        match body {
            Body::Sources => Some(reports::sources(&ctx)),
            Body::Unreadable => Some(reports::unreadable(&ctx)),
            _ => None,
        }
    }

    fn open_messages(&mut self) {
        let lines = self.message_lines();
        self.push_text(TextPane::new(Body::Messages, "messages", lines));
    }

    fn describe(&mut self) {
        let Some(target) = self.target() else { return };
        let ctx = self.world.ctx();
        let Some(view) = self.view() else { return };
        let Some(lines) = view.describe(&target, &ctx) else {
            self.note(Level::Info, "it is gone");
            return;
        };
        let title = match ObjectRef::of(&target, &self.world.cluster) {
            Some(object) => object.title(),
            None => match &target {
                Target::Queue(key) => format!("{} {key}", key.kind),
                Target::Tier(name) => format!("Tier {name}"),
                _ => view.id().title().to_owned(),
            },
        };
        let body = Body::Description(view.id(), target);
        let lines = text_pane::below(&title, lines);
        self.push_text(TextPane::new(body, title, lines));
    }

    fn fetch(&mut self) -> Vec<Cmd> {
        let target = self.target();
        let Some(object) = target.and_then(|t| ObjectRef::of(&t, &self.world.cluster)) else {
            return Vec::new();
        };
        let waiting = object::safe_lines("… asking the server");
        let body = Body::Yaml(object.clone());
        self.push_text(TextPane::new(body, object.title(), waiting));
        vec![Cmd::FetchObject(object)]
    }

    fn copy(&mut self) -> Vec<Cmd> {
        if let Some(Layer::Text(pane)) = self.layers.last() {
            let text = pane.text();
            if text.len() > COPY_LIMIT {
                self.note(Level::Warn, COPY_REFUSED);
                return Vec::new();
            }
            self.note(Level::Info, "the text is copied");
            return vec![Cmd::Copy(text)];
        }
        let mut targets = self.view().map(View::marks).unwrap_or_default();
        if targets.is_empty() {
            targets.extend(self.target());
        }
        let names: Vec<String> = targets
            .iter()
            .filter_map(|t| object::copied_name(t, &self.world.cluster))
            .collect();
        let text = names.join("\n");
        if text.len() > COPY_LIMIT {
            self.note(Level::Warn, COPY_REFUSED);
            return Vec::new();
        }
        match names.as_slice() {
            [] => return Vec::new(),
            [one] => self.note(Level::Info, format!("copied {one}")),
            many => self.note(Level::Info, format!("copied {} names", many.len())),
        }
        vec![Cmd::Copy(text)]
    }
}
