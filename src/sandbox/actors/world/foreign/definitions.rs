//! The CustomResourceDefinitions of Kueue, Volcano and KAI: names, scopes, versions and columns as
//! those systems install them. Schemas take any fields: it is not our part to refuse theirs.

use serde_json::{Value, json};

/// Where definitions are created.
pub(super) const COLLECTION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

struct Kind {
    group: &'static str,
    /// Versions, the stored one first.
    versions: &'static [&'static str],
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    /// Columns of `kubectl get`: name, type, JSON path.
    columns: &'static [(&'static str, &'static str, &'static str)],
}

const KUEUE: &str = "kueue.x-k8s.io";
const KUEUE_VERSIONS: &[&str] = &["v1beta2", "v1beta1"];

const KUEUE_KINDS: &[Kind] = &[
    Kind {
        group: KUEUE,
        versions: KUEUE_VERSIONS,
        kind: "ClusterQueue",
        plural: "clusterqueues",
        short: &["cq"],
        namespaced: false,
        columns: &[
            ("Cohort", "string", ".spec.cohortName"),
            ("Strategy", "string", ".spec.queueingStrategy"),
            ("Pending Workloads", "integer", ".status.pendingWorkloads"),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ],
    },
    Kind {
        group: KUEUE,
        versions: KUEUE_VERSIONS,
        kind: "LocalQueue",
        plural: "localqueues",
        short: &["queue", "queues", "lq"],
        namespaced: true,
        columns: &[
            ("ClusterQueue", "string", ".spec.clusterQueue"),
            ("Pending Workloads", "integer", ".status.pendingWorkloads"),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ],
    },
    Kind {
        group: KUEUE,
        versions: KUEUE_VERSIONS,
        kind: "Workload",
        plural: "workloads",
        short: &["wl"],
        namespaced: true,
        columns: &[
            ("Queue", "string", ".spec.queueName"),
            ("Reserved in", "string", ".status.admission.clusterQueue"),
            (
                "Admitted",
                "string",
                ".status.conditions[?(@.type=='Admitted')].status",
            ),
            (
                "Finished",
                "string",
                ".status.conditions[?(@.type=='Finished')].status",
            ),
            ("Age", "date", ".metadata.creationTimestamp"),
        ],
    },
    Kind {
        group: KUEUE,
        versions: KUEUE_VERSIONS,
        kind: "ResourceFlavor",
        plural: "resourceflavors",
        short: &["flavor", "flavors", "rf"],
        namespaced: false,
        columns: &[("Topology Name", "string", ".spec.topologyName")],
    },
    Kind {
        group: KUEUE,
        versions: KUEUE_VERSIONS,
        kind: "Topology",
        plural: "topologies",
        short: &[],
        namespaced: false,
        columns: &[],
    },
    Kind {
        group: KUEUE,
        versions: KUEUE_VERSIONS,
        kind: "Cohort",
        plural: "cohorts",
        short: &[],
        namespaced: false,
        columns: &[("Parent", "string", ".spec.parentName")],
    },
    Kind {
        group: KUEUE,
        versions: KUEUE_VERSIONS,
        kind: "WorkloadPriorityClass",
        plural: "workloadpriorityclasses",
        short: &[],
        namespaced: false,
        columns: &[("Value", "integer", ".value")],
    },
];

