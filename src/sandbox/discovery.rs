//! What the server says about itself: health, version, discovery (legacy and aggregated).

use http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use super::Inner;
use super::path::Target;
use super::resources::{Resource, StatusRule, version_rank};
use super::serve::Answer;
use super::status::ApiError;

/// The Kubernetes version that the embedded cluster answers as.
const GIT_VERSION: &str = "v1.37.2";

/// Answers a path that is no resource.
pub(super) fn answer(
    inner: &Inner,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Answer, ApiError> {
    let registry = inner.registry();
    Ok(match target {
        Target::Root => {
            let mut paths: Vec<String> = group_versions(inner)
                .into_iter()
                .map(|gv| format!("/{gv}"))
                .collect();
            paths.extend(
                [
                    "/api",
                    "/apis",
                    "/healthz",
                    "/livez",
                    "/openapi/v3",
                    "/readyz",
                    "/version",
                ]
                .map(str::to_owned),
            );
            paths.sort();
            Answer::Value(200, json!({"paths": paths}))
        }
        Target::Health => Answer::Text("ok"),
        Target::Version => Answer::Value(200, version()),
        Target::CoreVersions => match aggregated(headers) {
            Some(media) => Answer::Typed(media, aggregate(inner, &[("", vec!["v1".to_owned()])])),
            None => Answer::Value(
                200,
                json!({
                    "kind": "APIVersions",
                    "versions": ["v1"],
                    "serverAddressByClientCIDRs": [],
                }),
            ),
        },
        Target::Groups => {
            let groups = registry.groups();
            match aggregated(headers) {
                Some(media) => {
                    let list: Vec<(&str, Vec<String>)> = groups
                        .iter()
                        .map(|(g, v)| (g.as_str(), v.clone()))
                        .collect();
                    Answer::Typed(media, aggregate(inner, &list))
                }
                None => {
                    let groups: Vec<Value> = groups
                        .iter()
                        .map(|(name, versions)| group(name, versions))
                        .collect();
                    Answer::Value(
                        200,
                        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
                    )
                }
            }
        }
        Target::Group(name) => {
            let groups = registry.groups();
            let versions = groups.get(name).ok_or_else(ApiError::no_such_path)?;
            let mut object = group(name, versions);
            if let Some(map) = object.as_object_mut() {
                map.insert("kind".into(), "APIGroup".into());
                map.insert("apiVersion".into(), "v1".into());
            }
            Answer::Value(200, object)
        }
        Target::GroupVersion(group, version) => {
            if !registry.has_group_version(group, version) {
                return Err(if registry.has_group(group) {
                    ApiError::no_such_resource()
                } else {
                    ApiError::no_such_path()
                });
            }
            let resources: Vec<Value> = registry
                .all()
                .filter(|r| r.group == *group && r.version == *version)
                .flat_map(|r| legacy(r))
                .collect();
            let name = if group.is_empty() {
                version.clone()
            } else {
                format!("{group}/{version}")
            };
            Answer::Value(
                200,
                json!({
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": name,
                    "resources": resources,
                }),
            )
        }
        Target::OpenApiV3(path) if path.is_empty() => {
            let paths: Map<String, Value> = group_versions(inner)
                .into_iter()
                .map(|gv| {
                    let at = json!({"serverRelativeURL": format!("/openapi/v3/{gv}")});
                    (gv, at)
                })
                .collect();
            Answer::Value(200, json!({"paths": paths}))
        }
        Target::OpenApiV3(path) => Answer::Value(
            200,
            open_api(inner, path).ok_or_else(ApiError::no_such_path)?,
        ),
        Target::OpenApiV2 | Target::Resource(_) | Target::Unknown => {
            return Err(ApiError::no_such_path());
        }
    })
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "gpudeck/sandbox",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
    })
}

/// The media type of the newest aggregated discovery that the client takes.
fn aggregated(headers: &HeaderMap) -> Option<&'static str> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    accept
        .split(',')
        .any(|part| {
            part.trim().starts_with("application/json")
                && part.contains("g=apidiscovery.k8s.io")
                && part.contains("v=v2;")
                && part.contains("as=APIGroupDiscoveryList")
        })
        .then_some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
}

