//! The console's state: what is known, the views, and what lies over them.

use jiff::Timestamp;
use ratatui::layout::Rect;

use super::actions::{Actions, RunAsk};
use super::browse::{Ask, Listing, NoListing, ResourceRef};
use super::command::{Place, Where};
use super::explaining::{WhyAnswer, WhyAsk, Whys};
use super::frame::Parts;
use super::history::{History, Stop};
use super::keep::Kept;
use super::logs::{LogAsk, LogLine, Logs};
use super::messages::{Level, Messages};
use super::object::ObjectRef;
use super::palette::Filling;
use super::picker::Picker;
use super::prompt::Prompt;
use super::session::Session;
use super::settings::Settings;
use super::text_pane::{Body, TextPane};
use super::view::{Act, Ctx, Stamp, Target, View, ViewId};
use super::world::World;
use crate::model::{Delta, GpuPort, SourceReport, SourceState, Str};

/// Views that are not on the screen are brought up to date for this long at once.
const PREPARING: std::time::Duration = std::time::Duration::from_millis(3);

/// A thing that lies over the view and has the keys.
pub(super) enum Layer {
    /// A text.
    Text(Box<TextPane>),
    /// A list to pick from.
    Picker(Box<Picker>),
    /// A line that is typed.
    Prompt(Box<Prompt>),
}

/// What the console is told. Everything asynchronous arrives as one of these.
#[derive(Clone, PartialEq, Debug)]
pub enum Msg {
    /// A key was pressed.
    Key(super::key::Key),
    /// Text was pasted.
    Paste(String),
    /// The terminal has another size, or its content is lost.
    Resize,
    /// Changes of the cluster, of the session's generation.
    Deltas {
        /// [`Session::generation`] that they belong to; others are dropped.
        generation: u64,
        /// The changes in order.
        deltas: Vec<Delta>,
    },
    /// The server's answer to [`Cmd::FetchObject`].
    Fetched {
        /// What was asked for.
        object: ObjectRef,
        /// Its YAML, or why there is none, in one sentence.
        result: Result<String, String>,
    },
    /// The server's answer to [`Cmd::ListResources`].
    Resources {
        /// [`Session::generation`] that it belongs to.
        generation: u64,
        /// The collections, and a note for each group that could not be read; or why there are
        /// none, in one sentence.
        result: Result<(Vec<ResourceRef>, Vec<Str>), String>,
    },
    /// The server's answer to [`Cmd::Browse`].
    Browsed {
        /// What was asked for.
        ask: Ask,
        /// The list, or why there is none.
        result: Result<Listing, NoListing>,
    },
    /// The console is at another place now. Another generation: everything known is forgotten.
    Session(Session),
    /// [`Cmd::SwitchContext`] came to nothing: the console stays where it is.
    NotSwitched {
        /// The context that was asked for.
        context: Str,
        /// Why it cannot be opened.
        why: String,
    },
    /// Lines that answer [`Cmd::Logs`].
    LogLines {
        /// [`LogAsk::turn`] of the question; lines of an older one are dropped.
        turn: u64,
        /// The lines in order.
        lines: Vec<LogLine>,
    },
    /// The server's answer to [`Cmd::FetchLinks`].
    Links {
        /// [`Session::generation`] that it belongs to.
        generation: u64,
        /// The node.
        node: Str,
        /// Where its GPUs are, or why that is not told, in one sentence.
        result: Result<Vec<GpuPort>, String>,
    },
    /// The answer to [`Cmd::Explain`].
    Explained {
        /// [`WhyAsk::turn`] of the question; the answer to an older one is dropped.
        turn: u64,
        /// Why the pod waits.
        answer: WhyAnswer,
    },
    /// What the program of [`Cmd::Run`] wrote, or how it ended.
    Output {
        /// [`RunAsk::turn`] of the program; what an older one writes is dropped.
        turn: u64,
        /// Whole lines.
        text: String,
    },
    /// Who decides about placement.
    Leader(super::session::Leader),
    /// A sentence for the person.
    Notice(Level, String),
    /// Time has passed; ages may read differently.
    Tick,
    /// Leave.
    Quit,
}

/// What is to be done outside of the console's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cmd {
    /// Get an object from the server; answer with [`Msg::Fetched`].
    FetchObject(ObjectRef),
    /// Find out what the cluster offers; answer with [`Msg::Resources`].
    ListResources {
        /// [`Session::generation`] of the question.
        generation: u64,
    },
    /// Get a list from the server; answer with [`Msg::Browsed`].
    Browse(Ask),
    /// Follow logs; answer with [`Msg::LogLines`]. A later one takes the place of this one.
    Logs(LogAsk),
    /// Stop following logs.
    StopLogs,
    /// Find out where the GPUs of a node are on its board; answer with [`Msg::Links`].
    FetchLinks {
        /// [`Session::generation`] of the question.
        generation: u64,
        /// The node.
        node: Str,
    },
    /// Find out what would start a pod that waits; answer with [`Msg::Explained`].
    Explain(WhyAsk),
    /// Run a program; answer with [`Msg::Output`]. A later one takes the place of this one.
    Run(RunAsk),
    /// End the program that runs.
    StopRun,
    /// Keep this for the next session.
    Keep(Kept),
    /// Look at another context; answer with [`Msg::Session`] or [`Msg::NotSwitched`]. A later one
    /// takes the place of one without its answer.
    SwitchContext(Str),
    /// Give up the switch of context that is under way.
    StayHere,
    /// Another namespace is shown, or all. The console has it already; sources that are limited to
    /// one namespace follow.
    SwitchNamespace(Option<Str>),
    /// These nodes are on the screen now: what they measure is wanted first.
    LookAt(Vec<Str>),
    /// Put a text on the clipboard of the terminal.
    Copy(String),
    /// Give the terminal to the shell until it comes back.
    Suspend,
    /// Draw every cell anew.
    Redraw,
    /// Leave.
    Quit,
}

