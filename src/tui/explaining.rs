//! What would start a pod that waits: asked when somebody looks, and worked out beside the console.

use jiff::{SignedDuration, Timestamp};

use super::app::{App, Cmd, Layer};
use super::text_pane::Body;
use super::why;
use crate::model::{Known, Uid};
use crate::sched::Explanation;

/// The answer for another picture is asked for at most this often.
const ANEW: SignedDuration = SignedDuration::from_secs(5);

/// A question why a pod waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WhyAsk {
    /// Which question it is.
    pub turn: u64,
    /// The pod.
    pub pod: Uid,
    /// What the console knows; `None`: a scheduler of this process knows more.
    pub known: Option<Known>,
}

/// Why a pod waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WhyAnswer {
    /// For the scheduler to place it.
    Waits(Box<Explanation>),
    /// For something that is not the scheduler's to give, or not any more.
    NotOurs,
    /// It cannot be told, for this cause.
    Failed(String),
}

/// An answer, and for which picture it holds.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pod: Uid,
    version: u64,
    /// When it was asked for.
    pub(super) at: Timestamp,
    /// The answer.
    pub(super) answer: WhyAnswer,
    /// It is from what the console knows.
    pub(super) from_here: bool,
}

/// Questions and answers; one question at a time, and the last answer is kept.
#[derive(Default)]
pub(super) struct Whys {
    turn: u64,
    asked: Option<Told>,
    told: Option<Told>,
}

impl Whys {
    /// Forgets all; the answer to what was asked will be another place's.
    pub(super) fn forget(&mut self) {
        *self = Whys {
            turn: self.turn + 1,
            ..Whys::default()
        };
    }

    /// The answer for a pod.
    pub(super) fn told(&self, pod: &Uid) -> Option<&Told> {
        self.told.as_ref().filter(|t| t.pod == *pod)
    }

    /// Whether a question about a pod has no answer yet.
    pub(super) fn is_asked(&self, pod: &Uid) -> bool {
        self.asked.as_ref().is_some_and(|a| a.pod == *pod)
    }

    /// Whether the answer for a pod is that of this picture, or young.
    fn is_fresh(&self, pod: &Uid, version: u64, now: Timestamp) -> bool {
        self.told(pod).is_some_and(|told| {
            let age = now.duration_since(told.at);
            told.version == version || (!age.is_negative() && age < ANEW)
        })
    }
}

impl App {
    /// Asks what would start the pod that the open explanation is about, unless that is known or
    /// asked already.
    pub(super) fn ask_why(&mut self) -> Vec<Cmd> {
        let open = self.layers.iter().rev().find_map(|layer| match layer {
            Layer::Text(pane) => match &pane.body {
                Body::Why(target) => Some(target),
                _ => None,
            },
            _ => None,
        });
        let ctx = self.world.ctx();
        let Some(pod) = open.and_then(|target| why::explained_pod(target, &ctx)) else {
            return Vec::new();
        };
        let (version, now) = (self.world.cluster.version(), self.world.now);
        let whys = &mut self.whys;
        // Another pod's answer is not waited for.
        if whys.is_asked(&pod) || whys.is_fresh(&pod, version, now) {
            return Vec::new();
        }
        whys.turn += 1;
        let from_here = !self.world.session.schedules;
        whys.asked = Some(Told {
            pod: pod.clone(),
            version,
            at: now,
            answer: WhyAnswer::NotOurs,
            from_here,
        });
        vec![Cmd::Explain(WhyAsk {
            turn: whys.turn,
            pod,
            known: from_here.then(|| self.world.cluster.known()),
        })]
    }

    /// Takes an answer.
    pub(super) fn why_told(&mut self, turn: u64, answer: WhyAnswer) {
        if turn != self.whys.turn {
            return;
        }
        if let Some(asked) = self.whys.asked.take() {
            self.whys.told = Some(Told { answer, ..asked });
        }
    }
}
