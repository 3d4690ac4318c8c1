//! Signals: leave, stop, come back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{
    Signal as Sig, getpgrp, getpid, getsid, kill_current_process_group, kill_process,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::terminal::Restorer;

/// How long the console may take to leave before it is left without it: its last write may hang
/// in a terminal that takes no more output.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// SIGTERM, SIGINT, SIGHUP: leave in order.
    Leave,
    /// SIGTSTP from outside: stop.
    Stop,
    /// SIGCONT: the terminal's content and modes are not known.
    Continued,
}

/// A task that hears signals until it is dropped.
pub struct Signals {
    task: JoinHandle<()>,
}

impl Signals {
    /// Starts to hear. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn start(restorer: Arc<Restorer>) -> io::Result<(Self, mpsc::UnboundedReceiver<Asked>)> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let mut hup = signal(SignalKind::hangup())?;
        let mut stop = signal(SignalKind::from_raw(Sig::TSTP.as_raw()))?;
        let mut cont = signal(SignalKind::from_raw(Sig::CONT.as_raw()))?;
        let (out, asked) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            loop {
                let what = tokio::select! {
                    _ = term.recv() => Asked::Leave,
                    _ = int.recv() => Asked::Leave,
                    _ = hup.recv() => Asked::Leave,
                    _ = stop.recv() => Asked::Stop,
                    _ = cont.recv() => Asked::Continued,
                };
                if out.send(what).is_err() {
                    return;
                }
                if what == Asked::Leave {
                    tokio::time::sleep(LEAVE_PATIENCE).await;
                    restorer.abandon();
                    // The terminal takes no output, so main cannot be reached: it waits for it.
                    #[allow(clippy::disallowed_methods)]
                    std::process::exit(1);
                }
            }
        });
        Ok((Signals { task }, asked))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether a shell waits that could bring this process back: without one, a stop is for good.
pub fn has_job_control() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// Stops this process, or its whole group (with the `cargo` that started it), until a SIGCONT.
///
/// # Errors
/// When the system refuses.
pub fn stop(whole_group: bool) -> io::Result<()> {
    if whole_group {
        kill_current_process_group(Sig::STOP)?;
    } else {
        kill_process(getpid(), Sig::STOP)?;
    }
    Ok(())
}