const VOLCANO_KINDS: &[Kind] = &[
    Kind {
        group: "scheduling.volcano.sh",
        versions: &["v1beta1"],
        kind: "Queue",
        plural: "queues",
        short: &["q", "queue-v1beta1"],
        namespaced: false,
        columns: &[
            ("PARENT", "string", ".spec.parent"),
            ("STATE", "string", ".status.state"),
            ("WEIGHT", "integer", ".spec.weight"),
        ],
    },
    Kind {
        group: "scheduling.volcano.sh",
        versions: &["v1beta1"],
        kind: "PodGroup",
        plural: "podgroups",
        short: &["pg", "podgroup-v1beta1"],
        namespaced: true,
        columns: &[
            ("STATUS", "string", ".status.phase"),
            ("minMember", "integer", ".spec.minMember"),
            ("RUNNINGS", "integer", ".status.running"),
            ("AGE", "date", ".metadata.creationTimestamp"),
            ("QUEUE", "string", ".spec.queue"),
        ],
    },
    Kind {
        group: "batch.volcano.sh",
        versions: &["v1alpha1"],
        kind: "Job",
        plural: "jobs",
        short: &["vcjob", "vj"],
        namespaced: true,
        columns: &[
            ("STATUS", "string", ".status.state.phase"),
            ("minAvailable", "integer", ".status.minAvailable"),
            ("RUNNINGS", "integer", ".status.running"),
            ("AGE", "date", ".metadata.creationTimestamp"),
            ("QUEUE", "string", ".spec.queue"),
        ],
    },
    Kind {
        group: "topology.volcano.sh",
        versions: &["v1alpha1"],
        kind: "HyperNode",
        plural: "hypernodes",
        short: &["hn"],
        namespaced: false,
        columns: &[
            ("Tier", "string", ".spec.tier"),
            ("NodeCount", "integer", ".status.nodeCount"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ],
    },
    Kind {
        group: "bus.volcano.sh",
        versions: &["v1alpha1"],
        kind: "Command",
        plural: "commands",
        short: &[],
        namespaced: true,
        columns: &[],
    },
];

const KAI_KINDS: &[Kind] = &[
    Kind {
        group: "scheduling.run.ai",
        versions: &["v2"],
        kind: "Queue",
        plural: "queues",
        short: &[],
        namespaced: false,
        columns: &[
            ("Priority", "integer", ".spec.priority"),
            ("Parent", "string", ".spec.parentQueue"),
            ("DisplayName", "string", ".spec.displayName"),
        ],
    },
    Kind {
        group: "scheduling.run.ai",
        versions: &["v2alpha2"],
        kind: "PodGroup",
        plural: "podgroups",
        short: &["pg"],
        namespaced: true,
        columns: &[
            ("Queue", "string", ".spec.queue"),
            ("Priority", "string", ".spec.priorityClassName"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ],
    },
    Kind {
        group: "scheduling.run.ai",
        versions: &["v1alpha2"],
        kind: "BindRequest",
        plural: "bindrequests",
        short: &[],
        namespaced: true,
        columns: &[],
    },
    Kind {
        group: "kai.scheduler",
        versions: &["v1alpha1"],
        kind: "Topology",
        plural: "topologies",
        short: &[],
        namespaced: false,
        columns: &[],
    },
];

/// Kueue's definitions.
pub(super) fn kueue() -> Vec<(String, Value)> {
    objects(KUEUE_KINDS)
}

/// Volcano's definitions.
pub(super) fn volcano() -> Vec<(String, Value)> {
    objects(VOLCANO_KINDS)
}

/// KAI's definitions.
pub(super) fn kai() -> Vec<(String, Value)> {
    objects(KAI_KINDS)
}

fn objects(kinds: &[Kind]) -> Vec<(String, Value)> {
    let definitions = kinds.iter().map(Kind::definition);
    definitions
        .map(|object| (COLLECTION.to_owned(), object))
        .collect()
}

impl Kind {
    fn definition(&self) -> Value {
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|(name, kind, path)| json!({"name": name, "type": kind, "jsonPath": path}))
            .collect();
        let versions: Vec<Value> = self
            .versions
            .iter()
            .enumerate()
            .map(|(number, version)| {
                json!({
                    "name": version,
                    "served": true,
                    "storage": number == 0,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                    }},
                })
            })
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural, self.group)},
            "spec": {
                "group": self.group,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": self.plural,
                    "singular": self.kind.to_lowercase(),
                    "shortNames": self.short,
                },
                "versions": versions,
            },
        })
    }
}
