//! The path by which another process asks for faults, with the administrator's credentials.

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::Fault;
use crate::sandbox::status::ApiError;
use crate::sandbox::{Inner, User, body};

/// GET lists the faults in force, POST of a [`Fault`] adds one, DELETE ends all.
pub const CONTROL_PATH: &str = "/sandbox.gpudeck.dev/faults";

/// An answer: HTTP status and JSON.
pub(in crate::sandbox) type Told = (u16, serde_json::Value);

impl Inner {
    /// Answers a request on [`CONTROL_PATH`].
    pub(in crate::sandbox) fn control_faults(
        &self,
        user: &User,
        method: &Method,
        sent: &Bytes,
    ) -> Result<Told, ApiError> {
        if !user.is_master() {
            return Err(ApiError::bad_request(format!(
                "only the administrator may ask for faults, not {:?}; use the kubeconfig that `gpudeck sandbox` wrote",
                crate::sandbox::status::clip(&user.name)
            )));
        }
        match *method {
            Method::GET => Ok((200, json!({"faults": self.faults.active()}))),
            Method::DELETE => Ok((200, json!({"cleared": self.faults.clear()}))),
            Method::POST => {
                let value = body::json(sent)
                    .map_err(|why| ApiError::bad_request(format!("the fault is no JSON: {why}")))?;
                let fault: Fault = serde_json::from_value(value)
                    .map_err(|why| ApiError::bad_request(format!("the fault: {why}")))?;
                let number = self
                    .inject(fault)
                    .map_err(|why| ApiError::bad_request(format!("the fault: {why}")))?;
                Ok((201, json!({"number": number})))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}
