//! The real binary in a pty, and the screen that its bytes draw.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

const DEADLINE: Duration = Duration::from_secs(60);
const ROWS: u16 = 40;
const COLUMNS: u16 = 140;

/// A console that somebody sits at.
pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    input: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    _master: Box<dyn MasterPty + Send>,
}

impl Terminal {
    /// Starts `gpudeck`.
    pub(crate) fn start(args: &[&str]) -> Self {
        let size = PtySize {
            rows: ROWS,
            cols: COLUMNS,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let home = std::env::temp_dir();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_gpudeck"));
        command.args(args);
        command.env_clear();
        command.env("TERM", "xterm-256color");
        command.env("LANG", "C.UTF-8");
        command.env("HOME", &home);
        command.cwd(&home);
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let input = pair.master.take_writer().unwrap();
        let (pieces, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if pieces.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let size = |n| NonZeroU16::new(n).unwrap();
        Self {
            child,
            input,
            output,
            screen: vt100::Parser::new(size(ROWS), size(COLUMNS), 0),
            _master: pair.master,
        }
    }

    /// Reads until `text` is on the screen.
    pub(crate) fn wait_text(&mut self, text: &str) {
        let end = Instant::now() + DEADLINE;
        while !self.screen.screen().contents().contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(piece) => self.screen.process(&piece),
                Err(_) => panic!(
                    "{text:?} never came; the screen is:\n{}",
                    self.screen.screen().contents()
                ),
            }
        }
    }

    /// Types.
    pub(crate) fn send(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    /// Waits for the end and gives the exit code.
    pub(crate) fn wait_exit(&mut self) -> u32 {
        // Until the pty closes: a process that cannot write does not end.
        let end = Instant::now() + DEADLINE;
        while self
            .output
            .recv_timeout(end.saturating_duration_since(Instant::now()))
            .is_ok()
        {}
        assert!(Instant::now() < end, "gpudeck does not end");
        self.child.wait().unwrap().exit_code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // One that has ended cannot be killed again.
        let _ = self.child.kill();
    }
}
