//! Who asks, and may they: bearer tokens and RBAC over the stored roles and bindings.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::object::text;
use super::path::ResourcePath;
use super::resources::tables;
use super::status::ApiError;
use super::{Inner, Names};

/// Who a client acts as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// Groups besides `system:authenticated`.
    pub groups: Vec<String>,
}

const MASTERS: &str = "system:masters";
const ANONYMOUS: &str = "system:anonymous";

impl User {
    /// A user by name and groups.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        User {
            name: name.into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        }
    }

    /// The administrator: may do everything.
    pub fn admin() -> Self {
        User::new("kubernetes-admin", &[MASTERS])
    }

    fn anonymous() -> Self {
        User::new(ANONYMOUS, &["system:unauthenticated"])
    }

    /// All groups, with the one that every known user is in.
    pub(super) fn all_groups(&self) -> Vec<String> {
        let mut groups = self.groups.clone();
        if self.name != ANONYMOUS && !groups.iter().any(|g| g == "system:authenticated") {
            groups.push("system:authenticated".into());
        }
        groups
    }

    /// Whether it may do everything.
    pub(super) fn is_master(&self) -> bool {
        self.groups.iter().any(|g| g == MASTERS)
    }
}

/// How a request says who it is.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// In process: the client was made for this user.
    Known(User),
    /// Over the network: by its Authorization header.
    Header,
}

/// A token that nobody guesses.
pub(super) fn random_token() -> String {
    // RandomState is keyed by the system's random source, and its hash is a keyed one.
    let part = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u8(0);
        hasher.finish()
    };
    format!("{:016x}{:016x}", part(), part())
}

/// Bearer tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    admin: String,
    users: Names<User>,
}

impl Tokens {
    /// With a random token for the administrator, the only one at first.
    pub(super) fn new() -> Self {
        let admin = random_token();
        let users = Names::from([(admin.clone(), User::admin())]);
        Tokens { admin, users }
    }

    pub(super) fn add(&mut self, token: String, user: User) {
        self.users.insert(token, user);
    }

    pub(super) fn admin(&self) -> &str {
        &self.admin
    }
}

/// One rule of a role.
#[derive(Debug, Clone)]
struct Rule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    urls: Vec<String>,
}

/// A role bound to subjects, in one namespace or (empty) everywhere.
#[derive(Debug)]
struct Grant {
    namespace: String,
    users: Vec<String>,
    groups: Vec<String>,
    rules: Vec<Rule>,
}

impl Grant {
    fn is_for(&self, user: &User, groups: &[String]) -> bool {
        self.users.contains(&user.name) || self.groups.iter().any(|g| groups.contains(g))
    }
}

/// Grants compiled from the stored objects, kept until one of those changes.
#[derive(Debug, Default)]
pub(super) struct RulesCache(Mutex<Option<(u64, Arc<Vec<Grant>>)>>);

/// What a user wants to do to a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Attributes<'_> {
    fn allowed_by(&self, rule: &Rule) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|v| v == "*" || v == wanted);
        let resource = if self.subresource.is_empty() {
            any(&rule.resources, self.resource)
        } else {
            rule.resources.iter().any(|r| {
                r == "*"
                    || r.split_once('/').is_some_and(|(resource, sub)| {
                        (resource == "*" || resource == self.resource) && sub == self.subresource
                    })
            })
        };
        any(&rule.verbs, self.verb)
            && any(&rule.groups, self.group)
            && resource
            && (rule.names.is_empty() || rule.names.iter().any(|n| n == self.name))
    }
}

