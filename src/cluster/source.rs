//! The client that all tasks share, rebuilt when its credentials are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use super::client::ClientError;
use super::http::{Api, ApiError};
use crate::model::Str;

/// Shortest time between two logins; doubled while they do not help.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// Longest time between two logins.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Longest a login helper may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);

type Now = dyn Fn() -> Timestamp + Send + Sync;
type Build = dyn Fn() -> Result<Client, ClientError> + Send + Sync;

struct Current {
    client: Client,
    generation: u64,
}

struct Pace {
    last: Option<Instant>,
    wait: Duration,
    failure: Option<ApiError>,
}

struct Inner {
    server: Str,
    current: watch::Sender<Current>,
    pace: Mutex<Pace>,
    in_vain: AtomicBool,
    build: Arc<Build>,
}

/// Hands out the shared client.
#[derive(Clone)]
pub struct ClientSource {
    inner: Arc<Inner>,
    now: Arc<Now>,
}

impl ClientSource {
    /// `server` is the address that errors name; `build` makes a new client and may block (it
    /// runs login helpers): it is called on the blocking pool, one call at a time.
    pub fn new(
        client: Client,
        server: impl Into<Str>,
        build: impl Fn() -> Result<Client, ClientError> + Send + Sync + 'static,
    ) -> Self {
        ClientSource {
            inner: Arc::new(Inner {
                server: server.into(),
                current: watch::Sender::new(Current {
                    client,
                    generation: 0,
                }),
                pace: Mutex::new(Pace {
                    last: None,
                    wait: FIRST_WAIT,
                    failure: None,
                }),
                in_vain: AtomicBool::new(false),
                build: Arc::new(build),
            }),
            now: Arc::new(Timestamp::now),
        }
    }

    /// The same clients, for a cluster whose time of day is `now` and not this machine's.
    pub fn with_clock(mut self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.now = Arc::new(now);
        self
    }

    /// The time of day, for what is stamped and for ages of what others stamped.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// A source whose client never changes, for servers in this process.
    pub fn fixed(client: Client, server: impl Into<Str>) -> Self {
        let copy = client.clone();
        Self::new(client, server, move || Ok(copy.clone()))
    }

    /// The client and its generation, to be handed back to [`ClientSource::rebuild`].
    pub fn current(&self) -> (Api, u64) {
        let current = self.inner.current.borrow();
        (
            Api::new(current.client.clone(), self.inner.server.clone()),
            current.generation,
        )
    }

    /// The client itself, for callers outside this room.
    pub fn client(&self) -> Client {
        self.inner.current.borrow().client.clone()
    }

    /// The server's address.
    pub fn server(&self) -> &Str {
        &self.inner.server
    }

    /// Whether the credentials are refused and the last login has failed or did not help: without
    /// the user nothing will change soon.
    pub fn login_is_in_vain(&self) -> bool {
        self.inner.in_vain.load(Ordering::SeqCst)
    }

    /// Replaces the client of generation `refused` after a 401. Of many tasks that were refused
    /// together one logs in; a login that did not help is not repeated for a while, in which this
    /// answers `Ok` and changes nothing.
    ///
    /// # Errors
    /// The (last) login failed.
    pub async fn rebuild(&self, refused: u64) -> Result<(), ApiError> {
        let mut pace = self.inner.pace.lock().await;
        if self.inner.current.borrow().generation != refused {
            return Ok(());
        }
        let now = Instant::now();
        if let Some(last) = pace.last {
            let passed = now - last;
            if passed < pace.wait {
                self.inner.in_vain.store(true, Ordering::SeqCst);
                return match &pace.failure {
                    Some(failure) => Err(failure.clone()),
                    None => Ok(()),
                };
            }
            pace.wait = if passed > MAX_WAIT {
                FIRST_WAIT
            } else {
                (pace.wait * 2).min(MAX_WAIT)
            };
        }
        pace.last = Some(now);
        let build = self.inner.build.clone();
        let login = |why: String| ApiError::Login {
            server: self.inner.server.clone(),
            why: why.into(),
        };
        let built = match timeout(LOGIN_TIMEOUT, tokio::task::spawn_blocking(move || build())).await
        {
            Err(_) => Err(login(format!(
                "the login helper did not end within {} s",
                LOGIN_TIMEOUT.as_secs()
            ))),
            Ok(Err(e)) => Err(login(format!("the login helper could not run: {e}"))),
            Ok(Ok(built)) => built.map_err(|e| login(e.to_string())),
        };
        match built {
            Ok(client) => {
                pace.failure = None;
                self.inner.in_vain.store(false, Ordering::SeqCst);
                self.inner.current.send_replace(Current {
                    client,
                    generation: refused + 1,
                });
                Ok(())
            }
            Err(e) => {
                pace.failure = Some(e.clone());
                self.inner.in_vain.store(true, Ordering::SeqCst);
                Err(e)
            }
        }
    }
}
