//! Why a pod waits, in the few words that a list has room for. The full sentence stands in the
//! description.

use std::borrow::Cow;

/// The short form of the sentences of kube-scheduler and of our own scheduler that count nodes:
/// `0/72 nodes fit: 57 node(s) didn't match Pod's node affinity/selector, 15 Insufficient
/// nvidia.com/gpu` is `15 lack gpu, 57 not selected`. What could be free soon comes first. Any other
/// text stays as it is.
pub fn short(text: &str) -> Cow<'_, str> {
    let Some((head, counts)) = split(text) else {
        return Cow::Borrowed(text);
    };
    // What kube-scheduler says of preemption comes after the counts.
    let counts = counts.split(". preemption:").next().unwrap_or(counts);
    let mut items: Vec<(u64, Cow<'_, str>)> = Vec::new();
    for part in counts.split(", ") {
        let part = part.trim().trim_end_matches('.');
        let counted = part.split_once(' ').and_then(|(n, why)| {
            let n: u64 = n.parse().ok()?;
            Some((n, why))
        });
        let Some((n, why)) = counted else {
            // A clause with a comma of its own: better whole than wrong.
            return Cow::Borrowed(text);
        };
        let why = clause(why);
        match items.iter_mut().find(|(_, known)| *known == why) {
            Some((sum, _)) => *sum += n,
            None => items.push((n, why)),
        }
    }
    items.sort_by_key(|(n, why)| (!why.starts_with("lack "), std::cmp::Reverse(*n)));
    let items: Vec<String> = items.iter().map(|(n, why)| format!("{n} {why}")).collect();
    Cow::Owned(format!("{head}{}", items.join(", ")))
}

/// What stands before the counts in short, and the counts.
fn split(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix("0/") {
        let (_, rest) = rest.split_once(' ')?;
        let counts = rest
            .strip_prefix("nodes fit: ")
            .or_else(|| rest.strip_prefix("nodes are available: "))?;
        return Some((String::new(), counts));
    }
    let rest = text.strip_prefix("only ")?;
    let (gang, counts) = rest.split_once(" pods of the gang fit: ")?;
    Some((format!("{gang} pods fit: "), counts))
}

fn clause(why: &str) -> Cow<'_, str> {
    if let Some(resource) = why.strip_prefix("Insufficient ") {
        let name = resource.strip_prefix("nvidia.com/").unwrap_or(resource);
        return format!("lack {name}").into();
    }
    let why = why.strip_prefix("node(s) ").unwrap_or(why);
    if why.contains("node affinity/selector") || why.contains("didn't match node selector") {
        return "not selected".into();
    }
    if let Some(taint) = why.strip_prefix("had untolerated taint {") {
        let key = taint.split([':', '}']).next().unwrap_or(taint);
        return format!("tainted {key}").into();
    }
    match why {
        "had untolerated taint(s)" => "tainted".into(),
        "were unschedulable" => "cordoned".into(),
        "Too many pods" => "full of pods".into(),
        "had volume node affinity conflict" => "without its volume".into(),
        _ if why.contains("free ports") => "with its port taken".into(),
        _ => why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_in_few_words_and_the_rest_as_it_is() {
        for (text, wanted) in [
            (
                "0/72 nodes fit: 57 node(s) didn't match Pod's node affinity/selector, 15 Insufficient nvidia.com/gpu",
                "15 lack gpu, 57 not selected",
            ),
            (
                "0/49 nodes are available: 34 Insufficient nvidia.com/mig-1g.10gb, 12 node(s) had untolerated taint {nvidia.com/gpu: present}, 2 node(s) were unschedulable, 1 Too many pods. preemption: 0/49 nodes are available: 49 Preemption is not helpful for scheduling.",
                "34 lack mig-1g.10gb, 12 tainted nvidia.com/gpu, 2 cordoned, 1 full of pods",
            ),
            (
                "only 6 of 8 pods of the gang fit: 60 node(s) had untolerated taint(s), 12 Insufficient nvidia.com/gpu",
                "6 of 8 pods fit: 12 lack gpu, 60 tainted",
            ),
            (
                "0/3 nodes fit: 3 node(s) burn, or so",
                "0/3 nodes fit: 3 node(s) burn, or so",
            ),
            ("0/3 nodes fit: 3 node(s) burn", "3 burn"),
            ("0/3 nodes fit:", "0/3 nodes fit:"),
            ("CrashLoopBackOff", "CrashLoopBackOff"),
            ("", ""),
        ] {
            assert_eq!(short(text), wanted, "{text}");
        }
    }
}
