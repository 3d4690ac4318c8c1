//! The terminal: set up, given back under all circumstances, and written to in whole frames.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::style::ResetColor;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tokio::sync::Notify;

use super::app::App;

/// One frame fits: it leaves in one write.
const BUFFER_BYTES: usize = 256 * 1024;
/// How long a panic in another thread waits for a frame that is being written.
const RESTORE_PATIENCE: Duration = Duration::from_millis(200);

/// Why the console cannot run.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// Standard input or output is no terminal.
    #[error(
        "standard {0} is not a terminal; the console needs one (for scripts there is `gpudeck snapshot`)"
    )]
    NotATerminal(&'static str),
    /// The terminal refused.
    #[error("the terminal cannot be used: {0}")]
    Io(#[from] io::Error),
    /// A part of gpudeck panicked; the panic message is on the screen that was restored.
    #[error("gpudeck stopped because a part of it failed; see the message above")]
    Panicked,
}

/// Gives the terminal back, from wherever this is noticed to be needed, and once only.
#[derive(Debug)]
pub struct Restorer {
    /// Whether the terminal is ours. Held while a frame is written.
    ours: Mutex<bool>,
    panicked: Notify,
    /// What gives the terminal back.
    leave: fn(),
}

impl Restorer {
    /// Gives back the terminal of this process.
    fn of_process() -> Self {
        Restorer {
            ours: Mutex::new(false),
            panicked: Notify::new(),
            leave,
        }
    }

    /// Gives nothing back: for screens that are no terminal.
    pub fn detached() -> Self {
        Restorer {
            leave: || {},
            ..Self::of_process()
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.ours
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Leaves the alternate screen and raw mode, if they are on. Errors are of no use here: there
    /// is nobody left to tell.
    // Called in panics and at the end, where there may be no runtime to wait in.
    #[allow(clippy::disallowed_methods)]
    pub fn restore(&self) {
        let begun = Instant::now();
        let guard = loop {
            match self.ours.try_lock() {
                Ok(guard) => break Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
                // A panic while this thread itself writes a frame would wait for ever.
                Err(TryLockError::WouldBlock) if begun.elapsed() > RESTORE_PATIENCE => break None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        match guard {
            Some(mut ours) => {
                if std::mem::replace(&mut *ours, false) {
                    (self.leave)();
                }
            }
            None => (self.leave)(),
        }
    }

    /// Gives back what can be given back at once, for a terminal that takes no more output (a
    /// flow-controlled or a dead one): the modes surely, the screen if it can still be written.
    // The process ends after it; nothing else is held up.
    #[allow(clippy::disallowed_methods)]
    pub fn abandon(self: &Arc<Self>) {
        let _ = disable_raw_mode();
        let restorer = Arc::clone(self);
        std::thread::spawn(move || restorer.restore());
        std::thread::sleep(2 * RESTORE_PATIENCE);
    }

    /// Restores before any panic message is printed, in whichever thread or task it happens, and
    /// makes the console end. Call it after other hooks have been set: they run afterwards.
    pub fn install_panic_hook(self: &Arc<Self>) {
        let restorer = Arc::clone(self);
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restorer.restore();
            restorer.panicked.notify_one();
            next(info);
        }));
    }

    /// Returns when something has panicked.
    pub async fn panicked(&self) {
        self.panicked.notified().await;
    }
}

fn leave() {
    if let Ok(mut out) = tty() {
        let _ = execute!(
            out,
            EndSynchronizedUpdate,
            DisableBracketedPaste,
            ResetColor,
            Show,
            LeaveAlternateScreen
        );
    }
    let _ = disable_raw_mode();
}

/// Standard output without the lock and the line buffer of [`io::stdout`].
fn tty() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// How large the terminal is, in columns and rows.
pub type SizeOf = Box<dyn Fn() -> (u16, u16) + Send>;

/// A screen that frames are drawn on. What is written is exactly what differs from the last frame.
pub struct Screen<W: Write> {
    backend: CrosstermBackend<BufWriter<W>>,
    size_of: SizeOf,
    restorer: Arc<Restorer>,
    last: Buffer,
    next: Buffer,
    /// The terminal's content is not known.
    lost: bool,
    render_time: Duration,
    flush_time: Duration,
}

impl Screen<File> {
    /// Takes the terminal: raw mode, alternate screen, bracketed paste; mouse stays the
    /// terminal's own, so that selecting text works. It is given back when this is dropped, and on
    /// a panic anywhere.
    ///
    /// # Errors
    /// When standard input or output is no terminal, or refuses.
    pub fn take() -> Result<Self, TerminalError> {
        if !io::stdin().is_terminal() {
            return Err(TerminalError::NotATerminal("input"));
        }
        if !io::stdout().is_terminal() {
            return Err(TerminalError::NotATerminal("output"));
        }
        let restorer = Arc::new(Restorer::of_process());
        restorer.install_panic_hook();
        let size_of = Box::new(|| crossterm::terminal::size().unwrap_or((80, 24)));
        let mut screen = Screen::over(tty()?, restorer, size_of);
        screen.enter()?;
        Ok(screen)
    }
}

impl<W: Write> Screen<W> {
    /// A screen over any writer; nothing is set up.
    pub fn over(writer: W, restorer: Arc<Restorer>, size_of: SizeOf) -> Self {
        *restorer.lock() = true;
        Screen {
            backend: CrosstermBackend::new(BufWriter::with_capacity(BUFFER_BYTES, writer)),
            size_of,
            restorer,
            last: Buffer::empty(Rect::ZERO),
            next: Buffer::empty(Rect::ZERO),
            lost: true,
            render_time: Duration::ZERO,
            flush_time: Duration::ZERO,
        }
    }

    /// What gives the terminal back.
    pub fn restorer(&self) -> Arc<Restorer> {
        Arc::clone(&self.restorer)
    }

    /// Takes the terminal (again). The next frame draws every cell.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter(&mut self) -> io::Result<()> {
        *self.restorer.lock() = true;
        // After a stop the shell may have changed the modes that raw mode stands for; turning it
        // off first makes it be set for real.
        let _ = disable_raw_mode();
        enable_raw_mode()?;
        queue!(
            self.backend,
            EnterAlternateScreen,
            EnableBracketedPaste,
            Hide
        )?;
        Write::flush(&mut self.backend)?;
        self.lost = true;
        Ok(())
    }

    /// Gives the terminal back for a while.
    pub fn leave(&self) {
        self.restorer.restore();
    }

    /// The next frame draws every cell.
    pub fn lose(&mut self) {
        self.lost = true;
    }

    /// How long the last frame took to be made.
    pub fn render_time(&self) -> Duration {
        self.render_time
    }

    /// How long the last frame took to be written. A slow line shows here.
    pub fn flush_time(&self) -> Duration {
        self.flush_time
    }

    /// Draws a frame (with `news` of the cluster or without) and writes what differs from the last one, in one write between the marks of
    /// a synchronized update. Writes nothing when nothing differs. Returns whether it wrote.
    ///
    /// # Errors
    /// When the terminal cannot be written to. The next frame then draws every cell.
    pub fn present(&mut self, app: &mut App, news: bool) -> io::Result<bool> {
        let (width, height) = (self.size_of)();
        let area = Rect::new(0, 0, width, height);
        if area != self.last.area {
            self.lost = true;
        }
        self.next.resize(area);
        self.next.reset();
        let begun = Instant::now();
        if news {
            app.render(area, &mut self.next);
        } else {
            app.render_known(area, &mut self.next);
        }
        self.render_time = begun.elapsed();
        if self.lost {
            self.last = Buffer::empty(area);
        } else if self.last == self.next {
            return Ok(false);
        }
        let restorer = Arc::clone(&self.restorer);
        let ours = restorer.lock();
        // A panic elsewhere has given the terminal back: it is not ours to write to.
        if !*ours || area.is_empty() {
            return Ok(false);
        }
        let lost = std::mem::replace(&mut self.lost, true);
        queue!(self.backend, BeginSynchronizedUpdate)?;
        if lost {
            queue!(self.backend, ResetColor, Hide, Clear(ClearType::All))?;
        }
        let drawn = self.backend.draw(self.last.diff_iter(&self.next));
        queue!(self.backend, EndSynchronizedUpdate)?;
        let begun = Instant::now();
        Write::flush(&mut self.backend)?;
        self.flush_time = begun.elapsed();
        drawn?;
        self.lost = false;
        std::mem::swap(&mut self.last, &mut self.next);
        Ok(true)
    }

    /// Puts a text on the clipboard by OSC 52, which terminals carry over SSH.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let ours = self.restorer.lock();
        if !*ours {
            return Ok(());
        }
        queue!(self.backend, CopyToClipboard::to_clipboard_from(text))?;
        Write::flush(&mut self.backend)
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        self.restorer.restore();
    }
}
