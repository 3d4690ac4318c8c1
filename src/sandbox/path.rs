//! What a request's URL addresses.

/// The addressed thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// `/version`.
    Version,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    GroupVersion(String, String),
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3` and below; empty for the index.
    OpenApiV3(String),
    /// A collection, an object or a subresource.
    Resource(ResourcePath),
    /// `/`, the list of paths.
    Root,
    /// Nothing that is served.
    Unknown,
}

/// The parts of a resource URL; empty where the URL has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResourcePath {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) namespace: String,
    pub(super) plural: String,
    pub(super) name: String,
    pub(super) subresource: String,
    /// What stands behind the subresource, as for `proxy`.
    pub(super) rest: String,
}

/// Decodes `%XX`; `None` for a broken escape or bytes that are no UTF-8.
pub(super) fn percent_decode(text: &str, plus_is_blank: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus_is_blank => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

impl Target {
    /// Reads a path. It is decoded before it is split, as the real server does, so `%2f` is a `/`.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let decoded = percent_decode(path, false)?;
        let trimmed = decoded.strip_prefix('/').unwrap_or(&decoded);
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
        let segments: Vec<&str> = trimmed.split('/').collect();
        Some(match segments.as_slice() {
            [""] => Target::Root,
            ["healthz" | "livez" | "readyz", ..] => Target::Health,
            ["version"] => Target::Version,
            ["api"] => Target::CoreVersions,
            ["apis"] => Target::Groups,
            ["apis", group] => Target::Group((*group).into()),
            ["api", version] => Target::GroupVersion(String::new(), (*version).into()),
            ["apis", group, version] => Target::GroupVersion((*group).into(), (*version).into()),
            ["openapi", "v2"] => Target::OpenApiV2,
            ["openapi", "v3", rest @ ..] => Target::OpenApiV3(rest.join("/")),
            ["api", version, rest @ ..] => resource("", version, rest),
            ["apis", group, version, rest @ ..] => resource(group, version, rest),
            _ => Target::Unknown,
        })
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Target {
    let mut path = ResourcePath {
        group: group.into(),
        version: version.into(),
        ..ResourcePath::default()
    };
    let rest = match rest {
        // These are subresources of a namespace, everything else lies in it.
        ["namespaces", _, "status" | "finalize", ..] => rest,
        ["namespaces", namespace, inside @ ..] if !inside.is_empty() => {
            if namespace.is_empty() {
                return Target::Unknown;
            }
            path.namespace = (*namespace).into();
            inside
        }
        _ => rest,
    };
    let mut parts = rest.iter();
    let mut next = || parts.next().copied().unwrap_or_default().to_owned();
    path.plural = next();
    path.name = next();
    path.subresource = next();
    path.rest = rest.get(3..).unwrap_or_default().join("/");
    let holes = rest.len() > 1 && rest.iter().take(3).any(|part| part.is_empty());
    if path.plural.is_empty() || holes {
        Target::Unknown
    } else {
        Target::Resource(path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn res(path: &str) -> ResourcePath {
        match Target::parse(path) {
            Some(Target::Resource(path)) => path,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn reads_each_form_of_a_resource_url() {
        let pods = res("/api/v1/namespaces/team-a/pods/train-0/binding");
        assert_eq!(
            (
                &*pods.namespace,
                &*pods.plural,
                &*pods.name,
                &*pods.subresource
            ),
            ("team-a", "pods", "train-0", "binding")
        );
        assert_eq!(res("/api/v1/namespaces/team-a").name, "team-a");
        assert_eq!(
            res("/api/v1/namespaces/team-a/status").subresource,
            "status"
        );
        let jobs = res("/apis/batch/v1/jobs/");
        assert_eq!(
            (&*jobs.group, &*jobs.plural, &*jobs.namespace),
            ("batch", "jobs", "")
        );
        let proxy = res("/api/v1/namespaces/a/pods/p:9400/proxy/metrics/x");
        assert_eq!((&*proxy.name, &*proxy.rest), ("p:9400", "metrics/x"));
    }

    #[test]
    fn escapes_are_decoded_before_splitting() {
        assert_eq!(res("/api/v1/nodes/a%2fstatus").subresource, "status");
        assert_eq!(Target::parse("/api/v1/nodes/%zz"), None);
        assert_eq!(Target::parse("/api/v1/nodes/%ff"), None);
        assert_eq!(Target::parse("/api/v1//nodes"), Some(Target::Unknown));
        assert_eq!(
            Target::parse("/api/v1/namespaces//pods"),
            Some(Target::Unknown)
        );
        assert_eq!(res("/api/v1/nodes/..").name, "..");
    }
}
