//! What the program tells of itself while it works, on stderr.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging. `QO_LOG` says what is told, as in `debug` or `qo=debug,warn`.
pub fn start(default: &str, colour: bool) {
    let asked = std::env::var("QO_LOG").ok().filter(|asked| !asked.is_empty());
    let filter = asked.as_deref().map(EnvFilter::try_new);
    let mistake = filter.as_ref().and_then(|filter| filter.as_ref().err().map(ToString::to_string));
    let filter = filter.and_then(Result::ok).unwrap_or_else(|| EnvFilter::new(default));
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour && std::io::stderr().is_terminal())
        .with_target(false)
        // A line that cannot be written, because the disk is full or its reader is gone, is lost. To say so on the same
        // stderr would panic, in the middle of whatever the worker was about to do.
        .log_internal_errors(false);
    // There is one logger, and this is the one place that starts it.
    let _ = logging.try_init();
    if let Some(mistake) = mistake {
        tracing::warn!("QO_LOG is ignored: {mistake}");
    }
}
