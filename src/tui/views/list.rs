//! What the list views share: rows, those that pass the filter, and when to make them anew.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::arrears::{Arrears, PART};
use crate::model::Kind;
use crate::tui::filter::{Filter, FilterColumn};
use crate::tui::state::{DataState, Placeholder};
use crate::tui::table::{Changed, Column, Row, Table};
use crate::tui::view::{Ctx, FilterError, Motion, Sort, Stamp};

/// What is the same for all lists of one kind of row.
pub struct Spec<R: 'static> {
    /// Columns.
    pub columns: &'static [Column<R>],
    /// Columns that rows can be sorted by.
    pub sortable: &'static [&'static str],
    /// Columns that filters can name.
    pub filter: &'static [FilterColumn<R>],
    /// Whether the row's searchable text contains a word, given in lower case.
    pub search: fn(&R, &str) -> bool,
    /// Since when the row ages, so that a young one is drawn anew each second.
    pub since: fn(&R) -> Option<Timestamp>,
    /// The kind without which there are no rows.
    pub kind: Kind,
    /// What would fill the list, in words.
    pub awaits: &'static str,
}

/// What a list is told since the last time.
pub enum News<R: Row> {
    /// Its rows, in the place of all it had.
    All(Vec<R>),
    /// Changes of single rows.
    Changes(Vec<Changed<R>>),
}

impl<R: Row> News<R> {
    /// Nothing, if nothing has changed, else all rows.
    pub fn all_if(changed: bool, all: impl FnOnce() -> Vec<R>) -> Self {
        if changed {
            News::All(all())
        } else {
            News::Changes(Vec::new())
        }
    }
}

/// Where the rows of a list come from that are made one by one.
pub(super) trait Source<R: Row> {
    /// Keys of the rows that have changed since a version of the picture; `None`: not known.
    fn changed_since(&self, version: u64) -> Option<impl Iterator<Item = &R::Key>>;

    /// Keys of all rows.
    fn keys(&self) -> impl Iterator<Item = &R::Key>;

    /// A row as it is now, if it is there.
    fn row(&self, key: &R::Key) -> Option<R>;

    /// All rows, in no order.
    fn all(&self) -> Vec<R>;
}

/// How a list gets its first rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// All of them: it is on the screen.
    AtOnce,
    /// A part each time: nobody looks at it yet.
    InParts,
}

/// Rows in the order that they have while no column is chosen.
pub(crate) fn in_order<R: Row>(mut rows: Vec<R>) -> Vec<R> {
    rows.sort_by_cached_key(|row| (row.place(), row.key()));
    rows
}

/// What the rows were last made from.
struct Made {
    stamp: Stamp,
    /// Second of the clock, if the filter looks at it.
    at: Option<i64>,
}

/// Rows, filter and table of a list view.
pub struct List<R: Row + 'static> {
    spec: &'static Spec<R>,
    table: Table<R>,
    filter: Filter<R>,
    filter_text: String,
    made: Option<Made>,
    arrears: Arrears<R::Key>,
    /// The list has had all rows once.
    complete: bool,
    /// The row of the cursor before rows came in parts.
    kept: Option<R::Key>,
    filtered: bool,
    follows: bool,
}

