//! The kinds that `kubectl create` posts as protobuf, as far as its flags go. A field that is not
//! told here refuses the body: better than an object that has lost a part.

use super::Kind::{
    Amounts, Bool, Flag, Int, IntPtr, Message, Messages, Skip, Text, TextMap, Texts,
};
use super::{Field, META};

const SELECTOR: &[Field] = &[
    (1, "matchLabels", TextMap),
    (
        2,
        "matchExpressions",
        Messages(&[
            (1, "key", Text),
            (2, "operator", Text),
            (3, "values", Texts),
        ]),
    ),
];
const CONTAINER: &[Field] = &[
    (1, "name", Text),
    (2, "image", Text),
    (3, "command", Texts),
    (4, "args", Texts),
    (5, "workingDir", Text),
    (
        6,
        "ports",
        Messages(&[
            (1, "name", Text),
            (2, "hostPort", Int),
            (3, "containerPort", Int),
            (4, "protocol", Text),
            (5, "hostIP", Text),
        ]),
    ),
    (7, "env", Messages(&[(1, "name", Text), (2, "value", Text)])),
    (
        8,
        "resources",
        Message(&[(1, "limits", Amounts), (2, "requests", Amounts)]),
    ),
    (13, "terminationMessagePath", Text),
    (14, "imagePullPolicy", Text),
    (16, "stdin", Flag),
    (17, "stdinOnce", Flag),
    (18, "tty", Flag),
    (20, "terminationMessagePolicy", Text),
];
const POD_SPEC: &[Field] = &[
    (2, "containers", Messages(CONTAINER)),
    (3, "restartPolicy", Text),
    (4, "terminationGracePeriodSeconds", IntPtr),
    (5, "activeDeadlineSeconds", IntPtr),
    (6, "dnsPolicy", Text),
    (7, "nodeSelector", TextMap),
    (8, "serviceAccountName", Text),
    (9, "serviceAccount", Text),
    (10, "nodeName", Text),
    (11, "hostNetwork", Flag),
    (12, "hostPID", Flag),
    (13, "hostIPC", Flag),
    (16, "hostname", Text),
    (17, "subdomain", Text),
    (19, "schedulerName", Text),
    (20, "initContainers", Messages(CONTAINER)),
    (24, "priorityClassName", Text),
    (25, "priority", IntPtr),
];
const TEMPLATE: &[Field] = &[
    (1, "metadata", Message(META)),
    (2, "spec", Message(POD_SPEC)),
];
const RULES: &[Field] = &[
    (1, "verbs", Texts),
    (2, "apiGroups", Texts),
    (3, "resources", Texts),
    (4, "resourceNames", Texts),
    (5, "nonResourceURLs", Texts),
];
const BINDING: &[Field] = &[
    (1, "metadata", Message(META)),
    (
        2,
        "subjects",
        Messages(&[
            (1, "kind", Text),
            (2, "apiGroup", Text),
            (3, "name", Text),
            (4, "namespace", Text),
        ]),
    ),
    (
        3,
        "roleRef",
        Message(&[(1, "apiGroup", Text), (2, "kind", Text), (3, "name", Text)]),
    ),
];

/// The fields of a kind.
pub(super) fn schema(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("apps/v1", "Deployment") => &[
            (1, "metadata", Message(META)),
            (
                2,
                "spec",
                Message(&[
                    (1, "replicas", IntPtr),
                    (2, "selector", Message(SELECTOR)),
                    (3, "template", Message(TEMPLATE)),
                    (4, "strategy", Message(&[(1, "type", Text)])),
                    (5, "minReadySeconds", Int),
                    (6, "revisionHistoryLimit", IntPtr),
                    (7, "paused", Flag),
                    (9, "progressDeadlineSeconds", IntPtr),
                ]),
            ),
            (3, "status", Skip),
        ],
        ("batch/v1", "Job") => &[
            (1, "metadata", Message(META)),
            (
                2,
                "spec",
                Message(&[
                    (1, "parallelism", IntPtr),
                    (2, "completions", IntPtr),
                    (3, "activeDeadlineSeconds", IntPtr),
                    (4, "selector", Message(SELECTOR)),
                    (5, "manualSelector", Bool),
                    (6, "template", Message(TEMPLATE)),
                    (7, "backoffLimit", IntPtr),
                    (8, "ttlSecondsAfterFinished", IntPtr),
                    (9, "completionMode", Text),
                    (10, "suspend", Bool),
                ]),
            ),
            (3, "status", Skip),
        ],
        ("v1", "ConfigMap") => &[
            (1, "metadata", Message(META)),
            (2, "data", TextMap),
            (4, "immutable", Bool),
        ],
        ("v1", "ServiceAccount") => &[(1, "metadata", Message(META))],
        ("scheduling.k8s.io/v1", "PriorityClass") => &[
            (1, "metadata", Message(META)),
            (2, "value", Int),
            (3, "globalDefault", Flag),
            (4, "description", Text),
            (5, "preemptionPolicy", Text),
        ],
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => &[
            (1, "metadata", Message(META)),
            (2, "rules", Messages(RULES)),
        ],
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => BINDING,
        _ => return None,
    })
}
