//! Runs a person's own action: a program beside the console, without a terminal, whose output the
//! console shows.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::model::clean;
use crate::tui::Msg;
use crate::tui::actions::RunAsk;

/// Longest line that is shown, in characters.
const LINE: usize = 4_000;
/// Lines that are told at once.
const BATCH: usize = 200;

/// Runs a program to its end and tells what it writes. Dropping the future ends the program.
pub async fn run(ask: RunAsk, messages: mpsc::Sender<Msg>) {
    let turn = ask.turn;
    let told = |text: String| Msg::Output { turn, text };
    let begun = tokio::time::Instant::now();
    tracing::info!(program = %ask.program, args = ?ask.args, "runs");
    let child = Command::new(&ask.program)
        .args(&ask.args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) => {
            // A console that is gone needs no answer.
            let text = format!("-- {} cannot be run: {e}", ask.program);
            let _ = messages.send(told(text)).await;
            return;
        }
    };
    let (tx, lines) = mpsc::channel(BATCH);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = async {
        tokio::join!(read(out, tx.clone()), read(err, tx));
        child.wait().await
    };
    let (ended, ()) = tokio::join!(ended, tell(turn, lines, &messages));
    let after = begun.elapsed().as_secs_f32();
    let how = match ended {
        Ok(status) => match status.code() {
            Some(0) => "done".to_owned(),
            Some(code) => format!("failed with exit code {code}"),
            None => "ended by a signal".to_owned(),
        },
        Err(e) => format!("lost: {e}"),
    };
    let _ = messages
        .send(told(format!("-- {how} after {after:.1} s")))
        .await;
}

/// Reads a stream line by line.
async fn read(stream: Option<impl AsyncRead + Unpin>, tx: mpsc::Sender<String>) {
    let Some(stream) = stream else { return };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = clean(text.trim_end_matches(['\n', '\r']), LINE).into_owned();
        if tx.send(text).await.is_err() {
            return;
        }
    }
}

/// Hands lines on, as many at once as are there.
async fn tell(turn: u64, mut lines: mpsc::Receiver<String>, messages: &mpsc::Sender<Msg>) {
    let mut batch = Vec::new();
    while lines.recv_many(&mut batch, BATCH).await > 0 {
        let text = batch.join("\n");
        batch.clear();
        if messages.send(Msg::Output { turn, text }).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn output(program: &str, args: &[&str]) -> String {
        let (tx, mut rx) = mpsc::channel(64);
        let ask = RunAsk {
            turn: 7,
            title: String::new(),
            program: program.to_owned(),
            args: args.iter().map(|a| (*a).to_owned()).collect(),
        };
        run(ask, tx).await;
        let mut all = Vec::new();
        while let Some(msg) = rx.recv().await {
            let Msg::Output { turn: 7, text } = msg else {
                continue;
            };
            all.push(text);
        }
        all.join("\n")
    }

    #[tokio::test]
    async fn what_a_program_writes_and_how_it_ends_is_told() {
        let text = output(
            "sh",
            &["-c", "echo one; echo \"$1\" >&2; exit 3", "x", "a;b"],
        )
        .await;
        assert!(text.contains("one") && text.contains("a;b"), "{text}");
        assert!(text.contains("-- failed with exit code 3 after"), "{text}");
        let text = output("sh", &["-c", "printf 'no end \\033[31m'"]).await;
        assert!(
            text.starts_with("no end ") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(text.contains("-- done after"), "{text}");
        let text = output("/no/such/program", &[]).await;
        assert!(
            text.starts_with("-- /no/such/program cannot be run: "),
            "{text}"
        );
    }
}
