//! What a thing leads to: why it is so, its logs, and other things.

use super::app::{App, Cmd, Layer};
use super::jump;
use super::logs::{LogLine, LogPod, Logs, MAX_PODS, label};
use super::messages::Level;
use super::object;
use super::text_pane::{Body, TextPane};
use super::view::Target;

impl App {
    /// Opens the tour.
    pub(super) fn open_tour(&mut self) {
        let world = &self.world;
        let lines = super::tour::lines(&world.keymap, &world.theme, world.session.read_only);
        self.push_text(TextPane::new(Body::Tour, "the tour", lines));
    }

    /// Tells why the thing under the cursor is where it is.
    pub(super) fn explain(&mut self) -> Vec<Cmd> {
        let Some(target) = self.target() else {
            return Vec::new();
        };
        let ctx = self.world.ctx();
        let Some(lines) = super::why::lines(&target, &self.whys, &ctx) else {
            self.note(Level::Info, "it is gone");
            return Vec::new();
        };
        let name = object::copied_name(&target, &self.world.cluster).unwrap_or_default();
        self.push_text(TextPane::new(
            Body::Why(target),
            format!("why {name}"),
            lines,
        ));
        self.ask_why()
    }

    /// Follows the logs of the thing under the cursor.
    pub(super) fn follow_logs(&mut self) -> Vec<Cmd> {
        let Some(target) = self.target() else {
            return Vec::new();
        };
        let cluster = &self.world.cluster;
        let pods = jump::pods(&target, cluster);
        let all = pods.len();
        let pods: Vec<LogPod> = pods
            .into_iter()
            .take(MAX_PODS)
            .map(|pod| LogPod {
                namespace: pod.meta.namespace.clone(),
                name: pod.meta.name.clone(),
                label: label(pod),
            })
            .collect();
        let name = object::copied_name(&target, cluster).unwrap_or_default();
        let title = match pods.len() {
            0 => return Vec::new(),
            1 => format!("log of {name}"),
            n if n < all => format!("logs of {n} of {all} pods of {name}"),
            n => format!("logs of the {n} pods of {name}"),
        };
        let mut cmds = self.stop_logs();
        let ask = self.logs.ask(self.world.session.generation, pods);
        let mut pane = TextPane::new(Body::Logs(ask.turn), title, Vec::new());
        pane.show_end();
        self.push_text(pane);
        cmds.push(Cmd::Logs(ask));
        cmds
    }

    /// Stops following logs whose pane is closed.
    pub(super) fn stop_logs(&mut self) -> Vec<Cmd> {
        let open = |l: &Layer| matches!(l, Layer::Text(p) if matches!(p.body, Body::Logs(_)));
        self.layers.retain(|l| !open(l));
        match self.logs.ask.take() {
            Some(_) => vec![Cmd::StopLogs],
            None => Vec::new(),
        }
    }

    pub(super) fn log_lines(&mut self, turn: u64, lines: &[LogLine]) {
        if !self.logs.wants(turn) {
            return;
        }
        let shown = self.logs.lines(lines, &self.world.ctx());
        for layer in &mut self.layers {
            if let Layer::Text(pane) = layer
                && pane.body == Body::Logs(turn)
            {
                pane.append(shown, Logs::kept());
                break;
            }
        }
    }

    /// Goes to a thing that another leads to.
    pub(super) fn jump(&mut self, to: fn(&Target, &crate::model::Cluster) -> Option<Target>) {
        let to = self.target().and_then(|t| to(&t, &self.world.cluster));
        match to {
            Some(target) => self.go(jump::view_of(&target), Some(target)),
            None => self.note(Level::Info, "it leads nowhere any more"),
        }
    }
}
