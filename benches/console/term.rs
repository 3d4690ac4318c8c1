//! The real program in a terminal of its own.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Longest wait for anything to appear.
const PATIENCE: Duration = Duration::from_secs(120);
/// What ends a frame: the end of a synchronized update.
const FRAME_END: &[u8] = b"\x1b[?2026l";

fn cells(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).expect("a terminal has a size")
}

/// The program in its terminal; dropping it ends it.
pub struct Term {
    _master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    input: Box<dyn Write + Send>,
    pieces: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    received: usize,
}

/// A folder in which it is kept that the tour was shown.
fn toured() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("gpudeck-bench-{}", std::process::id()));
    let state = folder.join("gpudeck");
    std::fs::create_dir_all(&state).expect("a folder for the state");
    std::fs::write(state.join("session.json"), "{\"toured\": true}").expect("a state file");
    folder
}

impl Term {
    /// Starts `gpudeck` with `args` in a terminal of `rows` by `columns`, without the tour.
    pub fn start(args: &[&str], rows: u16, columns: u16) -> Self {
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system()
            .openpty(size)
            .expect("a pty can be opened");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_gpudeck"));
        command.args(args);
        command.env_clear();
        command.env("TERM", "xterm-256color");
        command.env("COLORTERM", "truecolor");
        command.env("LANG", "C.UTF-8");
        command.env("HOME", std::env::temp_dir());
        command.env("XDG_STATE_HOME", toured());
        command.cwd(std::env::temp_dir());
        let child = pair.slave.spawn_command(command).expect("gpudeck starts");
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().expect("the pty can be read");
        let input = pair.master.take_writer().expect("the pty can be written");
        let (tx, pieces) = channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0_u8; 1 << 16];
            while let Ok(n) = reader.read(&mut buffer) {
                if n == 0 || tx.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Term {
            _master: pair.master,
            child,
            input,
            pieces,
            parser: vt100::Parser::new(cells(rows), cells(columns), 0),
            received: 0,
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.process_id().expect("the process has an id")
    }

    /// Bytes that came so far.
    pub fn received(&self) -> usize {
        self.received
    }

    /// Types.
    pub fn send(&mut self, keys: &str) {
        self.input
            .write_all(keys.as_bytes())
            .expect("the pty takes keys");
        self.input.flush().expect("the pty takes keys");
    }

    /// The screen as text.
    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    fn next(&mut self, left: Duration) -> Option<Vec<u8>> {
        match self.pieces.recv_timeout(left) {
            Ok(piece) => {
                self.received += piece.len();
                self.parser.process(&piece);
                Some(piece)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("gpudeck ended; its screen was:\n{}", self.screen())
            }
        }
    }

    /// Waits for the end of the first frame.
    pub fn wait_frame(&mut self) {
        let mut all = Vec::new();
        let end = Instant::now() + PATIENCE;
        while !all.windows(FRAME_END.len()).any(|w| w == FRAME_END) {
            let left = end.saturating_duration_since(Instant::now());
            let piece = self.next(left).expect("a frame is drawn");
            all.extend(piece);
        }
    }

    /// Reads until `found` holds of the screen.
    pub fn wait_for(&mut self, what: &str, found: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !found(&self.screen()) {
            let left = end.saturating_duration_since(Instant::now());
            if self.next(left).is_none() {
                panic!("{what} never came; the screen is:\n{}", self.screen());
            }
        }
    }

    /// Reads what comes in this time; how many bytes it was.
    pub fn listen(&mut self, time: Duration) -> usize {
        let before = self.received;
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.received - before;
            }
            self.next(left);
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        // One that has ended already cannot be killed again.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
