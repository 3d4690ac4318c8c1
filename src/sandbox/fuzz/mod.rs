//! Whatever a client sends, the parsers answer: none of them panics.
//!
//! The properties here draw a few hundred inputs of any shape. `targets` mutates real calls for as
//! long as `GPUDECK_FUZZ_SECS` says (CI: 60 s each), a moment without it.

#![allow(clippy::unwrap_used, clippy::panic)]

mod mutate;
mod targets;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::object::Object;
use super::patch::Patch;
use super::path::Target;
use super::query::{ListOptions, Query};
use super::resources::Registry;
use super::selector::{FieldSelector, LabelSelector};
use super::{meta, pods, shapes};

/// JSON of any shape, with the names that mean something to patches and to pods among the keys.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(Value::from("delete")),
        Just(Value::from("500m")),
    ];
    let key = prop_oneof![
        Just("spec".to_owned()),
        Just("metadata".to_owned()),
        Just("labels".to_owned()),
        Just("name".to_owned()),
        Just("containers".to_owned()),
        Just("resources".to_owned()),
        Just("limits".to_owned()),
        Just("conditions".to_owned()),
        Just("type".to_owned()),
        Just("ports".to_owned()),
        Just("containerPort".to_owned()),
        Just("$patch".to_owned()),
        Just("$retainKeys".to_owned()),
        Just("$setElementOrder/containers".to_owned()),
        Just("$deleteFromPrimitiveList/finalizers".to_owned()),
        Just("finalizers".to_owned()),
        ".{0,6}",
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|pairs| pairs.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn urls_and_selectors(text in ".{0,60}", selector in "[a-c(),=!<> \\\\in/%.-]{0,40}") {
        for text in [&text, &selector] {
            let _ = Target::parse(text);
            let _ = ListOptions::parse(&Query::parse(text));
            let _ = ListOptions::parse(&Query::parse(&format!(
                "labelSelector={text}&fieldSelector={text}&continue={text}&limit={text}"
            )));
            let labels = LabelSelector::parse(text);
            let fields = FieldSelector::parse(text);
            let object = Object::new("a/b".into(), 1, &mut json!({"metadata": {}}), &[]).unwrap();
            if let Ok(labels) = labels {
                labels.matches(&object);
            }
            if let Ok(Ok(fields)) = fields.map(|f| f.resolve(&[], false)) {
                fields.matches(&object);
            }
        }
    }

    #[test]
    fn objects_and_patches(mut target in any_json(), patch in any_json()) {
        let registry = Registry::built_in();
        let body = patch.to_string();
        for (group, version, plural) in [("", "v1", "pods"), ("batch", "v1", "jobs")] {
            let res = registry.find(group, version, plural).unwrap();
            for kind in ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json"] {
                let parsed = Patch::parse(&format!("application/{kind}"), body.as_bytes(), &res);
                if let Ok(parsed) = parsed {
                    let _ = parsed.apply(&mut target.clone());
                }
            }
            let mut object = patch.clone();
            let _ = meta::check_type(&res, &mut object);
            let _ = meta::check_shape(&res, &object);
            let _ = shapes::check(&res, &object);
            if let Some(meta) = meta::of(&mut object) {
                let _ = meta::check_values(&res, meta);
            }
            pods::set_defaults(&mut object, "now");
            let _ = pods::validate(&res, &object);
            let _ = pods::validate_update(&res, &target, &object);
            let _ = super::jobs::admit_create(&res, &mut object);
            let _ = super::jobs::validate_update(&res, &target, &object);
        }
        let crd = registry
            .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .unwrap();
        super::crd::set_defaults(&mut target);
        let _ = super::crd::validate(&crd, &target);
    }
}
