//! What a gap on a shared device is worth to the pods that come.

use std::collections::BTreeMap;

use crate::sched::simplex;

/// An item has to improve the knapsack by this.
const GAIN: f64 = 1e-9;
/// A pattern has to be worth more than its device by this.
const WORTH: f64 = 1e-7;

/// The price of every gap: the dual of packing the demand for shares into the fewest devices.
#[derive(Debug, Clone, PartialEq)]
pub struct GapPrices {
    /// By free thousandths, 0 to 1000.
    value: Vec<f64>,
    /// Size in thousandths and price of each share that is asked for, largest first.
    items: Vec<(u16, f64)>,
}

impl GapPrices {
    /// Prices for shares of a device, by size in thousandths below 1000 and how often each is
    /// asked for. Without demand only a whole device has a price.
    #[must_use]
    pub fn new(demand: &BTreeMap<u16, f64>) -> Self {
        let asked: Vec<(u16, f64)> = demand
            .iter()
            .rev()
            .filter(|(size, count)| (1..1000).contains(*size) && **count > 0.0)
            .map(|(size, count)| (*size, *count))
            .collect();
        let counts: Vec<f64> = asked.iter().map(|(_, count)| *count).collect();
        let most: Vec<f64> = asked
            .iter()
            .map(|(size, _)| f64::from(1000 / size))
            .collect();
        let w = simplex::prices(&counts, &most, |w| {
            let items = zip(&asked, w);
            let filled = Knapsack::fill(&items);
            (filled.worth() > 1.0 + WORTH).then(|| filled.pattern(&items))
        });
        let items = zip(&asked, &w);
        let mut value = Knapsack::fill(&items).value;
        if let Some(whole) = value.last_mut() {
            *whole = 1.0;
        }
        Self { value, items }
    }

    /// The price of a gap of `milli` thousandths; a whole free device costs 1.
    #[must_use]
    pub fn value(&self, milli: u16) -> f64 {
        self.value.get(usize::from(milli)).copied().unwrap_or(1.0)
    }

    /// Size and price of each share that is asked for, largest first.
    #[must_use]
    pub fn items(&self) -> &[(u16, f64)] {
        &self.items
    }
}

fn zip(asked: &[(u16, f64)], w: &[f64]) -> Vec<(u16, f64)> {
    asked
        .iter()
        .zip(w)
        .map(|((size, _), w)| (*size, *w))
        .collect()
}

/// The greatest common divisor.
fn divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Any number of each item into a device.
struct Knapsack {
    value: Vec<f64>,
    /// The item that was put in last; `None` leaves one thousandth empty.
    last: Vec<Option<usize>>,
}

impl Knapsack {
    fn fill(items: &[(u16, f64)]) -> Self {
        // Only where a multiple of what divides all sizes is reached, more can be put in.
        let step = items.iter().fold(0, |all, (size, _)| divisor(all, *size));
        let step = usize::from(step).max(1);
        let mut value = vec![0.0];
        let mut last = vec![None];
        for free in 1..=1000usize {
            let mut best = value.last().copied().unwrap_or(0.0);
            if free % step != 0 {
                value.push(best);
                last.push(None);
                continue;
            }
            let mut put = None;
            for (i, (size, price)) in items.iter().enumerate() {
                let Some(rest) = free.checked_sub(usize::from(*size)) else {
                    continue;
                };
                let worth = value.get(rest).copied().unwrap_or(0.0) + price;
                if worth > best + GAIN {
                    best = worth;
                    put = Some(i);
                }
            }
            value.push(best);
            last.push(put);
        }
        Self { value, last }
    }

    fn worth(&self) -> f64 {
        self.value.last().copied().unwrap_or(0.0)
    }

    fn pattern(&self, items: &[(u16, f64)]) -> Vec<f64> {
        let mut counts = vec![0.0; items.len()];
        let mut free = 1000usize;
        while free > 0 {
            match self.last.get(free).copied().flatten() {
                Some(i) => {
                    if let Some(count) = counts.get_mut(i) {
                        *count += 1.0;
                    }
                    free -= items.get(i).map_or(free, |(size, _)| usize::from(*size));
                }
                None => free -= 1,
            }
        }
        counts
    }
}
