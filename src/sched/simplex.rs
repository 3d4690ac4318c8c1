//! Dual prices of a covering problem, by the revised simplex with column generation.

/// Below this a number counts as zero.
const ZERO: f64 = 1e-9;
/// Two ratios this close are a tie.
const TIE: f64 = 1e-12;
/// Pivots after which the prices found so far are taken; real problems need about 40.
const MAX_PIVOTS: usize = 2_000;

/// Prices `w` of the rows of `min sum x_P such that sum a_iP x_P >= demand_i`, at a vertex.
///
/// The first basis holds for each row the pattern that has it `most` times and nothing else.
/// `pattern` gives the pattern worth most at these prices, or `None` when none is worth more than
/// it costs, which is 1.
pub(super) fn prices(
    demand: &[f64],
    most: &[f64],
    mut pattern: impl FnMut(&[f64]) -> Option<Vec<f64>>,
) -> Vec<f64> {
    let mut inverse: Vec<Vec<f64>> = most
        .iter()
        .enumerate()
        .map(|(i, k)| unit(most.len(), i, 1.0 / k))
        .collect();
    let mut level: Vec<f64> = demand.iter().zip(most).map(|(h, k)| h / k).collect();
    let mut cost = vec![1.0; most.len()];
    for _ in 0..MAX_PIVOTS {
        let w = weighted(&inverse, &cost);
        let lowest = w
            .iter()
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(b.1))
            .map(|(j, price)| (j, *price));
        let (column, price) = match lowest {
            // A negative price: more of this row than asked for must be allowed.
            Some((j, lowest)) if lowest < -ZERO => (unit(most.len(), j, -1.0), 0.0),
            _ => match pattern(&w) {
                Some(column) => (column, 1.0),
                None => break,
            },
        };
        let change: Vec<f64> = inverse.iter().map(|row| dot(row, &column)).collect();
        let Some(leaving) = leaving_row(&level, &change) else {
            break;
        };
        pivot(&mut inverse, &mut level, &change, leaving);
        if let Some(slot) = cost.get_mut(leaving) {
            *slot = price;
        }
    }
    let mut w = weighted(&inverse, &cost);
    w.iter_mut().for_each(|price| *price = price.max(0.0));
    w
}

/// The row that reaches zero first; among ties the one that changes most.
fn leaving_row(level: &[f64], change: &[f64]) -> Option<usize> {
    let mut best: Option<(usize, f64, f64)> = None;
    for (r, (x, d)) in level.iter().zip(change).enumerate() {
        if *d <= ZERO {
            continue;
        }
        let ratio = x / d;
        let better = best.is_none_or(|(_, least, most)| {
            ratio < least - TIE || (ratio <= least + TIE && *d > most)
        });
        if better {
            best = Some((r, ratio, *d));
        }
    }
    best.map(|(r, _, _)| r)
}

fn pivot(inverse: &mut [Vec<f64>], level: &mut [f64], change: &[f64], leaving: usize) {
    let (Some(row), Some(x), Some(d)) = (
        inverse.get_mut(leaving),
        level.get_mut(leaving),
        change.get(leaving),
    ) else {
        return;
    };
    row.iter_mut().for_each(|v| *v /= d);
    *x /= d;
    let (pivot, x) = (row.clone(), *x);
    for (i, ((row, level), d)) in inverse.iter_mut().zip(level).zip(change).enumerate() {
        if i != leaving {
            row.iter_mut().zip(&pivot).for_each(|(v, p)| *v -= d * p);
            *level -= d * x;
        }
    }
}

fn weighted(rows: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; rows.len()];
    for (row, weight) in rows.iter().zip(weights) {
        sums.iter_mut().zip(row).for_each(|(s, v)| *s += weight * v);
    }
    sums
}

fn unit(len: usize, at: usize, value: f64) -> Vec<f64> {
    (0..len)
        .map(|j| if j == at { value } else { 0.0 })
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
