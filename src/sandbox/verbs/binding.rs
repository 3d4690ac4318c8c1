//! pods/binding: what a scheduler writes.

use serde_json::{Map, Value, json};

use crate::sandbox::object;
use crate::sandbox::serve::{Answer, Call};
use crate::sandbox::status::{self, ApiError, Cause, clip};
use crate::sandbox::store::Refused;
use crate::sandbox::{Inner, meta, pods};

use super::{TRIES, refused};

impl Inner {
    /// Binds the addressed pod to the node that the posted Binding names.
    pub(in crate::sandbox) fn bind(&self, call: &Call) -> Result<Answer, ApiError> {
        let dry = call.dry_run("CreateOptions")?;
        let binding = call.json()?;
        meta::check_shape(&call.res, &binding)?;
        let name = call.path.name.as_str();
        if object::text(&binding, "/metadata/name") != name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let kind = object::text(&binding, "/target/kind");
        let node = object::text(&binding, "/target/name");
        let mut causes = Vec::new();
        if !kind.is_empty() && kind != "Node" {
            causes.push(Cause {
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: {:?}: supported values: \"Node\", \"<empty>\"",
                    clip(kind)
                ),
                field: "target.kind".into(),
            });
        }
        if node.is_empty() {
            causes.push(Cause::required("target.name", ""));
        } else if !meta::is_subdomain(node) {
            causes.push(Cause::invalid(
                "target.name",
                &node.into(),
                meta::SUBDOMAIN_RULE,
            ));
        }
        if !causes.is_empty() {
            // The real server loses the class of this error: a 500 with the bare causes.
            let text: Vec<String> = causes
                .iter()
                .map(|c| format!("{}: {}", c.field, c.message))
                .collect();
            return Err(ApiError::unclassified(text.join(", ")));
        }

        for _ in 0..TRIES {
            let stored = self
                .store
                .get(&call.res.table, &call.key())
                .ok_or_else(|| ApiError::not_found(&call.res, name))?;
            let mut pod = stored.value();
            self.check_bindable(call, &binding, &pod, stored.rv)?;
            if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("nodeName".into(), node.into());
            }
            if let Some(meta) = meta::of(&mut pod) {
                for field in ["annotations", "labels"] {
                    merge_texts(meta, field, binding.pointer(&format!("/metadata/{field}")));
                }
            }
            let condition = json!({
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": null,
                "lastTransitionTime": self.options.clock.time(),
            });
            pods::set_condition(&mut pod, condition);
            if !dry {
                match self
                    .store
                    .replace(&call.res.table, &call.key(), stored.rv, &mut pod)
                {
                    Ok(_) => {}
                    Err(Refused::Changed) => continue,
                    Err(other) => return Err(refused(&call.res, name, &other)),
                }
            }
            return Ok(Answer::Value(
                201,
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
            ));
        }
        Err(ApiError::modified(&call.res, name))
    }

    fn check_bindable(
        &self,
        call: &Call,
        binding: &Value,
        pod: &Value,
        rv: u64,
    ) -> Result<(), ApiError> {
        let name = call.path.name.as_str();
        let conflict = |why: &str| {
            let mut error = ApiError::conflict(&call.res, name, why);
            // The real server names the subresource in this message and in the details.
            error.message =
                format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
            error.details = Some(json!({"name": name, "kind": "pods/binding"}));
            Err(error)
        };
        let uid = object::text(pod, "/metadata/uid");
        let wanted = object::text(binding, "/metadata/uid");
        if !wanted.is_empty() && wanted != uid {
            return Err(ApiError::conflict(
                &call.res,
                name,
                &status::wrong_uid(&call.res, &call.key(), wanted, uid),
            ));
        }
        let wanted = object::text(binding, "/metadata/resourceVersion");
        if !wanted.is_empty() && wanted != rv.to_string() {
            return conflict(&format!(
                "Precondition failed: ResourceVersion in precondition: {}, ResourceVersion in object meta: {rv}",
                clip(wanted)
            ));
        }
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            return conflict(&format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        let node = object::text(pod, "/spec/nodeName");
        if !node.is_empty() {
            return conflict(&format!(
                "pod {name} is already assigned to node \"{node}\""
            ));
        }
        if pods::is_gated(pod) {
            return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        Ok(())
    }
}

fn merge_texts(meta: &mut Map<String, Value>, field: &str, more: Option<&Value>) {
    let Some(more) = more.and_then(Value::as_object).filter(|m| !m.is_empty()) else {
        return;
    };
    let slot = meta
        .entry(field)
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(map) = slot.as_object_mut() {
        map.extend(
            more.iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    }
}
