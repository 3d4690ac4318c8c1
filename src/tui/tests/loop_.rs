//! The run loop over a counting writer: what is written, and when nothing is.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use super::sample::{Desk, key, live, node};
use crate::tui::app::{Cmd, Msg};
use crate::tui::run::{Console, Frame, Ports};
use crate::tui::signals::Asked;
use crate::tui::terminal::{Restorer, Screen};

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Vec<Vec<u8>>>>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(bytes.to_vec());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire {
    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Bench {
    wire: Wire,
    keys: mpsc::UnboundedSender<Msg>,
    asked: mpsc::UnboundedSender<Asked>,
    messages: mpsc::Sender<Msg>,
    commands: mpsc::Receiver<Cmd>,
    frames: Arc<Mutex<Vec<Frame>>>,
    task: tokio::task::JoinHandle<()>,
}

fn start(nodes: usize) -> Bench {
    let desk = Desk::of_nodes(nodes);
    let wire = Wire::default();
    let screen = Screen::over(
        wire.clone(),
        Arc::new(Restorer::detached()),
        Box::new(|| (120, 40)),
    );
    let (keys, key_in) = mpsc::unbounded_channel();
    let (asked, asked_in) = mpsc::unbounded_channel();
    let (messages, message_in) = mpsc::channel(16);
    let (command_out, commands) = mpsc::channel(16);
    let ports = Ports {
        messages: message_in,
        commands: command_out,
    };
    let mut console = Console::new(desk.app, screen, ports, key_in, asked_in, None);
    let frames = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&frames);
    console.watch(move |frame| told.lock().unwrap().push(frame));
    let task = tokio::spawn(async move { console.run().await.unwrap() });
    Bench {
        wire,
        keys,
        asked,
        messages,
        commands,
        frames,
        task,
    }
}

/// Lets the paused clock run: all timers due in this time fire.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_console_writes_one_frame_and_then_nothing() {
    let bench = start(50);
    pass(Duration::from_millis(200)).await;
    let first = bench.wire.take();
    assert_eq!(first.len(), 1, "a frame leaves in one write");
    let text = String::from_utf8(first.concat()).unwrap();
    assert!(text.starts_with("\u{1b}[?2026h") && text.ends_with("\u{1b}[?2026l"));
    pass(Duration::from_secs(60)).await;
    assert_eq!(bench.wire.take().concat().len(), 0);
    bench.task.abort();
}

