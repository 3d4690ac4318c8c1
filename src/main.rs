//! The `gpudeck` binary: everything is in the library.

use std::process::ExitCode;

/// The server of `gpudeck demo` and the decoder of a watch allocate many small pieces on several
/// threads, for which the system's allocator costs twice the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Reports of panics name file and line; ordinary errors are one sentence.
    if let Err(e) = color_eyre::config::HookBuilder::default()
        .display_env_section(false)
        .install()
    {
        return fail(&e);
    }
    match gpudeck::app::run() {
        Ok(()) => ExitCode::SUCCESS,
        // `gpudeck snapshot | head`: who reads has had enough.
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => fail(&e),
    }
}

/// Whether the reader of standard output has left.
fn is_broken_pipe(error: &color_eyre::Report) -> bool {
    let io = error.root_cause().downcast_ref::<std::io::Error>();
    io.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints the sentence and what led to it.
fn fail(error: &color_eyre::Report) -> ExitCode {
    let mut text = String::new();
    for (i, cause) in error.chain().enumerate() {
        let cause = cause.to_string();
        // Our own errors name their cause in their sentence; it is not said twice.
        if i == 0 || !text.contains(&cause) {
            text.push_str(if i == 0 { "gpudeck: " } else { ": " });
            text.push_str(&cause);
        }
    }
    text.push('\n');
    // Nothing can be done about a closed standard error.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
    ExitCode::FAILURE
}
