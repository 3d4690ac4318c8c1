//! The log file; the screen belongs to the console.

use std::fs::OpenOptions;
use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

/// Why the log that was asked for cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("GPUDECK_LOG_FILE {}: {source}", .file.display())]
pub struct LogError {
    file: PathBuf,
    source: std::io::Error,
}

/// Starts a log if `GPUDECK_LOG_FILE` names a file; `GPUDECK_LOG` filters it (default `info`).
///
/// # Errors
/// The file cannot be opened.
pub fn start() -> Result<(), LogError> {
    let Some(file) = std::env::var_os("GPUDECK_LOG_FILE").map(PathBuf::from) else {
        return Ok(());
    };
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    let out = opened.map_err(|source| LogError { file, source })?;
    let filter = EnvFilter::try_from_env("GPUDECK_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(out);
    // Somebody has set a subscriber already: then that one logs.
    let _ = subscriber.try_init();
    Ok(())
}
