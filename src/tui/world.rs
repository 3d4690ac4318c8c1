//! Everything that drawing reads besides the views themselves.

use std::sync::Arc;

use jiff::Timestamp;

use super::browse::Browse;
use super::glyphs::Glyphs;
use super::keymap::Keymap;
use super::session::{Leader, Session};
use super::theme::{Depth, Theme};
use super::view::{Ctx, Stamp};
use crate::model::{Cluster, Figures, Pricing, Str, WorkloadKey};

/// What is known and how it is drawn.
pub struct World {
    /// The picture of the cluster.
    pub cluster: Cluster,
    /// Rules for tiers, and prices, of every place.
    pub pricing: Arc<Pricing>,
    /// Its numbers, as of [`World::refresh`].
    pub figures: Figures,
    /// The time of the latest message.
    pub now: Timestamp,
    /// Where the console is.
    pub session: Session,
    /// The context that a switch under way goes to.
    pub connecting: Option<Str>,
    /// Who decides.
    pub leader: Leader,
    /// Colours of the terminal.
    pub depth: Depth,
    /// Styles.
    pub theme: Theme,
    /// Signs.
    pub glyphs: Glyphs,
    /// Keys.
    pub keymap: Keymap,
    /// The list that is browsed.
    pub browse: Browse,
    /// The job that the cursor was on last.
    pub job: Option<WorkloadKey>,
    counted: Stamp,
    /// Version of the picture that rows show.
    published: u64,
    /// Version of the picture that nodes have been counted ahead of.
    counted_ahead: u64,
}

impl World {
    /// An empty world.
    pub fn new(theme: Theme, glyphs: Glyphs, keymap: Keymap, session: Session) -> Self {
        World {
            cluster: Cluster::new(),
            pricing: Arc::default(),
            figures: Figures::default(),
            now: Timestamp::UNIX_EPOCH,
            session,
            connecting: None,
            leader: Leader::default(),
            depth: Depth::Mono,
            theme,
            glyphs,
            keymap,
            browse: Browse::default(),
            job: None,
            counted: Stamp::default(),
            published: 0,
            counted_ahead: 0,
        }
    }

    /// What views are drawn from.
    pub fn ctx(&self) -> Ctx<'_> {
        Ctx {
            cluster: &self.cluster,
            version: self.published,
            generation: self.session.generation,
            figures: &self.figures,
            now: self.now,
            theme: &self.theme,
            glyphs: self.glyphs,
            namespace: self.session.namespace.as_ref(),
            browse: &self.browse,
            job: self.job.as_ref(),
        }
    }

    /// Lets rows and figures show all that is known.
    pub(super) fn publish(&mut self) {
        self.published = self.cluster.version();
    }

    /// Whether more is known than rows and figures show.
    pub(super) fn has_news(&self) -> bool {
        self.published != self.cluster.version()
    }

    /// Counts nodes that have changed lately, so that the next frame with news need not.
    pub(super) fn count_ahead(&mut self) {
        // The first count is one of all nodes.
        if self.published > 0 {
            let since = self.counted_ahead.max(self.published);
            self.cluster.count_ahead(since);
            self.counted_ahead = self.cluster.version();
        }
    }

    /// Counts anew, if there is anything new.
    pub fn refresh(&mut self) {
        let stamp = self.ctx().stamp();
        if stamp != self.counted {
            self.figures = Figures::of(&self.cluster);
            self.counted = stamp;
        }
    }

    /// Forgets all that was known and takes a new place to look at.
    pub fn enter(&mut self, session: Session) {
        self.session = session;
        self.connecting = None;
        self.cluster = Cluster::with_pricing(self.pricing.clone());
        self.figures = Figures::default();
        self.published = 0;
        self.counted_ahead = 0;
        self.leader = Leader::Unknown;
        self.browse = Browse::default();
        self.job = None;
        self.counted = self.ctx().stamp();
    }
}
