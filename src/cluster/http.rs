//! One request, bounded in time and size, with errors that say what to do.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

use crate::model::{Str, clean};

/// Bytes of a body that are made room for because the server says that they come.
const MAX_RESERVE: usize = 16 << 20;
/// The largest answer that is taken: beyond it a server (or proxy) is not telling a page.
const MAX_BODY: usize = 512 << 20;
/// Longest a body may pause between two pieces.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request did not get its answer. Each is one sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// No connection.
    #[error("cannot reach the API server {server}: {why}")]
    Unreachable {
        /// Its address.
        server: Str,
        /// The system's words.
        why: Str,
    },
    /// No answer in time.
    #[error("the API server {server} did not answer within {secs} s")]
    Timeout {
        /// Its address.
        server: Str,
        /// How long we waited.
        secs: u64,
    },
    /// A watch from which nothing came, not even its scheduled end.
    #[error("the watch on the API server {server} fell silent for {secs} s")]
    Silent {
        /// Its address.
        server: Str,
        /// How long it was silent.
        secs: u64,
    },
    /// The connection is not trusted.
    #[error("no trusted TLS connection to the API server {server}: {why}")]
    Tls {
        /// Its address.
        server: Str,
        /// What is wrong with the certificate.
        why: Str,
    },
    /// The credentials could not be obtained.
    #[error("cannot log in to the API server {server}: {why}")]
    Login {
        /// Its address.
        server: Str,
        /// What the login helper or token file says.
        why: Str,
    },
    /// 401.
    #[error(
        "the API server {server} refuses the credentials, which may have expired (401 {message}): log in again"
    )]
    Unauthorized {
        /// Its address.
        server: Str,
        /// The server's words.
        message: Str,
    },
    /// Any other answer that is not a success.
    #[error("{}", status_sentence(*code, reason, message))]
    Status {
        /// HTTP code.
        code: u16,
        /// Kubernetes' reason, may be empty.
        reason: Str,
        /// The server's words.
        message: Str,
        /// Seconds to wait, where the server says so.
        retry_after_secs: Option<u64>,
    },
    /// An answer that is not what was asked for.
    #[error("the API server {server} gave an answer that cannot be read: {why}")]
    Garbage {
        /// Its address.
        server: Str,
        /// What is wrong with it.
        why: Str,
    },
}

fn status_sentence(code: u16, reason: &str, message: &str) -> String {
    match code {
        403 => format!("forbidden (403): {message}"),
        404 => format!("not found (404): {message}"),
        _ if reason.is_empty() => format!("the API server answered {code}: {message}"),
        _ => format!("the API server answered {code} {reason}: {message}"),
    }
}

impl ApiError {
    /// The HTTP code, where the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            ApiError::Status { code, .. } => Some(*code),
            ApiError::Unauthorized { .. } => Some(401),
            _ => None,
        }
    }

    /// Whether the request may have taken effect although no answer came.
    pub fn is_unknown_outcome(&self) -> bool {
        matches!(
            self,
            ApiError::Timeout { .. } | ApiError::Unreachable { .. } | ApiError::Garbage { .. }
        )
    }
}

/// A client with the address that errors name.
#[derive(Clone)]
pub struct Api {
    client: Client,
    server: Str,
}

impl Api {
    /// `server` is the address as the user knows it.
    pub fn new(client: Client, server: Str) -> Self {
        Api { client, server }
    }

    /// The address.
    pub fn server(&self) -> &Str {
        &self.server
    }

    /// GET, the answer as text. `limit` bounds the wait for the answer to begin.
    ///
    /// # Errors
    /// Anything but a 2xx.
    pub async fn get_text(&self, path: &str, limit: Duration) -> Result<String, ApiError> {
        let response = self.open(Method::GET, path, None, limit).await?;
        self.text(response.into_body()).await
    }

    /// GET, the answer as JSON.
    ///
    /// # Errors
    /// Anything but a 2xx with a JSON body.
    pub async fn get(&self, path: &str, limit: Duration) -> Result<Value, ApiError> {
        let text = self.get_text(path, limit).await?;
        self.json(&text)
    }

