//! Inputs made from real ones: the calls of the contract, cut, spliced and salted.

use std::path::Path;

use serde_json::{Map, Value, json};

/// What the contract's calls are made of.
#[derive(Debug, Default)]
pub(super) struct Corpus {
    /// Paths with their queries.
    pub(super) paths: Vec<String>,
    /// Values of labelSelector and fieldSelector.
    pub(super) selectors: Vec<String>,
    /// Media types with bodies.
    pub(super) bodies: Vec<(String, String)>,
    /// Methods.
    pub(super) methods: Vec<&'static str>,
}

impl Corpus {
    /// Reads `tests/contract/calls`.
    pub(super) fn read() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/calls");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        let mut corpus = Corpus {
            methods: vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"],
            ..Corpus::default()
        };
        for file in files {
            for call in std::fs::read_to_string(file).unwrap().split("\n\n") {
                corpus.add(call);
            }
        }
        for selector in [
            "a=b,c!=d,e in (f,g),!h,i notin (j),k",
            "metadata.name=a,spec.nodeName!=b",
            "status.phase=Running",
        ] {
            corpus.selectors.push(selector.to_owned());
        }
        corpus
    }

    fn add(&mut self, call: &str) {
        let lines: Vec<&str> = call.lines().filter(|line| !line.starts_with('#')).collect();
        let Some((first, rest)) = lines.split_first() else {
            return;
        };
        let Some((_, path)) = first.split_once(' ') else {
            return;
        };
        let path = path.replace("«ns»", "default");
        for part in path.split(['?', '&']) {
            if let Some((_, text)) = part.split_once("Selector=") {
                self.selectors.push(text.to_owned());
            }
        }
        self.paths.push(path);
        let mut media = "application/json".to_owned();
        let mut body = String::new();
        for line in rest {
            match line.split_once(": ").filter(|_| body.is_empty()) {
                Some(("type", word)) => media = word.to_owned(),
                Some(("as" | "accept" | "save" | "until" | "differs", _)) => {}
                _ => body.push_str(line),
            }
        }
        if !body.is_empty() {
            self.bodies.push((media, body.replace(['«', '»'], "")));
        }
    }
}

/// Draws and mutates.
pub(super) struct Mutator {
    pub(super) rng: fastrand::Rng,
}

/// Pieces that mean something to some parser.
const SALT: [&str; 48] = [
    "",
    " ",
    "\0",
    "%",
    "%00",
    "%2f",
    "%zz",
    "..",
    "/",
    "//",
    "?",
    "&",
    "=",
    "==",
    "!=",
    "!",
    ",",
    "(",
    ")",
    " in ",
    " notin ",
    "'",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "18446744073709551616",
    "9223372036854775808",
    "0.1",
    "é",
    "\u{202e}",
    "\u{feff}",
    "- ",
    ": ",
    "&a *a",
    "<<: ",
    "!!binary ",
    "---\n",
    "metadata",
];

