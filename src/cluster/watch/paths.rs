//! Where each kind lives in the API.

use crate::model::Kind;

/// The path of the API group and version, without a trailing slash.
fn group(kind: Kind) -> &'static str {
    match kind {
        Kind::Job => "/apis/batch/v1",
        Kind::PriorityClass => "/apis/scheduling.k8s.io/v1",
        _ => "/api/v1",
    }
}

/// Whether objects of this kind live in namespaces.
pub(super) fn is_namespaced(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Pod | Kind::Job | Kind::Event | Kind::VolumeClaim
    )
}

/// The path of the collection.
pub(super) fn collection(kind: Kind, namespace: Option<&str>) -> String {
    match namespace.filter(|_| is_namespaced(kind)) {
        Some(ns) => format!("{}/namespaces/{ns}/{}", group(kind), kind.resource()),
        None => format!("{}/{}", group(kind), kind.resource()),
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
