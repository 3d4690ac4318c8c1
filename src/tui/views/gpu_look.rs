//! GPUs as signs: one cell for the map, bars and strips for the rows.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::model::{GpuCell, MigInstance};
use crate::tui::glyphs::Glyph;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;

use super::node_row::NodeRow;

/// A sign and what it means.
pub type Look = (Glyph, Meaning);

/// The eighth blocks from one to seven eighths.
const EIGHTHS: [Glyph; 7] = [
    Glyph::Eighth1,
    Glyph::Eighth2,
    Glyph::Eighth3,
    Glyph::Eighth4,
    Glyph::Eighth5,
    Glyph::Eighth6,
    Glyph::Eighth7,
];

/// A share from 0 to 1 as an eighth block: nothing is free, all of it a full block, and what lies
/// between never looks like either.
pub fn fill(share: f64) -> Glyph {
    if share <= 0.0 {
        return Glyph::GpuFree;
    }
    if share >= 1.0 {
        return Glyph::GpuUsed;
    }
    let index = EIGHTHS
        .iter()
        .zip(1u8..)
        .take_while(|(_, step)| f64::from(*step) <= share * 8.0)
        .count()
        .saturating_sub(1);
    EIGHTHS.get(index).copied().unwrap_or(Glyph::GpuUsed)
}

/// A share from 0 to 1 as a bar of a sparkline: also nothing has a line.
pub fn level(share: f64) -> Glyph {
    match fill(share) {
        Glyph::GpuFree => Glyph::Eighth1,
        glyph => glyph,
    }
}

/// The one cell of a GPU.
pub fn one(cell: &GpuCell, row: &NodeRow) -> Look {
    let free = if row.is_cordoned() {
        (Glyph::GpuCordoned, Meaning::Cordoned)
    } else {
        (Glyph::GpuFree, Meaning::Free)
    };
    if !row.is_ready() {
        return (Glyph::GpuSick, Meaning::Sick);
    }
    match cell {
        GpuCell::Unhealthy => (Glyph::GpuSick, Meaning::Sick),
        GpuCell::Used => (Glyph::GpuUsed, Meaning::Used),
        GpuCell::Free | GpuCell::Shared { used: 0, .. } => free,
        GpuCell::Shared { .. } => (Glyph::GpuShared, Meaning::Shared),
        GpuCell::Mig { instances, .. } if instances.iter().any(|i| i.used) => {
            (Glyph::GpuMig, Meaning::Mig)
        }
        GpuCell::Mig { .. } if row.is_cordoned() => free,
        GpuCell::Mig { .. } => (Glyph::GpuMigAlt, Meaning::Free),
    }
}

/// The one cell of a node: what is worst about it, else how full it is.
pub fn of_node(row: &NodeRow) -> Look {
    if row.node.is_none() {
        return (Glyph::GpuUnknown, Meaning::Unknown);
    }
    if !row.is_ready() || row.sick_gpus > 0.0 {
        return (Glyph::GpuSick, Meaning::Sick);
    }
    if row.is_cordoned() {
        return (Glyph::GpuCordoned, Meaning::Cordoned);
    }
    match (row.used_gpus, row.cells.len()) {
        (_, 0) | (None, _) => (Glyph::GpuUnknown, Meaning::Unknown),
        (Some(used), cells) => filled(share(used, cells)),
    }
}

/// A fill with its meaning.
pub fn filled(share: f64) -> Look {
    let glyph = fill(share);
    let meaning = if glyph == Glyph::GpuFree {
        Meaning::Free
    } else {
        Meaning::Used
    };
    (glyph, meaning)
}

/// The part of `cells` GPUs that `used` is.
pub fn share(used: f64, cells: usize) -> f64 {
    let cells = u32::try_from(cells).unwrap_or(u32::MAX);
    used / f64::from(cells.max(1))
}

/// A piece of a drawn row of GPUs.
enum Piece<'a> {
    /// Whole and shared GPUs side by side.
    Bar(Vec<Look>),
    /// A MIG GPU, and how many alike follow each other.
    Strip(&'a [MigInstance], u8, usize),
}

/// Spans that merge what has the same style, with their width in columns.
#[derive(Default)]
struct Pen {
    spans: Vec<Span<'static>>,
    columns: usize,
}

impl Pen {
    fn put(&mut self, text: &str, style: Style) {
        self.columns += text.chars().count();
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(text),
            _ => self.spans.push(Span::styled(text.to_owned(), style)),
        }
    }

    fn put_times(&mut self, text: &str, times: usize, style: Style) {
        for _ in 0..times {
            self.put(text, style);
        }
    }
}

/// How much room a drawing may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Two columns a slice, instances apart.
    Wide,
    /// One column a slice.
    Compact,
    /// One column a slice, GPUs that are alike drawn once.
    Runs,
    /// One column a GPU.
    Cells,
}

