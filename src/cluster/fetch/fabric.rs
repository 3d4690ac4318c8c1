//! What objects tell of the fabric that no watch is worth: Topology objects and HyperNodes, which
//! change rarely, and the devices of one node, which somebody looks at.

use serde_json::Value;

use super::LIMIT;
use crate::cluster::http::ApiError;
use crate::cluster::source::ClientSource;
use crate::cluster::watch::query_value;
use crate::model::{GpuPort, HyperNode, HyperNodes, LabelLevels, Members, Str, clean};

/// The label levels that Kueue's and KAI's Topology objects state, the widest first. A server without
/// these kinds, or that does not show them, states none.
pub async fn topologies(source: &ClientSource) -> Vec<LabelLevels> {
    const PLACES: [(&str, &[&str]); 2] = [
        (
            "Kueue",
            &[
                "/apis/kueue.x-k8s.io/v1beta2/topologies",
                "/apis/kueue.x-k8s.io/v1beta1/topologies",
                "/apis/kueue.x-k8s.io/v1alpha1/topologies",
            ],
        ),
        ("KAI", &["/apis/kai.scheduler/v1alpha1/topologies"]),
    ];
    let (api, _) = source.current();
    let mut all = Vec::new();
    for (who, paths) in PLACES {
        for path in paths {
            if let Ok(list) = api.get(path, LIMIT).await {
                all.extend(levels_of(who, &list));
                break;
            }
        }
    }
    all
}

fn levels_of(who: &str, list: &Value) -> Vec<LabelLevels> {
    let text = |v: &Value| -> Option<Str> { Some(clean(v.as_str()?, 317).into()) };
    let items = list.get("items").and_then(Value::as_array);
    let items = items.into_iter().flatten().filter_map(|item| {
        let name = text(item.pointer("/metadata/name")?)?;
        let levels = item.pointer("/spec/levels")?.as_array()?;
        let keys = levels.iter().filter_map(|l| text(l.get("nodeLabel")?));
        Some(LabelLevels {
            name: format!("{who} Topology {name}").into(),
            keys: keys.collect(),
        })
    });
    items.collect()
}

/// Volcano's HyperNodes. A server without this kind, or that does not show them, has none.
pub async fn hyper_nodes(source: &ClientSource) -> HyperNodes {
    let (api, _) = source.current();
    let path = "/apis/topology.volcano.sh/v1alpha1/hypernodes";
    let list = api.get(path, LIMIT).await.unwrap_or_default();
    hyper_nodes_of(&list)
}

fn hyper_nodes_of(list: &Value) -> HyperNodes {
    let text = |v: &Value| -> Option<Str> { Some(clean(v.as_str()?, 317).into()) };
    let items = list.get("items").and_then(Value::as_array);
    let all = items.into_iter().flatten().filter_map(|item| {
        let spec = item.get("spec")?;
        let members = spec.get("members").and_then(Value::as_array);
        let members = || members.into_iter().flatten();
        let of = |kind: &str| {
            let own = members().filter(|m| m.get("type").and_then(Value::as_str) == Some(kind));
            own.filter_map(|m| members_of(m.get("selector")?)).collect()
        };
        Some(HyperNode {
            name: text(item.pointer("/metadata/name")?)?,
            tier: u32::try_from(spec.get("tier")?.as_u64()?).ok()?,
            tier_name: spec
                .get("tierName")
                .and_then(text)
                .filter(|t| !t.is_empty()),
            nodes: of("Node"),
            parts: of("HyperNode"),
        })
    });
    HyperNodes::new(all.collect())
}

/// One way in which members are picked; another one than these picks none.
fn members_of(selector: &Value) -> Option<Members> {
    let text = |v: &Value| -> Option<Str> { Some(clean(v.as_str()?, 1_000).into()) };
    if let Some(name) = selector.pointer("/exactMatch/name") {
        return Some(Members::Named(text(name)?));
    }
    if let Some(pattern) = selector.pointer("/regexMatch/pattern") {
        return Some(Members::Pattern(text(pattern)?));
    }
    let labels = selector.get("labelMatch")?;
    // Half of a condition would pick nodes that are not meant.
    if labels
        .get("matchExpressions")
        .and_then(Value::as_array)
        .is_some_and(|e| !e.is_empty())
    {
        return None;
    }
    let labels = labels.get("matchLabels")?.as_object()?.iter();
    let labels: Option<Box<[(Str, Str)]>> = labels
        .map(|(k, v)| Some((clean(k, 317).into(), text(v)?)))
        .collect();
    labels.filter(|l| !l.is_empty()).map(Members::Labelled)
}

