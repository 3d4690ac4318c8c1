//! One frame: header, view, what lies over it, footer.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::text::{Line, Span};

use super::app::{App, Layer};
use super::format;
use super::glyphs::Glyph;
use super::text_pane::{self, Body};
use super::theme::Meaning;
use super::view::Target;
use super::{footer, header};

/// The parts of a screen. On low screens rules go first, then header lines, then the footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Header lines.
    pub header: Rect,
    /// Line between header and view, may be empty.
    pub upper_rule: Rect,
    /// The view.
    pub view: Rect,
    /// Line between view and footer, may be empty.
    pub lower_rule: Rect,
    /// The footer.
    pub footer: Rect,
}

impl Parts {
    /// Divides a screen.
    pub fn of(screen: Rect) -> Self {
        let (header, rules, footer) = match screen.height {
            0 | 1 => (0, 0, 0),
            2 | 3 => (0, 0, 1),
            4 | 5 => (1, 0, 1),
            6..=9 => (3, 0, 1),
            _ => (3, 1, 1),
        };
        let mut y = screen.y;
        let mut take = |height: u16| {
            let part = Rect::new(screen.x, y, screen.width, height);
            y += height;
            part
        };
        let view = screen.height - header - 2 * rules - footer;
        Parts {
            header: take(header),
            upper_rule: take(rules),
            view: take(view),
            lower_rule: take(rules),
            footer: take(footer),
        }
    }
}

impl App {
    /// Draws a frame: brings cached rows up to date, then draws from state only.
    pub fn render(&mut self, screen: Rect, buf: &mut Buffer) {
        self.world.publish();
        self.render_known(screen, buf);
    }

    /// Draws a frame without taking news of the cluster into rows and figures, which takes time
    /// on a large one: for answers to keys between two frames that do.
    pub fn render_known(&mut self, screen: Rect, buf: &mut Buffer) {
        self.refresh(screen);
        self.draw(screen, buf);
        self.dirty = self.world.has_news() || self.lags();
    }

    /// Brings rows and texts up to date for a screen of this size.
    pub(super) fn refresh(&mut self, screen: Rect) {
        self.screen = screen;
        self.behind = false;
        let parts = Parts::of(screen);
        self.world.refresh();
        self.refresh_view(self.current, parts.view);
        let ctx = self.world.ctx();
        if let Some(view) = self.views.get_mut(self.current)
            && let Some(target) = &self.wanted
        {
            let mut found = view.select(target);
            if !found && !view.filter().is_empty() {
                // Who asks for a thing by name is to see it, whatever the filter hides.
                let filter = view.filter().to_owned();
                let _ = view.set_filter("");
                view.refresh(parts.view, &ctx);
                found = view.select(target);
                if !found {
                    let _ = view.set_filter(&filter);
                }
            }
            if found {
                self.wanted = None;
            }
            view.refresh(parts.view, &ctx);
        }
        self.note_job();
        self.refresh_texts();
        for layer in &mut self.layers {
            match layer {
                Layer::Text(pane) => pane.fit(parts.view),
                Layer::Picker(picker) => picker.fit(screen),
                Layer::Prompt(_) => {}
            }
        }
    }

    /// Remembers the job under the cursor: other views tell of it.
    fn note_job(&mut self) {
        let selected = self.view().and_then(|v| v.selected());
        let job = match selected {
            Some(Target::Workload(key)) => Some(key),
            Some(Target::Pod(uid)) => self.world.cluster.workload_of(&uid).cloned(),
            _ => None,
        };
        if job.is_some() {
            self.world.job = job;
        }
    }