impl<R: Row + 'static> List<R> {
    /// An empty list.
    pub fn new(spec: &'static Spec<R>) -> Self {
        List {
            spec,
            table: Table::default(),
            filter: Filter::default(),
            filter_text: String::new(),
            made: None,
            arrears: Arrears::default(),
            complete: false,
            kept: None,
            filtered: false,
            follows: false,
        }
    }

    /// A list whose cursor stays on the last row until it is moved away.
    pub fn following(spec: &'static Spec<R>) -> Self {
        List {
            follows: true,
            ..Self::new(spec)
        }
    }

    /// Brings rows, order and scroll position up to date; `news` is called only when the cluster
    /// or what is looked at has changed since the last time. It is given the version after which
    /// changes are news, or `None` when the list knows nothing.
    pub fn refresh(
        &mut self,
        area: Rect,
        ctx: &Ctx<'_>,
        news: impl FnOnce(Option<u64>) -> News<R>,
    ) {
        self.take(area, ctx, false, news);
    }

    /// The same for rows that are made one by one: makes some of those anew that have changed, or
    /// all where that is not known. What is on the screen is complete the first time.
    pub(super) fn catch_up<S: Source<R>>(
        &mut self,
        area: Rect,
        ctx: &Ctx<'_>,
        pace: Pace,
        source: &S,
    ) {
        let mut arrears = std::mem::take(&mut self.arrears);
        let was_complete = self.complete;
        let mut complete = was_complete;
        if was_complete {
            self.kept = self.table.selected().map(Row::key);
        }
        let behind = !arrears.is_empty();
        self.take(area, ctx, behind, |since| {
            let changed = since.and_then(|version| source.changed_since(version));
            let anew = changed.is_none();
            match changed {
                Some(keys) => arrears.note(keys),
                None => {
                    arrears.clear();
                    complete = pace == Pace::AtOnce;
                    if complete {
                        return News::All(source.all());
                    }
                    arrears.note(source.keys());
                }
            }
            let at_most = if complete || pace == Pace::InParts {
                PART
            } else {
                usize::MAX
            };
            let keys = arrears.next(at_most).into_iter();
            if anew {
                return News::All(keys.filter_map(|key| source.row(&key)).collect());
            }
            let changes = keys.map(|key| match source.row(&key) {
                Some(row) => Changed::Set(row),
                None => Changed::Gone(key),
            });
            News::Changes(changes.collect())
        });
        self.complete = complete || arrears.is_empty();
        self.arrears = arrears;
        if self.complete && !was_complete && !self.follows {
            // The cursor has stood on a row of the first part, wherever that has come to stand.
            let found = self.kept.take().is_some_and(|key| self.table.select(&key));
            if !found {
                self.table.motion(Motion::First);
            }
            self.table.fit(area);
        }
    }

    /// Whether rows are left that [`List::catch_up`] has to make anew.
    pub(super) fn lags(&self) -> bool {
        !self.arrears.is_empty()
    }

    /// Asks for news if the picture has changed or the rows are behind.
    fn take(
        &mut self,
        area: Rect,
        ctx: &Ctx<'_>,
        behind: bool,
        news: impl FnOnce(Option<u64>) -> News<R>,
    ) {
        let made = Made {
            stamp: ctx.stamp(),
            at: self.filter.by_time().then(|| ctx.now.as_second()),
        };
        let (filter, search) = (&self.filter, self.spec.search);
        let passes = |r: &R| filter.is_empty() || filter.matches(r, ctx.now, search);
        let mut stale = !self.filtered || self.made.as_ref().is_none_or(|m| m.at != made.at);
        if behind || self.made.as_ref().is_none_or(|m| m.stamp != made.stamp) {
            let since = self.made.as_ref().and_then(|m| m.stamp.since(&made.stamp));
            match news(since) {
                News::All(rows) => {
                    self.table.replace(rows, passes);
                    stale = false;
                }
                News::Changes(changes) => self.table.change(changes, passes),
            }
        }
        if stale {
            self.table.filter(passes);
        }
        if self.follows {
            self.table.motion(Motion::Last);
        }
        self.filtered = true;
        self.made = Some(made);
        self.table.fit(area);
    }

    /// Draws the table, or why there is none.
    pub fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        let state = DataState::of(ctx.cluster, self.spec.kind);
        let stale = matches!(state, DataState::Stale(..));
        if self.table.is_empty() {
            self.placeholder(state).draw(area, buf, ctx);
        } else {
            self.table.draw(area, buf, ctx, self.spec.columns, stale);
        }
    }

    /// Draws the table of a list that is fetched and not watched.
    pub fn draw_table(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.table.draw(area, buf, ctx, self.spec.columns, false);
    }

    fn placeholder(&self, state: DataState) -> Placeholder<'_> {
        Placeholder {
            state,
            filter: &self.filter_text,
            hidden: self.table.all_len(),
            awaits: self.spec.awaits,
        }
    }

    /// Moves the cursor. A following list follows again once the cursor is on the last row.
    pub fn motion(&mut self, motion: Motion, can_follow: bool) {
        self.table.motion(motion);
        self.follows = can_follow && self.table.index() + 1 >= self.table.len();
    }

    /// Whether the cursor stays on the last row.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// Puts the cursor on a row.
    pub fn select(&mut self, key: &R::Key) -> bool {
        let found = self.table.select(key);
        if found {
            self.follows = false;
        }
        found
    }

    /// The row under the cursor.
    pub fn selected(&self) -> Option<&R> {
        self.table.selected()
    }

    /// The rows on the screen.
    pub fn visible(&self) -> impl Iterator<Item = &R> {
        self.table.visible()
    }

    /// All rows, also those that the filter hides, in no order.
    pub fn rows(&self) -> impl Iterator<Item = &R> {
        self.table.all()
    }

    /// A row by its key, also one that the filter hides.
    pub fn get(&self, key: &R::Key) -> Option<&R> {
        self.table.get(key)
    }

    /// Rows that pass and rows there are.
    pub fn count(&self) -> (usize, usize) {
        (self.table.len(), self.table.all_len())
    }

    /// The filter in force, as typed.
    pub fn filter(&self) -> &str {
        &self.filter_text
    }

    /// Sets the filter; on error the old one stays.
    ///
    /// # Errors
    /// What is wrong with it and where.
    pub fn set_filter(&mut self, text: &str) -> Result<(), FilterError> {
        self.filter = Filter::parse(text, self.spec.filter)?;
        text.trim().clone_into(&mut self.filter_text);
        self.filtered = false;
        Ok(())
    }

    /// The order in force.
    pub fn sort(&self) -> Option<Sort> {
        self.table.sort()
    }

    /// Sets the order.
    pub fn set_sort(&mut self, sort: Sort) {
        self.table.set_sort(Some(sort), self.spec.columns);
    }

    /// Goes back to the order of rows while no column is chosen.
    pub fn reset_sort(&mut self) {
        self.table.set_sort(None, self.spec.columns);
    }

    /// The table, for marks.
    pub fn table(&mut self) -> &mut Table<R> {
        &mut self.table
    }

    /// Marked rows in their order.
    pub fn marked(&self) -> Vec<&R> {
        self.table.marked()
    }

    /// Whether a visible row shows its age in seconds.
    pub fn ages_by_second(&self, now: Timestamp) -> bool {
        self.table
            .visible()
            .filter_map(|r| (self.spec.since)(r))
            .any(|since| (0..60).contains(&crate::tui::format::secs_since(since, now)))
    }
}