/// Versions of ResourceSlices, the newest first.
const SLICES: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// Where the GPUs of a node are on its board, by the ResourceSlices that NVIDIA's driver writes.
///
/// # Errors
/// The server did not give them; one without this kind gives an empty list.
pub async fn gpu_ports(source: &ClientSource, node: &str) -> Result<Vec<GpuPort>, ApiError> {
    let (api, _) = source.current();
    for version in SLICES {
        let path = format!(
            "/apis/resource.k8s.io/{version}/resourceslices?fieldSelector=spec.nodeName%3D{}&limit=500",
            query_value(node)
        );
        match api.get(&path, LIMIT).await {
            Ok(list) => return Ok(ports_of(&list, node)),
            Err(e) if e.code() == Some(404) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Vec::new())
}

fn ports_of(list: &Value, node: &str) -> Vec<GpuPort> {
    let slices = list.get("items").and_then(Value::as_array);
    let slices = slices.into_iter().flatten().filter(|slice| {
        let text = |at: &str| slice.pointer(at).and_then(Value::as_str);
        text("/spec/driver") == Some("gpu.nvidia.com") && text("/spec/nodeName") == Some(node)
    });
    let devices = slices.filter_map(|s| s.pointer("/spec/devices")?.as_array());
    let mut ports: Vec<GpuPort> = devices.flatten().filter_map(port_of).collect();
    ports.sort_by_key(|p| p.index);
    ports.dedup_by_key(|p| p.index);
    ports
}

/// A whole GPU; MIG devices are parts of one.
fn port_of(device: &Value) -> Option<GpuPort> {
    let attributes = device
        .get("attributes")
        .or_else(|| device.pointer("/basic/attributes"))?;
    let attribute = |name: &str, kind: &str| attributes.get(name)?.get(kind);
    let text = |name: &str| -> Option<Str> {
        let text = attribute(name, "string")?.as_str()?;
        Some(clean(text, 60).into())
    };
    if text("type").is_some_and(|t| &*t != "gpu") {
        return None;
    }
    let index = device.get("name")?.as_str()?.strip_prefix("gpu-")?;
    Some(GpuPort {
        index: index.parse().ok()?,
        numa: attribute("resource.kubernetes.io/numaNode", "int")
            .and_then(Value::as_i64)
            .and_then(|n| u32::try_from(n).ok()),
        pcie_root: text("resource.kubernetes.io/pcieRoot"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use serde_json::json;

    use super::*;
    use crate::model::{FabricRules, Meta, Node};

    #[test]
    fn topologies_state_their_levels() {
        let list = json!({"items": [
            {"metadata": {"name": "default"}, "spec": {"levels": [
                {"nodeLabel": "example.com/block"}, {}, {"nodeLabel": "example.com/rack"}]}},
            {"metadata": {}, "spec": {}}, 7]});
        let levels = levels_of("Kueue", &list);
        let [one] = levels.as_slice() else {
            panic!("{levels:?}")
        };
        assert_eq!(&*one.name, "Kueue Topology default");
        assert_eq!(one.keys.join(" "), "example.com/block example.com/rack");
        assert!(levels_of("KAI", &json!({"kind": "Status"})).is_empty());
    }

    fn sample(name: &str) -> Value {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/samples");
        serde_json::from_str(&std::fs::read_to_string(root.join(name)).unwrap()).unwrap()
    }

    #[test]
    fn hyper_nodes_of_the_sample_tell_where_nodes_hang() {
        let rules = FabricRules {
            hyper_nodes: hyper_nodes_of(&sample("queues/volcano-hypernodes.json")),
            ..FabricRules::default()
        };
        let place = |name: &str, labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            let meta = Meta {
                name: name.into(),
                labels: labels.collect(),
                ..Meta::default()
            };
            let node = Node {
                meta,
                ..Node::default()
            };
            let place = rules.place(&node);
            let switches = place.switches.iter();
            let words: Vec<String> = switches
                .map(|s| format!("{}={}", s.level, s.name))
                .collect();
            words.join(" ")
        };
        assert_eq!(
            place("hgx-t02.lab.example", &[]),
            "core=s6 spine=s4 nvl-rack=s0"
        );
        assert_eq!(
            place("hgx-h17.lab.example", &[]),
            "core=s6 spine=s4 nvl-rack=s1"
        );
        let domain = "da47719c-66c0-42d4-8a67-2bbffc76ad20.32766";
        let labelled = [("accelerator.topograph.run/domain", domain)];
        assert_eq!(place("x", &labelled), "core=s6 nvl-rack=s2");
        assert_eq!(place("x", &[]), "");
        let odd = json!({"items": [7, {"metadata": {"name": "a"}, "spec": {"tier": -1}},
            {"metadata": {"name": "b"}, "spec": {"tier": 1, "members": [{"type": "Node",
                "selector": {"labelMatch": {"matchLabels": {}}}}, 3]}}]});
        let rules = FabricRules {
            hyper_nodes: hyper_nodes_of(&odd),
            ..FabricRules::default()
        };
        assert!(rules.place(&Node::default()).switches.is_empty());
        assert!(hyper_nodes_of(&Value::Null).is_empty());
    }

    #[test]
    fn ports_of_the_samples_are_read_and_mig_devices_are_none() {
        let list = sample("dra/resourceslices-full-gpu-taints.json");
        let ports = ports_of(&list, "hgx-t02.lab.example");
        assert_eq!(ports.len(), 8);
        let first = ports.first().unwrap();
        assert_eq!((first.index, first.numa), (0, Some(0)));
        assert_eq!(first.pcie_root.as_deref(), Some("pci0000:15"));
        assert!(ports_of(&list, "another").is_empty());
        let one = sample("dra/resourceslice-dynamic-mig-combined-1.34.json");
        let list = json!({"items": [one]});
        let ports = ports_of(&list, "hgx-t03.lab.example");
        assert!(
            !ports.is_empty() && ports.iter().all(|p| p.numa.is_none()),
            "{ports:?}"
        );
        let old = json!({"items": [{"spec": {"driver": "gpu.nvidia.com", "nodeName": "n", "devices": [
            {"name": "gpu-1", "basic": {"attributes": {"type": {"string": "gpu"}}}},
            {"name": "gpu-x", "attributes": {}}, 7]}}]});
        assert_eq!(ports_of(&old, "n").len(), 1);
        assert!(ports_of(&Value::Null, "n").is_empty());
    }
}
