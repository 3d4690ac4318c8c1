//! GpuNodes (`gpudeck.dev/v1alpha1`).

use std::sync::Arc;

use jiff::Timestamp;

use super::meta::MetaRead;
use super::read::{Ctx, Read, Word, object, quoted};
use crate::model::{DeviceSource, GpuNode, KnownDevice, KnownInstance, PodName, TopoTable};

/// GPUs of a node that are read, at most.
const MOST_GPUS: u32 = 256;

/// The table of `nvidia-smi topo -m`, as it was printed.
#[derive(Default)]
pub(super) struct TableRead(Option<TopoTable>);

impl Read<'_> for TableRead {
    const WANTED: &'static str = "a text";
    fn text(&mut self, raw: &str, ctx: &mut Ctx<'_>) -> bool {
        match TopoTable::read(raw) {
            Ok(table) => self.0 = Some(table),
            Err(why) => ctx.note(why),
        }
        true
    }
}

object! { HolderRead {
    namespace: Word = "namespace",
    name: Word = "name",
}}
object! { InstanceRead {
    profile: Word = "profile",
    start: Option<u32> = "start",
    gi: Option<u32> = "gi",
    pod: Option<HolderRead> = "pod",
}}
object! { DeviceRead {
    index: Option<u32> = "index",
    pod: Option<HolderRead> = "pod",
    instances: Vec<InstanceRead> = "instances",
}}
object! { GpuNodeStatusRead {
    observed: Option<Timestamp> = "observedAt",
    devices: Vec<DeviceRead> = "devices",
    topology: TableRead = "topology",
}}
object! { GpuNodeRead {
    meta: MetaRead = "metadata",
    status: GpuNodeStatusRead = "status",
}}

impl HolderRead {
    /// `None`: nobody, or a pod without a name.
    fn finish(self) -> Option<PodName> {
        let (namespace, name) = (self.namespace.0, self.name.0);
        (!name.is_empty()).then_some(PodName { namespace, name })
    }
}

impl GpuNodeRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<GpuNode, String> {
        let mut devices = Vec::new();
        for read in self.status.devices {
            let Some(gpu) = read.index.filter(|index| *index < MOST_GPUS) else {
                let why = format_args!("a GPU without an index from 0 to {}", MOST_GPUS - 1);
                ctx.note_at("status.devices.index", why);
                continue;
            };
            let mut put = |instance, pod: Option<HolderRead>| {
                devices.push(KnownDevice {
                    gpu,
                    instance,
                    pod: pod.and_then(HolderRead::finish),
                    source: DeviceSource::GpuNode,
                });
            };
            if read.instances.is_empty() {
                put(None, read.pod);
                continue;
            }
            for instance in read.instances {
                let Ok(profile) = instance.profile.0.parse() else {
                    let why = format_args!("{} is no MIG profile", quoted(&instance.profile.0));
                    ctx.note_at("status.devices.instances.profile", why);
                    continue;
                };
                let known = KnownInstance {
                    start: instance.start.and_then(|start| u8::try_from(start).ok()),
                    gi: instance.gi,
                    profile,
                };
                put(Some(known), instance.pod);
            }
        }
        Ok(GpuNode {
            topology: self.status.topology.0.map(Arc::new),
            meta: self.meta.finish(ctx)?,
            observed: self.status.observed,
            devices: devices.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::super::{Decoder, Object};
    use crate::model::{GpuNode, Kind, KnownDevice};

    fn read(status: &str) -> std::sync::Arc<GpuNode> {
        let json = format!(
            r#"{{"apiVersion": "gpudeck.dev/v1alpha1", "kind": "GpuNode",
                "metadata": {{"name": "n1", "uid": "u"}}, "status": {status}}}"#
        );
        match Decoder::new().decode(Kind::GpuNode, &json).unwrap() {
            Object::GpuNode(node) => node,
            other => panic!("{other:?}"),
        }
    }

    fn words(device: &KnownDevice) -> String {
        let instance = device.instance.as_ref().map_or(String::new(), |i| {
            let start = i.start.map_or("?".to_owned(), |s| s.to_string());
            format!(" {}@{start}", i.profile)
        });
        let pod = device.pod.as_ref();
        let pod = pod.map_or("nobody".to_owned(), |p| {
            format!("{}/{}", p.namespace, p.name)
        });
        format!("{}{instance} {pod}", device.gpu)
    }

    #[test]
    fn devices_with_their_instances_and_who_holds_them() {
        let node = read(
            r#"{"observedAt": "2026-11-30T12:00:00Z", "devices": [
                {"index": 0, "uuid": "GPU-1", "pod": {"namespace": "a", "name": "train-0"}},
                {"index": 1},
                {"index": 2, "instances": [
                    {"profile": "3g.40gb", "start": 4, "gi": 2, "pod": {"namespace": "a", "name": "x"}},
                    {"profile": "1g.10gb", "gi": 9, "pod": null},
                    {"profile": "nonsense"}]},
                {"index": 4096}, {"uuid": "GPU-2"}, 7]}"#,
        );
        let told: Vec<String> = node.devices.iter().map(words).collect();
        assert_eq!(
            told,
            [
                "0 a/train-0",
                "1 nobody",
                "2 3g.40gb@4 a/x",
                "2 1g.10gb@? nobody"
            ]
        );
        assert!(node.observed.is_some());
        let notes: Vec<&str> = node.meta.unreadable.iter().map(|n| &**n).collect();
        assert!(
            notes.iter().any(|n| n.contains("no MIG profile")),
            "{notes:?}"
        );
        assert!(
            notes.iter().any(|n| n.contains("without an index")),
            "{notes:?}"
        );
        assert!(read("{}").devices.is_empty() && read("7").devices.is_empty());
    }
}
