//! Logs of pods, followed: of one, or of all ranks of a job in the order of their time stamps.

use std::collections::VecDeque;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::http::ApiError;
use super::source::ClientSource;
use super::watch::query_value;
use crate::model::{Str, clean};

/// Pods that are followed at once; of more the first ones are.
pub const MAX_PODS: usize = 64;
/// Lines from before that are asked for, of all pods together.
const TAIL: usize = 2_000;
/// Longest until a log begins to answer.
const OPEN: Duration = Duration::from_secs(10);
/// A container may say nothing for this long.
const QUIET: Duration = Duration::from_secs(24 * 3_600);
/// Lines are told this often, in the order of their time stamps.
const GATHER: Duration = Duration::from_millis(250);
/// Tries of one log after its connection broke.
const TRIES: u32 = 5;
/// Longest line that is kept, in bytes.
const LINE: usize = 4_000;
/// Lines that wait to be told; more than that are read no faster.
const DEPTH: usize = 1_024;

/// A pod whose log is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOf {
    /// Namespace.
    pub namespace: Str,
    /// Name.
    pub name: Str,
}

/// A line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Which of the wanted pods wrote it.
    pub pod: usize,
    /// When.
    pub at: Option<Timestamp>,
    /// What, cleaned.
    pub text: Str,
    /// It is not the container's but says what became of its log.
    pub notice: bool,
}

/// Follows the logs of pods until all have ended or the receiver is gone.
pub async fn follow(source: ClientSource, pods: Vec<LogOf>, tx: mpsc::Sender<Vec<LogLine>>) {
    let tail = (TAIL / pods.len().max(1)).max(20);
    let (lines_tx, mut lines) = mpsc::channel(DEPTH);
    let mut tasks = JoinSet::new();
    for (number, pod) in pods.into_iter().take(MAX_PODS).enumerate() {
        tasks.spawn(follow_one(
            source.clone(),
            pod,
            number,
            tail,
            lines_tx.clone(),
        ));
    }
    drop(lines_tx);
    let mut open = true;
    while open {
        let Some(first) = lines.recv().await else {
            break;
        };
        let mut batch = vec![first];
        let until = Instant::now() + GATHER;
        while batch.len() < 2 * TAIL {
            match timeout_at(until, lines.recv()).await {
                Ok(Some(line)) => batch.push(line),
                Ok(None) => {
                    open = false;
                    break;
                }
                Err(_) => break,
            }
        }
        // What has no time stamp of its own has that of the line before it.
        batch.sort_by_key(|line| line.at);
        if tx.send(batch).await.is_err() {
            break;
        }
    }
}

/// What is left of a log's text after whole lines were taken.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// The whole lines that a piece completes.
    fn push(&mut self, piece: &[u8]) -> VecDeque<String> {
        let mut whole = VecDeque::new();
        for part in piece.split_inclusive(|b| *b == b'\n') {
            // Of a line without an end only the beginning is kept.
            let room = (4 * LINE).saturating_sub(self.rest.len());
            self.rest
                .extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
            if part.ends_with(b"\n") {
                whole.push_back(String::from_utf8_lossy(&self.rest).trim_end().to_owned());
                self.rest.clear();
            }
        }
        whole
    }

    /// The last line of a log that ends without a line break.
    fn end(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).trim_end().to_owned())
    }
}

/// The time stamp before a line, and the line.
fn stamped(line: &str) -> (Option<Timestamp>, &str) {
    match line.split_once(' ') {
        Some((stamp, text)) => match stamp.parse() {
            Ok(at) => (Some(at), text),
            Err(_) => (None, line),
        },
        None => match line.parse() {
            Ok(at) => (Some(at), ""),
            Err(_) => (None, line),
        },
    }
}

/// The first container of those that the server offers: `a container name must be specified for
/// pod p, choose one of: [a b]`.
fn offered(message: &str) -> Option<String> {
    let (_, names) = message.split_once("choose one of: [")?;
    let first = names.split([' ', ']']).next()?;
    (!first.is_empty()).then(|| first.to_owned())
}

