//! The whole world in steps: server, actors and scheduler on one thread, under a clock that moves
//! only when nothing is left to do, so that two runs under one seed write the same objects.
//!
//! One thread makes the order of everything that is ready a first-in, first-out queue. tokio's
//! paused clock jumps to the next timer when that queue is empty; every delay, time-out and time
//! stamp comes from it. What is left to chance then is seeded: UIDs and names by the server's seed,
//! jitter by this thread's generator.

use std::time::Duration;

use jiff::Timestamp;

use super::embedded::{World, WorldError};
use super::engine::{Engine, Feed, Options as EngineOptions};
use super::place::Place;
use super::schedule::Scheduling;
use crate::cluster::write::WriteMode;
use crate::sandbox::{ApiServer, History, Options, SandboxError, Time, Witness};
use tokio_util::sync::CancellationToken;

/// When stepped runs begin, unless they say otherwise: 2026-11-30T12:00:00Z.
const EPOCH_SECS: i64 = 1_796_040_000;

/// A run to be made.
#[derive(Debug, Clone)]
pub struct Stepped {
    /// What lives in it; its `play.time` is replaced.
    pub world: World,
    /// How long it lives, by its own clock.
    pub length: Duration,
    /// With gpudeck's scheduler; without it nothing is bound that asks for it.
    pub schedule: bool,
}

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SteppedError {
    /// The system gave no thread or no runtime.
    #[error("a stepped run could not be started: {0}")]
    Start(#[from] std::io::Error),
    /// The world.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The run panicked, or keeps no history.
    #[error("a stepped run ended without its history; the log says why")]
    Broken,
}

impl From<SandboxError> for SteppedError {
    fn from(error: SandboxError) -> Self {
        SteppedError::World(error.into())
    }
}

impl Stepped {
    /// Makes the run on a thread of its own and returns what was written.
    ///
    /// # Errors
    /// The world could not be brought to life.
    pub fn run(self) -> Result<History, SteppedError> {
        self.run_before(None)
    }

    /// The same, and `witness` is told of everything that is written.
    ///
    /// # Errors
    /// The world could not be brought to life.
    pub fn run_before(self, witness: Option<Witness>) -> Result<History, SteppedError> {
        // A fresh thread: its generator has drawn nothing yet.
        let thread = std::thread::Builder::new()
            .name("stepped".to_owned())
            .spawn(move || {
                fastrand::seed(self.world.play.seed);
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .start_paused(true)
                    .build()?;
                runtime.block_on(self.live(witness))
            })?;
        thread.join().map_err(|_| SteppedError::Broken)?
    }

    async fn live(mut self, witness: Option<Witness>) -> Result<History, SteppedError> {
        let epoch = Timestamp::from_second(EPOCH_SECS).unwrap_or_default();
        let time = Time::starting(epoch);
        let end = tokio::time::Instant::now() + self.length;
        let server = ApiServer::new(Options {
            seed: self.world.play.seed,
            clock: time.into(),
            record_history: true,
            witness,
            ..Options::default()
        })?;
        let stop = CancellationToken::new();
        self.world.play.time = time;
        let engine = self.schedule.then(|| scheduler(&server, time)).flatten();
        let actors = self.world.start(&server, &stop).await?;
        tokio::time::sleep_until(end).await;
        let history = server.history();
        drop((actors, engine));
        history.ok_or(SteppedError::Broken)
    }
}

/// gpudeck's scheduler on the server, as a console with `--schedule` runs it.
fn scheduler(server: &ApiServer, time: Time) -> Option<Engine> {
    let place = Place::embedded(server.client());
    let source = place.source.clone().with_clock(move || time.now());
    let mode = WriteMode::unless_read_only(false)?;
    let (engine, feed) = Engine::start(EngineOptions {
        source,
        scope: place.scope(),
        scheduling: Some(Scheduling::new(mode, Some("stepped"))),
        telemetry: None,
        fabric: crate::model::FabricRules::default(),
    });
    tokio::spawn(drain(feed));
    Some(engine)
}

/// The console's part: takes what it is told, or the bus would wait for it.
async fn drain(mut feed: Feed) {
    loop {
        tokio::select! {
            biased;
            batch = feed.deltas.recv() => if batch.is_none() { return },
            Some(_) = feed.leader.recv() => {}
        }
    }
}
