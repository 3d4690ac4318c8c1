//! pods/proxy: what a pod's port answers, by functions that are registered for it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::object::text;
use super::serve::{Answer, Call};
use super::status::ApiError;
use super::{ApiServer, Inner};

/// What a port answers to a GET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortAnswer {
    /// HTTP status.
    pub code: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// Answers GETs on a pod's port; the argument is the path behind `proxy`, as `/metrics`.
pub type Responder = Arc<dyn Fn(&str) -> PortAnswer + Send + Sync>;

/// Responders by namespace, pod and port.
#[derive(Default)]
pub(super) struct Ports(RwLock<HashMap<(String, String, u16), Responder>>);

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ports")
    }
}

impl ApiServer {
    /// Lets `responder` answer `pods/NAME:PORT/proxy` of a pod, in place of an earlier one.
    pub fn serve_port(&self, namespace: &str, pod: &str, port: u16, responder: Responder) {
        let mut ports = self
            .inner
            .ports
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        ports.insert((namespace.to_owned(), pod.to_owned(), port), responder);
    }

    /// Takes a pod's port away again.
    pub fn close_port(&self, namespace: &str, pod: &str, port: u16) {
        let mut ports = self
            .inner
            .ports
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        ports.remove(&(namespace.to_owned(), pod.to_owned(), port));
    }
}

impl Inner {
    /// Passes a GET on to a pod's port.
    pub(super) fn proxy(&self, call: &Call) -> Result<Answer, ApiError> {
        // [SCHEME:]NAME[:PORT]
        let parts: Vec<&str> = call.path.name.split(':').collect();
        let (name, port) = match parts.as_slice() {
            [name] => (*name, ""),
            [name, port] | [_, name, port] => (*name, *port),
            _ => {
                return Err(ApiError::bad_request(format!(
                    "invalid pod request {:?}",
                    super::status::clip(&call.path.name)
                )));
            }
        };
        let key = call.res.key(&call.path.namespace, name);
        let stored = self
            .store
            .get(&call.res.table, &key)
            .ok_or_else(|| ApiError::not_found(&call.res, name))?;
        let pod = stored.value();
        let address = text(&pod, "/status/podIP").to_owned();
        if address.is_empty() {
            return Err(ApiError::bad_request("address not allowed"));
        }
        let port = if port.is_empty() { "80" } else { port };
        let number = port.parse::<u16>().ok();
        let responder = number.and_then(|number| {
            let ports = self.ports.0.read().unwrap_or_else(PoisonError::into_inner);
            let at = (call.path.namespace.clone(), name.to_owned(), number);
            ports.get(&at).cloned()
        });
        let Some(responder) = responder else {
            return Err(ApiError::service_unavailable(format!(
                "error trying to reach service: dial tcp {address}:{port}: connect: connection refused"
            )));
        };
        Ok(Answer::Port(responder(&format!("/{}", call.path.rest))))
    }
}