/// The parts of [`crate::tui::view::View`] that every list view hands to its list.
macro_rules! list_view {
    ($field:ident, $target:expr) => {
        fn selected(&self) -> Option<Target> {
            self.$field.selected().map($target)
        }

        fn count(&self) -> (usize, usize) {
            self.$field.count()
        }

        fn filter(&self) -> &str {
            self.$field.filter()
        }

        fn set_filter(&mut self, text: &str) -> Result<(), FilterError> {
            self.$field.set_filter(text)
        }

        fn filter_columns(&self) -> Vec<(&'static str, &'static str)> {
            crate::tui::filter::names(SPEC.filter)
        }

        fn sort_columns(&self) -> &'static [&'static str] {
            SPEC.sortable
        }

        fn sort(&self) -> Option<Sort> {
            self.$field.sort()
        }

        fn set_sort(&mut self, sort: Sort) {
            self.$field.set_sort(sort);
        }

        fn reset_sort(&mut self) {
            self.$field.reset_sort();
        }

        fn marks(&self) -> Vec<Target> {
            self.$field.marked().into_iter().map($target).collect()
        }

        fn toggle_mark(&mut self) {
            self.$field.table().toggle_mark();
        }

        fn mark_range(&mut self) {
            self.$field.table().mark_range();
        }

        fn clear_marks(&mut self) {
            self.$field.table().clear_marks();
        }

        fn lags(&self) -> bool {
            self.$field.lags()
        }

        fn ages_by_second(&self, ctx: &Ctx<'_>) -> bool {
            self.$field.ages_by_second(ctx.now)
        }
    };
}
pub(super) use list_view;
