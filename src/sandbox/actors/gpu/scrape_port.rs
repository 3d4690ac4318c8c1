//! A loopback port that serves the metrics of every node, for a Prometheus or a console without
//! `pods/proxy`.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::exporter::Exporter;
use crate::sandbox::{PortAnswer, SandboxError};

/// A port that listens.
#[derive(Debug)]
pub(super) struct ScrapePort {
    socket: TcpListener,
}

impl ScrapePort {
    /// Listens on `addr`, which must be a loopback address.
    pub(super) async fn bind(addr: SocketAddr) -> Result<Self, SandboxError> {
        if !addr.ip().is_loopback() {
            return Err(SandboxError::NotLoopback(addr));
        }
        match TcpListener::bind(addr).await {
            Ok(socket) => Ok(Self { socket }),
            Err(source) => Err(SandboxError::Bind { addr, source }),
        }
    }

    /// Serves `GET /metrics?node=NAME` until `cancel`.
    pub(super) async fn serve(self, exporter: Exporter, cancel: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "the exporter cannot accept a connection");
                        continue;
                    }
                },
            };
            let exporter = exporter.clone();
            connections.spawn(async move {
                let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                    let answer = answer(&exporter, request.uri());
                    async move { Ok::<_, Infallible>(answer) }
                });
                let server = hyper::server::conn::http1::Builder::new();
                // A broken connection is the scraper's.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
        connections.shutdown().await;
    }
}

fn answer(exporter: &Exporter, uri: &http::Uri) -> http::Response<Full<Bytes>> {
    let query = uri.query().unwrap_or_default();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let node = pairs
        .find(|(name, _)| *name == "node")
        .map(|(_, node)| node);
    let PortAnswer {
        code,
        content_type,
        body,
    } = match node {
        Some(node) => exporter.answer(node, uri.path()),
        None => PortAnswer {
            code: 400,
            content_type: "text/plain; charset=utf-8",
            body: "this port serves all nodes: ask for one, as /metrics?node=NAME\n".to_owned(),
        },
    };
    let answer = http::Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(Full::new(Bytes::from(body)));
    // Only a bad status or header could fail, and these are ours.
    answer.unwrap_or_default()
}
