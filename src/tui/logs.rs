//! Logs of pods on the screen: whose they are, and the lines so far, of which the newest are kept.

use ratatui::text::{Line, Span};

use super::theme::Meaning;
use super::view::Ctx;
use crate::model::{Pod, Str};

/// Lines that are kept; older ones go.
const KEPT: usize = 5_000;
/// Pods that are followed at once.
pub const MAX_PODS: usize = 64;

/// A pod whose log is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogPod {
    /// Namespace.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// What stands before its lines: its rank, or its name.
    pub label: Str,
}

/// A line of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Which of the pods wrote it, by its place among them.
    pub pod: usize,
    /// What, cleaned.
    pub text: Str,
    /// It is not the container's but says what became of its log.
    pub notice: bool,
}

/// A question for logs. Only the answers to the latest one are shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogAsk {
    /// The session's generation.
    pub generation: u64,
    /// Grows with each question.
    pub turn: u64,
    /// Whose logs.
    pub pods: Vec<LogPod>,
}

/// The logs that are open.
#[derive(Default)]
pub(super) struct Logs {
    pub(super) ask: Option<LogAsk>,
    turn: u64,
}

impl Logs {
    /// A new question.
    pub(super) fn ask(&mut self, generation: u64, pods: Vec<LogPod>) -> LogAsk {
        self.turn += 1;
        let ask = LogAsk {
            generation,
            turn: self.turn,
            pods,
        };
        self.ask = Some(ask.clone());
        ask
    }

    /// Whether lines with this turn are wanted.
    pub(super) fn wants(&self, turn: u64) -> bool {
        self.ask.as_ref().is_some_and(|a| a.turn == turn)
    }

    /// Lines as the pane shows them.
    pub(super) fn lines(&self, lines: &[LogLine], ctx: &Ctx<'_>) -> Vec<Line<'static>> {
        let pods = self.ask.as_ref().map_or(&[][..], |a| &a.pods);
        let widest = pods
            .iter()
            .map(|p| p.label.chars().count())
            .max()
            .unwrap_or(0)
            .min(24);
        let skipped = lines.len().saturating_sub(KEPT);
        let shown = lines.iter().skip(skipped).map(|line| {
            let mut spans = Vec::new();
            if pods.len() > 1 {
                let label = pods.get(line.pod).map_or("", |p| &*p.label);
                let label = crate::model::truncate_middle(label, widest);
                let label = format!("{label:<widest$} ");
                spans.push(Span::styled(label, ctx.style(Meaning::Accent)));
            }
            let meaning = if line.notice {
                Meaning::Muted
            } else {
                Meaning::Text
            };
            let text = if line.notice {
                format!("-- {}", line.text)
            } else {
                line.text.to_string()
            };
            spans.push(Span::styled(text, ctx.style(meaning)));
            Line::from(spans)
        });
        shown.collect()
    }

    /// Lines that a pane keeps.
    pub(super) fn kept() -> usize {
        KEPT
    }
}

/// What stands before the lines of a pod.
pub(super) fn label(pod: &Pod) -> Str {
    match pod.rank() {
        Some(rank) => rank.to_string().into(),
        None => pod.meta.name.clone(),
    }
}
