//! The loop between a terminal and the rest of gpudeck.
//!
//! Signals come first, then input, data, time. What is ready is taken in before anything is drawn,
//! and then at most one frame is drawn. Frames keep a distance that follows the time the terminal
//! takes for one; a key is answered at once as long as the terminal keeps up. Rows are made anew
//! from data less often the longer that takes, and the answer to a key does not wait for it. Data is
//! taken in small portions, so that a key waits for one of them at most. Views that are not on the
//! screen are brought up to date now and then while nothing else is to be done, so that the first
//! look at one finds its rows.

use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::app::{App, Cmd, Msg};
use super::input::Input;
use super::messages::Level;
use super::signals::{self, Asked, Signals};
use super::terminal::{Screen, TerminalError};
use super::view::View;
use crate::model::Str;

/// Distance of frames that data alone asks for, on a fast terminal.
const FRAME: Duration = Duration::from_millis(50);
/// Distance of frames on the slowest.
const SLOW_FRAME: Duration = Duration::from_millis(250);
/// A frame that takes longer to write than this is not answered to by the next key at once.
const QUICK_FLUSH: Duration = Duration::from_millis(5);
/// Rows are made anew from data at most this often, even where it takes long.
const LONGEST_NEWS_GAP: Duration = Duration::from_secs(1);
/// Of the time between two makings of rows, making them may take one part in this many.
const NEWS_SHARE: u32 = 8;
/// How long data is taken in before input and drawing get their turn.
const INTAKE: Duration = Duration::from_millis(6);
/// Changes that are taken in before a key that waits gets its turn.
const PORTION: usize = 128;
/// Distance of two views that are brought up to date behind the one on the screen: often, so that
/// each time there is little to do.
const PREPARE_GAP: Duration = Duration::from_millis(20);
/// Ages change this often.
const SECOND: Duration = Duration::from_secs(1);

/// Channels between the console and the rest.
pub struct Ports {
    /// Messages to the console, bounded: a console that is behind slows its sources down.
    pub messages: mpsc::Receiver<Msg>,
    /// Effects that the rest is to have: [`Cmd::FetchObject`], [`Cmd::SwitchContext`],
    /// [`Cmd::StayHere`], [`Cmd::SwitchNamespace`].
    pub commands: mpsc::Sender<Cmd>,
}

/// Runs the console on the terminal until it is left. The terminal is given back when this
/// returns. Await it on the main thread (`block_on`), not in a spawned task: writing to a slow
/// terminal blocks.
///
/// # Errors
/// When there is no terminal, it fails, or a part of gpudeck panicked.
pub async fn run(app: App, ports: Ports) -> Result<(), TerminalError> {
    let screen = Screen::take()?;
    let (_signals, asked) = Signals::start(screen.restorer())?;
    let (input, keys) = Input::start();
    let mut console = Console::new(app, screen, ports, keys, asked, Some(input));
    console.run().await
}

/// The loop's state.
pub struct Console<W: Write> {
    app: App,
    screen: Screen<W>,
    ports: Ports,
    keys: mpsc::UnboundedReceiver<Msg>,
    asked: mpsc::UnboundedReceiver<Asked>,
    input: Option<Input>,
    /// No frame before this.
    due: Instant,
    /// No rows made anew before this.
    news_due: Instant,
    /// The next frame answers a key.
    answers: bool,
    /// A key has been taken in since the last frame.
    taken: bool,
    /// What is left of a message that was taken in in part.
    rest: Option<Msg>,
    /// No view is brought up to date behind the one on the screen before this.
    prepare_due: Instant,
    watch: Option<Watch>,
    /// Nodes that were last said to be on the screen.
    looked_at: Vec<Str>,
}

/// Who is told of each frame.
type Watch = Box<dyn FnMut(Frame) + Send>;

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Keys were taken in since the frame before.
    pub answers: bool,
    /// It differed from the frame before and was written.
    pub drawn: bool,
}

enum Turn {
    Go,
    End,
}

