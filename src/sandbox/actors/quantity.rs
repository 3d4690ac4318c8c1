//! Kubernetes quantities as whole thousandths, read by this room's own parser: the kubelet here
//! has to catch a scheduler's mistakes, so it must not share its code.

/// The value of `text` in thousandths, rounded up as Kubernetes does; `None` when it is not a
/// quantity. Suffixes: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and a decimal exponent.
pub(super) fn milli(text: &str) -> Option<i128> {
    let text = text.trim();
    let digits_end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (numerator, denominator) = scale(suffix)?;
    let negative = number.starts_with('-');
    let number = number.strip_prefix(['+', '-']).unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    // 18 digits of a fraction are more than any quantity has, and keep the products in range.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let ten: i128 = 10;
    let unit = ten.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let part: i128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let scaled = whole
        .checked_mul(unit)?
        .checked_add(part)?
        .checked_mul(numerator)?
        .checked_mul(1000)?;
    let divisor = unit.checked_mul(denominator)?;
    let up = scaled.checked_add(divisor - 1)? / divisor;
    Some(if negative { -up } else { up })
}

fn scale(suffix: &str) -> Option<(i128, i128)> {
    const K: i128 = 1000;
    const KI: i128 = 1024;
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, K.pow(3)),
        "u" => (1, K.pow(2)),
        "m" => (1, K),
        "k" => (K, 1),
        "M" => (K.pow(2), 1),
        "G" => (K.pow(3), 1),
        "T" => (K.pow(4), 1),
        "P" => (K.pow(5), 1),
        "E" => (K.pow(6), 1),
        "Ki" => (KI, 1),
        "Mi" => (KI.pow(2), 1),
        "Gi" => (KI.pow(3), 1),
        "Ti" => (KI.pow(4), 1),
        "Pi" => (KI.pow(5), 1),
        "Ei" => (KI.pow(6), 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs())?;
            if exponent >= 0 {
                (power, 1)
            } else {
                (1, power)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::milli;

    #[test]
    fn reads_what_kubernetes_writes() {
        assert_eq!(milli("8"), Some(8_000));
        assert_eq!(milli("221025m"), Some(221_025));
        assert_eq!(milli("0.5"), Some(500));
        assert_eq!(milli("1Ki"), Some(1_024_000));
        assert_eq!(milli("1.5Gi"), Some(1_610_612_736_000));
        assert_eq!(milli("2e3"), Some(2_000_000));
        assert_eq!(milli("1n"), Some(1));
        assert_eq!(milli("-2"), Some(-2_000));
        assert_eq!(milli("1E"), Some(1_000_000_000_000_000_000_000));
    }

    #[test]
    fn refuses_what_is_none() {
        for text in [
            "",
            "Gi",
            "1 Gi",
            "1GiB",
            "x",
            "1e",
            "--1",
            "1e99",
            "9E99999999999",
        ] {
            assert_eq!(milli(text), None, "{text}");
        }
    }
}
