//! A real terminal around the real binary: a pty, and the screen that its bytes draw.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Longest wait for anything to appear: generous, since a failed wait is a failed test.
const DEADLINE: Duration = Duration::from_secs(60);

/// The binary in its terminal.
pub(crate) struct Term {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    input: Box<dyn Write + Send>,
    bytes: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    /// All that came, for checks on raw sequences.
    pub(crate) raw: Vec<u8>,
}

/// A folder in which it is kept that the tour was shown.
fn toured() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("gpudeck-pty-{}", std::process::id()));
    let file = folder.join("gpudeck/session.json");
    if !file.exists() {
        std::fs::create_dir_all(folder.join("gpudeck")).expect("a folder for the state");
        std::fs::write(file, "{\"toured\": true}").expect("the state can be written");
    }
    folder
}

impl Term {
    /// Starts `gpudeck` with `args` in a terminal of `rows` x `cols` and environment `env`.
    pub(crate) fn start(args: &[&str], rows: u16, cols: u16, env: &[(&str, &str)]) -> Self {
        let pair = native_pty_system()
            .openpty(PtySize {
                rows,
                cols,
                pixel_width: 0,
                pixel_height: 0,
            })
            .expect("a pty can be opened");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_gpudeck"));
        command.args(args);
        command.env_clear();
        command.env("PATH", std::env::var("PATH").unwrap_or_default());
        command.env("TERM", "xterm-256color");
        command.env("COLORTERM", "truecolor");
        command.env("LANG", "C.UTF-8");
        let home = std::env::temp_dir();
        command.env("HOME", &home);
        command.env("XDG_STATE_HOME", toured());
        command.cwd(&home);
        for (key, value) in env {
            command.env(key, value);
        }
        let child = pair.slave.spawn_command(command).expect("gpudeck starts");
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().expect("the pty can be read");
        let input = pair.master.take_writer().expect("the pty can be written");
        let (tx, bytes) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0_u8; 65_536];
            while let Ok(n) = reader.read(&mut buffer) {
                if n == 0 || tx.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Term {
            master: pair.master,
            child,
            input,
            bytes,
            parser: vt100::Parser::new(cells(rows), cells(cols), 0),
            raw: Vec::new(),
        }
    }

    fn take(&mut self, chunk: Vec<u8>) {
        self.parser.process(&chunk);
        self.raw.extend(chunk);
    }

    /// The screen as text.
    pub(crate) fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// Reads until `found` holds of the screen; fails with the screen when it never does.
    pub(crate) fn wait_for(&mut self, what: &str, found: impl Fn(&str) -> bool) {
        let end = Instant::now() + DEADLINE;
        loop {
            if found(&self.screen()) {
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.bytes.recv_timeout(left) {
                Ok(chunk) => self.take(chunk),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{what} never came; the screen is:\n{}", self.screen())
                }
            }
        }
    }

    /// Reads until `text` is on the screen.
    pub(crate) fn wait_text(&mut self, text: &str) {
        self.wait_for(&format!("{text:?}"), |screen| screen.contains(text));
    }

    /// Types.
    pub(crate) fn send(&mut self, keys: &str) {
        self.input
            .write_all(keys.as_bytes())
            .expect("the pty takes keys");
        self.input.flush().expect("the pty takes keys");
    }

    /// Changes the size.
    pub(crate) fn resize(&mut self, rows: u16, cols: u16) {
        self.master
            .resize(PtySize {
                rows,
                cols,
                pixel_width: 0,
                pixel_height: 0,
            })
            .expect("the pty can be resized");
        self.parser.screen_mut().set_size(cells(rows), cells(cols));
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.process_id().expect("the process has a pid");
        let status = std::process::Command::new("kill")
            .args([format!("-{name}"), pid.to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success(), "kill -{name} {pid}");
    }

    /// The process state letter of /proc (T = stopped).
    #[cfg(target_os = "linux")]
    pub(crate) fn wait_state(&self, letter: char) {
        let pid = self.child.process_id().expect("the process has a pid");
        let end = Instant::now() + DEADLINE;
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            if state == Some(letter) {
                return;
            }
            assert!(
                Instant::now() < end,
                "process never reached state {letter}: {stat}"
            );
            std::thread::yield_now();
        }
    }

    /// Reads until the terminal is given back.
    pub(crate) fn wait_restored(&mut self) {
        let end = Instant::now() + DEADLINE;
        while self.parser.screen().alternate_screen() || self.parser.screen().hide_cursor() {
            let left = end.saturating_duration_since(Instant::now());
            let chunk = self
                .bytes
                .recv_timeout(left)
                .expect("the terminal is given back");
            self.take(chunk);
        }
        self.assert_restored();
    }

    /// Waits for the end and gives the exit code; everything written until then is read.
    pub(crate) fn wait_exit(&mut self) -> u32 {
        let end = Instant::now() + DEADLINE;
        let code = loop {
            if let Some(status) = self
                .child
                .try_wait()
                .expect("the process can be waited for")
            {
                break status.exit_code();
            }
            assert!(
                Instant::now() < end,
                "gpudeck does not end; the screen is:\n{}",
                self.screen()
            );
            if let Ok(chunk) = self.bytes.recv_timeout(Duration::from_millis(20)) {
                self.take(chunk);
            }
        };
        while let Ok(chunk) = self.bytes.recv_timeout(Duration::from_millis(200)) {
            self.take(chunk);
        }
        code
    }

    /// Checks that the terminal is as it was found: main screen, cursor shown, cooked mode.
    pub(crate) fn assert_restored(&self) {
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen(), "still on the alternate screen");
        assert!(!screen.hide_cursor(), "the cursor is still hidden");
        #[cfg(unix)]
        if let Some(termios) = self.master.get_termios() {
            let flags = u64::from(termios.local_flags.bits());
            assert!(
                flags & ICANON != 0 && flags & ECHO != 0,
                "the terminal is still raw"
            );
        }
    }
}

/// A side of the screen, at least one cell.
fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap_or(NonZero::<u16>::MIN)
}

/// Two bits of termios' local flags, by POSIX name; the values are those of Linux and the BSDs.
const ICANON: u64 = if cfg!(target_os = "linux") {
    0x2
} else {
    0x100
};
const ECHO: u64 = 0x8;

impl Drop for Term {
    fn drop(&mut self) {
        // A test that failed leaves no process behind; an ended one cannot be killed again.
        let _ = self.child.kill();
    }
}