impl<W: Write> Console<W> {
    /// A console over any screen and channels; without `input` nothing is paused for a stop.
    pub fn new(
        app: App,
        screen: Screen<W>,
        ports: Ports,
        keys: mpsc::UnboundedReceiver<Msg>,
        asked: mpsc::UnboundedReceiver<Asked>,
        input: Option<Input>,
    ) -> Self {
        Console {
            app,
            screen,
            ports,
            keys,
            asked,
            input,
            due: Instant::now(),
            news_due: Instant::now(),
            answers: false,
            taken: false,
            rest: None,
            prepare_due: Instant::now(),
            watch: None,
            looked_at: Vec::new(),
        }
    }

    /// Lets `watch` be told of each frame, once it is out or known to be like the one before.
    pub fn watch(&mut self, watch: impl FnMut(Frame) + Send + 'static) {
        self.watch = Some(Box::new(watch));
    }

    /// The state, to look at.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// Runs until it is left.
    ///
    /// # Errors
    /// When the terminal fails, or a part of gpudeck panicked.
    pub async fn run(&mut self) -> Result<(), TerminalError> {
        let restorer = self.screen.restorer();
        let mut data_open = true;
        // Paint before anything is known: a blank screen tells nothing.
        self.draw()?;
        loop {
            if self.app.is_dirty() && Instant::now() >= self.due {
                self.draw()?;
            }
            let (due, dirty) = (self.due, self.app.is_dirty());
            let ages = !dirty && self.app.wants_tick();
            let unprepared = self.app.has_unprepared();
            let (rest, prepare_due) = (self.rest.is_some(), self.prepare_due);
            let turn = tokio::select! {
                biased;
                () = restorer.panicked() => return Err(TerminalError::Panicked),
                asked = self.asked.recv() => match asked {
                    Some(asked) => self.signal(asked).await?,
                    None => Turn::End,
                },
                key = self.keys.recv() => match key {
                    Some(key) => self.keys(key).await?,
                    // The terminal is gone.
                    None => Turn::End,
                },
                () = std::future::ready(()), if rest => match self.rest.take() {
                    Some(rest) => self.data(rest).await?,
                    None => Turn::Go,
                },
                msg = self.ports.messages.recv(), if data_open => match msg {
                    Some(msg) => self.data(msg).await?,
                    None => {
                        data_open = false;
                        Turn::Go
                    }
                },
                () = tokio::time::sleep_until(due), if dirty => Turn::Go,
                () = std::future::ready(()), if self.app.is_filling_palette() => {
                    self.app.fill_palette();
                    Turn::Go
                }
                () = tokio::time::sleep(SECOND), if ages => self.update(Msg::Tick).await?,
                () = tokio::time::sleep_until(prepare_due), if unprepared => {
                    self.prepare();
                    Turn::Go
                }
            };
            if matches!(turn, Turn::End) {
                return Ok(());
            }
        }
    }

    fn draw(&mut self) -> Result<(), TerminalError> {
        let patience = if self.answers {
            LONGEST_NEWS_GAP
        } else {
            Duration::ZERO
        };
        let news = Instant::now() >= self.news_due + patience;
        let drawn = self.screen.present(&mut self.app, news)?;
        if let Some(watch) = &mut self.watch {
            watch(Frame {
                answers: self.taken,
                drawn,
            });
        }
        self.taken = false;
        self.tell_what_is_shown();
        let took = self.screen.flush_time();
        let distance = if took > QUICK_FLUSH {
            (took * 4).clamp(FRAME, SLOW_FRAME)
        } else {
            FRAME
        };
        self.due = Instant::now() + distance;
        if news {
            let gap = (self.screen.render_time() * NEWS_SHARE).clamp(FRAME, LONGEST_NEWS_GAP);
            self.news_due = Instant::now() + gap;
        }
        if self.app.is_dirty() && !self.app.lags() {
            // Only news are left to draw.
            self.due = self.due.max(self.news_due);
        }
        self.answers = false;
        Ok(())
    }

    /// Says which nodes are on the screen, when others are there than before.
    fn tell_what_is_shown(&mut self) {
        let nodes = self.app.view().map(View::visible_nodes).unwrap_or_default();
        if nodes != self.looked_at
            && self
                .ports
                .commands
                .try_send(Cmd::LookAt(nodes.clone()))
                .is_ok()
        {
            self.looked_at = nodes;
        }
    }

