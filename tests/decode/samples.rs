//! All files of tests/data/samples, whatever they hold.

use std::path::{Path, PathBuf};

use gpudeck::cluster::decode::{Decoder, Object};
use gpudeck::cluster::fetch;
use gpudeck::model::{ForeignKind, Kind};
use serde_json::Value;

/// The folder of samples.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/samples")
}

/// Every object of a file, as its raw JSON text: a list's items, or the file itself.
pub(crate) fn objects(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    for key in ["items", "responses"] {
        if let Some(Value::Array(items)) = value.get(key) {
            return items.clone();
        }
    }
    match value {
        Value::Array(items) => items,
        one => vec![one],
    }
}

/// The objects of one sample file by its path below the folder.
pub(crate) fn file(name: &str) -> Vec<Value> {
    objects(&root().join(name))
}

/// A sample file as text.
pub(crate) fn text(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// The text files of one folder.
pub(crate) fn text_files(folder: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(root().join(folder)).unwrap();
    let mut all: Vec<PathBuf> = files
        .map(|f| f.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    all.sort();
    all
}

/// The sample files of all folders.
pub(crate) fn files() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for folder in std::fs::read_dir(root()).unwrap() {
        let folder = folder.unwrap().path();
        if folder.is_dir() {
            all.extend(
                std::fs::read_dir(folder)
                    .unwrap()
                    .map(|f| f.unwrap().path())
                    .filter(|p| p.extension().is_some_and(|e| e == "json")),
            );
        }
    }
    all.sort();
    all
}

/// The kind that an object's apiVersion and kind name, if it is one that is watched.
pub(crate) fn kind_of(object: &Value) -> Option<Kind> {
    let group = object["apiVersion"].as_str().unwrap_or("");
    match (group, object["kind"].as_str().unwrap_or("")) {
        ("v1", "Node") => Some(Kind::Node),
        ("v1", "Pod") => Some(Kind::Pod),
        ("v1", "Namespace") => Some(Kind::Namespace),
        ("batch/v1", "Job") => Some(Kind::Job),
        ("v1" | "events.k8s.io/v1", "Event") => Some(Kind::Event),
        ("scheduling.k8s.io/v1", "PriorityClass") => Some(Kind::PriorityClass),
        ("v1", "PersistentVolumeClaim") => Some(Kind::VolumeClaim),
        ("v1", "PersistentVolume") => Some(Kind::Volume),
        ("resource.k8s.io/v1", "ResourceClaim") => Some(Kind::ResourceClaim),
        ("gpudeck.dev/v1alpha1", "GpuNode") => Some(Kind::GpuNode),
        ("policy/v1", "PodDisruptionBudget") => Some(Kind::Budget),
        (_, kind) => ForeignKind::ALL
            .iter()
            .copied()
            .find(|k| {
                let api = k.api();
                let of_group = match group.rsplit_once('/') {
                    Some((group, version)) => api.group == group && api.versions.contains(&version),
                    None => api.group.is_empty(),
                };
                of_group && api.kind == kind
            })
            .map(Kind::Foreign),
    }
}

/// Fails when a text holds something that a terminal would act on.
pub(crate) fn assert_plain(text: &str, context: &str) {
    // Debug escapes control characters, so the escapes are searched for as well.
    let bad = text.chars().find(|c| {
        c.is_control()
            || matches!(*c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    });
    assert_eq!(bad, None, "{context}: in {text}");
    for escape in [
        "\\u{1b}", "\\u{7}", "\\u{0}", "\\u{202", "\\u{206", "\\u{200", "\\u{9b}", "\\n", "\\r",
        "\\t", "\\0",
    ] {
        assert!(!text.contains(escape), "{context}: {escape} in {text}");
    }
}

#[test]
fn each_sample_object_is_read_or_refused_in_words() {
    let mut read = 0;
    let mut decoder = Decoder::new();
    for path in files() {
        for object in objects(&path) {
            let json = object.to_string();
            // Each object also goes through the decoders of the other kinds: what a server calls
            // a pod may be anything.
            for kind in Kind::ALL.into_iter().chain(Kind::foreign()) {
                let context = format!("{} as {kind}", path.display());
                match decoder.decode(kind, &json) {
                    Ok(decoded) => {
                        assert_plain(&format!("{decoded:?}"), &context);
                        read += usize::from(kind_of(&object) == Some(kind));
                    }
                    Err(why) => {
                        assert!(why.starts_with(kind.resource()), "{why}");
                        assert_plain(&why, &context);
                        assert!(
                            kind_of(&object) != Some(kind) || why.contains("no UID"),
                            "{context}: {why}"
                        );
                    }
                }
            }
        }
    }
    assert!(read > 150, "only {read} objects of the samples were read");
}

/// Every object, of whatever kind, also goes through the generic reader and the YAML writer.
#[test]
fn each_sample_object_can_be_listed_and_shown() {
    let mut decoder = Decoder::new();
    let mut rows = 0;
    for path in files() {
        for object in objects(&path) {
            let context = path.display().to_string();
            match fetch::row(&mut decoder, &object.to_string()) {
                Ok(row) => {
                    assert_plain(&format!("{row:?}"), &context);
                    rows += 1;
                }
                Err(why) => assert_plain(&why, &context),
            }
            let mut shown = object.clone();
            fetch::tidy(&mut shown);
            let yaml = fetch::to_yaml(&shown);
            assert!(!yaml.contains("managedFields:"));
            for line in yaml.lines() {
                // A backslash stands for itself in YAML text, so escapes are not searched for.
                assert_plain(&line.replace('\\', "/"), &context);
            }
        }
    }
    assert!(rows > 250, "only {rows} rows");
}

#[test]
fn well_formed_samples_have_nothing_unreadable() {
    let mut decoder = Decoder::new();
    for path in files() {
        if path.to_string_lossy().contains("hostile") {
            continue;
        }
        for object in objects(&path) {
            let Some(kind) = kind_of(&object) else {
                continue;
            };
            let decoded = decoder.decode(kind, &object.to_string()).unwrap();
            assert_eq!(
                decoded.meta().unreadable.len(),
                0,
                "{} {}: {:?}",
                path.display(),
                decoded.meta().name,
                decoded.meta().unreadable
            );
        }
    }
}

#[test]
fn raw_text_that_a_strict_parser_refuses() {
    let mut decoder = Decoder::new();
    let deep = std::fs::read_to_string(root().join("hostile/deep-nesting.json.txt")).unwrap();
    let why = decoder.decode(Kind::Node, &deep).unwrap_err();
    assert_eq!(&*why, "nodes: deep has no UID");
    let with_uid = deep.replace("\"name\":\"deep\"", "\"name\":\"deep\",\"uid\":\"u\"");
    let Object::Node(node) = decoder.decode(Kind::Node, &with_uid).unwrap() else {
        panic!("a node");
    };
    assert_eq!(&*node.meta.name, "deep");

    let text = std::fs::read_to_string(
        root().join("hostile/duplicate-keys-and-truncated-stream.json.txt"),
    )
    .unwrap();
    let mut lines = text.lines();
    let twice = lines
        .next()
        .unwrap()
        .replace("\"second\"", "\"second\",\"uid\":\"u\"");
    let Object::Node(node) = decoder.decode(Kind::Node, &twice).unwrap() else {
        panic!("a node");
    };
    assert_eq!(&*node.meta.name, "second", "the last one counts");
    assert_eq!(node.capacity.extended("nvidia.com/gpu"), 4);
    assert_eq!(
        &*node.meta.unreadable[0],
        "metadata.name: stated twice, the last one counts"
    );
    let truncated = lines.next().unwrap();
    let why = decoder.decode(Kind::Node, truncated).unwrap_err();
    assert!(why.contains("not readable as JSON"), "{why}");

    let huge = r#"{"metadata":{"name":"n","uid":"u"},"status":{"capacity":{"cpu":1e309,"x/y":1e400,"pods":110}}}"#;
    let Object::Node(node) = decoder.decode(Kind::Node, huge).unwrap() else {
        panic!("a node");
    };
    assert_eq!(node.capacity.pods, 110);
    assert_eq!(
        &*node.meta.unreadable[0],
        "status.capacity cpu: \"1e309\" is beyond any machine and is not counted"
    );
}

#[test]
fn truncated_at_every_byte_nothing_panics() {
    let mut decoder = Decoder::new();
    let pod = file("jobs/jobset-with-job-and-pods.json")
        .into_iter()
        .find(|o| kind_of(o) == Some(Kind::Pod))
        .unwrap()
        .to_string();
    for end in 0..pod.len() {
        if let Some(part) = pod.get(..end) {
            decoder.decode(Kind::Pod, part).unwrap_err();
        }
    }
}