    /// Descriptions follow the cluster, the message log its messages.
    fn refresh_texts(&mut self) {
        let log = self.message_lines();
        let shown = self.layers.iter().filter_map(|l| match l {
            Layer::Text(pane) => Some((pane.body.clone(), self.report_lines(&pane.body)?)),
            _ => None,
        });
        let mut shown: Vec<_> = shown.collect();
        let ctx = self.world.ctx();
        for layer in &mut self.layers {
            let Layer::Text(pane) = layer else { continue };
            match &pane.body {
                Body::Description(id, target) => {
                    let view = self.views.iter().find(|v| v.id() == *id);
                    match view.and_then(|v| v.describe(target, &ctx)) {
                        Some(lines) => {
                            let lines = text_pane::below(&pane.title, lines);
                            pane.set_lines(lines);
                        }
                        // The last text of a thing that is gone stays readable, and says so.
                        None if !pane.title.ends_with(GONE) => pane.title.push_str(GONE),
                        None => {}
                    }
                }
                Body::Messages => pane.set_lines(log.clone()),
                Body::Sources | Body::Unreadable => {
                    if let Some(at) = shown.iter().position(|(body, _)| *body == pane.body) {
                        pane.set_lines(shown.swap_remove(at).1);
                    }
                }
                Body::Why(target) => {
                    if let Some(lines) = super::why::lines(target, &self.whys, &ctx) {
                        pane.set_lines(lines);
                    }
                }
                Body::Help
                | Body::Tour
                | Body::Yaml(_)
                | Body::Logs(_)
                | Body::Output(_)
                | Body::Links(_) => {}
            }
        }
    }

    pub(super) fn message_lines(&self) -> Vec<Line<'static>> {
        let ctx = self.world.ctx();
        let mut lines: Vec<Line<'static>> = self
            .messages
            .all()
            .map(|m| {
                Line::from(vec![
                    Span::styled(
                        format!("{}  ", format::timestamp(m.at)),
                        ctx.style(Meaning::Muted),
                    ),
                    Span::styled(m.text.clone(), ctx.style(m.level.meaning())),
                    Span::styled(m.repeats(), ctx.style(Meaning::Muted)),
                ])
            })
            .collect();
        if lines.is_empty() {
            lines.push(Line::styled("no messages", ctx.style(Meaning::Muted)));
        }
        lines
    }

    fn draw(&self, screen: Rect, buf: &mut Buffer) {
        if screen.is_empty() {
            return;
        }
        let ctx = self.world.ctx();
        buf.set_style(screen, ctx.style(Meaning::Text));
        let parts = Parts::of(screen);
        header::draw(self, parts.header, buf);
        for rule in [parts.upper_rule, parts.lower_rule] {
            for x in rule.left()..rule.right() {
                if let Some(cell) = buf.cell_mut((x, rule.y)).filter(|_| !rule.is_empty()) {
                    cell.set_symbol(ctx.glyph(Glyph::Rule));
                    cell.set_style(ctx.style(Meaning::Rule));
                }
            }
        }
        // What a text covers is not drawn at all.
        let covered = self
            .layers
            .iter()
            .rposition(|l| matches!(l, Layer::Text(_)));
        if covered.is_none()
            && let Some(view) = self.view()
        {
            view.draw(parts.view, buf, &ctx);
        }
        footer::draw(self, parts.footer, buf);
        for (n, layer) in self.layers.iter().enumerate() {
            match layer {
                Layer::Text(pane) if covered == Some(n) => pane.draw(parts.view, buf, &ctx),
                Layer::Text(_) => {}
                Layer::Picker(picker) => picker.draw(screen, buf, &ctx),
                Layer::Prompt(prompt) => {
                    // Without a footer the prompt takes the last line there is.
                    let y = screen.bottom() - 1;
                    let strip = Rect::new(screen.x, y, screen.width, 1);
                    for x in strip.left()..strip.right() {
                        if let Some(cell) = buf.cell_mut((x, y)) {
                            cell.reset();
                        }
                    }
                    prompt.draw(strip, buf, &ctx);
                }
            }
        }
        ctx.glyphs.enforce(buf);
        blank_cells_alike(buf);
    }
}

/// A blank has no colour of its own: without this a text that goes leaves cells that differ from
/// others only in what nobody sees, and they would be sent.
fn blank_cells_alike(buf: &mut Buffer) {
    let seen = Modifier::REVERSED | Modifier::UNDERLINED | Modifier::CROSSED_OUT;
    for cell in &mut buf.content {
        if cell.symbol() == " " && !cell.modifier.intersects(seen) {
            cell.fg = Color::Reset;
            cell.modifier = Modifier::empty();
        }
    }
}

const GONE: &str = " (gone)";