impl Inner {
    /// Finds out who a request is from; 401 for a token that nobody has.
    pub(super) fn authenticate(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<User, ApiError> {
        let user = match caller {
            Caller::Known(user) => user.clone(),
            Caller::Header => match headers.get(header::AUTHORIZATION) {
                None => User::anonymous(),
                Some(value) => {
                    let token = value
                        .to_str()
                        .ok()
                        .and_then(|text| {
                            text.strip_prefix("Bearer ")
                                .or_else(|| text.strip_prefix("bearer "))
                        })
                        .map(str::trim);
                    let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
                    token
                        .and_then(|token| tokens.users.get(token))
                        .cloned()
                        .ok_or_else(ApiError::unauthorized)?
                }
            },
        };
        self.impersonated(user, headers)
    }

    /// The user that `Impersonate-User` names, if the caller may.
    fn impersonated(&self, user: User, headers: &HeaderMap) -> Result<User, ApiError> {
        let Some(name) = headers
            .get("impersonate-user")
            .and_then(|v| v.to_str().ok())
        else {
            return Ok(user);
        };
        let groups: Vec<&str> = headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let wanted =
            std::iter::once(("users", name)).chain(groups.iter().map(|group| ("groups", *group)));
        for (resource, name) in wanted {
            let attributes = Attributes {
                verb: "impersonate",
                group: "",
                resource,
                subresource: "",
                namespace: "",
                name,
            };
            if !self.allows(&user, attributes) {
                return Err(denied(&user, attributes));
            }
        }
        Ok(User::new(name, &groups))
    }

    /// 403 unless the user may do this to the addressed resource.
    pub(super) fn authorize(
        &self,
        user: &User,
        verb: &str,
        path: &ResourcePath,
    ) -> Result<(), ApiError> {
        // A namespace counts as lying in itself, so a role inside it can allow reading it.
        let own = path.plural == "namespaces" && path.group.is_empty();
        let attributes = Attributes {
            verb,
            group: &path.group,
            resource: &path.plural,
            subresource: &path.subresource,
            namespace: if own { &path.name } else { &path.namespace },
            name: &path.name,
        };
        if self.allows(user, attributes) {
            Ok(())
        } else {
            Err(denied(user, attributes))
        }
    }

    /// 403 unless the user may use this path that is no resource.
    pub(super) fn authorize_path(
        &self,
        user: &User,
        verb: &str,
        path: &str,
    ) -> Result<(), ApiError> {
        if self.allows_path(user, verb, path) {
            Ok(())
        } else {
            Err(ApiError::forbidden_path(&user.name, verb, path))
        }
    }

    /// Whether a path that is no resource is allowed.
    pub(super) fn allows_path(&self, user: &User, verb: &str, path: &str) -> bool {
        if user.is_master() {
            return true;
        }
        let groups = user.all_groups();
        self.grants()
            .iter()
            .filter(|g| g.namespace.is_empty() && g.is_for(user, &groups))
            .any(|g| {
                g.rules.iter().any(|rule| {
                    rule.verbs.iter().any(|v| v == "*" || v == verb)
                        && rule.urls.iter().any(|url| match url.strip_suffix('*') {
                            Some(start) => path.starts_with(start),
                            None => url == path,
                        })
                })
            })
    }

    /// Whether RBAC allows it.
    pub(super) fn allows(&self, user: &User, wanted: Attributes<'_>) -> bool {
        if user.is_master() {
            return true;
        }
        let groups = user.all_groups();
        self.grants()
            .iter()
            .filter(|g| g.is_for(user, &groups))
            .any(|grant| {
                (grant.namespace.is_empty() || grant.namespace == wanted.namespace)
                    && grant.rules.iter().any(|rule| wanted.allowed_by(rule))
            })
    }

    /// The `status` of a SelfSubjectRulesReview for one namespace.
    pub(super) fn rules_of(&self, user: &User, namespace: &str) -> Value {
        let groups = user.all_groups();
        let (mut resources, mut urls) = (Vec::new(), Vec::new());
        for grant in self.grants().iter().filter(|g| g.is_for(user, &groups)) {
            if !(grant.namespace.is_empty() || grant.namespace == namespace) {
                continue;
            }
            for rule in &grant.rules {
                if rule.urls.is_empty() {
                    let mut shown = json!({
                        "verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources,
                    });
                    if !rule.names.is_empty()
                        && let Some(map) = shown.as_object_mut()
                    {
                        map.insert("resourceNames".into(), json!(rule.names));
                    }
                    resources.push(shown);
                } else if grant.namespace.is_empty() {
                    urls.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.urls}));
                }
            }
        }
        json!({"resourceRules": resources, "nonResourceRules": urls, "incomplete": false})
    }

    fn grants(&self) -> Arc<Vec<Grant>> {
        let state = [
            tables::ROLES,
            tables::CLUSTER_ROLES,
            tables::ROLE_BINDINGS,
            tables::CLUSTER_ROLE_BINDINGS,
        ]
        .iter()
        .map(|table| self.store.table_rv(table))
        .max()
        .unwrap_or(0);
        let mut cache = self.rules.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cache {
            Some((at, grants)) if *at == state => grants.clone(),
            _ => {
                let grants = Arc::new(self.compile());
                *cache = Some((state, grants.clone()));
                grants
            }
        }
    }

    fn compile(&self) -> Vec<Grant> {
        let mut grants = Vec::new();
        for table in [tables::CLUSTER_ROLE_BINDINGS, tables::ROLE_BINDINGS] {
            for stored in self.store.all(table, "") {
                let binding = stored.value();
                let role = text(&binding, "/roleRef/name");
                let role = match text(&binding, "/roleRef/kind") {
                    "Role" => self
                        .store
                        .get(tables::ROLES, &format!("{}/{role}", stored.namespace())),
                    _ => self.store.get(tables::CLUSTER_ROLES, role),
                };
                let Some(role) = role.map(|role| role.value()) else {
                    continue;
                };
                let (mut users, mut groups) = (Vec::new(), Vec::new());
                let subjects = binding.get("subjects").and_then(Value::as_array);
                for subject in subjects.into_iter().flatten() {
                    let name = text(subject, "/name");
                    match text(subject, "/kind") {
                        "Group" => groups.push(name.to_owned()),
                        "ServiceAccount" => users.push(format!(
                            "system:serviceaccount:{}:{name}",
                            text(subject, "/namespace")
                        )),
                        _ => users.push(name.to_owned()),
                    }
                }
                grants.push(Grant {
                    namespace: stored.namespace().to_owned(),
                    users,
                    groups,
                    rules: rules(&role),
                });
            }
        }
        grants
    }
}

