//! pods/exec over WebSocket, with the few commands that a container of the embedded cluster has.

use http::{Extensions, HeaderMap, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Inner;
use super::logs::container_of;
use super::object::text;
use super::serve::{Answer, Call};
use super::status::ApiError;
use super::websocket::{Message, WebSocket, accept_key};

/// Subprotocols of kubectl, newest first: a channel's number stands before its bytes.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
/// The channel that tells how it ended.
const ERROR: u8 = 3;
/// v5 only: the other side has no more for the channel that follows.
const CLOSE: u8 = 255;

impl Inner {
    /// The pod that a client wants to be connected with.
    fn connectable(&self, call: &Call) -> Result<Value, ApiError> {
        let stored = self
            .store
            .get(&call.res.table, &call.key())
            .ok_or_else(|| ApiError::not_found(&call.res, &call.path.name))?;
        let pod = stored.value();
        if call.path.subresource != "portforward" {
            container_of(&pod, call.query.get("container"))?;
        }
        if text(&pod, "/spec/nodeName").is_empty() {
            return Err(ApiError::bad_request(format!(
                "pod {} does not have a host assigned",
                call.path.name
            )));
        }
        Ok(pod)
    }

    /// pods/attach and pods/portforward: refused as the real server does, and else not served.
    pub(super) fn not_connected(&self, call: &Call) -> Result<Answer, ApiError> {
        self.connectable(call)?;
        Err(ApiError::not_implemented(format!(
            "pods/{} is not served by the embedded cluster",
            call.path.subresource
        )))
    }

    /// Starts a command and hands the connection over to it.
    pub(super) fn exec(
        &self,
        call: &Call,
        headers: &HeaderMap,
        extensions: &mut Extensions,
    ) -> Result<Answer, ApiError> {
        let pod = self.connectable(call)?;
        // A GET that runs a command needs the right to create.
        self.authorize(&call.user, "create", &call.path)?;
        if matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed") {
            return Err(ApiError::bad_request(format!(
                "cannot exec into a container in a completed pod; current phase is {}",
                text(&pod, "/status/phase")
            )));
        }
        let header = |name: header::HeaderName| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default()
        };
        let offered = header(header::SEC_WEBSOCKET_PROTOCOL);
        let protocol = PROTOCOLS
            .into_iter()
            .find(|known| offered.split(',').any(|p| p.trim() == *known));
        let websocket = header(header::UPGRADE).eq_ignore_ascii_case("websocket");
        let upgrade = extensions.remove::<OnUpgrade>();
        let (true, Some(protocol), Some(upgrade)) = (websocket, protocol, upgrade) else {
            return Err(ApiError::bad_request(
                "unable to upgrade: exec is served over WebSocket, with v5.channel.k8s.io or v4.channel.k8s.io",
            ));
        };
        let session = Session {
            command: call.query.all("command"),
            host: call.path.name.clone(),
            namespace: call.path.namespace.clone(),
            node: text(&pod, "/spec/nodeName").to_owned(),
            stdin: call.query.flag("stdin"),
        };
        tokio::spawn(async move {
            // A client that goes away in between has nobody to tell.
            if let Ok(connection) = upgrade.await {
                let _ = session
                    .serve(WebSocket::new(TokioIo::new(connection)))
                    .await;
            }
        });
        Ok(Answer::Upgrade {
            protocol,
            accept: accept_key(header(header::SEC_WEBSOCKET_KEY)),
        })
    }
}

/// A command and where it runs.
struct Session {
    command: Vec<String>,
    host: String,
    namespace: String,
    node: String,
    stdin: bool,
}

/// What a command wrote and how it ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    out: String,
    err: String,
    code: u8,
}

