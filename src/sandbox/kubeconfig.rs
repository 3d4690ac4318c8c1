//! The kubeconfig of a listening embedded cluster.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::SandboxError;

/// The name of cluster, user and context.
pub const CONTEXT: &str = "gpudeck-sandbox";

/// The kubeconfig as JSON, which every YAML reader takes.
pub(super) fn contents(server: &str, ca_pem: &str, user: &str, token: &str) -> Value {
    let ca = ByteString(ca_pem.as_bytes().to_vec());
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {
            "server": server, "certificate-authority-data": ca}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
        "current-context": CONTEXT,
    })
}

/// Writes `config` in one step, readable by the owner alone: a reader sees all of it or no file.
pub(super) fn write(path: &Path, config: &Value) -> Result<(), SandboxError> {
    let fail = |source| SandboxError::Write {
        path: path.to_owned(),
        source,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let text = serde_saphyr::to_string(config).unwrap_or_else(|_| config.to_string());
    // What an earlier process of this id may have left behind.
    let _ = fs::remove_file(&temporary);
    let written = options
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        fail(source)
    })
}
