//! Users with less than everything, for trying what the console shows them: their RBAC objects,
//! tokens and kubeconfigs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::resources::tables;
use super::{ApiServer, SandboxError, User};

const RBAC: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
/// Namespaces that no team works in.
const SYSTEM: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// What someone who runs the cluster may do: read all, and act on nodes, pods and jobs.
fn operator_rules() -> Value {
    json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": READ},
        {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "patch", "update"]},
        {"apiGroups": [""], "verbs": ["create"],
         "resources": ["pods/binding", "pods/eviction", "pods/exec", "events", "configmaps"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["batch", "apps"], "resources": ["*"],
         "verbs": ["create", "delete", "patch", "update"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"],
         "verbs": ["create", "delete", "patch", "update"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
         "verbs": ["create", "delete", "patch", "update"]},
    ])
}

/// What someone who only looks may read: everything the console shows, and no secret.
fn viewer_rules() -> Value {
    json!([
        {"apiGroups": [""], "verbs": READ,
         "resources": ["nodes", "namespaces", "pods", "pods/log", "events", "configmaps",
            "services", "resourcequotas", "limitranges"]},
        {"apiGroups": ["apps", "batch", "policy", "scheduling.k8s.io", "resource.k8s.io",
            "coordination.k8s.io", "events.k8s.io", "apiextensions.k8s.io", "kueue.x-k8s.io",
            "nvidia.com"],
         "resources": ["*"], "verbs": READ},
    ])
}

impl ApiServer {
    /// Makes `operator`, `team-lead` (one namespace: the first that is a team's, else `default`)
    /// and `viewer`, and writes a kubeconfig of each beside `main`: `MAIN.operator` and so on.
    pub fn write_people(
        &self,
        main: &Path,
        addr: SocketAddr,
    ) -> Result<Vec<PathBuf>, SandboxError> {
        let inner = &self.inner;
        let role = |name: &str, rules: Value| {
            let object = json!({"metadata": {"name": name}, "rules": rules});
            inner.put_new(RBAC, "clusterroles", "", name, object);
        };
        role("gpudeck-operator", operator_rules());
        role("gpudeck-viewer", viewer_rules());
        let binding = |namespace: &str, user: &str, role: &str| {
            let name = format!("gpudeck-{user}");
            let mut object = json!({
                "metadata": {"name": name},
                "subjects": [{"kind": "User", "apiGroup": RBAC, "name": user}],
                "roleRef": {"kind": "ClusterRole", "apiGroup": RBAC, "name": role},
            });
            let plural = if namespace.is_empty() {
                "clusterrolebindings"
            } else {
                if let Some(meta) = super::meta::of(&mut object) {
                    meta.insert("namespace".into(), namespace.into());
                }
                "rolebindings"
            };
            inner.put_new(RBAC, plural, namespace, &name, object);
        };
        binding("", "operator", "gpudeck-operator");
        binding("", "viewer", "gpudeck-viewer");
        binding(&self.team_namespace(), "team-lead", "edit");

        let mut written = Vec::new();
        for user in ["operator", "team-lead", "viewer"] {
            let token = super::access::random_token();
            self.register_token(token.as_str(), User::new(user, &[]));
            let mut name = main.as_os_str().to_owned();
            name.push(format!(".{user}"));
            let path = PathBuf::from(name);
            self.write_kubeconfig_for(&path, addr, user, &token)?;
            written.push(path);
        }
        Ok(written)
    }

    fn team_namespace(&self) -> String {
        let all = self.inner.store.all(tables::NAMESPACES, "");
        let names = all.iter().map(|namespace| namespace.name());
        let mut teams = names.filter(|name| !SYSTEM.contains(name) && *name != "default");
        teams.next().unwrap_or("default").to_owned()
    }
}
