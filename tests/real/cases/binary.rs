//! The real binary as a script calls it.

use std::process::{Command, Stdio};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    pub(crate) errors: String,
}

/// Runs `gpudeck` in an empty environment to its end.
pub(crate) fn gpudeck(args: &[&str]) -> Ended {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gpudeck"))
        .args(args)
        .env_clear()
        .env("HOME", home.path())
        .env("LANG", "C.UTF-8")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ended {
        code: output.status.code(),
        output: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}
