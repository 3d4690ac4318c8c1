//! What `fieldValidation=Strict` finds below the top of an object: members that its kind does not
//! have, and members named twice.

use std::collections::HashSet;
use std::fmt;

use k8s_openapi::api::{apps, batch, coordination, core, policy, rbac, resource, scheduling};
use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::resources::Resource;
use super::schema;

/// Paths of members that the kind does not have, such as `spec.containers[0].imagee`. What cannot
/// be read as the kind at all has none: its types are told by others.
pub(super) fn unknown(res: &Resource, object: &Value) -> Vec<String> {
    if res.custom {
        return res
            .schema
            .as_ref()
            .map(|schema| schema::unknown(schema, object))
            .unwrap_or_default();
    }
    match (res.group.as_str(), res.plural.as_str()) {
        ("", "configmaps") => lost::<core::v1::ConfigMap>(object),
        ("", "limitranges") => lost::<core::v1::LimitRange>(object),
        ("", "namespaces") => lost::<core::v1::Namespace>(object),
        ("", "nodes") => lost::<core::v1::Node>(object),
        ("", "persistentvolumeclaims") => lost::<core::v1::PersistentVolumeClaim>(object),
        ("", "persistentvolumes") => lost::<core::v1::PersistentVolume>(object),
        ("", "pods") => lost::<core::v1::Pod>(object),
        ("", "podtemplates") => lost::<core::v1::PodTemplate>(object),
        ("", "replicationcontrollers") => lost::<core::v1::ReplicationController>(object),
        ("", "resourcequotas") => lost::<core::v1::ResourceQuota>(object),
        ("", "secrets") => lost::<core::v1::Secret>(object),
        ("", "serviceaccounts") => lost::<core::v1::ServiceAccount>(object),
        ("", "services") => lost::<core::v1::Service>(object),
        ("apps", "daemonsets") => lost::<apps::v1::DaemonSet>(object),
        ("apps", "deployments") => lost::<apps::v1::Deployment>(object),
        ("apps", "replicasets") => lost::<apps::v1::ReplicaSet>(object),
        ("apps", "statefulsets") => lost::<apps::v1::StatefulSet>(object),
        ("batch", "cronjobs") => lost::<batch::v1::CronJob>(object),
        ("batch", "jobs") => lost::<batch::v1::Job>(object),
        ("coordination.k8s.io", "leases") => lost::<coordination::v1::Lease>(object),
        ("policy", "poddisruptionbudgets") => lost::<policy::v1::PodDisruptionBudget>(object),
        ("rbac.authorization.k8s.io", "clusterrolebindings") => {
            lost::<rbac::v1::ClusterRoleBinding>(object)
        }
        ("rbac.authorization.k8s.io", "clusterroles") => lost::<rbac::v1::ClusterRole>(object),
        ("rbac.authorization.k8s.io", "rolebindings") => lost::<rbac::v1::RoleBinding>(object),
        ("rbac.authorization.k8s.io", "roles") => lost::<rbac::v1::Role>(object),
        ("resource.k8s.io", "deviceclasses") => lost::<resource::v1::DeviceClass>(object),
        ("resource.k8s.io", "resourceclaims") => lost::<resource::v1::ResourceClaim>(object),
        ("resource.k8s.io", "resourceclaimtemplates") => {
            lost::<resource::v1::ResourceClaimTemplate>(object)
        }
        ("resource.k8s.io", "resourceslices") => lost::<resource::v1::ResourceSlice>(object),
        ("scheduling.k8s.io", "priorityclasses") => lost::<scheduling::v1::PriorityClass>(object),
        _ => Vec::new(),
    }
}

/// What is not there any more when the object has been read as `T` and written again.
fn lost<T: DeserializeOwned + Serialize>(object: &Value) -> Vec<String> {
    let mut object = object.clone();
    quantities_as_text(&mut object);
    let read = |object: &Value| T::deserialize(object).and_then(serde_json::to_value);
    let Ok(known) = read(&object) else {
        return Vec::new();
    };
    let mut paths = Vec::new();
    compare(&object, &known, &mut String::new(), &mut paths);
    paths.retain(|path| {
        let Some(member) = find(&mut object, path).filter(|member| member.is_null()) else {
            return true;
        };
        // A known member that is null is not written again either. With a value it is, unless its
        // type is another, which only a known member can mind.
        *member = Value::Bool(true);
        let mut again = Vec::new();
        let is_unknown = read(&object).is_ok_and(|known| {
            compare(&object, &known, &mut String::new(), &mut again);
            again.contains(path)
        });
        if let Some(member) = find(&mut object, path) {
            *member = Value::Null;
        }
        is_unknown
    });
    paths
}