async fn follow_one(
    source: ClientSource,
    pod: LogOf,
    number: usize,
    tail: usize,
    tx: mpsc::Sender<LogLine>,
) {
    let notice = |text: String, at: Option<Timestamp>| LogLine {
        pod: number,
        at,
        text: clean(&text, 400).into(),
        notice: true,
    };
    let mut container: Option<String> = None;
    let mut last: Option<Timestamp> = None;
    let mut tries = 0;
    loop {
        let mut url = format!(
            "/api/v1/namespaces/{}/pods/{}/log?follow=true&timestamps=true",
            query_value(&pod.namespace),
            query_value(&pod.name)
        );
        match last {
            Some(at) => url.push_str(&format!("&sinceTime={}", query_value(&at.to_string()))),
            None => url.push_str(&format!("&tailLines={tail}")),
        }
        if let Some(name) = &container {
            url.push_str(&format!("&container={}", query_value(name)));
        }
        let (api, generation) = source.current();
        let mut body = match api.open(Method::GET, &url, None, OPEN).await {
            Ok(response) => response.into_body(),
            Err(ApiError::Unauthorized { .. }) if tries < TRIES => {
                tries += 1;
                // What came of the login shows at the next try.
                let _ = source.rebuild(generation).await;
                sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(e) => {
                let text = e.to_string();
                if container.is_none()
                    && let Some(name) = offered(&text)
                {
                    container = Some(name);
                    continue;
                }
                // Who is gone has hung up.
                let _ = tx.send(notice(format!("no log: {text}"), last)).await;
                return;
            }
        };
        let mut lines = Lines::default();
        let ended = loop {
            match api.piece(&mut body, QUIET).await {
                Ok(Some(piece)) => {
                    for line in lines.push(&piece) {
                        if !tell(&tx, number, &line, &mut last).await {
                            return;
                        }
                    }
                }
                Ok(None) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        if let Some(line) = lines.end()
            && !tell(&tx, number, &line, &mut last).await
        {
            return;
        }
        match ended {
            Err(e) if tries < TRIES => {
                tries += 1;
                tracing::debug!(pod = %pod.name, error = %e, "a log's connection broke");
                sleep(Duration::from_secs(1)).await;
            }
            Err(e) => {
                let _ = tx
                    .send(notice(format!("the log broke off: {e}"), last))
                    .await;
                return;
            }
            Ok(()) => {
                let _ = tx.send(notice("the log ends here".to_owned(), last)).await;
                return;
            }
        }
    }
}

/// Tells a line unless it was told before the connection broke; false if nobody listens.
async fn tell(
    tx: &mpsc::Sender<LogLine>,
    pod: usize,
    line: &str,
    last: &mut Option<Timestamp>,
) -> bool {
    let (at, text) = stamped(line);
    if at.is_some() && at < *last {
        return true;
    }
    *last = at.or(*last);
    let line = LogLine {
        pod,
        at: *last,
        text: clean(text, LINE).into(),
        notice: false,
    };
    tx.send(line).await.is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::fake;
    use super::*;

    #[test]
    fn lines_come_whole_whatever_the_pieces() {
        let mut lines = Lines::default();
        assert!(lines.push(b"2026-11-30T12:00:00Z st").is_empty());
        assert_eq!(lines.push(b"ep 1\nste"), ["2026-11-30T12:00:00Z step 1"]);
        assert_eq!(lines.end().as_deref(), Some("ste"));
        let (at, text) = stamped("2026-11-30T12:00:00.5Z step 1");
        assert_eq!((at.unwrap().subsec_millisecond(), text), (500, "step 1"));
        assert_eq!(stamped("plain words"), (None, "plain words"));
        let endless = vec![b'x'; 10 * LINE];
        lines.push(&endless);
        assert!(lines.rest.len() <= 4 * LINE);
        let said = "a container name must be specified for pod p, choose one of: [main sidecar]";
        assert_eq!(offered(said).as_deref(), Some("main"));
        assert_eq!(offered("forbidden"), None);
    }

    #[tokio::test]
    async fn ranks_are_told_in_the_order_of_time_and_each_says_how_it_ended() {
        let client = fake::client(|request| async move {
            let body = match request.uri().path() {
                "/api/v1/namespaces/ns/pods/r0/log" => {
                    "2026-11-30T12:00:00Z a\u{1b}[31m\n2026-11-30T12:00:02Z c\n"
                }
                "/api/v1/namespaces/ns/pods/r1/log" => "2026-11-30T12:00:01Z b\n",
                _ => {
                    let status = fake::status(403, "Forbidden", "pods/log is forbidden");
                    return Ok(fake::reply(403, status));
                }
            };
            Ok(fake::reply(200, body.to_owned()))
        });
        let source = ClientSource::fixed(client, "https://fake");
        let (tx, mut rx) = mpsc::channel(8);
        let of = |name: &str| LogOf {
            namespace: "ns".into(),
            name: name.into(),
        };
        follow(source, vec![of("r0"), of("r1"), of("r2")], tx).await;
        let mut all = Vec::new();
        while let Some(batch) = rx.recv().await {
            all.extend(batch);
        }
        let said: Vec<_> = all
            .iter()
            .filter(|l| !l.notice)
            .map(|l| (l.pod, &*l.text))
            .collect();
        assert_eq!(said, [(0, "a\u{fffd}[31m"), (1, "b"), (0, "c")]);
        let notices: Vec<_> = all
            .iter()
            .filter(|l| l.notice)
            .map(|l| (l.pod, l.text.to_string()))
            .collect();
        assert_eq!(notices.len(), 3, "{notices:?}");
        assert!(
            notices
                .iter()
                .any(|(pod, text)| *pod == 2 && text.contains("forbidden"))
        );
    }
}
