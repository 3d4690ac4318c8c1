//! What a server was asked, by whom, and how it answered: one form for both kinds of server.

use serde::Deserialize;

/// One answered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The user the token belongs to, or `system:anonymous`.
    pub(crate) user: String,
    /// The Kubernetes verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub(crate) verb: String,
    /// The resource, with its subresource after a slash (`pods/binding`); empty for other paths.
    pub(crate) resource: String,
    /// The namespace; empty for requests across namespaces or without one.
    pub(crate) namespace: String,
    /// The object's name; empty for lists, watches and generated names.
    pub(crate) name: String,
    /// The HTTP status of the answer.
    pub(crate) status: u16,
}

/// Reads the audit log of a kube-apiserver: one audit.k8s.io/v1 Event a line. A watch has two
/// (ResponseStarted and ResponseComplete) and is counted once, when it starts.
pub(crate) fn parse(log: &str) -> Vec<Record> {
    let mut records = Vec::new();
    // The last line may still be half written.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    for line in whole.lines() {
        let event: Event = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("not an audit record: {error}: {line}"));
        if event.verb == "watch" && event.stage != "ResponseStarted" && event.code() < 400 {
            continue;
        }
        let object = event.object_ref.as_ref();
        let resource = object.map_or(String::new(), |o| {
            with_subresource(&o.resource, &o.subresource)
        });
        records.push(Record {
            status: event.code(),
            user: event.user.username,
            verb: event.verb,
            resource,
            namespace: object.map_or(String::new(), |o| o.namespace.clone()),
            name: object.map_or(String::new(), |o| o.name.clone()),
        });
    }
    records
}

/// A resource as RBAC rules write it: `pods`, `pods/binding`.
pub(crate) fn with_subresource(resource: &str, subresource: &str) -> String {
    match subresource {
        "" => resource.to_owned(),
        _ => format!("{resource}/{subresource}"),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

impl Event {
    fn code(&self) -> u16 {
        self.response_status
            .as_ref()
            .map_or(0, |status| status.code)
    }
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}