/// The console.
pub struct App {
    pub(super) world: World,
    pub(super) views: Vec<Box<dyn View>>,
    pub(super) current: usize,
    pub(super) layers: Vec<Layer>,
    /// Names that the palette does not have yet.
    pub(super) filling: Option<Filling>,
    pub(super) history: History,
    pub(super) messages: Messages,
    pub(super) dirty: bool,
    /// A thing to put the cursor on as soon as the view has its rows.
    pub(super) wanted: Option<Target>,
    /// The screen of the last frame.
    pub(super) screen: Rect,
    /// A key was taken since that frame: rows and cursor may not be what the next key is meant for.
    pub(super) behind: bool,
    /// The logs that are open.
    pub(super) logs: Logs,
    /// What would start pods that wait.
    pub(super) whys: Whys,
    /// The person's own actions.
    pub(super) actions: Actions,
    /// What is kept from session to session; `None`: nothing is.
    pub(super) kept: Option<Kept>,
    /// Whether views and filters are kept.
    pub(super) remembers: bool,
    /// What each view was last brought up to date with.
    pub(super) prepared: Vec<Stamp>,
    /// The view that is next to be brought up to date behind the one on the screen, if it has to be.
    next_to_prepare: usize,
}

impl App {
    /// A console over these views (see [`super::views::all`]), at its first view.
    pub fn new(
        settings: Settings,
        session: Session,
        views: Vec<Box<dyn View>>,
        now: Timestamp,
    ) -> Self {
        let Settings {
            keymap,
            depth,
            theme,
            glyphs,
            actions,
            notes,
        } = settings;
        let mut messages = Messages::default();
        let count = notes.len();
        for note in notes {
            messages.add(now, Level::Warn, note);
        }
        if count > 1 {
            let text = format!("{count} notes on your files: type :messages to read them");
            messages.add(now, Level::Warn, text);
        }
        let mut world = World::new(theme, glyphs, keymap, session);
        world.depth = depth;
        App {
            world,
            prepared: vec![Stamp::default(); views.len()],
            next_to_prepare: 0,
            views,
            current: 0,
            layers: Vec::new(),
            filling: None,
            history: History::default(),
            messages,
            logs: Logs::default(),
            whys: Whys::default(),
            actions: Actions::new(actions),
            kept: None,
            remembers: false,
            dirty: true,
            wanted: None,
            screen: Rect::ZERO,
            behind: false,
        }
    }

    /// Gives nodes tiers and prices by these rules; call it before anything is known.
    pub fn set_pricing(&mut self, pricing: std::sync::Arc<crate::model::Pricing>) {
        self.world.cluster = crate::model::Cluster::with_pricing(pricing.clone());
        self.world.pricing = pricing;
    }

    /// Starts at another view; false if there is no such view.
    pub fn open_view(&mut self, id: ViewId) -> bool {
        let Some(at) = self.views.iter().position(|v| v.id() == id) else {
            return false;
        };
        self.current = at;
        self.dirty = true;
        true
    }

    /// What is known and how it is drawn.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The view on the screen.
    pub fn view(&self) -> Option<&dyn View> {
        self.views.get(self.current).map(|v| &**v)
    }

    /// A view that is not on the screen and whose rows do not show what is known; none while the
    /// first lists are under way.
    fn unprepared(&self) -> Option<usize> {
        let loading = |s: &SourceReport| matches!(s.state, SourceState::Loading { .. });
        if self.screen.is_empty() || self.world.cluster.sources().any(loading) {
            return None;
        }
        let stamp = self.world.ctx().stamp();
        // Each in its turn: news without end about one view must not keep the others waiting.
        let (before, from) = self.prepared.split_at_checked(self.next_to_prepare)?;
        let views = (self.next_to_prepare..).zip(from);
        let mut views = views.chain((0..).zip(before));
        views
            .find(|(view, made_from)| *view != self.current && **made_from != stamp)
            .map(|(view, _)| view)
    }

    /// Whether [`App::fill_palette`] has something to do.
    pub fn is_filling_palette(&self) -> bool {
        self.filling.is_some()
    }

    /// Whether [`App::prepare`] has something to do.
    pub fn has_unprepared(&self) -> bool {
        self.unprepared().is_some()
    }

