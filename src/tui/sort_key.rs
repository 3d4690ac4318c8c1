//! What rows are compared by, worked out once a row instead of once a comparison.

use jiff::Timestamp;

use crate::model::Str;

/// A value that orders rows: numbers by size, texts by their bytes, unknown ones last.
///
/// The first bytes of a text stand beside the number's place, so that most comparisons of texts do
/// not follow a pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct SortKey {
    unknown: bool,
    first: u64,
    second: u64,
    /// Texts that do not fit before.
    text: Option<Str>,
}

/// Bytes of a text that fit beside each other.
const PREFIX: usize = 16;

/// The same order among unsigned numbers as `n` has among signed ones.
fn rising(n: i64) -> u64 {
    n.cast_unsigned() ^ (1 << 63)
}

impl SortKey {
    /// A value that is not known.
    pub fn unknown() -> Self {
        SortKey {
            unknown: true,
            ..SortKey::default()
        }
    }

    /// A number.
    pub fn number(n: impl Into<i64>) -> Self {
        SortKey::numbers(n, 0)
    }

    /// A number, and one that decides between equal ones.
    pub fn numbers(first: impl Into<i64>, second: impl Into<i64>) -> Self {
        SortKey {
            first: rising(first.into()),
            second: rising(second.into()),
            ..SortKey::default()
        }
    }

    /// A number with a fraction.
    pub fn fraction(n: f64) -> Self {
        // The order of `f64::total_cmp`.
        let bits = n.to_bits().cast_signed();
        let ordered = bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed();
        SortKey::number(ordered)
    }

    /// A time, the earlier first.
    pub fn time(at: Timestamp) -> Self {
        SortKey::numbers(at.as_second(), at.subsec_nanosecond())
    }

    /// A time, the later first.
    pub fn latest(at: Timestamp) -> Self {
        SortKey::numbers(-at.as_second(), -at.subsec_nanosecond())
    }

    /// A text.
    pub fn text(text: &Str) -> Self {
        SortKey::of(text, || text.clone())
    }

    /// A text that is not kept anywhere.
    pub fn str(text: &str) -> Self {
        SortKey::of(text, || text.into())
    }

    fn of(text: &str, kept: impl FnOnce() -> Str) -> Self {
        let (first, second) = prefix(text);
        SortKey {
            unknown: false,
            first,
            second,
            text: (text.len() > PREFIX).then(kept),
        }
    }

    /// A number, and a text that decides between equal ones.
    pub fn number_and_text(n: u32, text: &str) -> Self {
        SortKey {
            unknown: false,
            first: n.into(),
            second: prefix(text).0,
            text: (text.len() > PREFIX / 2).then(|| text.into()),
        }
    }

    /// The same, behind all that are not so.
    #[must_use]
    pub fn or_last(mut self, last: bool) -> Self {
        self.unknown = last;
        self
    }

    /// `key` of a known value; an unknown one comes last.
    pub fn known<T>(value: Option<T>, key: impl FnOnce(T) -> SortKey) -> Self {
        value.map_or_else(SortKey::unknown, key)
    }
}

/// The first bytes as two numbers. A shorter text is filled up with zeros, which no cleaned text
/// contains.
fn prefix(text: &str) -> (u64, u64) {
    let mut halves = [[0_u8; PREFIX / 2]; 2];
    for (place, byte) in halves.as_flattened_mut().iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    let [first, second] = halves.map(u64::from_be_bytes);
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_order_as_their_values(
            texts in any::<[String; 2]>().prop_map(|t| t.map(|t| t.replace('\0', ""))),
            shared in "[a-c]{0,20}",
            numbers in any::<[i64; 2]>(),
            fractions in any::<[f64; 2]>(),
        ) {
            let [a, b] = texts.map(|t| Str::from(format!("{shared}{t}")));
            prop_assert_eq!(SortKey::text(&a).cmp(&SortKey::str(&b)), a.cmp(&b));
            prop_assert_eq!(
                SortKey::number_and_text(1, &a).cmp(&SortKey::number_and_text(1, &b)),
                a.cmp(&b)
            );
            let [m, n] = numbers;
            prop_assert_eq!(SortKey::number(m).cmp(&SortKey::number(n)), m.cmp(&n));
            prop_assert_eq!(SortKey::numbers(1, m).cmp(&SortKey::numbers(1, n)), m.cmp(&n));
            let [x, y] = fractions;
            prop_assert_eq!(SortKey::fraction(x).cmp(&SortKey::fraction(y)), x.total_cmp(&y));
        }
    }

    #[test]
    fn what_is_not_known_comes_last() {
        assert!(SortKey::number(i64::MAX) < SortKey::unknown());
        assert!(SortKey::str("\u{10FFFF}") < SortKey::unknown());
    }
}
