//! Pods that differ in a few texts only: the first is admitted, all are printed from it. To admit
//! a hundred thousand one by one takes ten times as long.

use std::sync::Arc;

use serde_json::Value;

use super::object::{self, Object, text};
use super::preload::PreloadError;
use super::resources::tables;
use super::{ApiServer, Inner, meta};

/// Where a hole begins and ends, with its number between. A name may hold that, and a label.
const OPEN: &str = "gpudeck-hole-";
const CLOSE: &str = "-o";
/// The holes of what the server itself writes.
const UID: usize = usize::MAX;
const VERSION: usize = usize::MAX - 1;
/// Pods that are stored together.
const TOGETHER: usize = 512;

/// What stands in an exemplar for the text `number` of each print, alone or in a longer text.
pub fn hole(number: usize) -> String {
    format!("{OPEN}{number}{CLOSE}")
}

/// A text with holes.
#[derive(Debug)]
struct Form {
    head: String,
    /// The hole's number, and what follows it.
    rest: Vec<(usize, String)>,
}

impl Form {
    fn of(text: &str) -> Self {
        let mut parts = text.split(OPEN);
        let mut form = Form {
            head: parts.next().unwrap_or_default().to_owned(),
            rest: Vec::new(),
        };
        for part in parts {
            let cut = part.split_once(CLOSE);
            match cut.and_then(|(number, after)| Some((number.parse().ok()?, after.to_owned()))) {
                Some(hole) => form.rest.push(hole),
                // Only looks like one.
                None => {
                    let last = form
                        .rest
                        .last_mut()
                        .map_or(&mut form.head, |hole| &mut hole.1);
                    last.push_str(OPEN);
                    last.push_str(part);
                }
            }
        }
        form
    }

    /// Appends the text with these texts in its holes.
    fn print<'t>(&self, out: &mut String, texts: impl Fn(usize) -> &'t str) {
        out.push_str(&self.head);
        for (number, after) in &self.rest {
            out.push_str(texts(*number));
            out.push_str(after);
        }
    }

    fn filled<'t>(&self, texts: impl Fn(usize) -> &'t str) -> String {
        let mut text = String::new();
        self.print(&mut text, texts);
        text
    }
}

/// An admitted pod whose texts have holes.
#[derive(Debug)]
pub struct Stamp {
    table: Arc<str>,
    key: Form,
    json: Form,
    labels: Form,
    fields: Form,
    owners: Vec<Form>,
}

impl ApiServer {
    /// Admits a pod as [`ApiServer::preload`] does, with [`hole`]s where its prints differ.
    ///
    /// # Errors
    /// It is no pod, or admission refuses it.
    pub fn stamp(&self, exemplar: Value) -> Result<Stamp, PreloadError> {
        let now = self.inner.options.clock.time();
        let admitted = self.inner.admit_one(exemplar, &now)?;
        let (call, key, mut pod) = (admitted.call, admitted.key, admitted.object);
        let refused = |why: String| PreloadError {
            kind: call.res.kind.clone(),
            name: key.clone(),
            why,
        };
        if !call.res.is("", "pods") {
            return Err(refused("only pods are printed".to_owned()));
        }
        if let Some(meta) = meta::of(&mut pod) {
            meta.insert("uid".into(), hole(UID).into());
            meta.insert("resourceVersion".into(), hole(VERSION).into());
        }
        let json = object::compact(&pod).map_err(|error| refused(error.to_string()))?;
        let (labels, fields) = object::selectable(&pod, call.res.fields);
        let owners = super::gc::owners(&pod).iter();
        Ok(Stamp {
            key: Form::of(&key),
            json: Form::of(&String::from_utf8_lossy(&json)),
            labels: Form::of(&labels),
            fields: Form::of(&fields),
            owners: owners.map(|owner| Form::of(text(owner, "/uid"))).collect(),
            table: call.res.table.clone(),
        })
    }

    /// Stores pods: each with its stamp and the texts of the stamp's holes, from 0 on, which are
    /// not checked again and must need no escape in JSON. One whose name is taken is left out.
    /// Blocks until all are stored.
    ///
    /// # Errors
    /// The store has no pods.
    pub fn preload_prints<'s>(
        &self,
        prints: impl Iterator<Item = (&'s Stamp, Vec<String>)>,
    ) -> Result<(), PreloadError> {
        let inner = &*self.inner;
        let mut prints = prints
            .map(|(stamp, texts)| Print::new(inner, stamp, texts))
            .peekable();
        let mut press = Press::default();
        while prints.peek().is_some() {
            // Drawn before the store is locked.
            let together: Vec<_> = prints.by_ref().take(TOGETHER).collect();
            let stored = inner
                .store
                .add_all(tables::PODS, together, |key, rv, _, print| {
                    Ok(press.print(&print, key, rv))
                });
            stored.map_err(|error| PreloadError {
                kind: "Pod".to_owned(),
                name: String::new(),
                why: format!("{error:?}"),
            })?;
        }
        inner.refresh_all_budgets();
        Ok(())
    }
}