    /// Sends `body` as JSON and reads the answer as JSON (`Null` when it has none).
    ///
    /// # Errors
    /// Anything but a 2xx with a JSON body.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Value, ApiError> {
        let whole = async {
            let response = self.open(method, path, Some(body), limit).await?;
            self.text(response.into_body()).await
        };
        let text = timeout(limit, whole)
            .await
            .map_err(|_| self.timed_out(limit))??;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        self.json(&text)
    }

    /// Starts a request and gives the response with its body unread.
    ///
    /// # Errors
    /// Anything but a 2xx.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Response<Body>, ApiError> {
        let mut request = Request::builder()
            .method(&method)
            .uri(path)
            .header(http::header::ACCEPT, "application/json");
        if path.contains("watch=true") {
            // Servers from 1.37 on compress a watch as one gzip member per event, of which the
            // client's decompression reads only the first.
            request = request.header(http::header::ACCEPT_ENCODING, "identity");
        }
        let bytes = match body {
            None => Vec::new(),
            Some(value) => {
                let content = if method == Method::PATCH {
                    "application/merge-patch+json"
                } else {
                    "application/json"
                };
                request = request.header(http::header::CONTENT_TYPE, content);
                value.to_string().into_bytes()
            }
        };
        let request = request
            .body(Body::from(bytes))
            .map_err(|e| self.garbage(format!("the request {path} cannot be made: {e}")))?;
        let response = timeout(limit, self.client.send(request))
            .await
            .map_err(|_| self.timed_out(limit))?
            .map_err(|e| explain(&self.server, &e))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status();
        let retry_after_secs = response
            .headers()
            .get(http::header::RETRY_AFTER)
            .and_then(|v| v.to_str().ok()?.parse().ok());
        // What the body says is a bonus: a server that fails may fail at that as well.
        let text = self.text(response.into_body()).await.unwrap_or_default();
        Err(self.refusal(code, &text, retry_after_secs))
    }

    fn refusal(&self, code: StatusCode, text: &str, retry_after_secs: Option<u64>) -> ApiError {
        let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
        let field = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or("");
        let message = match field("message") {
            "" if text.trim().is_empty() => code.canonical_reason().unwrap_or("no reason given"),
            "" => text.trim(),
            said => said,
        };
        let message: Str = clean(message, 400).into();
        if code == StatusCode::UNAUTHORIZED {
            return ApiError::Unauthorized {
                server: self.server.clone(),
                message,
            };
        }
        ApiError::Status {
            code: code.as_u16(),
            reason: clean(field("reason"), 100).into(),
            message,
            retry_after_secs,
        }
    }

    fn json(&self, text: &str) -> Result<Value, ApiError> {
        serde_json::from_str(text).map_err(|e| self.garbage(e.to_string()))
    }

    /// The whole body as text; what is not UTF-8 in it becomes `�`.
    async fn text(&self, mut body: Body) -> Result<String, ApiError> {
        let stated = usize::try_from(body.size_hint().lower()).unwrap_or(0);
        let mut all: Vec<u8> = Vec::with_capacity(stated.min(MAX_RESERVE));
        while let Some(piece) = self.piece(&mut body, PIECE_TIMEOUT).await? {
            if all.len() + piece.len() > MAX_BODY {
                return Err(self.garbage(format!("it is larger than {} MiB", MAX_BODY >> 20)));
            }
            all.extend_from_slice(&piece);
        }
        Ok(match String::from_utf8(all) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        })
    }

    /// The next piece of a body; `None` at its end.
    pub(super) async fn piece(
        &self,
        body: &mut Body,
        limit: Duration,
    ) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = timeout(limit, body.frame())
                .await
                .map_err(|_| ApiError::Silent {
                    server: self.server.clone(),
                    secs: limit.as_secs(),
                })?;
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(e)) => {
                    return Err(ApiError::Unreachable {
                        server: self.server.clone(),
                        why: clean(&deepest(&e), 300).into(),
                    });
                }
            }
        }
    }

    fn timed_out(&self, limit: Duration) -> ApiError {
        ApiError::Timeout {
            server: self.server.clone(),
            secs: limit.as_secs(),
        }
    }

    pub(super) fn garbage(&self, why: impl AsRef<str>) -> ApiError {
        ApiError::Garbage {
            server: self.server.clone(),
            why: clean(why.as_ref(), 300).into(),
        }
    }
}