    /// Brings one view nearer to what is known that is not on the screen, so that it need not be
    /// done once somebody looks at it. It takes a bounded time: a key may come meanwhile.
    pub fn prepare(&mut self) {
        let begun = std::time::Instant::now();
        self.world.count_ahead();
        let Some(at) = self.unprepared() else { return };
        let area = Parts::of(self.screen).view;
        let mut lags = true;
        while lags && begun.elapsed() < PREPARING {
            self.bring(at, |view, ctx| view.prepare(area, ctx));
            lags = self.views.get(at).is_some_and(|view| view.lags());
        }
        self.next_to_prepare = if lags { at } else { at + 1 };
    }

    /// Brings the rows of a view up to date.
    pub(super) fn refresh_view(&mut self, at: usize, area: Rect) {
        self.bring(at, |view, ctx| view.refresh(area, ctx));
    }

    pub(super) fn bring(&mut self, at: usize, nearer: impl FnOnce(&mut dyn View, &Ctx<'_>)) {
        let ctx = self.world.ctx();
        let Some(view) = self.views.get_mut(at) else {
            return;
        };
        nearer(&mut **view, &ctx);
        let done = !view.lags();
        if let Some(prepared) = self.prepared.get_mut(at).filter(|_| done) {
            *prepared = ctx.stamp();
        }
    }

    /// Whether the view on the screen has rows that are older than what is known.
    pub fn lags(&self) -> bool {
        self.view().is_some_and(View::lags)
    }

    pub(super) fn view_mut(&mut self) -> Option<&mut Box<dyn View>> {
        self.views.get_mut(self.current)
    }

    /// All messages so far.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Whether a frame drawn now may differ from the last one.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Whether something on the screen changes by time alone, so that [`Msg::Tick`] is wanted once
    /// a second.
    pub fn wants_tick(&self) -> bool {
        let ctx = self.world.ctx();
        super::header::ages(&ctx) || self.view().is_some_and(|v| v.ages_by_second(&ctx))
    }

    /// What the cursor or the open text is about.
    pub(super) fn target(&self) -> Option<Target> {
        for layer in self.layers.iter().rev() {
            if let Layer::Text(pane) = layer {
                return match &pane.body {
                    Body::Description(_, target) | Body::Why(target) => Some(target.clone()),
                    Body::Yaml(object) => object
                        .resource
                        .is_some()
                        .then(|| Target::Object(object.clone())),
                    _ => None,
                };
            }
        }
        self.view().and_then(View::selected)
    }

    pub(super) fn stop(&self) -> Option<Stop> {
        self.view().map(|v| Stop {
            view: v.id(),
            target: v.selected(),
        })
    }

    /// What conditions of commands look at.
    pub fn place(&self) -> Where {
        let top = self.layers.last();
        let text = self.layers.iter().rev().find_map(|l| match l {
            Layer::Text(pane) => Some(pane),
            _ => None,
        });
        let view = self.view();
        let target = self.target();
        let cluster = &self.world.cluster;
        Where {
            place: match top {
                None => Place::View,
                Some(Layer::Text(_)) => Place::Text,
                Some(Layer::Picker(_) | Layer::Prompt(_)) => Place::Entry,
            },
            view: view.map_or(ViewId::Fleet, View::id),
            has_row: target.is_some(),
            refreshable: match text {
                Some(pane) => matches!(pane.body, Body::Yaml(_)),
                None => view.is_some_and(|v| v.id() == ViewId::Browse),
            },
            has_pods: target
                .as_ref()
                .is_some_and(|t| super::jump::has_pods(t, cluster)),
            has_owner: target
                .as_ref()
                .is_some_and(|t| super::jump::has_owner(t, cluster)),
            has_node: target
                .as_ref()
                .is_some_and(|t| super::jump::has_node(t, cluster)),
            has_links: self.linked_node().is_some(),
            has_why: target.as_ref().is_some_and(super::jump::has_why),
            has_object: target.is_some_and(|t| ObjectRef::of(&t, cluster).is_some()),
            marks: view.map_or(0, |v| v.marks().len()),
            filtered: match text {
                Some(pane) => !pane.search().is_empty(),
                None => view.is_some_and(|v| !v.filter().is_empty() || v.is_inside()),
            },
            connecting: self.world.connecting.is_some(),
            sortable: view.is_some_and(|v| !v.sort_columns().is_empty()),
            sort: view.and_then(View::sort),
            acts: [Act::ZoomIn, Act::ZoomOut, Act::GroupNext, Act::LensNext]
                .map(|act| view.is_some_and(|v| v.can(act))),
            has_earlier: self.history.has_earlier(),
            has_later: self.history.has_later(),
            contexts: self.world.session.contexts.len(),
            views: ViewId::ALL.map(|id| self.views.iter().any(|v| v.id() == id)),
        }
    }

    pub(super) fn note(&mut self, level: Level, text: impl Into<String>) {
        self.messages.add(self.world.now, level, text);
        self.dirty = true;
    }

    pub(super) fn push_picker(&mut self, picker: Picker) {
        self.layers.push(Layer::Picker(Box::new(picker)));
    }
}
