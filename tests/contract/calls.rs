//! The calls of an area, and how they are sent.
//!
//! A call is a line `METHOD PATH`, then lines `name: value`, then the body; a blank line ends it
//! and `#` begins a comment. `«ns»` and saved names are filled in; `«x*300»` is `x` 300 times.
//! Lines: `as: USER`, `type: MEDIA`, `accept: MEDIA`, `save: NAME /POINTER`, `until: STATUS` or
//! `until: /POINTER` (sent again until it answers so), `differs: ENTRY /POINTER...`.

use std::collections::HashMap;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::Client;
use serde_json::Value;

use crate::answers::Answer;

/// How long a server may take to come to what `until` waits for.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);

/// One request.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// Method and path as written.
    pub(crate) line: String,
    pub(crate) user: String,
    content_type: String,
    accept: String,
    body: String,
    /// Names for parts of the answer, by JSON pointer.
    pub(crate) saves: Vec<(String, String)>,
    until: Option<Until>,
    /// The entry of DIFFERENCES.md.
    pub(crate) entry: Option<u32>,
    /// Where the answer differs.
    pub(crate) differing: Vec<String>,
}

#[derive(Debug)]
enum Until {
    Status(u16),
    Pointer(String),
}

/// Reads the calls of a file.
pub(crate) fn parse(text: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut call = Call {
            line: line.to_owned(),
            user: "admin".into(),
            content_type: "application/json".into(),
            ..Call::default()
        };
        while let Some(line) = lines.next_if(|line| !line.is_empty()) {
            let header = line.split_once(": ").filter(|_| call.body.is_empty());
            match header {
                Some(("as", user)) => call.user = user.into(),
                Some(("type", media)) => call.content_type = media.into(),
                Some(("accept", media)) => call.accept = media.into(),
                Some(("save", words)) => {
                    let (name, pointer) = words.split_once(' ').unwrap();
                    call.saves.push((name.into(), pointer.into()));
                }
                Some(("until", word)) => {
                    call.until = Some(match word.parse() {
                        Ok(status) => Until::Status(status),
                        Err(_) => Until::Pointer(word.into()),
                    });
                }
                Some(("differs", words)) => {
                    let mut words = words.split(' ');
                    call.entry = words.next().map(|entry| entry.parse().unwrap());
                    call.differing = words.map(str::to_owned).collect();
                }
                _ => {
                    if !call.body.is_empty() {
                        call.body.push('\n');
                    }
                    call.body.push_str(line);
                }
            }
        }
        calls.push(call);
    }
    calls
}

/// Fills in `«NAME»` and `«TEXT*COUNT»`.
fn filled(text: &str, names: &HashMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('«') {
        let (word, behind) = after.split_once('»').unwrap();
        out.push_str(before);
        match word.rsplit_once('*') {
            Some((text, count)) => out.push_str(&text.repeat(count.parse().unwrap())),
            None => out.push_str(&names[word]),
        }
        rest = behind;
    }
    out + rest
}

impl Call {
    /// A POST of `body`.
    pub(crate) fn create(path: &str, body: &Value) -> Self {
        Call {
            line: format!("POST {path}"),
            content_type: "application/json".into(),
            body: body.to_string(),
            ..Call::default()
        }
    }

    /// Sends it until it answers as it should in the end.
    pub(crate) async fn settle(&self, client: &Client, names: &HashMap<String, String>) -> Answer {
        let deadline = tokio::time::Instant::now() + SETTLE_DEADLINE;
        loop {
            let answer = self.send(client, names).await;
            let settled = match &self.until {
                None => true,
                Some(Until::Status(status)) => answer.status == *status,
                Some(Until::Pointer(pointer)) => answer.body.pointer(pointer).is_some(),
            };
            if settled {
                return answer;
            }
            let late = tokio::time::Instant::now() >= deadline;
            assert!(!late, "{}: not {:?}: {answer:?}", self.line, self.until);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends it once.
    pub(crate) async fn send(&self, client: &Client, names: &HashMap<String, String>) -> Answer {
        let (method, path) = self.line.split_once(' ').unwrap();
        // kube-apiserver 1.37 compresses a watch member by member, which the client cannot read.
        let mut request = http::Request::builder()
            .method(method)
            .header("accept-encoding", "identity")
            .uri(filled(path, names));
        let body = filled(&self.body, names);
        if !body.is_empty() {
            request = request.header("content-type", self.content_type.as_str());
        }
        if !self.accept.is_empty() {
            request = request.header("accept", self.accept.as_str());
        }
        let request = request.body(kube::client::Body::from(body.into_bytes()));
        let response = client.send(request.unwrap()).await.unwrap();
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let (content_type, retry_after) = (header("content-type"), header("retry-after"));
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer::new(&self.line, status, content_type, retry_after, &bytes)
    }
}