fn group(name: &str, versions: &[String]) -> Value {
    let entry = |v: &String| json!({"groupVersion": format!("{name}/{v}"), "version": v});
    json!({
        "name": name,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

/// Subresources of a kind: (name, kind, group, version, verbs).
fn subresources(
    res: &Resource,
) -> Vec<(
    &'static str,
    String,
    &'static str,
    &'static str,
    &'static [&'static str],
)> {
    let mut list: Vec<(
        &'static str,
        String,
        &'static str,
        &'static str,
        &'static [&'static str],
    )> = Vec::new();
    if res.is("", "pods") {
        list.push(("binding", "Binding".into(), "", "v1", &["create"]));
        list.push(("eviction", "Eviction".into(), "policy", "v1", &["create"]));
        list.push((
            "exec",
            "PodExecOptions".into(),
            "",
            "v1",
            &["create", "get"],
        ));
        list.push(("log", "Pod".into(), "", "v1", &["get"]));
        list.push(("proxy", "PodProxyOptions".into(), "", "v1", &["get"]));
    }
    if super::verbs::has_scale(res) {
        list.push((
            "scale",
            "Scale".into(),
            "autoscaling",
            "v1",
            &["get", "patch", "update"],
        ));
    }
    if res.status != StatusRule::None {
        list.push((
            "status",
            res.kind.clone(),
            "",
            "",
            &["get", "patch", "update"],
        ));
    }
    list
}

fn legacy(res: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": res.plural,
        "singularName": res.singular,
        "namespaced": res.namespaced,
        "kind": res.kind,
        "verbs": res.verbs(),
    });
    if let Some(map) = main.as_object_mut() {
        if !res.short_names.is_empty() {
            map.insert("shortNames".into(), json!(res.short_names));
        }
        if !res.categories.is_empty() {
            map.insert("categories".into(), json!(res.categories));
        }
    }
    let mut all = vec![main];
    for (name, kind, group, version, verbs) in subresources(res) {
        let mut entry = json!({
            "name": format!("{}/{name}", res.plural),
            "singularName": "",
            "namespaced": res.namespaced,
            "kind": kind,
            "verbs": verbs,
        });
        if !group.is_empty()
            && let Some(map) = entry.as_object_mut()
        {
            map.insert("group".into(), group.into());
            map.insert("version".into(), version.into());
        }
        all.push(entry);
    }
    all
}

fn aggregate(inner: &Inner, groups: &[(&str, Vec<String>)]) -> Value {
    let registry = inner.registry();
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let mut versions = versions.clone();
            versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = registry
                        .all()
                        .filter(|r| r.group == *group && r.version == *version)
                        .map(|r| aggregated_resource(r))
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({"name": group})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(res: &Resource) -> Value {
    let scope = if res.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": res.plural,
        "responseKind": kind(&res.group, &res.version, &res.kind),
        "scope": scope,
        "singularResource": res.singular,
        "verbs": res.verbs(),
    });
    let subresources: Vec<Value> = subresources(res)
        .into_iter()
        .map(|(name, own, group, version, verbs)| {
            let response = if version.is_empty() {
                kind(&res.group, &res.version, &own)
            } else {
                kind(group, version, &own)
            };
            json!({"subresource": name, "responseKind": response, "verbs": verbs})
        })
        .collect();
    if let Some(map) = entry.as_object_mut() {
        if !res.short_names.is_empty() {
            map.insert("shortNames".into(), json!(res.short_names));
        }
        if !res.categories.is_empty() {
            map.insert("categories".into(), json!(res.categories));
        }
        if !subresources.is_empty() {
            map.insert("subresources".into(), subresources.into());
        }
    }
    entry
}

/// `api/v1` and `apis/GROUP/VERSION` of everything served.
fn group_versions(inner: &Inner) -> Vec<String> {
    let mut all: Vec<String> = inner.registry().all().map(|r| url_prefix(r)).collect();
    all.dedup();
    all
}

fn url_prefix(res: &Resource) -> String {
    if res.group.is_empty() {
        format!("api/{}", res.version)
    } else {
        format!("apis/{}/{}", res.group, res.version)
    }
}

/// The OpenAPI document of one group version: paths and parameters, no schemas.
///
/// kubectl reads it to learn that the server validates fields, and sends what it has.
fn open_api(inner: &Inner, wanted: &str) -> Option<Value> {
    let mut paths = Map::new();
    for res in inner
        .registry()
        .all()
        .filter(|r| url_prefix(r) == wanted && !r.review)
    {
        let scope = if res.namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
        let operation = json!({
            "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind":
                {"group": res.group, "version": res.version, "kind": res.kind},
        });
        paths.insert(
            format!("/{wanted}/{scope}{}/{{name}}", res.plural),
            json!({"patch": operation, "put": operation}),
        );
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": paths,
    }))
}