    /// Brings a view up to date that is not on the screen.
    fn prepare(&mut self) {
        let begun = std::time::Instant::now();
        self.app.prepare();
        let gap = (begun.elapsed() * NEWS_SHARE).max(PREPARE_GAP);
        self.prepare_due = Instant::now() + gap;
    }

    /// A key and all that are ready behind it.
    async fn keys(&mut self, first: Msg) -> Result<Turn, TerminalError> {
        self.taken = true;
        let mut next = Some(first);
        while let Some(msg) = next {
            if matches!(self.update(msg).await?, Turn::End) {
                return Ok(Turn::End);
            }
            next = self.keys.try_recv().ok();
        }
        if !self.answers && self.screen.flush_time() <= QUICK_FLUSH {
            self.due = Instant::now();
            self.answers = true;
        }
        Ok(Turn::Go)
    }

    /// Data and what is ready behind it, for a bounded time and until a key waits.
    async fn data(&mut self, first: Msg) -> Result<Turn, TerminalError> {
        let begun = std::time::Instant::now();
        let mut next = Some(first);
        while let Some(mut msg) = next {
            self.rest = beyond_portion(&mut msg);
            if matches!(self.update(msg).await?, Turn::End) {
                return Ok(Turn::End);
            }
            if begun.elapsed() > INTAKE || !self.keys.is_empty() {
                break;
            }
            next = self.rest.take();
            if next.is_none() {
                next = self.ports.messages.try_recv().ok();
            }
        }
        Ok(Turn::Go)
    }

    async fn update(&mut self, msg: Msg) -> Result<Turn, TerminalError> {
        for cmd in self.app.update(msg, Timestamp::now()) {
            match cmd {
                Cmd::Quit => return Ok(Turn::End),
                Cmd::Redraw => self.screen.lose(),
                Cmd::Copy(text) => self.screen.copy(&text)?,
                Cmd::Suspend => self.suspend(true).await?,
                other => {
                    if self.ports.commands.try_send(other).is_err() {
                        let busy = "too much is under way; try again in a moment".to_owned();
                        self.app
                            .update(Msg::Notice(Level::Warn, busy), Timestamp::now());
                    }
                }
            }
        }
        Ok(Turn::Go)
    }

    async fn signal(&mut self, asked: Asked) -> Result<Turn, TerminalError> {
        match asked {
            Asked::Leave => return self.update(Msg::Quit).await,
            Asked::Stop => self.suspend(false).await?,
            Asked::Continued => {
                if self.input.is_some() {
                    self.screen.enter()?;
                }
                self.app.update(Msg::Resize, Timestamp::now());
                self.screen.lose();
            }
        }
        Ok(Turn::Go)
    }

    /// Gives the terminal to the shell, stops, and takes it again.
    async fn suspend(&mut self, whole_group: bool) -> Result<(), TerminalError> {
        if whole_group && !signals::has_job_control() {
            let text = "there is no shell to suspend to".to_owned();
            self.app
                .update(Msg::Notice(Level::Info, text), Timestamp::now());
            return Ok(());
        }
        let Some(input) = &self.input else {
            return Ok(());
        };
        input.pause().await;
        self.screen.leave();
        let stopped = signals::stop(whole_group);
        // Here the process has slept and is awake again; the SIGCONT that woke it needs no second
        // taking of the terminal.
        self.screen.enter()?;
        tokio::task::yield_now().await;
        while let Ok(Asked::Continued) = self.asked.try_recv() {}
        input.resume();
        self.app.update(Msg::Resize, Timestamp::now());
        if let Err(e) = stopped {
            let text = format!("cannot suspend: {e}");
            self.app
                .update(Msg::Notice(Level::Warn, text), Timestamp::now());
        }
        Ok(())
    }
}

/// Takes from a message what is more than a portion.
fn beyond_portion(msg: &mut Msg) -> Option<Msg> {
    match msg {
        Msg::Deltas { generation, deltas } if deltas.len() > PORTION => Some(Msg::Deltas {
            generation: *generation,
            deltas: deltas.split_off(PORTION),
        }),
        _ => None,
    }
}
