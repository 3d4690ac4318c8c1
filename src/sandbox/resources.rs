//! Which kinds the server has: the built-in ones, and those of installed CRDs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::object::Field;

/// How a kind's status is treated on its main resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusRule {
    /// No status subresource: status is a field like any other.
    None,
    /// Cleared at create, kept on update.
    Reset,
    /// What the creator wrote stays (nodes), kept on update.
    KeepAtCreate,
}

/// One served resource in one version.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) list_kind: String,
    pub(super) plural: String,
    pub(super) singular: String,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) namespaced: bool,
    pub(super) status: StatusRule,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(super) generation: bool,
    /// The store's table; versions of one kind share it.
    pub(super) table: Arc<str>,
    /// The version that objects are stored in.
    pub(super) stored_version: String,
    /// Fields that a field selector may name besides name and namespace.
    pub(super) fields: &'static [Field],
    /// Whether a CRD brought it.
    pub(super) custom: bool,
    /// A CRD's `additionalPrinterColumns`.
    pub(super) columns: Arc<[Value]>,
    /// A CRD's structural schema.
    pub(super) schema: Option<Arc<Value>>,
    /// A kind that is only posted, never stored (access reviews).
    pub(super) review: bool,
}

impl Resource {
    /// `v1` or `batch/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `pods` or `jobs.batch`, as messages name a resource.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The store key of one object.
    pub(super) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// Whether this is the built-in `group`/`plural`.
    pub(super) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Whether a PUT without resourceVersion replaces whatever is there.
    pub(super) fn unconditional_update(&self) -> bool {
        !(self.custom
            || matches!(
                self.plural.as_str(),
                "leases"
                    | "poddisruptionbudgets"
                    | "customresourcedefinitions"
                    | "controllerrevisions"
            ))
    }

    /// Verbs in discovery.
    pub(super) fn verbs(&self) -> &'static [&'static str] {
        if self.review {
            &["create"]
        } else if self.custom {
            &[
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "create",
                "update",
                "watch",
            ]
        } else {
            &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ]
        }
    }
}

const POD_FIELDS: &[Field] = &[
    Field {
        name: "spec.nodeName",
        pointer: "/spec/nodeName",
        absent: "",
    },
    Field {
        name: "status.phase",
        pointer: "/status/phase",
        absent: "",
    },
    Field {
        name: "spec.schedulerName",
        pointer: "/spec/schedulerName",
        absent: "",
    },
    Field {
        name: "spec.restartPolicy",
        pointer: "/spec/restartPolicy",
        absent: "",
    },
    Field {
        name: "spec.serviceAccountName",
        pointer: "/spec/serviceAccountName",
        absent: "",
    },
    Field {
        name: "spec.hostNetwork",
        pointer: "/spec/hostNetwork",
        absent: "false",
    },
    Field {
        name: "status.podIP",
        pointer: "/status/podIP",
        absent: "",
    },
    Field {
        name: "status.nominatedNodeName",
        pointer: "/status/nominatedNodeName",
        absent: "",
    },
];
const NODE_FIELDS: &[Field] = &[Field {
    name: "spec.unschedulable",
    pointer: "/spec/unschedulable",
    absent: "false",
}];
const NAMESPACE_FIELDS: &[Field] = &[Field {
    name: "status.phase",
    pointer: "/status/phase",
    absent: "",
}];
const SECRET_FIELDS: &[Field] = &[Field {
    name: "type",
    pointer: "/type",
    absent: "",
}];
const SERVICE_FIELDS: &[Field] = &[
    Field {
        name: "spec.clusterIP",
        pointer: "/spec/clusterIP",
        absent: "",
    },
    Field {
        name: "spec.type",
        pointer: "/spec/type",
        absent: "",
    },
];
const REPLICA_FIELDS: &[Field] = &[Field {
    name: "status.replicas",
    pointer: "/status/replicas",
    absent: "0",
}];
const SLICE_FIELDS: &[Field] = &[
    Field {
        name: "spec.nodeName",
        pointer: "/spec/nodeName",
        absent: "",
    },
    Field {
        name: "spec.driver",
        pointer: "/spec/driver",
        absent: "",
    },
];
const JOB_FIELDS: &[Field] = &[Field {
    name: "status.successful",
    pointer: "/status/succeeded",
    absent: "0",
}];
// Stored as core/v1; the names are those of the core view.
const EVENT_FIELDS: &[Field] = &[
    Field {
        name: "involvedObject.kind",
        pointer: "/involvedObject/kind",
        absent: "",
    },
    Field {
        name: "involvedObject.namespace",
        pointer: "/involvedObject/namespace",
        absent: "",
    },
    Field {
        name: "involvedObject.name",
        pointer: "/involvedObject/name",
        absent: "",
    },
    Field {
        name: "involvedObject.uid",
        pointer: "/involvedObject/uid",
        absent: "",
    },
    Field {
        name: "involvedObject.apiVersion",
        pointer: "/involvedObject/apiVersion",
        absent: "",
    },
    Field {
        name: "involvedObject.resourceVersion",
        pointer: "/involvedObject/resourceVersion",
        absent: "",
    },
    Field {
        name: "involvedObject.fieldPath",
        pointer: "/involvedObject/fieldPath",
        absent: "",
    },
    Field {
        name: "reason",
        pointer: "/reason",
        absent: "",
    },
    Field {
        name: "reportingComponent",
        pointer: "/reportingComponent",
        absent: "",
    },
    Field {
        name: "source",
        pointer: "/source/component",
        absent: "",
    },
    Field {
        name: "type",
        pointer: "/type",
        absent: "",
    },
];

