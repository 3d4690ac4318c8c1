//! A view into whose rows one can go: while inside, the inner view takes its place.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::model::Kind;
use crate::tui::view::{Act, Ctx, FilterError, Motion, Opens, Sort, Target, View, ViewId};

/// A view, and the one that was opened from a row of it.
pub struct Drill {
    outer: Box<dyn View>,
    inner: Option<Box<dyn View>>,
}

impl Drill {
    /// Outside.
    pub fn new(outer: Box<dyn View>) -> Self {
        Drill { outer, inner: None }
    }

    fn top(&self) -> &dyn View {
        self.inner.as_deref().unwrap_or(&*self.outer)
    }

    fn top_mut(&mut self) -> &mut dyn View {
        match &mut self.inner {
            Some(inner) => &mut **inner,
            None => &mut *self.outer,
        }
    }
}

impl View for Drill {
    fn id(&self) -> ViewId {
        self.outer.id()
    }

    fn kinds(&self) -> &'static [Kind] {
        self.top().kinds()
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.top_mut().refresh(area, ctx);
    }

    fn prepare(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.top_mut().prepare(area, ctx);
    }

    fn lags(&self) -> bool {
        self.top().lags()
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.top().draw(area, buf, ctx);
    }

    fn motion(&mut self, motion: Motion) {
        self.top_mut().motion(motion);
    }

    fn selected(&self) -> Option<Target> {
        self.top().selected()
    }

    fn select(&mut self, target: &Target) -> bool {
        if self.inner.as_mut().is_some_and(|i| i.select(target)) {
            return true;
        }
        let found = self.outer.select(target);
        if found {
            self.inner = None;
        }
        found
    }

    fn enter(&mut self) -> bool {
        if self.inner.is_some() {
            return false;
        }
        self.inner = self.outer.selected().and_then(|t| self.outer.open(&t));
        self.inner.is_some()
    }

    fn leave(&mut self) -> bool {
        self.inner.take().is_some()
    }

    fn is_inside(&self) -> bool {
        self.inner.is_some()
    }

    fn opens(&self, ctx: &Ctx<'_>) -> Opens {
        self.top().opens(ctx)
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        self.top().describe(target, ctx)
    }

    fn count(&self) -> (usize, usize) {
        self.top().count()
    }

    fn filter(&self) -> &str {
        self.top().filter()
    }

    fn set_filter(&mut self, text: &str) -> Result<(), FilterError> {
        self.top_mut().set_filter(text)
    }

    fn filter_columns(&self) -> Vec<(&'static str, &'static str)> {
        self.top().filter_columns()
    }

    fn sort_columns(&self) -> &'static [&'static str] {
        self.top().sort_columns()
    }

    fn sort(&self) -> Option<Sort> {
        self.top().sort()
    }

    fn set_sort(&mut self, sort: Sort) {
        self.top_mut().set_sort(sort);
    }

    fn reset_sort(&mut self) {
        self.top_mut().reset_sort();
    }

    fn marks(&self) -> Vec<Target> {
        self.top().marks()
    }

    fn toggle_mark(&mut self) {
        self.top_mut().toggle_mark();
    }

    fn mark_range(&mut self) {
        self.top_mut().mark_range();
    }

    fn clear_marks(&mut self) {
        self.top_mut().clear_marks();
    }

    fn can(&self, act: Act) -> bool {
        self.top().can(act)
    }

    fn act(&mut self, act: Act) {
        self.top_mut().act(act);
    }

    fn mode(&self) -> Option<String> {
        self.top().mode()
    }

    fn ages_by_second(&self, ctx: &Ctx<'_>) -> bool {
        self.top().ages_by_second(ctx)
    }
}
