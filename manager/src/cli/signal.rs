//! Signals that ask the command line to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Returns at the first SIGINT, SIGTERM or SIGHUP from now on. Cancel safe; a signal that cannot be
/// listened to is simply never seen.
pub(crate) async fn interrupted() {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}
