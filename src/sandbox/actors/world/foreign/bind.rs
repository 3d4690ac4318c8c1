//! How pods are bound: whole groups, and parts of GPUs under KAI.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::json;

use super::binder::{Binder, System};
use super::kai_shares::{self, Room};
use super::placer::asks;
use super::standing::HeldBack;
use crate::sandbox::actors::bound::{pod_note, pod_path};
use crate::sandbox::actors::objects::{Custom, Pod};
use crate::sandbox::calls::{PatchKind, path};

impl Binder {
    /// Binds all of `pods` or none; says why none.
    pub(super) async fn bind_all(&mut self, pods: &[Arc<Pod>]) -> Option<HeldBack> {
        let kai = matches!(self.system, System::Kai(_));
        if let ([pod], true) = (pods, kai)
            && let Some(part) = kai_shares::fraction(pod)
        {
            return self.bind_part(pod, part).await;
        }
        let nodes = match self.placer.place(pods) {
            Ok(nodes) => nodes,
            Err(reasons) => {
                let nodes = self.placer.nodes();
                return Some(HeldBack::NoRoom { nodes, reasons });
            }
        };
        for (pod, node) in pods.iter().zip(nodes) {
            self.bind(pod, &node, None).await;
        }
        None
    }

    /// Binds one pod; under KAI with its BindRequest.
    async fn bind(&mut self, pod: &Arc<Pod>, node: &str, share: Option<&str>) {
        let meta = &pod.metadata;
        if matches!(self.system, System::Kai(_)) {
            self.request_bind(pod, node, share).await;
        }
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let at = format!("{}/binding", pod_path(pod));
        if let Err(error) = self.calls.post::<IgnoredAny>(&at, &binding).await {
            tracing::debug!(%error, "pod not bound");
            return;
        }
        self.placer.hold(&meta.uid, node, asks(pod));
        let message = format!(
            "Successfully assigned {}/{} to {node}",
            meta.namespace, meta.name
        );
        pod_note(pod, self.system.name(), (false, "Scheduled"), message)
            .write(&self.calls)
            .await;
    }

    /// Writes what KAI's scheduler asks of its binder, and that it was done.
    async fn request_bind(&self, pod: &Pod, node: &str, share: Option<&str>) {
        let namespace = &pod.metadata.namespace;
        let collection =
            format!("/apis/scheduling.run.ai/v1alpha2/namespaces/{namespace}/bindrequests");
        let request = kai_shares::bind_request(pod, node, share);
        let done = json!({"status": {"phase": "Succeeded"}});
        let status = format!("{collection}/{}/status", pod.metadata.name);
        let mut written = self.calls.ensure(&collection, &request).await.map(|_| ());
        if written.is_ok() {
            let patched = self
                .calls
                .patch::<IgnoredAny>(&status, PatchKind::Merge, &done)
                .await;
            written = patched.map(|_| ());
        }
        if let Err(error) = written {
            tracing::debug!(%error, "bind request not written");
        }
    }

    /// Binds a pod to a part of a GPU, which is reserved first where none is shared.
    async fn bind_part(&mut self, pod: &Arc<Pod>, part: i128) -> Option<HeldBack> {
        let room = match self.shares.find(pod, part, &self.placer) {
            Ok(room) => room,
            Err(reasons) => {
                let nodes = self.placer.nodes();
                return Some(HeldBack::NoRoom { nodes, reasons });
            }
        };
        let (group, node) = match room {
            Room::Shared(group, node) => (group, node),
            Room::Fresh(node) => {
                let group = kai_shares::new_group(pod);
                let object = kai_shares::reservation(&group, &node);
                let collection = path::pods(kai_shares::NAMESPACE);
                match self.calls.post::<Custom>(&collection, &object).await {
                    Ok(made) => {
                        let meta = &made.metadata;
                        self.shares.reserve(&group, &node, &meta.name, &meta.uid);
                        let gpu = [("nvidia.com/gpu".to_owned(), 1_000)];
                        self.placer.hold(&meta.uid, &node, gpu.into());
                    }
                    Err(error) => {
                        tracing::debug!(%error, "GPU not reserved");
                        return None;
                    }
                }
                (group, node)
            }
        };
        let patch = json!({"metadata": {
            "uid": pod.metadata.uid,
            "labels": {kai_shares::GROUP_LABEL: group},
            "annotations": {"received-resource-type": "Fraction"},
        }});
        let at = pod_path(pod);
        if let Err(error) = self
            .calls
            .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
            .await
        {
            tracing::debug!(%error, "pod not put onto its GPU");
            return None;
        }
        self.shares.take(&group, &pod.metadata.uid, part);
        self.bind(pod, &node, Some(&group)).await;
        None
    }

    /// Reservations that nobody needs any more go.
    pub(super) async fn free_shares(&self) {
        for (name, uid) in self.shares.idle() {
            let at = format!("{}/{name}", path::pods(kai_shares::NAMESPACE));
            if let Err(error) = self.calls.delete(&at, &uid, Some(0)).await {
                tracing::debug!(%error, "reservation not given back");
            }
        }
    }
}
