//! One pool for tenants with quotas: what a tenant could run alone on its quota it can run here.
//!
//! A tenant's quota is a number of whole nodes (cells, as HiveD has them, OSDI '20), not of GPUs, or
//! others would leave it the GPUs in pieces. A job starts on its tenant's cells when it fits there;
//! a cell is bound to a node only while it is in use, and jobs that burst there make room. Else it
//! bursts onto whatever is free, the tenant with the smallest share first, and goes when a cell
//! needs the room. Where nobody is guaranteed anything only the bursting is left.

use super::job::Trace;
use super::nodes::{Nodes, Part, Room};
use super::policy::Policy;
use super::run::{MUCH_BETTER, cheapest};
use super::stage::{Happened, Stage};
use super::tally::Outcome;
use super::waiting::{Turn, Waiting};
use crate::sched::odds::Odds;

/// Quotas of a pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shares<'a> {
    /// Nodes of each tenant; together they are the pool.
    pub nodes: &'a [u32],
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// The order of a tenant's jobs.
    pub policy: Policy,
    /// What an interruption costs, in seconds.
    pub restart_s: f64,
    /// Whether quotas are guaranteed; else they only say whose turn it is.
    pub guaranteed: bool,
}

/// Runs a trace to its end. Jobs that are larger than their tenant's quota must not be in it.
pub(super) fn run(trace: &Trace, shares: Shares<'_>) -> Outcome {
    let count: u32 = shares.nodes.iter().sum();
    let nodes = Nodes::new(count, shares.gpus_per_node);
    let tenants = shares.nodes.iter().map(|cells| Tenant {
        cells: Nodes::new(*cells, shares.gpus_per_node),
        bound: vec![None; *cells as usize],
        waiting: Waiting::default(),
        odds: Odds::default(),
        used: 0,
    });
    let mut pool = Pool {
        stage: Stage::new(trace, shares.policy, shares.restart_s, nodes.gpus()),
        shares,
        tenants: tenants.collect(),
        on_node: vec![Vec::new(); nodes.count()],
        taken: vec![false; nodes.count()],
        nodes,
        in_cells: vec![Vec::new(); trace.jobs.len()],
    };
    while let Some(happened) = pool.stage.next(pool.nodes.gpus() - pool.nodes.free_gpus()) {
        happened.into_iter().for_each(|what| pool.take(what));
        pool.schedule();
    }
    pool.stage.tally.outcome(trace, &pool.stage.progress)
}

struct Tenant {
    /// Its quota, with what is free of it.
    cells: Nodes,
    /// The node behind each cell that is in use.
    bound: Vec<Option<usize>>,
    waiting: Waiting,
    odds: Odds,
    /// GPUs that its jobs hold, in cells and beyond.
    used: u32,
}

struct Pool<'a> {
    stage: Stage<'a>,
    shares: Shares<'a>,
    tenants: Vec<Tenant>,
    nodes: Nodes,
    on_node: Vec<Vec<usize>>,
    /// Nodes that a cell is bound to.
    taken: Vec<bool>,
    /// The cells of each job that runs in its tenant's; empty for those that burst.
    in_cells: Vec<Vec<Part>>,
}

