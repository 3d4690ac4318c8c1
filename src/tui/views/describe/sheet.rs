//! How descriptions are laid out: a title, labelled values, sections.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::model::{Meta, Str};
use crate::tui::format;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::timeline::{Happening, merge};

/// Columns of a label.
const LABEL: usize = 14;

/// Entries of a list that are written out; the rest is counted.
pub(in crate::tui::views) const LIST_LIMIT: usize = 200;

/// Events that are written out, the newest.
const EVENT_LIMIT: usize = 20;

/// A description being written.
pub(in crate::tui::views) struct Sheet<'a> {
    ctx: &'a Ctx<'a>,
    lines: Vec<Line<'static>>,
}

impl<'a> Sheet<'a> {
    /// Begins with a title.
    pub(in crate::tui::views) fn new(kind: &str, name: &str, ctx: &'a Ctx<'a>) -> Self {
        let title = Line::from(vec![
            Span::styled(format!("{kind} "), ctx.style(Meaning::Muted)),
            Span::styled(name.to_owned(), ctx.style(Meaning::Title)),
        ]);
        Sheet {
            ctx,
            lines: vec![title],
        }
    }

    /// A labelled value.
    pub(in crate::tui::views) fn field(&mut self, label: &str, value: impl Into<String>) {
        self.styled(label, value, Meaning::Text);
    }

    /// A labelled value with a meaning.
    pub(in crate::tui::views) fn styled(
        &mut self,
        label: &str,
        value: impl Into<String>,
        meaning: Meaning,
    ) {
        self.spans(
            label,
            vec![Span::styled(value.into(), self.ctx.style(meaning))],
        );
    }

    /// A labelled value that may not be known.
    pub(in crate::tui::views) fn maybe(&mut self, label: &str, value: Option<impl Into<String>>) {
        match value {
            Some(value) => self.field(label, value),
            None => self.styled(label, format::UNKNOWN, Meaning::Unknown),
        }
    }

    /// A labelled drawing.
    pub(in crate::tui::views) fn spans(&mut self, label: &str, value: Vec<Span<'static>>) {
        // One blank at least, also after a long resource name.
        let pad = LABEL.saturating_sub(label.width()).max(1);
        let label = format!("  {label}{}", " ".repeat(pad));
        let mut spans = vec![Span::styled(label, self.ctx.style(Meaning::Muted))];
        spans.extend(value);
        self.lines.push(Line::from(spans));
    }

    /// A heading after a blank line.
    pub(in crate::tui::views) fn section(&mut self, title: &str) {
        self.lines.push(Line::default());
        self.lines.push(Line::styled(
            title.to_owned(),
            self.ctx.style(Meaning::Header),
        ));
    }

    /// A line without label.
    pub(in crate::tui::views) fn line(&mut self, spans: Vec<Span<'static>>) {
        let mut all = vec![Span::raw("  ")];
        all.extend(spans);
        self.lines.push(Line::from(all));
    }

    /// A plain line without label.
    pub(in crate::tui::views) fn text(&mut self, text: impl Into<String>, meaning: Meaning) {
        self.line(vec![Span::styled(text.into(), self.ctx.style(meaning))]);
    }

    /// A line that belongs to the one above.
    pub(in crate::tui::views) fn below(&mut self, text: impl Into<String>, meaning: Meaning) {
        let text = format!("       {}", text.into());
        self.text(text, meaning);
    }

    /// Creation, deletion and what could not be read.
    pub(in crate::tui::views) fn meta(&mut self, meta: &Meta) {
        let now = self.ctx.now;
        match meta.created {
            Some(at) => self.field(
                "created",
                format!(
                    "{} ago, {}",
                    format::age(Some(at), now),
                    format::timestamp(at)
                ),
            ),
            None => self.styled("created", format::UNKNOWN, Meaning::Unknown),
        }
        if let Some(at) = meta.deleting {
            let text = format!("being deleted since {}", format::timestamp(at));
            self.styled("deletion", text, Meaning::Warn);
        }
        for owner in &meta.owners {
            let role = if owner.controller {
                "controlled by"
            } else {
                "owned by"
            };
            self.field(role, format!("{} {}", owner.kind, owner.name));
        }
        for what in &meta.unreadable {
            self.styled("not readable", what.to_string(), Meaning::Warn);
        }
    }