fn rules(role: &Value) -> Vec<Rule> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let list = rule.get(field).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    role.get("rules")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|rule| Rule {
            verbs: texts(rule, "verbs"),
            groups: texts(rule, "apiGroups"),
            resources: texts(rule, "resources"),
            names: texts(rule, "resourceNames"),
            urls: texts(rule, "nonResourceURLs"),
        })
        .collect()
}

fn denied(user: &User, wanted: Attributes<'_>) -> ApiError {
    let resource = if wanted.subresource.is_empty() {
        wanted.resource.to_owned()
    } else {
        format!("{}/{}", wanted.resource, wanted.subresource)
    };
    let place = if wanted.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", wanted.namespace)
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}",
        user.name, wanted.verb, wanted.group
    );
    ApiError::forbidden(
        wanted.group,
        wanted.resource,
        wanted.name,
        &super::status::clip(&why),
    )
}

/// The roles and bindings of every cluster: (plural, name, object).
pub(super) fn default_objects() -> Vec<(&'static str, &'static str, Value)> {
    const READ: [&str; 3] = ["get", "list", "watch"];
    const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
    let viewed = json!([
        {"apiGroups": [""], "verbs": READ, "resources": ["configmaps", "endpoints", "events",
            "limitranges", "namespaces", "namespaces/status", "persistentvolumeclaims", "pods",
            "pods/log", "pods/status", "replicationcontrollers", "resourcequotas",
            "serviceaccounts", "services"]},
        {"apiGroups": ["apps"], "verbs": READ, "resources": ["controllerrevisions", "daemonsets",
            "deployments", "replicasets", "statefulsets"]},
        {"apiGroups": ["batch"], "verbs": READ, "resources": ["cronjobs", "jobs", "jobs/status"]},
        {"apiGroups": ["policy"], "verbs": READ, "resources": ["poddisruptionbudgets"]},
    ]);
    let edited = json!([
        {"apiGroups": [""], "verbs": WRITE, "resources": ["configmaps", "events",
            "persistentvolumeclaims", "pods", "pods/attach", "pods/exec", "pods/portforward",
            "pods/proxy", "replicationcontrollers", "secrets", "serviceaccounts", "services"]},
        {"apiGroups": [""], "verbs": ["create"], "resources": ["pods/eviction"]},
        {"apiGroups": [""], "verbs": READ, "resources": ["secrets", "pods/proxy"]},
        {"apiGroups": ["apps"], "verbs": WRITE, "resources": ["daemonsets", "deployments",
            "replicasets", "statefulsets"]},
        {"apiGroups": ["batch"], "verbs": WRITE, "resources": ["cronjobs", "jobs"]},
        {"apiGroups": ["policy"], "verbs": WRITE, "resources": ["poddisruptionbudgets"]},
    ]);
    let administered = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
         "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"],
         "verbs": ["create"]},
    ]);
    let join = |parts: &[&Value]| -> Value {
        parts
            .iter()
            .filter_map(|p| p.as_array())
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .into()
    };
    let public = json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}]);
    let discovery = json!([{"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz",
        "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]}]);
    let basic = json!([
        {"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
         "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
        {"apiGroups": ["authentication.k8s.io"], "verbs": ["create"], "resources": ["selfsubjectreviews"]},
    ]);
    let all = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let mut objects = Vec::new();
    for (name, rules) in [
        ("cluster-admin", all),
        ("admin", join(&[&administered, &edited, &viewed])),
        ("edit", join(&[&edited, &viewed])),
        ("view", viewed),
        ("system:basic-user", basic),
        ("system:discovery", discovery),
        ("system:public-info-viewer", public),
    ] {
        let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let object = json!({"metadata": {"name": name, "labels": labels}, "rules": rules});
        objects.push(("clusterroles", name, object));
    }
    for (role, groups) in [
        ("cluster-admin", &[MASTERS][..]),
        ("system:basic-user", &["system:authenticated"]),
        ("system:discovery", &["system:authenticated"]),
        (
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
    ] {
        let subjects: Vec<Value> = groups
            .iter()
            .map(|g| json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": g}))
            .collect();
        let object = json!({
            "metadata": {"name": role, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        });
        objects.push(("clusterrolebindings", role, object));
    }
    objects
}
