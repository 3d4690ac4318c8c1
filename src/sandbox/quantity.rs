//! Kubernetes quantities, as far as the server compares them.

use serde_json::Value;

/// The amount in thousandths, rounded up; `None` where it is no quantity.
///
/// Values beyond 128 bits of thousandths saturate, as the real type caps them.
pub(super) fn milli(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => parse(&number.to_string()),
        _ => None,
    }
}

/// Writes the amounts of a resource list as the real server does: as text, without a suffix where
/// that is exact. Amounts that have a suffix stay as they were sent.
pub(super) fn normalise(amounts: &mut Value) {
    for amount in amounts
        .as_object_mut()
        .into_iter()
        .flat_map(|map| map.values_mut())
    {
        let plain = match amount {
            Value::Number(_) => true,
            Value::String(text) => text.bytes().all(|b| b.is_ascii_digit() || b == b'.'),
            _ => false,
        };
        if let (true, Some(milli)) = (plain, milli(amount)) {
            let text = if milli % 1000 == 0 {
                (milli / 1000).to_string()
            } else {
                format!("{milli}m")
            };
            *amount = text.into();
        }
    }
}

fn parse(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits_end = unsigned
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at_checked(digits_end)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (base, exponent): (i128, i32) = match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        other => {
            let power = other.strip_prefix(['e', 'E'])?;
            (10, power.parse().ok()?)
        }
    };
    // Digits as one whole number of 10^-places.
    let fraction = fraction.get(..fraction.len().min(18)).unwrap_or_default();
    let places = u32::try_from(fraction.len()).ok()?;
    let all = format!("{whole}{fraction}");
    let mantissa = all.bytes().fold(0_i128, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(i128::from(digit - b'0'))
    });
    let mut up = mantissa.saturating_mul(1000);
    let mut down = 10_i128.saturating_pow(places);
    let factor = base.saturating_pow(exponent.unsigned_abs().min(200));
    if exponent >= 0 {
        up = up.saturating_mul(factor);
    } else {
        down = down.saturating_mul(factor);
    }
    let rounded_up = up / down + i128::from(up % down != 0);
    Some(if negative { -rounded_up } else { rounded_up })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn quantities_become_thousandths() {
        for (text, milli) in [
            ("8", Some(8000)),
            ("500m", Some(500)),
            ("1.5", Some(1500)),
            ("1Ki", Some(1_024_000)),
            ("-2", Some(-2000)),
            ("1e3", Some(1_000_000)),
            (".5", Some(500)),
            ("5.", Some(5000)),
            ("1n", Some(1)),
            ("0", Some(0)),
            ("", None),
            ("abc", None),
            ("1.2.3", None),
            ("1 Gi", None),
            ("--1", None),
            ("1KiB", None),
            ("1e", None),
        ] {
            assert_eq!(parse(text), milli, "{text}");
        }
        assert!(parse("99999999999999999999999999999999999999999E").is_some());
        assert!(parse("1e-999999").is_some());
    }
}
