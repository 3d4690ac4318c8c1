//! Why a pod waits and what would start it: tried on a copy of the scheduler's picture where a
//! scheduler runs in this process, else on one made from what the console knows.

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task;

use crate::model::Uid;
use crate::sched::{self, SchedConfig, State};
use crate::tui::explaining::{WhyAnswer, WhyAsk};

/// A question to the scheduler of this process.
pub struct Question {
    /// The pod that waits.
    pub pod: Uid,
    /// Where the answer goes.
    pub answer: oneshot::Sender<WhyAnswer>,
}

impl Question {
    /// Answers from a copy, beside whatever else is done.
    pub fn answer_beside(self, state: &State, now: Timestamp) {
        let state = state.fork();
        task::spawn_blocking(move || {
            // Who asked may be gone.
            let _ = self.answer.send(answer(&state, now, &self.pod));
        });
    }
}

fn answer(state: &State, now: Timestamp, pod: &Uid) -> WhyAnswer {
    if let Some(why) = state.blocked() {
        return WhyAnswer::Failed(why.to_string());
    }
    match sched::explain(state, now, pod) {
        Some(explanation) => WhyAnswer::Waits(Box::new(explanation)),
        None => WhyAnswer::NotOurs,
    }
}

/// The answer to what the console asks.
pub async fn answered(
    ask: WhyAsk,
    config: SchedConfig,
    now: Timestamp,
    scheduler: Option<mpsc::Sender<Question>>,
) -> WhyAnswer {
    let pod = ask.pod;
    let found = match (ask.known, scheduler) {
        (Some(known), _) => {
            let tried = task::spawn_blocking(move || {
                let mut state = State::new(config);
                known.deltas().iter().for_each(|delta| state.apply(delta));
                state.expire(now);
                answer(&state, now, &pod)
            });
            tried.await.ok()
        }
        (None, Some(scheduler)) => {
            let (answer, told) = oneshot::channel();
            match scheduler.send(Question { pod, answer }).await {
                Ok(()) => told.await.ok(),
                Err(_) => None,
            }
        }
        (None, None) => None,
    };
    found.unwrap_or_else(|| WhyAnswer::Failed("the scheduler of this process has ended".into()))
}
