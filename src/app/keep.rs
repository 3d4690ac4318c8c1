//! Where the state of sessions is kept.

use std::path::PathBuf;

use etcetera::BaseStrategy;

/// The file, if the system tells a folder for it.
pub fn file() -> Option<PathBuf> {
    let base = etcetera::choose_base_strategy().ok()?;
    let folder = base.state_dir().unwrap_or_else(|| base.data_dir());
    Some(folder.join("gpudeck").join("session.json"))
}
