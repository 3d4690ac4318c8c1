//! Where each kind lives in the API.

use std::borrow::Cow;

use crate::model::Kind;

/// The path of the API group and version, without a trailing slash. `version` is the one that the
/// server has of another system's kind; else the one we prefer.
fn group(kind: Kind, version: Option<&str>) -> Cow<'static, str> {
    match kind {
        Kind::Job => "/apis/batch/v1".into(),
        Kind::PriorityClass => "/apis/scheduling.k8s.io/v1".into(),
        Kind::Foreign(kind) if !kind.api().group.is_empty() => {
            let api = kind.api();
            let preferred = api.versions.first().copied().unwrap_or("v1");
            format!("/apis/{}/{}", api.group, version.unwrap_or(preferred)).into()
        }
        Kind::ResourceClaim => "/apis/resource.k8s.io/v1".into(),
        Kind::GpuQueue | Kind::GpuNode => "/apis/gpudeck.dev/v1alpha1".into(),
        Kind::Budget => "/apis/policy/v1".into(),
        _ => "/api/v1".into(),
    }
}

/// Whether objects of this kind live in namespaces.
pub(super) fn is_namespaced(kind: Kind) -> bool {
    match kind {
        Kind::Foreign(kind) => kind.api().namespaced,
        _ => matches!(
            kind,
            Kind::Pod
                | Kind::Job
                | Kind::Event
                | Kind::VolumeClaim
                | Kind::ResourceClaim
                | Kind::Budget
        ),
    }
}

/// The path of the collection.
pub(super) fn collection(kind: Kind, namespace: Option<&str>, version: Option<&str>) -> String {
    let plural = match kind {
        Kind::Foreign(kind) => kind.api().plural,
        _ => kind.resource(),
    };
    match namespace.filter(|_| is_namespaced(kind)) {
        Some(ns) => format!("{}/namespaces/{ns}/{plural}", group(kind, version)),
        None => format!("{}/{plural}", group(kind, version)),
    }
}

/// Percent-encodes a query value (continue tokens and versions are opaque).
pub(in crate::cluster) fn query_value(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for b in raw.bytes() {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}