/// The member at a path as [`compare`] writes it.
fn find<'v>(object: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    let mut at = object;
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(behind) = rest.strip_prefix('[') {
            let (index, behind) = behind.split_once(']')?;
            at = at.get_mut(index.parse::<usize>().ok()?)?;
            rest = behind;
            continue;
        }
        // Names may hold the characters that part them: the longest that is there is meant.
        let ends = rest.match_indices(['.', '[']).map(|(end, _)| end);
        let mut ends: Vec<usize> = ends.chain([rest.len()]).collect();
        ends.reverse();
        let end = ends
            .into_iter()
            .find(|end| rest.get(..*end).is_some_and(|name| at.get(name).is_some()))?;
        at = at.get_mut(rest.get(..end)?)?;
        rest = rest.get(end..)?;
    }
    Some(at)
}

/// Quantities may be numbers; the typed objects only have them as text.
fn quantities_as_text(value: &mut Value) {
    const HOLDERS: [&str; 12] = [
        "limits",
        "requests",
        "capacity",
        "allocatable",
        "hard",
        "used",
        "overhead",
        "max",
        "min",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
    ];
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                if let (true, Value::Object(amounts)) =
                    (HOLDERS.contains(&name.as_str()), &mut *value)
                {
                    for amount in amounts.values_mut().filter(|amount| amount.is_number()) {
                        *amount = amount.to_string().into();
                    }
                }
                quantities_as_text(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quantities_as_text),
        _ => {}
    }
}

fn compare(sent: &Value, known: &Value, path: &mut String, paths: &mut Vec<String>) {
    let length = path.len();
    match (sent, known) {
        (Value::Object(sent), Value::Object(known)) => {
            for (name, value) in sent {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                match known.get(name) {
                    Some(known) => compare(value, known, path, paths),
                    None => paths.push(path.clone()),
                }
                path.truncate(length);
            }
        }
        (Value::Array(sent), Value::Array(known)) => {
            for (index, (sent, known)) in sent.iter().zip(known).enumerate() {
                path.push_str(&format!("[{index}]"));
                compare(sent, known, path, paths);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Paths of members that are named more than once in a JSON text.
pub(super) fn duplicates(text: &[u8]) -> Vec<String> {
    let mut scan = Scan {
        path: String::new(),
        found: Vec::new(),
    };
    let mut reader = serde_json::Deserializer::from_slice(text);
    // What is no JSON is told by others.
    let _ = Members(&mut scan).deserialize(&mut reader);
    scan.found
}

struct Scan {
    path: String,
    found: Vec<String>,
}

struct Members<'s>(&'s mut Scan);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let length = self.0.path.len();
        let mut index = 0;
        loop {
            self.0.path.push_str(&format!("[{index}]"));
            let more = items.next_element_seed(Members(&mut *self.0))?;
            self.0.path.truncate(length);
            if more.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let length = self.0.path.len();
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if !self.0.path.is_empty() {
                self.0.path.push('.');
            }
            self.0.path.push_str(&name);
            if !seen.insert(name) {
                self.0.found.push(self.0.path.clone());
            }
            members.next_value_seed(Members(&mut *self.0))?;
            self.0.path.truncate(length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::sandbox::resources::Registry;

    #[test]
    fn members_that_the_kind_does_not_have() {
        let registry = Registry::built_in();
        let pods = registry.find("", "v1", "pods").unwrap();
        let pod = json!({
            "metadata": {"name": "p", "labelz": {"a": "b"}, "annotations": null},
            "spec": {"nodeNam": null, "restartPolicy": null, "hostNetwork": null, "containers": [
                {"name": "c"},
                {"name": "d", "imagee": "i", "resources": {"limits": {"cpu": 2, "a.b/c": "1"}}},
            ]},
        });
        assert_eq!(
            unknown(&pods, &pod),
            [
                "metadata.labelz",
                "spec.containers[1].imagee",
                "spec.nodeNam"
            ]
        );
        assert!(unknown(&pods, &json!({"spec": {"containers": 3}})).is_empty());
    }

    #[test]
    fn members_named_twice() {
        let text = br#"{"a":1,"b":{"c":[{"d":1,"d":null}],"c":2},"a":3}"#;
        assert_eq!(duplicates(text), ["b.c[0].d", "b.c", "a"]);
        assert!(duplicates(b"{\"a\":1,").is_empty());
    }
}
