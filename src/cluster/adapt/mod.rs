//! From objects of other systems to the model's one form, a file a system.
//!
//! Field names: schedulers' own API types of mid-2026 (Kueue v1beta1 and v1beta2, Volcano v1beta1,
//! KAI v2 and v2alpha2) and those of the job operators. What is not there is not known; what has
//! another form than expected is left out, never guessed.

mod dra;
mod jobs;
mod kai;
mod kueue;
mod quota;
mod read;
mod volcano;

use serde_json::Value;

use crate::model::{Foreign, ForeignBody, ForeignKind, Meta, Str};

use self::read::Part;

/// The model's form of an object whose identity is read already.
pub(super) fn object(kind: ForeignKind, value: &Value, meta: Meta) -> Foreign {
    let part = Part::of(value);
    let api_version = part.at("apiVersion").raw().unwrap_or_default();
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let body = match kind {
        ForeignKind::KueueClusterQueue => ForeignBody::Queue(kueue::cluster_queue(&meta, &part)),
        ForeignKind::KueueLocalQueue => ForeignBody::Queue(kueue::local_queue(&meta, &part)),
        ForeignKind::KueueCohort => ForeignBody::Queue(kueue::cohort(&meta, &part)),
        ForeignKind::KueueWorkload => ForeignBody::Entry(kueue::workload(&meta, &part)),
        ForeignKind::VolcanoQueue => ForeignBody::Queue(volcano::queue(&meta, &part)),
        ForeignKind::VolcanoPodGroup => ForeignBody::Entry(volcano::pod_group(&meta, &part)),
        ForeignKind::KaiQueue => ForeignBody::Queue(kai::queue(&meta, &part)),
        ForeignKind::KaiPodGroup => ForeignBody::Entry(kai::pod_group(&meta, &part)),
        ForeignKind::ResourceQuota => ForeignBody::Queue(quota::resource_quota(&meta, &part)),
        ForeignKind::ResourceSlice => ForeignBody::Devices(dra::slice(&part)),
        job => ForeignBody::Job(jobs::job(job, &meta, &part)),
    };
    Foreign {
        version: version_of(version),
        meta,
        body,
    }
}

/// A version as a person reads it; one that is not stated is left empty.
fn version_of(raw: &str) -> Str {
    crate::model::clean(raw, 20).into()
}