impl Pool<'_> {
    fn take(&mut self, what: Happened) {
        match what {
            Happened::Arrived(at) => self.wait(at),
            Happened::Done(at, parts) => {
                self.release(at, &parts);
                let (tenant, service) = (self.stage.tenant(at), self.stage.service(at));
                if let Some(tenant) = self.tenants.get_mut(tenant) {
                    tenant.odds.done(service);
                }
            }
            Happened::LeftBand(at, band) => {
                let tenant = self.stage.tenant(at);
                if let Some(tenant) = self.tenants.get_mut(tenant) {
                    tenant.odds.left(band);
                }
            }
        }
    }

    fn wait(&mut self, at: usize) {
        let (band, gpus, turn) = (
            self.stage.band(at),
            self.stage.gpus(at),
            self.stage.turn(at),
        );
        if let Some(tenant) = self.tenants.get_mut(self.stage.tenant(at)) {
            tenant.waiting.add(band, gpus, turn);
        }
    }

    fn release(&mut self, at: usize, parts: &[Part]) {
        self.nodes.give(parts);
        for part in parts {
            if let Some(jobs) = self.on_node.get_mut(part.node) {
                jobs.retain(|job| *job != at);
            }
        }
        let cells = self.in_cells.get_mut(at).map(std::mem::take);
        let cells = cells.unwrap_or_default();
        let Some(tenant) = self.tenants.get_mut(self.stage.tenant(at)) else {
            return;
        };
        tenant.used = tenant.used.saturating_sub(self.stage.gpus(at));
        tenant.cells.give(&cells);
        for cell in cells {
            if tenant.cells.free_on(cell.node) == tenant.cells.per_node()
                && let Some(node) = tenant.bound.get_mut(cell.node).and_then(Option::take)
                && let Some(taken) = self.taken.get_mut(node)
            {
                *taken = false;
            }
        }
    }

    fn interrupt(&mut self, at: usize) {
        let parts = self.stage.interrupt(at);
        self.release(at, &parts);
        self.wait(at);
    }

    fn start(&mut self, at: usize, parts: Vec<Part>) {
        let (band, gpus, turn) = (
            self.stage.band(at),
            self.stage.gpus(at),
            self.stage.turn(at),
        );
        if let Some(tenant) = self.tenants.get_mut(self.stage.tenant(at)) {
            tenant.waiting.remove(band, gpus, turn);
            tenant.used += gpus;
        }
        self.nodes.take(&parts);
        for part in &parts {
            if let Some(jobs) = self.on_node.get_mut(part.node) {
                jobs.push(at);
            }
        }
        self.stage.start(at, parts);
    }

    fn schedule(&mut self) {
        if self.shares.guaranteed {
            for tenant in 0..self.tenants.len() {
                self.fill_cells(tenant, false);
            }
        }
        self.burst();
        if self.shares.guaranteed {
            let mut any = false;
            for tenant in 0..self.tenants.len() {
                any |= self.fill_cells(tenant, true);
            }
            if any {
                // Whoever was interrupted may burst.
                self.burst();
            }
        }
    }

    fn rank(&self, tenant: usize, band: u8) -> f64 {
        match self.shares.policy {
            Policy::Ours => self.tenants.get(tenant).map_or(0.0, |t| t.odds.index(band)),
            _ => -f64::from(band),
        }
    }

    fn heads(&self, tenant: usize) -> Vec<(u8, u32, Turn)> {
        self.tenants.get(tenant).map_or(Vec::new(), |t| {
            t.waiting.heads(|band| self.rank(tenant, band))
        })
    }

    /// Starts a tenant's jobs on its cells, with interruptions of its own jobs there if it may.
    fn fill_cells(&mut self, tenant: usize, interrupting: bool) -> bool {
        let mut failed: Vec<(u32, f64)> = Vec::new();
        let mut any = false;
        'again: loop {
            for (band, gpus, turn) in self.heads(tenant) {
                let rank = self.rank(tenant, band);
                if failed.iter().any(|(g, r)| *g == gpus && *r >= rank) {
                    continue;
                }
                if let Some(cells) = self.tenants.get(tenant).and_then(|t| t.cells.fit(gpus)) {
                    self.start_in_cells(turn.job, tenant, cells);
                    any = true;
                    continue 'again;
                }
                if interrupting && let Some(room) = self.room(tenant, rank, gpus) {
                    room.victims.into_iter().for_each(|at| self.interrupt(at));
                    self.start_in_cells(turn.job, tenant, room.parts);
                    any = true;
                    failed.clear();
                    continue 'again;
                }
                failed.push((gpus, rank));
            }
            return any;
        }
    }

    fn start_in_cells(&mut self, at: usize, tenant: usize, cells: Vec<Part>) {
        let mut parts = Vec::new();
        for cell in &cells {
            let Some(node) = self.node_behind(tenant, *cell) else {
                return;
            };
            parts.push(Part {
                node,
                gpus: cell.gpus,
            });
        }
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.cells.take(&cells);
        }
        self.start(at, parts);
        if let Some(of_job) = self.in_cells.get_mut(at) {
            *of_job = cells;
        }
    }

    /// The node of a cell, with enough GPUs freed of those that burst there; an unbound cell is
    /// bound where that costs least. There is always one: there are as many nodes as cells.
    fn node_behind(&mut self, tenant: usize, cell: Part) -> Option<usize> {
        let bound = *self.tenants.get(tenant)?.bound.get(cell.node)?;
        let (_, node, victims) = match bound {
            Some(node) => {
                let (cost, victims) = self.bursting(node, cell.gpus)?;
                (cost, node, victims)
            }
            None => (0..self.nodes.count())
                .filter(|node| self.taken.get(*node) == Some(&false))
                .filter_map(|node| {
                    let (cost, victims) = self.bursting(node, cell.gpus)?;
                    Some((cost, node, victims))
                })
                // Of equals the fullest, so that empty nodes stay.
                .min_by_key(|(cost, node, _)| (*cost, self.nodes.free_on(*node), *node))?,
        };
        victims.into_iter().for_each(|at| self.interrupt(at));
        *self.tenants.get_mut(tenant)?.bound.get_mut(cell.node)? = Some(node);
        *self.taken.get_mut(node)? = true;
        Some(node)
    }

    /// Who has to go of those that burst on a node.
    fn bursting(&self, node: usize, gpus: u32) -> Option<(u32, Vec<usize>)> {
        let jobs = self.on_node.get(node)?.iter().copied();
        let bursting = jobs.filter(|at| self.in_cells.get(*at).is_some_and(Vec::is_empty));
        cheapest(&self.stage, node, self.nodes.free_on(node), gpus, bursting)
    }

    /// Cells that a tenant's own jobs of much worse rank would leave free.
    fn room(&self, tenant: usize, rank: f64, gpus: u32) -> Option<Room> {
        let cells = &self.tenants.get(tenant)?.cells;
        let mut jobs: Vec<(u32, usize)> = self
            .on_node
            .iter()
            .flatten()
            .filter(|at| self.stage.tenant(**at) == tenant)
            .filter(|at| self.in_cells.get(**at).is_some_and(|c| !c.is_empty()))
            .filter(|at| rank > MUCH_BETTER * self.rank(tenant, self.stage.band(**at)))
            .map(|at| (self.stage.gpus(*at), *at))
            .collect();
        jobs.sort_unstable();
        jobs.dedup();
        let clear = |cell: usize, gpus: u32| {
            let mut free = cells.free_on(cell);
            let (mut cost, mut victims) = (0, Vec::new());
            for (loses, at) in &jobs {
                if free >= gpus {
                    break;
                }
                let parts = self.in_cells.get(*at)?.iter();
                let here: u32 = parts.filter(|p| p.node == cell).map(|p| p.gpus).sum();
                if here > 0 {
                    free += here;
                    cost += loses;
                    victims.push(*at);
                }
            }
            (free >= gpus).then_some((cost, victims))
        };
        cells.cheapest_room(gpus, clear)
    }

    /// Starts jobs on whatever is free, always the next of the tenant that has the least of its
    /// quota.
    fn burst(&mut self) {
        let mut failed: Vec<u32> = Vec::new();
        'again: loop {
            let mut order: Vec<(f64, usize)> = self
                .tenants
                .iter()
                .enumerate()
                .filter(|(_, tenant)| tenant.waiting.count() > 0)
                .map(|(n, tenant)| {
                    let share = f64::from(tenant.used) / f64::from(tenant.cells.gpus().max(1));
                    (share, n)
                })
                .collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for (_, tenant) in order {
                for (_, gpus, turn) in self.heads(tenant) {
                    if failed.contains(&gpus) {
                        continue;
                    }
                    if let Some(parts) = self.nodes.fit(gpus) {
                        self.start(turn.job, parts);
                        continue 'again;
                    }
                    failed.push(gpus);
                }
            }
            return;
        }
    }
}
