//! A TCP proxy in front of Redis (or a model): passes, pauses, delays, cuts, resets, swallows replies.

use crate::process;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to bytes that pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    /// Bytes wait in both directions; connections stay open and are still accepted.
    Pause,
    /// Every chunk waits this long first.
    Delay(Duration),
    /// Open connections are reset, new ones as well.
    Reset,
    /// Bytes from both sides vanish; nobody is told. A firewall that drops.
    HalfOpen,
}

/// Requests whose reply is to be swallowed.
struct Trap {
    needle: Vec<u8>,
    left: usize,
}

struct Inner {
    mode: watch::Sender<Mode>,
    /// Raised to reset the connections that are open at that moment.
    generation: watch::Sender<u64>,
    trap: Mutex<Option<Trap>>,
    cut: AtomicUsize,
    accepted: AtomicUsize,
    upstream: Mutex<SocketAddr>,
}

/// The proxy; it ends when it is dropped.
pub struct Proxy {
    port: u16,
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port and passes everything on to `upstream_port` on loopback.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(upstream_port: u16) -> Result<Self> {
        let port = process::free_port()?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("the proxy's port")?;
        let inner = Arc::new(Inner {
            mode: watch::Sender::new(Mode::Pass),
            generation: watch::Sender::new(0),
            trap: Mutex::new(None),
            cut: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            upstream: Mutex::new(SocketAddr::from(([127, 0, 0, 1], upstream_port))),
        });
        let accepting = Arc::clone(&inner);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepting.accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(Arc::clone(&accepting).connection(client));
            }
        });
        Ok(Self { port, inner, task })
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:port`.
    #[must_use]
    pub fn redis_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Everything passes again.
    pub fn pass(&self) {
        self.inner.mode.send_replace(Mode::Pass);
    }

    /// Bytes wait until [`Proxy::pass`]; nothing is lost.
    pub fn pause(&self) {
        self.inner.mode.send_replace(Mode::Pause);
    }

    /// Every chunk waits first, in each direction.
    pub fn delay(&self, time: Duration) {
        self.inner.mode.send_replace(Mode::Delay(time));
    }

    /// Open connections are reset and new ones refused until [`Proxy::pass`].
    pub fn refuse(&self) {
        self.inner.mode.send_replace(Mode::Reset);
    }

    /// Bytes vanish without a word until [`Proxy::pass`]; connections of that time stay dead.
    pub fn half_open(&self) {
        self.inner.mode.send_replace(Mode::HalfOpen);
    }

    /// Resets the connections that are open now; new ones pass.
    pub fn reset_all(&self) {
        self.inner.generation.send_modify(|g| *g += 1);
    }

    /// New connections go to another server from now on; open ones stay where they are.
    pub fn retarget(&self, upstream_port: u16) {
        if let Ok(mut upstream) = self.inner.upstream.lock() {
            *upstream = SocketAddr::from(([127, 0, 0, 1], upstream_port));
        }
    }

    /// The next `times` requests that hold `needle` are executed by the server, their reply is thrown away and
    /// the connection is reset: the client cannot know what happened.
    pub fn cut_reply_of(&self, needle: &[u8], times: usize) {
        if let Ok(mut trap) = self.inner.trap.lock() {
            *trap = Some(Trap { needle: needle.to_vec(), left: times });
        }
    }

    /// How many replies were thrown away so far.
    #[must_use]
    pub fn cuts(&self) -> usize {
        self.inner.cut.load(Ordering::SeqCst)
    }

    /// How many connections came in so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.inner.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.inner.generation.send_modify(|g| *g += 1);
    }
}

impl Inner {
    async fn connection(self: Arc<Self>, client: TcpStream) {
        let _ = client.set_nodelay(true);
        if *self.mode.borrow() == Mode::Reset {
            reset(client);
            return;
        }
        let Some(upstream) = self.upstream.lock().ok().map(|u| *u) else { return };
        let Ok(server) = TcpStream::connect(upstream).await else {
            reset(client);
            return;
        };
        let _ = server.set_nodelay(true);
        // A reset must reach the client although both halves are owned elsewhere: linger 0 resets on any close.
        let _ = client.set_zero_linger();
        let (client_read, client_write) = client.into_split();
        let (server_read, server_write) = server.into_split();
        let caught = Arc::new(AtomicUsize::new(0));
        let mut generation = self.generation.subscribe();
        let mut mode = self.mode.subscribe();
        let up = self.up(client_read, server_write, &caught);
        let down = self.down(server_read, client_write, &caught);
        tokio::select! {
            () = up => {}
            () = down => {}
            _ = generation.changed() => {}
            _ = mode.wait_for(|m| *m == Mode::Reset) => {}
        }
    }

    /// Requests: looks for the trap's needle.
    async fn up(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, caught: &AtomicUsize) {
        let mut buffer = vec![0; 64 * 1024];
        let mut mode = self.mode.subscribe();
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let Some(bytes) = buffer.get(..n) else { return };
            if !self.gate(&mut mode).await {
                continue;
            }
            if self.trapped(bytes) {
                caught.fetch_add(1, Ordering::SeqCst);
            }
            if to.write_all(bytes).await.is_err() {
                return;
            }
        }
    }

    /// Replies: the first one after a trapped request ends the connection instead.
    async fn down(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, caught: &AtomicUsize) {
        let mut buffer = vec![0; 64 * 1024];
        let mut mode = self.mode.subscribe();
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let Some(bytes) = buffer.get(..n) else { return };
            if caught.load(Ordering::SeqCst) > 0 {
                self.cut.fetch_add(1, Ordering::SeqCst);
                return;
            }
            if !self.gate(&mut mode).await {
                continue;
            }
            if to.write_all(bytes).await.is_err() {
                return;
            }
        }
    }

    /// Waits as the mode says; false: the bytes vanish.
    async fn gate(&self, mode: &mut watch::Receiver<Mode>) -> bool {
        let now = *mode.borrow_and_update();
        match now {
            Mode::Pass => true,
            Mode::Pause => mode.wait_for(|m| *m != Mode::Pause).await.is_ok(),
            Mode::Delay(time) => {
                tokio::time::sleep(time).await;
                true
            }
            Mode::Reset | Mode::HalfOpen => false,
        }
    }

    fn trapped(&self, bytes: &[u8]) -> bool {
        let Ok(mut trap) = self.trap.lock() else { return false };
        let Some(set) = trap.as_mut() else { return false };
        if set.left == 0 || !bytes.windows(set.needle.len()).any(|w| w == set.needle) {
            return false;
        }
        set.left -= 1;
        true
    }
}

fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}
