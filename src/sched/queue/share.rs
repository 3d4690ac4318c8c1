//! Sharing an amount by weight: water-filling with whole results.

/// One who asks for a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sched) struct Asker {
    /// Relative to the others; 0 and less takes nothing.
    pub(in crate::sched) weight: i64,
    /// The most that it takes.
    pub(in crate::sched) cap: i64,
}

/// Divides `amount` among the askers by weight, none above its cap; what one leaves goes to the
/// others. The parts are whole, and add up to `amount` or to all caps; the unit that the division
/// leaves over goes to the largest remainder, among equals to the first.
pub(in crate::sched) fn fill(amount: i64, askers: &[Asker]) -> Vec<i64> {
    let mut parts = vec![0_i64; askers.len()];
    let mut left = amount.max(0);
    let mut open: Vec<usize> = askers
        .iter()
        .enumerate()
        .filter(|(_, a)| a.weight > 0 && a.cap > 0)
        .map(|(at, _)| at)
        .collect();
    // Each turn serves in full whoever asks for no more than its even part.
    while !open.is_empty() && left > 0 {
        let weights: i128 = open.iter().map(|at| i128::from(weight(askers, *at))).sum();
        let now = left;
        let even = |at: usize| i128::from(now) * i128::from(weight(askers, at)) / weights.max(1);
        let (served, rest): (Vec<usize>, Vec<usize>) = open
            .iter()
            .partition(|at| i128::from(cap(askers, **at)) <= even(**at));
        if served.is_empty() {
            divide(now, askers, &open, weights, &mut parts);
            return parts;
        }
        for at in served {
            let cap = cap(askers, at);
            set(&mut parts, at, cap);
            left -= cap;
        }
        open = rest;
    }
    parts
}

/// Nobody of `open` is full after this: even parts, then one unit more by the largest remainder.
fn divide(amount: i64, askers: &[Asker], open: &[usize], weights: i128, parts: &mut [i64]) {
    let mut over = amount;
    let mut remainders = Vec::with_capacity(open.len());
    for at in open {
        let product = i128::from(amount) * i128::from(weight(askers, *at));
        let part = i64::try_from(product / weights.max(1)).unwrap_or(i64::MAX);
        set(parts, *at, part);
        over -= part;
        remainders.push((std::cmp::Reverse(product % weights.max(1)), *at));
    }
    remainders.sort_unstable();
    for (_, at) in remainders {
        if over <= 0 {
            break;
        }
        if let Some(part) = parts.get_mut(at)
            && *part < cap(askers, at)
        {
            *part += 1;
            over -= 1;
        }
    }
}

fn weight(askers: &[Asker], at: usize) -> i64 {
    askers.get(at).map_or(0, |a| a.weight)
}

fn cap(askers: &[Asker], at: usize) -> i64 {
    askers.get(at).map_or(0, |a| a.cap)
}

fn set(parts: &mut [i64], at: usize, value: i64) {
    if let Some(part) = parts.get_mut(at) {
        *part = value;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn shares(amount: i64, list: &[(i64, i64)]) -> Vec<i64> {
        let askers: Vec<Asker> = list
            .iter()
            .map(|(weight, cap)| Asker {
                weight: *weight,
                cap: *cap,
            })
            .collect();
        fill(amount, &askers)
    }

    #[test]
    fn what_one_leaves_goes_to_the_others() {
        for (amount, list, expected) in [
            (12, &[(1, 99), (2, 99)][..], &[4, 8][..]),
            (12, &[(1, 99), (2, 5)], &[7, 5]),
            (7, &[(1, 99), (4, 99)], &[1, 6]),
            (9, &[(6, 9), (2, 9), (1, 9)], &[6, 2, 1]),
            (3, &[(1, 9), (1, 9)], &[2, 1]),
            (5, &[(0, 9), (1, 2)], &[0, 2]),
            (0, &[(1, 9)], &[0]),
            (5, &[], &[]),
            (
                i64::MAX,
                &[(i64::MAX, i64::MAX), (1, i64::MAX)],
                &[i64::MAX - 1, 1],
            ),
        ] {
            assert_eq!(shares(amount, list), expected, "{amount} {list:?}");
        }
    }

    /// Compared with handing out unit by unit to whoever has least for its weight.
    #[test]
    fn equals_the_division_unit_by_unit() {
        let mut checked = 0;
        for amount in 0..=9 {
            for code in 0..4_i64.pow(6) {
                let digit = |n: u32| code / 4_i64.pow(n) % 4;
                let list: Vec<(i64, i64)> = (0..3)
                    .map(|i| (digit(2 * i), 2 * digit(2 * i + 1)))
                    .collect();
                let parts = shares(amount, &list);
                let most: i64 = list.iter().filter(|(w, _)| *w > 0).map(|(_, c)| c).sum();
                assert_eq!(
                    parts.iter().sum::<i64>(),
                    amount.min(most),
                    "{amount} {list:?}"
                );
                for (a, (wa, ca)) in parts.iter().zip(&list) {
                    assert!(
                        *a <= *ca && (*wa > 0 || *a == 0),
                        "{amount} {list:?} {parts:?}"
                    );
                    for (b, (wb, cb)) in parts.iter().zip(&list) {
                        // Nobody who could take more has less, by more than a unit each.
                        if *wa > 0 && *wb > 0 && a < ca && *b > 0 {
                            assert!(
                                (b - 1) * wa <= (a + 1) * wb,
                                "{amount} {list:?} {parts:?} {cb}"
                            );
                        }
                    }
                }
                checked += 1;
            }
        }
        assert_eq!(checked, 40_960);
    }
}