/// The cause of an error; an I/O error's inner error is not its `source`.
fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<std::io::Error>() {
        Some(io) => io.get_ref().map(|e| e as &(dyn StdError + 'static)),
        None => error.source(),
    }
}

/// The error and its causes, outermost first.
fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |e| cause(*e))
}

/// The innermost cause: it says what happened, the outer ones only where.
fn deepest(error: &(dyn StdError + 'static)) -> String {
    let closed = chain(error)
        .filter_map(|e| e.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::UnexpectedEof);
    if closed {
        return "the server closed the connection".to_owned();
    }
    chain(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// Says what an error of kube's means to the user.
pub(super) fn explain(server: &Str, error: &kube::Error) -> ApiError {
    let server = server.clone();
    if let kube::Error::Auth(e) = error {
        return ApiError::Login {
            server,
            why: clean(&login_sentence(e), 400).into(),
        };
    }
    for e in chain(error) {
        if let Some(auth) = e.downcast_ref::<kube::client::AuthError>() {
            return ApiError::Login {
                server,
                why: clean(&login_sentence(auth), 400).into(),
            };
        }
        if let Some(tls) = e.downcast_ref::<rustls::Error>() {
            return ApiError::Tls {
                server,
                why: clean(&tls.to_string(), 300).into(),
            };
        }
    }
    ApiError::Unreachable {
        server,
        why: clean(&deepest(error), 300).into(),
    }
}

/// What a failed login means, with what to do where we know it.
pub(super) fn login_sentence(error: &kube::client::AuthError) -> String {
    use kube::client::AuthError;
    match error {
        AuthError::AuthExecStart(e) if e.kind() == std::io::ErrorKind::NotFound => {
            "the login helper that the kubeconfig names is not installed or not in PATH".to_owned()
        }
        AuthError::AuthExecRun { cmd, out } => {
            let said = String::from_utf8_lossy(&out.stderr);
            let last = said.lines().rev().find(|l| !l.trim().is_empty());
            match last {
                Some(line) => format!("the login helper {cmd} failed: {}", line.trim()),
                None => format!("the login helper {cmd} failed with {}", out.status),
            }
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io;

    use super::*;

    #[test]
    fn each_failed_connection_is_one_clear_sentence() {
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        for (cause, expected) in [
            (
                io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls)),
                "no trusted TLS connection to the API server https://k: invalid peer certificate: Expired",
            ),
            (
                io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "peer closed: https://docs.rs/x",
                ),
                "cannot reach the API server https://k: the server closed the connection",
            ),
            (
                io::Error::from_raw_os_error(111),
                "cannot reach the API server https://k: Connection refused (os error 111)",
            ),
        ] {
            let error = kube::Error::Service(Box::new(cause));
            assert_eq!(explain(&"https://k".into(), &error).to_string(), expected);
        }
        let start = kube::client::AuthError::AuthExecStart(io::ErrorKind::NotFound.into());
        assert_eq!(
            explain(&"https://k".into(), &kube::Error::Auth(start)).to_string(),
            "cannot log in to the API server https://k: the login helper that the kubeconfig names is not installed or not in PATH"
        );
    }

    #[test]
    fn refusals_say_code_and_words() {
        let client = super::super::fake::Fake::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let api = runtime.block_on(async { Api::new(client.client(), "https://k".into()) });
        let said = |code: u16, body: &str| {
            let code = StatusCode::from_u16(code).unwrap();
            api.refusal(code, body, None).to_string()
        };
        assert_eq!(said(403, r#"{"message":"no"}"#), "forbidden (403): no");
        assert_eq!(
            said(503, r#"{"code":"503","message":["not","a","string"]}"#),
            "the API server answered 503: {\"code\":\"503\",\"message\":[\"not\",\"a\",\"string\"]}"
        );
        assert_eq!(said(502, ""), "the API server answered 502: Bad Gateway");
        assert_eq!(
            said(409, r#"{"reason":"Conflict","message":"x\u001b[2J"}"#),
            "the API server answered 409 Conflict: x\u{fffd}[2J"
        );
    }
}