/// A built-in kind.
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    /// `n` namespaced, `c` cluster-scoped.
    scope: char,
    status: StatusRule,
    generation: bool,
    fields: &'static [Field],
}

#[allow(clippy::too_many_arguments)]
const fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    scope: char,
    status: StatusRule,
    generation: bool,
    fields: &'static [Field],
) -> Row {
    Row {
        group,
        version,
        kind,
        plural,
        short,
        scope,
        status,
        generation,
        fields,
    }
}

const NO: StatusRule = StatusRule::None;
const ST: StatusRule = StatusRule::Reset;
const KEEP: StatusRule = StatusRule::KeepAtCreate;
const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";
const DRA: &str = "resource.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";

#[rustfmt::skip]
const BUILT_IN: &[Row] = &[
    row("", "v1", "Binding", "bindings", &[], 'n', NO, false, &[]),
    row("", "v1", "ConfigMap", "configmaps", &["cm"], 'n', NO, false, &[]),
    row("", "v1", "Endpoints", "endpoints", &["ep"], 'n', NO, false, &[]),
    row("", "v1", "Event", "events", &["ev"], 'n', NO, false, EVENT_FIELDS),
    row("", "v1", "LimitRange", "limitranges", &["limits"], 'n', NO, false, &[]),
    row("", "v1", "Namespace", "namespaces", &["ns"], 'c', ST, false, NAMESPACE_FIELDS),
    row("", "v1", "Node", "nodes", &["no"], 'c', KEEP, false, NODE_FIELDS),
    row("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], 'n', ST, false, &[]),
    row("", "v1", "PersistentVolume", "persistentvolumes", &["pv"], 'c', ST, false, &[]),
    row("", "v1", "Pod", "pods", &["po"], 'n', ST, true, POD_FIELDS),
    row("", "v1", "PodTemplate", "podtemplates", &[], 'n', NO, true, &[]),
    row("", "v1", "ReplicationController", "replicationcontrollers", &["rc"], 'n', ST, true, REPLICA_FIELDS),
    row("", "v1", "ResourceQuota", "resourcequotas", &["quota"], 'n', ST, false, &[]),
    row("", "v1", "Secret", "secrets", &[], 'n', NO, false, SECRET_FIELDS),
    row("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], 'n', NO, false, &[]),
    row("", "v1", "Service", "services", &["svc"], 'n', ST, false, SERVICE_FIELDS),
    row("apps", "v1", "ControllerRevision", "controllerrevisions", &[], 'n', NO, false, &[]),
    row("apps", "v1", "DaemonSet", "daemonsets", &["ds"], 'n', ST, true, &[]),
    row("apps", "v1", "Deployment", "deployments", &["deploy"], 'n', ST, true, &[]),
    row("apps", "v1", "ReplicaSet", "replicasets", &["rs"], 'n', ST, true, REPLICA_FIELDS),
    row("apps", "v1", "StatefulSet", "statefulsets", &["sts"], 'n', ST, true, &[]),
    row("events.k8s.io", "v1", "Event", "events", &["ev"], 'n', NO, false, EVENT_FIELDS),
    row(AUTHZ, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", &[], 'n', NO, false, &[]),
    row(AUTHZ, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", &[], 'c', NO, false, &[]),
    row(AUTHZ, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", &[], 'c', NO, false, &[]),
    row(AUTHZ, "v1", "SubjectAccessReview", "subjectaccessreviews", &[], 'c', NO, false, &[]),
    row("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", &[], 'c', NO, false, &[]),
    row("batch", "v1", "CronJob", "cronjobs", &["cj"], 'n', ST, true, &[]),
    row("batch", "v1", "Job", "jobs", &[], 'n', ST, true, JOB_FIELDS),
    row("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], 'n', ST, true, &[]),
    row(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", &[], 'c', NO, false, &[]),
    row(RBAC, "v1", "ClusterRole", "clusterroles", &[], 'c', NO, false, &[]),
    row(RBAC, "v1", "RoleBinding", "rolebindings", &[], 'n', NO, false, &[]),
    row(RBAC, "v1", "Role", "roles", &[], 'n', NO, false, &[]),
    row(SCHEDULING, "v1", "PriorityClass", "priorityclasses", &["pc"], 'c', NO, true, &[]),
    row(SCHEDULING, "v1beta1", "PodGroup", "podgroups", &[], 'n', ST, false, &[]),
    row(SCHEDULING, "v1beta1", "Workload", "workloads", &[], 'n', NO, true, &[]),
    row("coordination.k8s.io", "v1", "Lease", "leases", &[], 'n', NO, false, &[]),
    row("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", &["crd", "crds"], 'c', ST, true, &[]),
    row(DRA, "v1", "DeviceClass", "deviceclasses", &[], 'c', NO, true, &[]),
    row(DRA, "v1", "DeviceTaintRule", "devicetaintrules", &[], 'c', ST, true, &[]),
    row(DRA, "v1", "ResourceClaim", "resourceclaims", &[], 'n', ST, false, &[]),
    row(DRA, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", &[], 'n', NO, false, &[]),
    row(DRA, "v1", "ResourceSlice", "resourceslices", &[], 'c', NO, true, SLICE_FIELDS),
];

/// `group/plural`, the name of a store table.
pub(super) fn table_id(group: &str, plural: &str) -> Arc<str> {
    format!("{group}/{plural}").into()
}

/// Tables that the server itself reads.
pub(super) mod tables {
    pub(in super::super) const PODS: &str = "/pods";
    pub(in super::super) const NAMESPACES: &str = "/namespaces";
    pub(in super::super) const EVENTS: &str = "/events";
    pub(in super::super) const BUDGETS: &str = "policy/poddisruptionbudgets";
    pub(in super::super) const PRIORITY_CLASSES: &str = "scheduling.k8s.io/priorityclasses";
    pub(in super::super) const ROLES: &str = "rbac.authorization.k8s.io/roles";
    pub(in super::super) const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
    pub(in super::super) const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
    pub(in super::super) const CLUSTER_ROLE_BINDINGS: &str =
        "rbac.authorization.k8s.io/clusterrolebindings";
}

/// All kinds served now. Cloned and swapped as a whole when a CRD changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Registry {
    // (group, version, plural) in discovery order.
    by_path: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    /// The built-in kinds.
    pub(super) fn built_in() -> Self {
        let mut registry = Registry::default();
        for row in BUILT_IN {
            let is_event = row.kind == "Event";
            registry.insert(Resource {
                group: row.group.into(),
                version: row.version.into(),
                kind: row.kind.into(),
                list_kind: format!("{}List", row.kind),
                plural: row.plural.into(),
                singular: row.kind.to_lowercase(),
                short_names: row.short.iter().map(|s| (*s).to_owned()).collect(),
                categories: match row.plural {
                    "pods"
                    | "services"
                    | "deployments"
                    | "replicasets"
                    | "statefulsets"
                    | "daemonsets"
                    | "jobs"
                    | "cronjobs"
                    | "replicationcontrollers" => {
                        vec!["all".to_owned()]
                    }
                    "customresourcedefinitions" => vec!["api-extensions".to_owned()],
                    _ => Vec::new(),
                },
                namespaced: row.scope == 'n',
                status: row.status,
                generation: row.generation,
                table: if is_event {
                    tables::EVENTS.into()
                } else {
                    table_id(row.group, row.plural)
                },
                stored_version: row.version.into(),
                fields: row.fields,
                custom: false,
                columns: Arc::default(),
                schema: None,
                review: row.kind.ends_with("Review") || row.kind == "Binding",
            });
        }
        registry
    }

    /// Adds or replaces one resource version.
    pub(super) fn insert(&mut self, resource: Resource) {
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.by_path.insert(key, Arc::new(resource));
    }

    /// Drops every version of a CRD's resource.
    pub(super) fn remove_custom(&mut self, group: &str, plural: &str) {
        self.by_path
            .retain(|_, r| !(r.custom && r.group == group && r.plural == plural));
    }

    /// One resource.
    pub(super) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.by_path
            .get(&(group.into(), version.into(), plural.into()))
            .cloned()
    }

    /// Whether anything is served under this group.
    pub(super) fn has_group(&self, group: &str) -> bool {
        self.all().any(|r| r.group == group)
    }

    /// Whether anything is served under this group and version.
    pub(super) fn has_group_version(&self, group: &str, version: &str) -> bool {
        self.all().any(|r| r.group == group && r.version == version)
    }

    /// All resources, by group, version and plural.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_path.values()
    }

    /// Groups other than core with their versions, most preferred first.
    pub(super) fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for resource in self.all().filter(|r| !r.group.is_empty()) {
            let versions = groups.entry(resource.group.clone()).or_default();
            if !versions.contains(&resource.version) {
                versions.push(resource.version.clone());
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        }
        groups
    }
}

/// Kubernetes' order of versions: v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > anything else.
pub(super) fn version_rank(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else {
        return (0, 0, 0);
    };
    let (stage, parts) = if let Some(parts) = rest.split_once("beta") {
        (2, parts)
    } else if let Some(parts) = rest.split_once("alpha") {
        (1, parts)
    } else {
        (3, (rest, "0"))
    };
    match (parts.0.parse(), parts.1.parse()) {
        (Ok(major), Ok(minor)) => (stage, major, minor),
        _ => (0, 0, 0),
    }
}