impl Mutator {
    pub(super) fn new(seed: u64) -> Self {
        Mutator {
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.rng.usize(0..from.len());
        from.get(at).unwrap()
    }

    /// The text with a few mistakes; `other` is what may be spliced in.
    pub(super) fn text(&mut self, text: &str, other: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..self.rng.usize(0..6) {
            let at = self.rng.usize(0..=bytes.len());
            match self.rng.u8(0..8) {
                0 => bytes.truncate(at),
                1 => {
                    let salt = *self.pick(&SALT);
                    bytes.splice(at..at, salt.bytes());
                }
                2 => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.rng.u8(0..8);
                    }
                }
                3 => {
                    let end = (at + self.rng.usize(0..12)).min(bytes.len());
                    bytes.drain(at..end);
                }
                4 => {
                    let end = (at + self.rng.usize(0..40)).min(bytes.len());
                    let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                    let times = self.rng.usize(1..20);
                    bytes.splice(at..at, piece.repeat(times));
                }
                5 => {
                    let from = self.rng.usize(0..=other.len());
                    let piece = other.as_bytes().get(from..).unwrap_or_default();
                    let piece = piece
                        .get(..piece.len().min(200))
                        .unwrap_or_default()
                        .to_vec();
                    bytes.splice(at..at, piece);
                }
                6 => {
                    let depth = self.rng.usize(1..400);
                    let open = *self.pick(&["[", "{\"a\":", "(", "- "]);
                    bytes.splice(at..at, open.repeat(depth).into_bytes());
                }
                _ => {
                    let byte = self.rng.u8(..);
                    bytes.insert(at, byte);
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// JSON with some of its parts replaced, doubled, renamed or gone; no JSON becomes any.
    pub(super) fn json(&mut self, text: &str, other: &str) -> String {
        let mut value: Value = serde_json::from_str(text).unwrap_or_else(|_| json!({"a": [1]}));
        let other: Value = serde_json::from_str(other).unwrap_or_else(|_| json!({"spec": {}}));
        for _ in 0..self.rng.usize(0..5) {
            let donor = self.any_part(&other).clone();
            self.change(&mut value, &donor);
        }
        value.to_string()
    }

    fn any_part<'v>(&mut self, value: &'v Value) -> &'v Value {
        let mut at = value;
        while self.rng.u8(0..4) > 0 {
            let next = match at {
                Value::Object(map) if !map.is_empty() => {
                    map.values().nth(self.rng.usize(0..map.len()))
                }
                Value::Array(items) if !items.is_empty() => {
                    items.get(self.rng.usize(0..items.len()))
                }
                _ => None,
            };
            let Some(next) = next else { break };
            at = next;
        }
        at
    }

    fn change(&mut self, value: &mut Value, donor: &Value) {
        let deeper = self.rng.u8(0..5) > 0;
        match value {
            Value::Object(map) if !map.is_empty() && deeper => {
                let at = self.rng.usize(0..map.len());
                if let Some(member) = map.values_mut().nth(at) {
                    self.change(member, donor);
                }
            }
            Value::Array(items) if !items.is_empty() && deeper => {
                let at = self.rng.usize(0..items.len());
                if let Some(item) = items.get_mut(at) {
                    self.change(item, donor);
                }
            }
            Value::Object(map) if self.rng.bool() => self.change_map(map, donor),
            Value::Array(items) if self.rng.bool() => {
                let at = self.rng.usize(0..=items.len());
                if self.rng.bool() || at == items.len() {
                    items.insert(at, donor.clone());
                } else {
                    items.remove(at);
                }
            }
            _ => *value = self.leaf(donor),
        }
    }

    fn change_map(&mut self, map: &mut Map<String, Value>, donor: &Value) {
        let name = map.keys().nth(self.rng.usize(0..map.len().max(1))).cloned();
        match (name, self.rng.u8(0..3)) {
            (Some(name), 0) => {
                map.remove(&name);
            }
            (Some(name), 1) => {
                let member = map.remove(&name).unwrap_or_default();
                let other = *self.pick(&["spec", "status", "", "$patch", "a.b/c", "metadata", "é"]);
                map.insert(other.to_owned(), member);
            }
            _ => {
                let name = *self.pick(&[
                    "labels",
                    "$patch",
                    "$retainKeys",
                    "finalizers",
                    "generateName",
                    "items",
                    "ownerReferences",
                    "containers",
                    "managedFields",
                    "schedulingGates",
                ]);
                map.insert(name.to_owned(), donor.clone());
            }
        }
    }

    fn leaf(&mut self, donor: &Value) -> Value {
        match self.rng.u8(0..9) {
            0 => Value::Null,
            1 => json!(self.rng.bool()),
            2 => json!(self.rng.i64(..)),
            3 => json!(-1),
            4 => json!(1.5e300),
            5 => json!("x".repeat(self.rng.usize(0..5_000))),
            6 => json!(*self.pick(&SALT)),
            7 => json!({}),
            _ => donor.clone(),
        }
    }
}
