//! The targets: selectors, queries and paths, bodies, patches, and whole requests, of which none
//! may be answered with a failure of the server's own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::mutate::{Corpus, Mutator};
use crate::sandbox::object::Object;
use crate::sandbox::patch::Patch;
use crate::sandbox::path::Target;
use crate::sandbox::query::{ListOptions, Query};
use crate::sandbox::resources::Registry;
use crate::sandbox::selector::{FieldSelector, LabelSelector};
use crate::sandbox::{ApiServer, Options, body, jobs, meta, nodes, pods, schema, shapes, strict};

/// Runs `case` until the time is over; its input is told when it panics. `GPUDECK_FUZZ_SEED` goes
/// another way each time it differs.
fn fuzz<I: std::fmt::Debug>(
    target: &str,
    mut draw: impl FnMut(&mut Mutator, &Corpus) -> I,
    mut case: impl FnMut(&I),
) {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let budget = number("GPUDECK_FUZZ_SECS").map(Duration::from_secs);
    let seed = number("GPUDECK_FUZZ_SEED").unwrap_or(1);
    let corpus = Corpus::read();
    let mut mutator = Mutator::new(seed);
    let began = Instant::now();
    let mut cases = 0_u64;
    // Without a budget a number of cases: no test depends on how fast the machine is.
    while budget.map_or(cases < 300, |budget| began.elapsed() < budget) {
        let input = draw(&mut mutator, &corpus);
        cases += 1;
        if catch_unwind(AssertUnwindSafe(|| case(&input))).is_err() {
            let mut told = format!("{input:?}");
            told = told.chars().take(4_000).collect();
            panic!("{target}: case {cases} of seed {seed}: {told}");
        }
    }
}

#[test]
fn selectors() {
    let object = json!({"metadata": {"labels": {"a": "b", "k": ""}}});
    let object = Object::new("a/b".into(), 1, &mut object.clone(), &[]).unwrap();
    fuzz(
        "selectors",
        |m, corpus| {
            let (text, other) = (
                m.pick(&corpus.selectors).clone(),
                m.pick(&corpus.paths).clone(),
            );
            m.text(&text, &other)
        },
        |text| {
            if let Ok(labels) = LabelSelector::parse(text) {
                assert_eq!(labels.matches(&object), labels.matches(&object));
            }
            for custom in [false, true] {
                if let Ok(Ok(fields)) = FieldSelector::parse(text).map(|f| f.resolve(&[], custom)) {
                    fields.matches(&object);
                }
            }
        },
    );
}

#[test]
fn queries() {
    fuzz(
        "queries",
        |m, corpus| {
            let (text, other) = (
                m.pick(&corpus.paths).clone(),
                m.pick(&corpus.selectors).clone(),
            );
            m.text(&text, &other)
        },
        |text| {
            let (path, query) = text.split_once('?').unwrap_or((text, text));
            let _ = Target::parse(path);
            let query = Query::parse(query);
            let _ = ListOptions::parse(&query);
            let _ = query.dry_run("CreateOptions");
            let _ = query.flag("watch");
        },
    );
}

/// A body, as text or as JSON mutated.
fn a_body(m: &mut Mutator, corpus: &Corpus) -> (String, String) {
    let (media, text) = m.pick(&corpus.bodies).clone();
    let (_, other) = m.pick(&corpus.bodies).clone();
    let text = if m.rng.bool() {
        m.json(&text, &other)
    } else {
        m.text(&text, &other)
    };
    (media, text)
}