    /// Labels and annotations that are kept.
    pub(in crate::tui::views) fn labels(&mut self, meta: &Meta) {
        let mut list = |title: &str, pairs: &[(Str, Str)]| {
            if pairs.is_empty() {
                return;
            }
            self.section(title);
            for (key, value) in pairs {
                let style = self.ctx.style(Meaning::Muted);
                self.line(vec![
                    Span::styled(format!("{key}="), style),
                    Span::styled(value.to_string(), self.ctx.style(Meaning::Text)),
                ]);
            }
        };
        list("Annotations", &meta.annotations);
        list("Labels", &meta.labels);
    }

    /// The newest events and decisions about a thing, newest last.
    pub(in crate::tui::views) fn happenings(&mut self, about: impl Fn(&Happening) -> bool) {
        let cluster = self.ctx.cluster;
        let events = cluster.events().cloned().map(Happening::Event);
        let decisions = cluster
            .decision_log()
            .map(|d| Happening::Decision(d.clone(), 0));
        let mut found: Vec<Happening> = events.chain(decisions).filter(|h| about(h)).collect();
        found.sort_by_cached_key(|h| (h.at(), h.sentence()));
        let found = merge(found);
        self.section("Events");
        if found.is_empty() {
            let state = crate::tui::state::DataState::of(cluster, crate::model::Kind::Event);
            let (text, meaning) = match state {
                crate::tui::state::DataState::Denied(..) => {
                    ("denied: list events", Meaning::Denied)
                }
                s if s.has_data() => ("none", Meaning::Muted),
                _ => ("not read yet", Meaning::Loading),
            };
            self.text(text, meaning);
        }
        let skipped = found.len().saturating_sub(EVENT_LIMIT);
        if skipped > 0 {
            let text = format!(
                "{} older ones are in the timeline",
                format::count_of(skipped)
            );
            self.text(text, Meaning::Muted);
        }
        for happening in found.iter().skip(skipped) {
            let (glyph, meaning) = happening.sign();
            let time = format::moment(happening.at(), self.ctx.now);
            let pods = match happening {
                Happening::Decision(_, more) if *more > 0 => {
                    format!(" ({} pods)", format::count_of(more + 1))
                }
                _ => String::new(),
            };
            self.line(vec![
                Span::styled(format!("{time:>12} "), self.ctx.style(Meaning::Muted)),
                Span::styled(self.ctx.glyph(glyph), self.ctx.style(meaning)),
                Span::styled(
                    format!(" {}{pods}", happening.sentence()),
                    self.ctx.style(Meaning::Text),
                ),
            ]);
        }
    }

    /// A link of a chain; `here`: the one that it was opened from.
    pub(super) fn happening(&mut self, happening: &Happening, here: bool) {
        let (glyph, meaning) = happening.sign();
        let time = format::moment(happening.at(), self.ctx.now);
        let weight = if here { Meaning::Accent } else { Meaning::Text };
        self.line(vec![
            Span::styled(format!("{time:>12} "), self.ctx.style(Meaning::Muted)),
            Span::styled(self.ctx.glyph(glyph), self.ctx.style(meaning)),
            Span::styled(
                format!(
                    " {:<9} {}  {}",
                    happening.what().name(),
                    happening.subject(),
                    happening.sentence()
                ),
                self.ctx.style(weight),
            ),
        ]);
    }

    /// The finished description.
    pub(in crate::tui::views) fn finish(self) -> Vec<Line<'static>> {
        self.lines
    }
}
