//! The thread that starts sandboxes. `--die-with-parent` ties a sandbox to the *thread* that forked it, and
//! an async runtime's threads come and go: this one lives as long as the process.

use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

/// Orders that wait for the thread; more wait before their own.
const WAITING_MAX: usize = 64;

struct Order {
    command: Command,
    /// The runtime that will wait for the child.
    runtime: Handle,
    answer: mpsc::SyncSender<std::io::Result<Child>>,
}

/// Starts the command from the launcher's thread; blocks for the fork, about a millisecond.
pub(super) fn spawn(command: Command) -> std::io::Result<Child> {
    static ORDERS: OnceLock<Mutex<mpsc::SyncSender<Order>>> = OnceLock::new();
    let runtime = Handle::try_current().map_err(std::io::Error::other)?;
    let orders = ORDERS.get_or_init(|| {
        let (orders, to_do) = mpsc::sync_channel::<Order>(WAITING_MAX);
        let started = std::thread::Builder::new().name("sandbox-launcher".into()).spawn(move || {
            for Order { mut command, runtime, answer } in to_do {
                let _inside = runtime.enter();
                let _ = answer.send(command.spawn());
            }
        });
        // Without the thread its end of the channel is gone, and every order is refused below.
        if let Err(error) = started {
            tracing::error!(%error, "sandbox launcher does not start");
        }
        Mutex::new(orders)
    });
    let gone = || std::io::Error::other("the launcher's thread is gone");
    let (answer, answered) = mpsc::sync_channel(1);
    orders
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send(Order { command, runtime, answer })
        .map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}
