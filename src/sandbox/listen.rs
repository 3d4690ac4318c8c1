//! The embedded cluster on a loopback port, for kubectl and other processes.
//!
//! TLS with a certificate made at start: client-go sends no bearer token over plain HTTP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::access::Caller;
use super::{ApiServer, Inner, Options, SandboxError, kubeconfig, serve};

/// How long a peer may take for its TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
/// How long a connection may stay idle between two requests. Longer than clients pool theirs, so
/// that none is closed under a request.
const IDLE_LIMIT: Duration = Duration::from_secs(600);

/// The server's certificate, made once so that it survives a restart of the listener.
#[derive(Debug, Default)]
pub(super) struct Identity(OnceLock<Keys>);

#[derive(Debug)]
struct Keys {
    ca_pem: String,
    config: Arc<rustls::ServerConfig>,
}

impl Identity {
    fn keys(&self) -> Result<&Keys, SandboxError> {
        if let Some(keys) = self.0.get() {
            return Ok(keys);
        }
        let made = Keys::make()?;
        Ok(self.0.get_or_init(|| made))
    }
}

impl Keys {
    fn make() -> Result<Self, SandboxError> {
        let fail = |error: &dyn std::fmt::Display| SandboxError::Certificate(error.to_string());
        let ca_key = KeyPair::generate().map_err(|e| fail(&e))?;
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name
            .push(DnType::CommonName, "gpudeck sandbox CA");
        let ca_certificate = ca.self_signed(&ca_key).map_err(|e| fail(&e))?;
        let issuer = Issuer::new(ca, ca_key);

        let key = KeyPair::generate().map_err(|e| fail(&e))?;
        let names = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default.svc",
        ];
        let mut leaf = CertificateParams::new(names.map(str::to_owned)).map_err(|e| fail(&e))?;
        leaf.distinguished_name
            .push(DnType::CommonName, "gpudeck sandbox");
        let certificate = leaf.signed_by(&key, &issuer).map_err(|e| fail(&e))?;

        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| fail(&e))?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .map_err(|e| fail(&e))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Keys {
            ca_pem: ca_certificate.pem(),
            config: Arc::new(config),
        })
    }
}

/// An open port. Dropping it closes the port and every connection; the store lives on.
#[derive(Debug)]
pub struct Listener {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Listener {
    /// Where it listens; the real port where 0 was asked for.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Closes the port and drops every connection, as a killed server does. When this returns,
    /// the same address can be listened on again.
    pub async fn stop(mut self) {
        self.stop.take();
        if let Some(task) = self.task.take() {
            // The task ends by itself; a panic in it has closed the port too.
            let _ = task.await;
        }
    }
}

impl ApiServer {
    /// Serves on `addr`, which must be a loopback address. Needs a tokio runtime.
    pub async fn listen(&self, addr: SocketAddr) -> Result<Listener, SandboxError> {
        if !addr.ip().is_loopback() {
            return Err(SandboxError::NotLoopback(addr));
        }
        let acceptor = TlsAcceptor::from(self.inner.identity.keys()?.config.clone());
        let socket = TcpListener::bind(addr)
            .await
            .map_err(|source| SandboxError::Bind { addr, source })?;
        let addr = socket
            .local_addr()
            .map_err(|source| SandboxError::Bind { addr, source })?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept(self.inner.clone(), socket, acceptor, stopped));
        Ok(Listener {
            addr,
            stop: Some(stop),
            task: Some(task),
        })
    }

    /// Writes a kubeconfig of the administrator for a listener at `addr`: atomically, mode 0600.
    pub fn write_kubeconfig(&self, path: &Path, addr: SocketAddr) -> Result<(), SandboxError> {
        self.write_kubeconfig_for(path, addr, "kubernetes-admin", &self.admin_token())
    }

    /// Writes a kubeconfig for the holder of a registered token.
    pub fn write_kubeconfig_for(
        &self,
        path: &Path,
        addr: SocketAddr,
        user: &str,
        token: &str,
    ) -> Result<(), SandboxError> {
        let ca = &self.inner.identity.keys()?.ca_pem;
        kubeconfig::write(
            path,
            &kubeconfig::contents(&format!("https://{addr}"), ca, user, token),
        )
    }
}

async fn accept(
    inner: Arc<Inner>,
    socket: TcpListener,
    acceptor: TlsAcceptor,
    mut stopped: oneshot::Receiver<()>,
) {
    // Aborted as a whole when this task ends, and so are its members.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            accepted = socket.accept() => match accepted {
                // Dropped at once, as nearly as an open port can be nobody's.
                Ok(_) if inner.faults.is_down() => {}
                Ok((stream, _)) => {
                    connections.spawn(connection(inner.clone(), stream, acceptor.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the embedded cluster cannot accept a connection");
                    // Out of file descriptors, say: a moment later there may be some.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(socket);
    connections.shutdown().await;
}

async fn connection(inner: Arc<Inner>, stream: TcpStream, acceptor: TlsAcceptor) {
    // Watch events are small and must not wait for more.
    let _ = stream.set_nodelay(true);
    let shaken = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await;
    let Ok(Ok(stream)) = shaken else { return };
    let mut restarts = inner.faults.restarts();
    let service = service_fn(move |request| {
        let inner = inner.clone();
        async move { serve::respond(inner, request, Caller::Header).await }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let served = tokio::select! {
        served = serving => served,
        // A restarted server has forgotten its connections.
        () = restarts.changed() => return,
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of the embedded cluster broke");
    }
}

/// What `gpudeck sandbox --listen` asks for.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Loopback address; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Where the kubeconfig goes once the server is ready.
    pub kubeconfig: Option<PathBuf>,
    /// The server's own options.
    pub server: Options,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            kubeconfig: None,
            server: Options::default(),
        }
    }
}

/// A server that listens, and its kubeconfig written.
#[derive(Debug)]
pub struct Running {
    /// The server.
    pub server: ApiServer,
    /// Its port.
    pub listener: Listener,
}

/// Starts a server, listens and then writes the kubeconfig. It serves until the value is dropped.
pub async fn run(options: RunOptions) -> Result<Running, SandboxError> {
    let server = ApiServer::new(options.server)?;
    let listener = server.listen(options.listen).await?;
    if let Some(path) = &options.kubeconfig {
        server.write_kubeconfig(path, listener.addr())?;
    }
    Ok(Running { server, listener })
}