#[test]
fn bodies() {
    let registry = Registry::built_in();
    let kinds: Vec<_> = registry.all().filter(|res| !res.review).cloned().collect();
    let crd_schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1},
            "list": {"type": "array", "items": {"type": "object", "properties": {}}},
            "colour": {"type": "string", "default": "red", "pattern": "^[a-z]+$"}}}}});
    fuzz(
        "bodies",
        |m, corpus| {
            let (_, text) = a_body(m, corpus);
            (m.rng.usize(0..kinds.len()), text)
        },
        |(at, text)| {
            let res = kinds.get(*at).unwrap();
            for media in [
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ] {
                let bytes = text.as_bytes();
                let _ = strict::duplicates(bytes);
                let Ok(mut object) = body::decode(media, bytes, &res.kind) else {
                    continue;
                };
                let _ = body::check_depth(res, bytes);
                let _ = strict::unknown(res, &object);
                let _ = meta::check_type(res, &mut object);
                let _ = meta::check_shape(res, &object);
                let _ = shapes::check(res, &object);
                if let Some(meta) = meta::of(&mut object) {
                    let _ = meta::check_values(res, meta);
                }
                let old = object.clone();
                schema::complete(&crd_schema, &mut object);
                let _ = schema::faults(&crd_schema, &object, "");
                let _ = schema::unknown(&crd_schema, &old);
                pods::set_defaults(&mut object, "now");
                let _ = pods::validate(res, &object);
                let _ = pods::validate_update(res, &old, &object);
                let _ = jobs::admit_create(res, &mut object);
                let _ = jobs::validate_update(res, &old, &object);
                nodes::set_defaults(&mut object);
                let _ = nodes::validate(res, &object);
            }
        },
    );
}

#[test]
fn patches() {
    let registry = Registry::built_in();
    let kinds = [
        registry.find("", "v1", "pods").unwrap(),
        registry.find("batch", "v1", "jobs").unwrap(),
        registry.find("", "v1", "nodes").unwrap(),
    ];
    fuzz(
        "patches",
        |m, corpus| {
            let (_, target) = a_body(m, corpus);
            let (_, patch) = a_body(m, corpus);
            let patch = match m.rng.u8(0..4) {
                0 => format!("[{{\"op\":\"add\",\"path\":\"/{}\",\"value\":{patch}}}]", *m.pick(&["spec", "a~1b", "-", "spec/containers/-", "metadata/labels"])),
                1 => m.json("[{\"op\":\"test\",\"path\":\"/metadata/name\",\"value\":\"a\"},{\"op\":\"move\",\"from\":\"/spec\",\"path\":\"/status\"},{\"op\":\"copy\",\"from\":\"/metadata\",\"path\":\"/spec/x\"},{\"op\":\"remove\",\"path\":\"/spec\"}]", &patch),
                _ => patch,
            };
            (m.rng.usize(0..kinds.len()), target, patch)
        },
        |(at, target, patch)| {
            let res = kinds.get(*at).unwrap();
            let target: Value =
                serde_json::from_str(target).unwrap_or_else(|_| json!({"spec": {}}));
            for kind in [
                "json-patch+json",
                "merge-patch+json",
                "strategic-merge-patch+json",
            ] {
                let media = format!("application/{kind}");
                if let Ok(patch) = Patch::parse(&media, patch.as_bytes(), res) {
                    let mut changed = target.clone();
                    let _ = patch.apply(&mut changed);
                }
            }
        },
    );
}

#[test]
fn requests() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let server = runtime.block_on(async { ApiServer::new(Options::default()).unwrap() });
    let client = runtime.block_on(async { server.client() });
    fuzz(
        "requests",
        |m, corpus| {
            let method = *m.pick(&corpus.methods);
            let (path, other) = (m.pick(&corpus.paths).clone(), m.pick(&corpus.paths).clone());
            let path = if m.rng.u8(0..3) == 0 {
                m.text(&path, &other)
            } else {
                path
            };
            // A watch has no end of its own.
            let path = path.replace("watch", "witch");
            let (media, body) = a_body(m, corpus);
            let media = if m.rng.u8(0..6) == 0 {
                m.text(&media, "application/apply-patch+yaml")
            } else {
                media
            };
            (method, path, media, body)
        },
        |(method, path, media, body)| {
            let request = http::Request::builder()
                .method(*method)
                .uri(path.as_str())
                .header("content-type", media.as_str())
                .body(kube::client::Body::from(body.clone().into_bytes()));
            // What cannot be a request at all never reaches the server.
            let Ok(request) = request else { return };
            let answer = runtime.block_on(async {
                let sent = client.send(request).await;
                tokio::time::timeout(Duration::from_secs(30), std::future::ready(sent)).await
            });
            let answer = answer.unwrap().unwrap();
            let code = answer.status().as_u16();
            // 500 is also what Go's decoders make of some inputs, but never by our own failure.
            assert!(code < 500 || matches!(code, 500 | 501 | 504), "{code}");
        },
    );
}