/// The GPUs of a node in at most `width` columns, in as much detail as fits: MIG GPUs as strips of
/// their memory slices with each instance in proportion, whole and shared ones as bars.
pub fn row(row: &NodeRow, width: u16, ctx: &Ctx<'_>) -> Line<'static> {
    let Some(node) = &row.node else {
        return held_only(row, width, ctx);
    };
    if row.cells.is_empty() {
        let (text, meaning) = match node.gpus.count {
            Some(_) => ("no GPUs", Meaning::Muted),
            None if row.has_gpus() => ("? number not stated", Meaning::Unknown),
            None => ("no GPUs", Meaning::Muted),
        };
        return Line::styled(text, ctx.style(meaning));
    }
    let width = usize::from(width);
    for detail in [Detail::Wide, Detail::Compact, Detail::Runs, Detail::Cells] {
        let mut pen = Pen::default();
        if detail == Detail::Cells || !row.is_ready() {
            let looks: Vec<Look> = row.cells.iter().map(|c| one(c, row)).collect();
            bar(&mut pen, &looks, width, ctx);
            return Line::from(pen.spans);
        }
        for piece in pieces(row, detail) {
            match piece {
                Piece::Bar(looks) => bar(&mut pen, &looks, width, ctx),
                Piece::Strip(instances, slices, times) => {
                    strip(&mut pen, instances, slices, detail, ctx);
                    if times > 1 {
                        pen.put(&format!("×{times}"), ctx.style(Meaning::Muted));
                    }
                }
            }
        }
        if pen.columns <= width {
            return Line::from(pen.spans);
        }
    }
    Line::default()
}

/// What pods hold of a node that may not be seen.
fn held_only(row: &NodeRow, width: u16, ctx: &Ctx<'_>) -> Line<'static> {
    let mut pen = Pen::default();
    let held = row.used_gpus.map_or(0, |n| n.clamp(0.0, 256.0) as usize);
    let mut looks = vec![(Glyph::GpuUsed, Meaning::Used); held];
    looks.push((Glyph::GpuUnknown, Meaning::Unknown));
    bar(&mut pen, &looks, usize::from(width), ctx);
    Line::from(pen.spans)
}

fn pieces<'a>(row: &'a NodeRow, detail: Detail) -> Vec<Piece<'a>> {
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    for cell in &row.cells {
        let look = match cell {
            GpuCell::Mig { instances, slices } => {
                match pieces.last_mut() {
                    Some(Piece::Strip(last, _, times))
                        if detail == Detail::Runs && *last == instances.as_slice() =>
                    {
                        *times += 1;
                    }
                    _ => pieces.push(Piece::Strip(instances, *slices, 1)),
                }
                continue;
            }
            GpuCell::Shared { used, of } if *used > 0 && used < of => {
                (fill(cell.used_share()), Meaning::Shared)
            }
            other => one(other, row),
        };
        match pieces.last_mut() {
            Some(Piece::Bar(looks)) => looks.push(look),
            _ => pieces.push(Piece::Bar(vec![look])),
        }
    }
    pieces
}

/// Cells between edges; runs of equal ones are counted when they do not fit.
fn bar(pen: &mut Pen, looks: &[Look], width: usize, ctx: &Ctx<'_>) {
    let edge = ctx.style(Meaning::Rule);
    pen.put(ctx.glyph(Glyph::EdgeLeft), edge);
    if looks.len() + 2 <= width {
        for (glyph, meaning) in looks {
            pen.put(ctx.glyph(*glyph), ctx.style(*meaning));
        }
        pen.put(ctx.glyph(Glyph::EdgeRight), edge);
        return;
    }
    let mut rest = looks;
    while let Some((glyph, meaning)) = rest.first() {
        let run = rest
            .iter()
            .take_while(|l| *l == &(*glyph, *meaning))
            .count();
        pen.put(ctx.glyph(*glyph), ctx.style(*meaning));
        if run > 1 {
            pen.put(&format!("×{run} "), ctx.style(Meaning::Muted));
        }
        rest = rest.get(run..).unwrap_or_default();
    }
    pen.put(ctx.glyph(Glyph::EdgeRight), edge);
}

/// A MIG GPU: each instance at its place among the memory slices. One that a pod holds is its number
/// of compute slices and filled, a free one is dotted; slices of no instance are stranded.
fn strip(pen: &mut Pen, instances: &[MigInstance], slices: u8, detail: Detail, ctx: &Ctx<'_>) {
    let rule = ctx.style(Meaning::Rule);
    let wide = detail == Detail::Wide;
    let per_slice = if wide { 2 } else { 1 };
    pen.put(ctx.glyph(Glyph::EdgeLeft), rule);
    let end = usize::from(slices) * per_slice;
    // The separator of the last part is the edge itself.
    let end = if wide { end.saturating_sub(1) } else { end };
    let mut at = 0;
    let stranded = |pen: &mut Pen, columns: usize| {
        let style = ctx.style(Meaning::Stranded);
        pen.put_times(ctx.glyph(Glyph::GpuStranded), columns, style);
    };
    for instance in instances {
        let from = usize::from(instance.start) * per_slice;
        if from > at {
            let gap = (from - at).saturating_sub(usize::from(wide));
            stranded(pen, gap);
            if wide {
                pen.put(ctx.glyph(Glyph::Bar), rule);
            }
            at = from;
        }
        let own = (usize::from(instance.width) * per_slice)
            .min((end + usize::from(wide)).saturating_sub(at));
        let content = if wide { own.saturating_sub(1) } else { own };
        let digit = instance.profile.compute_slices.to_string();
        if instance.used {
            let style = ctx.style(Meaning::Mig);
            pen.put(&digit, style);
            pen.put_times(ctx.glyph(Glyph::GpuUsed), content.saturating_sub(1), style);
        } else {
            let style = ctx.style(Meaning::Free);
            let tells = wide && content > 1;
            if tells {
                pen.put(&digit, style);
            }
            let dots = content - usize::from(tells);
            pen.put_times(ctx.glyph(Glyph::GpuFree), dots, style);
        }
        at += own;
        if wide && at < end {
            pen.put(ctx.glyph(Glyph::Bar), rule);
        }
    }
    stranded(pen, end.saturating_sub(at));
    pen.put(ctx.glyph(Glyph::EdgeRight), rule);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_never_lies_at_its_ends() {
        for (share, glyph) in [
            (0.0, Glyph::GpuFree),
            (0.01, Glyph::Eighth1),
            (0.5, Glyph::Eighth4),
            (0.999, Glyph::Eighth7),
            (1.0, Glyph::GpuUsed),
        ] {
            assert_eq!(fill(share), glyph, "{share}");
        }
    }
}
