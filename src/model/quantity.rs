//! Kubernetes quantities (`500m`, `1.5Gi`, `2e3`), read exactly.
//!
//! Source: k8s.io/apimachinery/pkg/api/resource/quantity.go (grammar in its package comment).

use std::fmt;

/// A quantity in units of 10⁻⁹, saturating: a cluster can state amounts beyond any machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Quantity {
    nanos: i128,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity (like 2, 500m, 1.5Gi or 2e3)")]
pub struct QuantityError {
    /// The refused text, cleaned and shortened.
    pub text: String,
}

const NANO: i128 = 1_000_000_000;
/// Far beyond i64::MAX whole units, so saturation is never confused with an exact value.
const LIMIT: i128 = i128::MAX / 4;

impl Quantity {
    /// Zero.
    pub const ZERO: Quantity = Quantity { nanos: 0 };

    /// `n` whole units.
    pub fn from_units(n: i64) -> Self {
        Quantity {
            nanos: i128::from(n) * NANO,
        }
    }

    /// `n` thousandths.
    pub fn from_milli(n: i64) -> Self {
        Quantity {
            nanos: i128::from(n) * (NANO / 1000),
        }
    }

    /// Whole units, rounded up (away from zero), saturating at the bounds of i64, as Kubernetes'
    /// `Value()` does.
    pub fn units(self) -> i64 {
        saturate(ceil_div(self.nanos, NANO))
    }

    /// Thousandths, rounded up, saturating, as `MilliValue()` does.
    pub fn milli(self) -> i64 {
        saturate(ceil_div(self.nanos, NANO / 1000))
    }

    /// Below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is a whole number of units, as extended resources must be.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }
}

/// Rounds away from zero, like Kubernetes.
fn ceil_div(n: i128, by: i128) -> i128 {
    let q = n / by;
    match n % by {
        0 => q,
        r if r > 0 => q + 1,
        _ => q - 1,
    }
}

fn saturate(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

/// The factor of a suffix in nano-units as (multiplier, power of ten still to apply).
fn suffix_factor(suffix: &str) -> Option<(i128, i32)> {
    let binary = |shift: u32| Some((1_i128 << shift, 9));
    match suffix {
        "n" => Some((1, 0)),
        "u" => Some((1, 3)),
        "m" => Some((1, 6)),
        "" => Some((1, 9)),
        "k" => Some((1, 12)),
        "M" => Some((1, 15)),
        "G" => Some((1, 18)),
        "T" => Some((1, 21)),
        "P" => Some((1, 24)),
        "E" => Some((1, 27)),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // An exponent too long for i32 saturates to a huge amount or to (almost) nothing.
            let value: i32 = exponent.parse().unwrap_or(if exponent.starts_with('-') {
                -1000
            } else {
                1000
            });
            Some((1, value.clamp(-1000, 1000) + 9))
        }
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let refuse = || QuantityError {
            text: super::text::clean(text, 40).into_owned(),
        };
        let (negative, body) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let number_len = body
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let (number, suffix) = body.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(refuse());
        }
        let (multiplier, power) = suffix_factor(suffix).ok_or_else(refuse)?;
        // Digits one by one: mantissa × 10^exponent, exact until it saturates.
        let mut mantissa: i128 = 0;
        let mut exponent = power;
        let mut lost = false;
        for (in_fraction, digit) in whole
            .bytes()
            .map(|d| (false, d))
            .chain(fraction.bytes().map(|d| (true, d)))
        {
            if mantissa > i128::MAX / 100 / multiplier {
                // No more room: a dropped whole digit scales, a dropped fraction digit rounds up.
                lost |= digit != b'0';
                exponent += i32::from(!in_fraction);
                continue;
            }
            mantissa = mantissa * 10 + i128::from(digit - b'0');
            exponent -= i32::from(in_fraction);
        }
        let mut nanos = mantissa * multiplier;
        if nanos != 0 && exponent > 0 {
            for _ in 0..exponent {
                nanos = nanos.saturating_mul(10);
                if nanos >= LIMIT {
                    nanos = LIMIT;
                    break;
                }
            }
        }
        while exponent < 0 && nanos != 0 {
            if nanos == 1 && lost {
                break;
            }
            lost |= nanos % 10 != 0;
            nanos /= 10;
            exponent += 1;
        }
        if lost {
            nanos += 1;
        }
        Ok(Quantity {
            nanos: if negative { -nanos } else { nanos },
        })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos % NANO == 0 {
            write!(f, "{}", self.nanos / NANO)
        } else if self.nanos % (NANO / 1000) == 0 {
            write!(f, "{}m", self.nanos / (NANO / 1000))
        } else {
            write!(f, "{}n", self.nanos)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn the_suffixes_of_the_grammar() {
        assert_eq!(q("500m").milli(), 500);
        assert_eq!(q("2").milli(), 2000);
        assert_eq!(q("1.5Gi").units(), 1_610_612_736);
        assert_eq!(q("1e3").units(), 1000);
        assert_eq!(q("1E3").units(), 1000);
        assert_eq!(q("1E").units(), 1_000_000_000_000_000_000);
        assert_eq!(q("12345678901n").milli(), 12346);
        assert_eq!(q(".5").milli(), 500);
        assert_eq!(q("5.").milli(), 5000);
        assert_eq!(q("+3k").units(), 3000);
        assert_eq!(q("0.0000000001").units(), 1, "rounds up, never to nothing");
        assert_eq!(q("-1").units(), -1);
        assert_eq!(q("1e-3").milli(), 1);
    }

    #[test]
    fn absurd_amounts_saturate() {
        assert_eq!(q("9999999999999999999999999999E").units(), i64::MAX);
        assert_eq!(q("1e309").units(), i64::MAX);
        assert_eq!(q("1e999999999999").units(), i64::MAX);
        assert_eq!(q("-1e309").units(), i64::MIN);
        assert_eq!(q("1e-999999999999").units(), 1);
        assert_eq!(q("0e999").units(), 0);
        assert_eq!(q(&"9".repeat(5000)).units(), i64::MAX);
    }

    #[test]
    fn what_is_no_quantity_says_so() {
        for bad in [
            "", "-", ".", "1.2.3", "1Gib", "abc", "1e", "1 Gi", "0x10", "NaN", "½", "1K", "--1",
        ] {
            assert!(bad.parse::<Quantity>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn display_reads_back(n in any::<i64>()) {
            for original in [Quantity::from_units(n), Quantity::from_milli(n)] {
                prop_assert_eq!(original.to_string().parse::<Quantity>().unwrap(), original);
            }
        }

        #[test]
        fn any_text_is_answered(text in ".{0,40}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
