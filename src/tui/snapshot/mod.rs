//! `gpudeck snapshot`: the views without a terminal, with the same figures as the screen, for
//! scripts and tests.

mod blocks;
mod csv;
mod json;
mod paper;
mod png;
mod svg;
mod text;

use jiff::Timestamp;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::app::App;
use super::filter::Filter;
use super::session::Session;
use super::settings::Settings;
use super::table::Row;
use super::view::{FilterError, ViewId};
use super::views::list::Spec;
use crate::model::{Cluster, Str};

pub use csv::csv;
pub use json::json;
pub use png::{PngFault, png};
pub use svg::svg;
pub use text::text;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The view.
    pub view: ViewId,
    /// The picture of the cluster.
    pub cluster: &'a Cluster,
    /// Only this namespace; `None`: all.
    pub namespace: Option<&'a Str>,
    /// Only rows that pass this filter; empty: all.
    pub filter: &'a str,
    /// Nothing but ASCII (text only).
    pub ascii: bool,
    /// The time against which ages are told.
    pub now: Timestamp,
}

impl Request<'_> {
    fn in_scope(&self, namespace: &str) -> bool {
        self.namespace.is_none_or(|n| **n == *namespace)
    }

    /// The rows that pass the filter.
    fn passing<R: Row>(&self, spec: &Spec<R>, rows: Vec<R>) -> Result<Vec<R>, FilterError> {
        let filter = Filter::parse(self.filter, spec.filter)?;
        let passes = |r: &R| filter.matches(r, self.now, spec.search);
        Ok(rows.into_iter().filter(passes).collect())
    }
}

/// A screen to draw.
pub struct Picture<'a> {
    /// The view.
    pub view: ViewId,
    /// Only rows that pass this filter; empty: all.
    pub filter: &'a str,
    /// Keys, theme and signs.
    pub settings: Settings,
    /// The place.
    pub session: Session,
    /// Columns and rows.
    pub size: (u16, u16),
    /// The lens that Fleet is looked at through; `None`: its first.
    pub lens: Option<&'a str>,
    /// The time against which ages are told.
    pub now: Timestamp,
}

impl Picture<'_> {
    /// The screen as the console draws it.
    ///
    /// # Errors
    /// What is wrong with the filter.
    pub fn screen(self, cluster: Cluster) -> Result<Buffer, FilterError> {
        let size = self.size;
        Ok(drawn(&mut self.console(cluster)?, size))
    }

    /// A console that shows it.
    ///
    /// # Errors
    /// What is wrong with the filter.
    pub fn console(self, cluster: Cluster) -> Result<App, FilterError> {
        let mut app = App::new(self.settings, self.session, super::views::all(), self.now);
        app.open_view(self.view);
        if let Some(view) = app.view_mut() {
            view.set_filter(self.filter)?;
            if let Some(lens) = self.lens {
                view.set_lens(lens);
            }
        }
        app.world.pricing = cluster.pricing().clone();
        app.world.cluster = cluster;
        app.world.now = self.now;
        Ok(app)
    }
}

/// The screen of a console.
pub fn drawn(app: &mut App, (columns, rows): (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, columns, rows);
    let mut buf = Buffer::empty(area);
    app.render(area, &mut buf);
    buf
}
