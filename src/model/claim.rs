//! ResourceClaims: devices that a DRA driver has given to pods.
//!
//! Sources: resource.k8s.io/v1, and the device names of NVIDIA's DRA driver: `gpu-<minor>` and
//! `gpu-<minor>-mig-<profile without dots>-<profile id>-<start>`.

use super::devices::{DeviceSource, KnownDevice, KnownInstance};
use super::meta::Meta;
use super::telemetry::PodName;
use super::text::Str;

/// The driver whose devices are GPUs.
const DRIVER: &str = "gpu.nvidia.com";

/// A device that is allocated to a claim.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClaimedDevice {
    /// The driver.
    pub driver: Str,
    /// The pool that it is of: with NVIDIA's driver the node's name.
    pub pool: Str,
    /// Its name in the pool.
    pub device: Str,
    /// It is only looked at (`adminAccess`): others may hold it.
    pub looked_at: bool,
}

/// A ResourceClaim.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResourceClaim {
    /// Identity.
    pub meta: Meta,
    /// What is allocated to it.
    pub devices: Box<[ClaimedDevice]>,
    /// Names of the pods that it is reserved for, in its namespace.
    pub pods: Box<[Str]>,
}

impl ResourceClaim {
    /// Nodes that it has GPUs of.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Str> {
        self.gpus().map(|d| &d.pool)
    }

    fn gpus(&self) -> impl Iterator<Item = &ClaimedDevice> {
        self.devices
            .iter()
            .filter(|d| &*d.driver == DRIVER && !d.looked_at)
    }

    /// Its devices on one node.
    pub(super) fn on(&self, node: &str) -> Vec<KnownDevice> {
        let own = self.gpus().filter(|d| *d.pool == *node);
        let pod = self.pods.first().map(|name| PodName {
            namespace: self.meta.namespace.clone(),
            name: name.clone(),
        });
        own.filter_map(|d| {
            let (gpu, instance) = known_device(&d.device)?;
            Some(KnownDevice {
                gpu,
                instance,
                pod: pod.clone(),
                source: DeviceSource::Claim,
            })
        })
        .collect()
    }
}

/// GPU and MIG instance of a device's name, as NVIDIA's driver makes it.
pub fn known_device(name: &str) -> Option<(u32, Option<KnownInstance>)> {
    let rest = name.strip_prefix("gpu-")?;
    let Some((minor, mig)) = rest.split_once("-mig-") else {
        return Some((rest.parse().ok()?, None));
    };
    // From the right: a profile may hold dashes.
    let (rest, start) = mig.rsplit_once('-')?;
    let (profile, _id) = rest.rsplit_once('-')?;
    let (compute, memory) = profile.split_once('g')?;
    let instance = KnownInstance {
        start: Some(start.parse().ok()?),
        gi: None,
        profile: format!("{compute}g.{memory}").parse().ok()?,
    };
    Some((minor.parse().ok()?, Some(instance)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_devices() {
        for (name, expected) in [
            ("gpu-3", Some("3")),
            ("gpu-0-mig-1g20gb-15-6", Some("0 1g.20gb@6")),
            ("gpu-12-mig-1g10gb+me-20-2", Some("12 1g.10gb+me@2")),
            ("gpu-vfio-1", None),
            ("gpu-0-mig-x-1-2", None),
            ("channel-0", None),
        ] {
            let words = known_device(name).map(|(gpu, instance)| match instance {
                None => gpu.to_string(),
                Some(i) => format!("{gpu} {}@{}", i.profile, i.start.unwrap()),
            });
            assert_eq!(words.as_deref(), expected, "{name}");
        }
    }
}
