//! The real control plane: the binary of tests/controlplane as a child process.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use serde::Deserialize;

/// The environment variable that names the binary; tests/controlplane/build.sh prints its value.
const BINARY_VARIABLE: &str = "GPUDECK_CONTROLPLANE";

/// A running etcd and kube-apiserver. They end when this process does, or on drop.
pub(crate) struct ControlPlane {
    pub(crate) described: Description,
    process: Mutex<Process>,
}

/// The line the control plane prints when it is ready.
#[derive(Deserialize)]
pub(crate) struct Description {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) audit_log: PathBuf,
}

struct Process {
    child: Child,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Reply {
    ok: bool,
    #[serde(default)]
    error: String,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready. A missing binary is a failure: a
    /// suite that skipped itself would look like one that passed.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let Some(binary) = std::env::var_os(BINARY_VARIABLE) else {
            panic!(
                "{BINARY_VARIABLE} is not set: this suite needs the real control plane; run \
                 `export {BINARY_VARIABLE}=$(tests/controlplane/build.sh)` first"
            );
        };
        let mut child = Command::new(&binary)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{BINARY_VARIABLE}={} cannot be started: {error}",
                    binary.display()
                )
            });
        let commands = child.stdin.take();
        let mut replies = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        let described = serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!("the control plane did not start (its reason is above): {error}: {line:?}")
        });
        let process = Mutex::new(Process {
            child,
            commands,
            replies,
        });
        Self { described, process }
    }

    /// Sends one command and waits until it is carried out.
    pub(crate) fn command(&self, word: &str) {
        let mut process = self.process.lock().unwrap();
        writeln!(process.commands.as_mut().unwrap(), "{word}").unwrap();
        let mut line = String::new();
        process.replies.read_line(&mut line).unwrap();
        let reply: Reply = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("no reply to {word}: {error}: {line:?}"));
        assert!(reply.ok, "{word}: {}", reply.error);
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Ok(process) = self.process.get_mut() {
            // Closing its input is what ends it, with all of its children.
            process.commands = None;
            let _ = process.child.wait();
        }
    }
}