impl Session {
    async fn serve<C>(&self, mut socket: WebSocket<C>) -> std::io::Result<()>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let words: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let reads = matches!(words.as_slice(), ["cat"] | ["sh" | "bash"]);
        let mut code = 0;
        if reads && self.stdin {
            code = self.interactive(&mut socket, words == ["cat"]).await?;
        } else if !reads {
            let ended = self.run(&words);
            send(&mut socket, STDOUT, &ended.out).await?;
            send(&mut socket, STDERR, &ended.err).await?;
            code = ended.code;
        }
        send(&mut socket, ERROR, &outcome(code).to_string()).await?;
        socket.close().await
    }

    /// Echoes what comes in, or runs it line by line, until the input ends.
    async fn interactive<C>(&self, socket: &mut WebSocket<C>, echo: bool) -> std::io::Result<u8>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let mut pending = String::new();
        let mut code = 0;
        while let Message::Data(bytes) = socket.read().await? {
            match bytes.split_first() {
                Some((&STDIN, input)) if echo => {
                    send(socket, STDOUT, &String::from_utf8_lossy(input)).await?;
                }
                Some((&STDIN, input)) => {
                    pending.push_str(&String::from_utf8_lossy(input));
                    while let Some((line, rest)) = pending.split_once('\n') {
                        let words: Vec<&str> = line.split_whitespace().collect();
                        if words.first() == Some(&"exit") {
                            return Ok(code);
                        }
                        let ended = self.run(&words);
                        let rest = rest.to_owned();
                        send(socket, STDOUT, &ended.out).await?;
                        send(socket, STDERR, &ended.err).await?;
                        code = ended.code;
                        pending = rest;
                    }
                }
                Some((&CLOSE, [STDIN])) => return Ok(code),
                _ => {}
            }
        }
        Ok(code)
    }

    /// Runs one command.
    fn run(&self, words: &[&str]) -> Ended {
        let ended = |out: String, code: u8| Ended {
            out,
            err: String::new(),
            code,
        };
        match words {
            [] | ["true" | "cat" | ":"] => ended(String::new(), 0),
            ["false"] => ended(String::new(), 1),
            ["echo", words @ ..] => ended(format!("{}\n", words.join(" ")), 0),
            ["hostname"] => ended(format!("{}\n", self.host), 0),
            ["pwd"] => ended("/\n".into(), 0),
            ["whoami"] => ended("root\n".into(), 0),
            ["ls"] => ended("bin\ndev\netc\nproc\ntmp\n".into(), 0),
            ["env"] => ended(
                format!(
                    "HOSTNAME={}\nPOD_NAMESPACE={}\nNODE_NAME={}\n",
                    self.host, self.namespace, self.node
                ),
                0,
            ),
            ["sh" | "bash", "-c", script] => {
                let mut all = ended(String::new(), 0);
                for line in script.split([';', '\n']) {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    match words.as_slice() {
                        ["exit"] => break,
                        ["exit", code] => {
                            all.code = code.parse().unwrap_or(2);
                            break;
                        }
                        words => {
                            let one = self.run(words);
                            all.out.push_str(&one.out);
                            all.err.push_str(&one.err);
                            all.code = one.code;
                        }
                    }
                }
                all
            }
            [unknown, ..] => Ended {
                out: String::new(),
                err: format!("{}: not found\n", super::status::clip(unknown)),
                code: 127,
            },
        }
    }
}

async fn send<C>(socket: &mut WebSocket<C>, channel: u8, text: &str) -> std::io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    if text.is_empty() {
        return Ok(());
    }
    let mut bytes = vec![channel];
    bytes.extend_from_slice(text.as_bytes());
    socket.write(&bytes).await
}

/// How a command ended, as the error channel tells it.
fn outcome(code: u8) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_answer_and_end() {
        let session = Session {
            command: Vec::new(),
            host: "train-0".into(),
            namespace: "team".into(),
            node: "n1".into(),
            stdin: false,
        };
        assert_eq!(session.run(&["hostname"]).out, "train-0\n");
        assert_eq!(
            session.run(&["sh", "-c", "echo a b; exit 3; echo c"]).out,
            "a b\n"
        );
        assert_eq!(session.run(&["sh", "-c", "echo a; exit 3"]).code, 3);
        assert_eq!(session.run(&["nvidia-smi"]).code, 127);
    }
}