#[tokio::test(start_paused = true)]
async fn deltas_that_change_nothing_visible_write_nothing() {
    let bench = start(200);
    pass(Duration::from_millis(200)).await;
    bench.wire.take();
    for _ in 0..10 {
        let deltas = vec![node("n0150", 8)];
        bench
            .messages
            .send(Msg::Deltas {
                generation: 0,
                deltas,
            })
            .await
            .unwrap();
        pass(Duration::from_millis(300)).await;
    }
    assert_eq!(bench.wire.take().concat().len(), 0);
    bench.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_data_becomes_few_frames_and_a_key_is_answered_between_them() {
    let bench = start(20);
    pass(Duration::from_millis(200)).await;
    bench.wire.take();
    for n in 0..200 {
        let deltas = vec![node(&format!("b{n:04}"), 8)];
        bench
            .messages
            .send(Msg::Deltas {
                generation: 0,
                deltas,
            })
            .await
            .unwrap();
        pass(Duration::from_millis(5)).await;
    }
    let frames = bench.wire.take().len();
    assert!((5..=22).contains(&frames), "{frames} frames in a second");
    bench.keys.send(Msg::Key(key("j"))).unwrap();
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let answer = bench.wire.take().concat();
    assert!(
        !answer.is_empty() && answer.len() < 2_000,
        "{} bytes",
        answer.len()
    );
    bench.task.abort();
}

#[tokio::test(start_paused = true)]
async fn effects_reach_the_outside_and_copy_goes_to_the_terminal() {
    let mut bench = start(3);
    bench.keys.send(Msg::Key(key("y"))).unwrap();
    assert!(
        matches!(bench.commands.recv().await, Some(Cmd::FetchObject(o)) if &*o.name == "n0000")
    );
    pass(Duration::from_millis(200)).await;
    bench.wire.take();
    bench.keys.send(Msg::Key(key("esc"))).unwrap();
    bench.keys.send(Msg::Key(key("c"))).unwrap();
    pass(Duration::from_millis(200)).await;
    let text = String::from_utf8(bench.wire.take().concat()).unwrap();
    assert!(text.contains("\u{1b}]52;c;bjAwMDA="), "{text:?}");
    bench.task.abort();
}

#[tokio::test(start_paused = true)]
async fn quit_key_a_signal_and_a_lost_terminal_all_end_the_loop() {
    let bench = start(1);
    bench.keys.send(Msg::Key(key("q"))).unwrap();
    bench.task.await.unwrap();
    let bench = start(1);
    bench.asked.send(Asked::Leave).unwrap();
    bench.task.await.unwrap();
    let bench = start(1);
    drop(bench.keys);
    bench.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn data_that_ends_does_not_end_the_console() {
    let bench = start(1);
    bench
        .messages
        .send(Msg::Deltas {
            generation: 0,
            deltas: live(),
        })
        .await
        .unwrap();
    drop(bench.messages);
    pass(Duration::from_secs(5)).await;
    assert!(!bench.task.is_finished());
    bench.keys.send(Msg::Key(key("q"))).unwrap();
    bench.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn news_that_a_key_did_not_wait_for_are_drawn_soon_after() {
    let bench = start(3);
    let mut terminal = vt100::Parser::new(40.try_into().unwrap(), 120.try_into().unwrap(), 0);
    pass(Duration::from_millis(10)).await;
    for n in 0..30 {
        let deltas = vec![node(&format!("new-{n:02}"), 8)];
        bench
            .messages
            .send(Msg::Deltas {
                generation: 0,
                deltas,
            })
            .await
            .unwrap();
        bench.keys.send(Msg::Key(key("j"))).unwrap();
        tokio::task::yield_now().await;
    }
    pass(Duration::from_secs(3)).await;
    terminal.process(&bench.wire.take().concat());
    let screen = terminal.screen().contents();
    assert!(screen.contains("new-29"), "{screen}");
    assert!(terminal.screen().hide_cursor());
    bench.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_key_that_changes_nothing_is_answered_without_a_frame() {
    let bench = start(50);
    for (key_name, drawn) in [("j", true), ("g", true), ("g", false), ("k", false)] {
        pass(Duration::from_millis(200)).await;
        bench.frames.lock().unwrap().clear();
        bench.wire.take();
        bench.keys.send(Msg::Key(key(key_name))).unwrap();
        pass(Duration::from_millis(1)).await;
        let answers = Frame {
            answers: true,
            drawn,
        };
        assert_eq!(*bench.frames.lock().unwrap(), [answers], "{key_name}");
        assert_eq!(!bench.wire.take().is_empty(), drawn, "{key_name}");
    }
    bench.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_is_taken_in_whole_and_in_order() {
    let bench = start(3);
    let mut terminal = vt100::Parser::new(40.try_into().unwrap(), 120.try_into().unwrap(), 0);
    let first = (0..1_000).map(|n| node(&format!("m{:02}", n % 30), n % 7));
    let last = (0..30).map(|n| node(&format!("m{n:02}"), 100 + n));
    for deltas in [first.collect(), last.collect()] {
        bench
            .messages
            .send(Msg::Deltas {
                generation: 0,
                deltas,
            })
            .await
            .unwrap();
        bench.keys.send(Msg::Key(key("j"))).unwrap();
    }
    pass(Duration::from_secs(3)).await;
    terminal.process(&bench.wire.take().concat());
    let screen = terminal.screen().contents();
    for n in 0..30 {
        let line = screen.lines().find(|l| l.contains(&format!("m{n:02}")));
        let gpus = (100 + n).to_string();
        assert!(line.is_some_and(|l| l.contains(&gpus)), "m{n:02}: {screen}");
    }
    bench.task.abort();
}
