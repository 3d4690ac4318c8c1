//! How long ago something was, in kubectl's words.

use jiff::Timestamp;

/// `duration.HumanDuration` of k8s.io/apimachinery.
pub(super) fn human(secs: i64) -> String {
    if secs < -1 {
        return "<invalid>".into();
    }
    let secs = secs.max(0);
    let (minutes, hours) = (secs / 60, secs / 3600);
    let two = |large: i64, unit: char, small: i64, sub: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{sub}")
        }
    };
    match () {
        () if secs < 120 => format!("{secs}s"),
        () if minutes < 10 => two(minutes, 'm', secs % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(hours / 24, 'd', hours % 24, 'h'),
        () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        () if hours < 24 * 365 * 8 => two(hours / 24 / 365, 'y', hours / 24 % 365, 'd'),
        () => format!("{}y", hours / 24 / 365),
    }
}

/// The time since `text`, `<unknown>` where that is no time.
pub(super) fn since(text: &str, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(then) => human(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_tells_them() {
        for (secs, told) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3_600, "60m"),
            (3 * 3_600, "3h"),
            (3 * 3_600 + 60, "3h1m"),
            (47 * 3_600, "47h"),
            (49 * 3_600, "2d1h"),
            (400 * 86_400, "400d"),
            (800 * 86_400, "2y70d"),
            (4_000 * 86_400, "10y"),
        ] {
            assert_eq!(human(secs), told, "{secs}");
        }
    }
}