/// Room to print in, used again and again.
#[derive(Debug, Default)]
struct Press {
    json: String,
    labels: String,
    fields: String,
}

impl Press {
    fn print(&mut self, print: &Print<'_>, key: Arc<str>, rv: u64) -> Object {
        let version = rv.to_string();
        let texts = |number: usize| match number {
            VERSION => version.as_str(),
            number => print.text(number),
        };
        for (form, out) in [
            (&print.stamp.json, &mut self.json),
            (&print.stamp.labels, &mut self.labels),
            (&print.stamp.fields, &mut self.fields),
        ] {
            out.clear();
            form.print(out, texts);
        }
        Object::printed(key, rv, &self.json, &self.labels, &self.fields)
    }
}

/// What one pod has in the holes of its stamp.
struct Print<'s> {
    stamp: &'s Stamp,
    texts: Vec<String>,
    uid: String,
}

impl<'s> Print<'s> {
    /// Draws the UID and notes the owners: before the pod is stored, so that nobody has to look at
    /// it again. That of a pod whose name is taken is a stale note, as there are others.
    fn new(inner: &Inner, stamp: &'s Stamp, texts: Vec<String>) -> (String, Self) {
        let mut print = Print {
            stamp,
            texts,
            uid: String::new(),
        };
        let table = &stamp.table;
        let key = stamp.key.filled(|number| print.text(number));
        for owner in &stamp.owners {
            let owner = owner.filled(|number| print.text(number));
            inner.dependents.add(&owner, (table.clone(), key.clone()));
        }
        print.uid = inner.ids.uid(table, &key, true);
        (key, print)
    }

    fn text(&self, number: usize) -> &str {
        match number {
            UID => &self.uid,
            number => self.texts.get(number).map_or("", String::as_str),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;
    use crate::sandbox::Options;

    fn pod(name: &str, team: &str, owner: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "labels": {"team": team, "kept": "k"},
                "ownerReferences": [{"apiVersion": "a/v1", "kind": "K", "name": "o", "uid": owner}],
            },
            "spec": {"nodeName": team, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        })
    }

    async fn get(server: &ApiServer, path: &str) -> Value {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        server.client().request(request).await.unwrap()
    }

    #[tokio::test]
    async fn a_print_is_the_pod_that_would_have_been_admitted() {
        let list = "/api/v1/namespaces/default/pods?labelSelector=team%3Da\
                    &fieldSelector=spec.nodeName%3Da";
        let one = ApiServer::new(Options::default()).unwrap();
        one.preload(1, |_| vec![pod("p-1", "a", "u")]).unwrap();
        let other = ApiServer::new(Options::default()).unwrap();
        let stamp = other.stamp(pod(&format!("p-{}", hole(0)), &hole(1), &hole(2)));
        let stamp = stamp.unwrap();
        let texts = |n: &str, team: &str| vec![n.to_owned(), team.to_owned(), "u".to_owned()];
        let prints = [texts("1", "a"), texts("1", "b"), texts("2", "b")];
        let prints = prints.into_iter().map(|texts| (&stamp, texts));
        other.preload_prints(prints).unwrap();
        let (mut one, mut printed) = (get(&one, list).await, get(&other, list).await);
        assert_eq!(printed["items"].as_array().unwrap().len(), 1);
        for list in [&mut one, &mut printed] {
            // The second server has stored one more.
            list["metadata"] = Value::Null;
            list["items"][0]["metadata"]["creationTimestamp"] = Value::Null;
        }
        assert_eq!(one, printed);
        let all = get(&other, "/api/v1/pods").await;
        let names = all["items"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|pod| text(pod, "/metadata/name")).collect();
        assert_eq!(names, ["p-1", "p-2"]);
        assert_eq!(other.inner.dependents.of("u").len(), 2);
    }

    #[test]
    fn what_only_looks_like_a_hole_stays() {
        for text in ["gpudeck-hole-x-o", "a gpudeck-hole-", "gpudeck-hole-1", ""] {
            assert_eq!(Form::of(text).filled(|_| "no"), text);
        }
        let text = format!("{}gpudeck-hole-{}-o", hole(0), hole(7));
        assert_eq!(
            Form::of(&text).filled(|number| if number == 7 { "b" } else { "a" }),
            "agpudeck-hole-b-o"
        );
    }
}
