//! The one thread that reads the terminal's input.
//!
//! It can be paused with a handshake, so that a shell or a child that gets the terminal also gets
//! all its input.

use std::sync::mpsc as control;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyEventKind, poll, read};
use tokio::sync::{mpsc, oneshot};

use super::app::Msg;
use super::escape::{Joiner, SSH_PATIENCE};
use super::key::Key;

/// How long the thread waits for input before it looks for orders.
const POLL: Duration = Duration::from_millis(50);

enum Order {
    Pause(oneshot::Sender<()>),
    Resume,
}

/// The reading thread. It ends when this is dropped.
pub struct Input {
    orders: control::Sender<Order>,
}

impl Input {
    /// Starts reading. The channel closes when the terminal can be read no more.
    pub fn start() -> (Self, mpsc::UnboundedReceiver<Msg>) {
        let (orders, inbox) = control::channel();
        let (out, events) = mpsc::unbounded_channel();
        let patience = if over_ssh() {
            SSH_PATIENCE
        } else {
            Duration::ZERO
        };
        std::thread::spawn(move || read_on(&inbox, &out, Joiner::new(patience)));
        (Input { orders }, events)
    }

    /// Returns when the thread has stopped reading.
    pub async fn pause(&self) {
        let (done, stopped) = oneshot::channel();
        if self.orders.send(Order::Pause(done)).is_ok() {
            // An error means that the thread is gone: nothing reads then either.
            let _ = stopped.await;
        }
    }

    /// Lets it read again.
    pub fn resume(&self) {
        let _ = self.orders.send(Order::Resume);
    }
}

/// Whether the terminal is at the other end of an SSH connection, by the variables that sshd sets.
fn over_ssh() -> bool {
    ["SSH_CONNECTION", "SSH_TTY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

fn read_on(
    orders: &control::Receiver<Order>,
    out: &mpsc::UnboundedSender<Msg>,
    mut joiner: Joiner,
) {
    loop {
        match orders.try_recv() {
            Ok(Order::Pause(done)) => {
                let _ = done.send(());
                loop {
                    match orders.recv() {
                        Ok(Order::Resume) => break,
                        Ok(Order::Pause(done)) => {
                            let _ = done.send(());
                        }
                        Err(_) => return,
                    }
                }
            }
            Ok(Order::Resume) | Err(control::TryRecvError::Empty) => {}
            Err(control::TryRecvError::Disconnected) => return,
        }
        let wait = joiner.deadline().map_or(POLL, |deadline| {
            POLL.min(deadline.saturating_duration_since(Instant::now()))
        });
        let event = match poll(wait) {
            Ok(false) => Ok(None),
            Ok(true) => read().map(Some),
            Err(e) => Err(e),
        };
        let events = match event {
            Ok(Some(event)) => joiner.take(event, Instant::now()),
            Ok(None) => joiner.expire(Instant::now()),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        for msg in events.into_iter().filter_map(message) {
            if out.send(msg).is_err() {
                return;
            }
        }
    }
}

/// What an event means; key releases and repeats of releases mean nothing.
pub fn message(event: Event) -> Option<Msg> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => Key::from_event(key).map(Msg::Key),
        Event::Paste(text) => Some(Msg::Paste(text)),
        Event::Resize(..) => Some(Msg::Resize),
        _ => None,
    }
}
