//! Between one program and its Redis: counts every call by its name, and at one chosen call, before it is sent or after
//! it was done, kills the program or cuts the line. No code of the product knows of it.

use crate::process;
use crate::resp::{self, Command};
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Before the server gets the call, or after it has done it and before its answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    Before,
    After,
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// kill −9.
    Kill,
    /// The connection is reset; the program lives.
    Cut,
    /// The call waits until a process is aimed at, and is made then.
    Hold,
}

/// A named point: the n-th call (from 1) of that name, a script's or a command's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub call: String,
    pub nth: usize,
    pub when: When,
    pub blow: Blow,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?} {}#{}", self.blow, self.when, self.call, self.nth)
    }
}

#[derive(Default)]
struct State {
    counts: BTreeMap<String, usize>,
    armed: Option<Point>,
    fired: bool,
    /// Scripts with their arguments, when they are asked for.
    record: Option<Vec<(String, Vec<Vec<u8>>)>>,
}

struct Inner {
    upstream: u16,
    scripts: BTreeMap<String, &'static str>,
    state: Mutex<State>,
    /// Whom a blow hits.
    victim: watch::Sender<u32>,
    /// Raised by a kill: every connection of the dead ends.
    deaths: watch::Sender<u64>,
}

/// The turnstile; it ends when it is dropped.
pub struct Turnstile {
    port: u16,
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

impl Turnstile {
    /// Listens on a free port and passes everything on to `upstream` on loopback.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(upstream: u16) -> Result<Self> {
        let port = process::free_port()?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("the turnstile's port")?;
        let inner = Arc::new(Inner {
            upstream,
            scripts: shared::store::script_names(),
            state: Mutex::default(),
            victim: watch::Sender::new(0),
            deaths: watch::Sender::new(0),
        });
        let accepting = Arc::clone(&inner);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let inner = Arc::clone(&accepting);
                // A line that breaks is what this is for.
                tokio::spawn(async move { inner.connection(client).await.ok() });
            }
        });
        Ok(Self { port, inner, task })
    }

    /// `redis://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Counts from zero again, and strikes at this point, once.
    pub fn arm(&self, point: Option<Point>) {
        *self.inner.state() = State { armed: point, ..State::default() };
        self.inner.victim.send_replace(0);
    }

    /// The process that a blow hits; calls wait until it is said.
    pub fn aim(&self, pid: u32) {
        self.inner.victim.send_replace(pid);
    }

    /// Keeps the arguments of every script from here on.
    pub fn record(&self) {
        self.inner.state().record = Some(vec![]);
    }

    /// What was kept.
    #[must_use]
    pub fn recorded(&self) -> Vec<(String, Vec<Vec<u8>>)> {
        self.inner.state().record.take().unwrap_or_default()
    }

    /// Calls since the last [`Turnstile::arm`], by name.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, usize> {
        self.inner.state().counts.clone()
    }

    /// Whether the point was reached.
    #[must_use]
    pub fn fired(&self) -> bool {
        self.inner.state().fired
    }
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name_of(&self, command: &Command) -> String {
        let word = |n: usize| {
            command.words.get(n).map(|w| String::from_utf8_lossy(w).into_owned()).unwrap_or_default()
        };
        let verb = word(0).to_uppercase();
        let hash = match verb.as_str() {
            "EVALSHA" => word(1),
            "EVAL" => redis::Script::new(&word(1)).get_hash().to_owned(),
            _ => return verb,
        };
        self.scripts.get(&hash).map_or(verb, |name| (*name).to_owned())
    }

    /// Counts the call; the blow, if this is the point.
    fn passes(&self, name: &str, command: &Command) -> Option<(When, Blow)> {
        let mut state = self.state();
        if let Some(record) = state.record.as_mut()
            && self.scripts.values().any(|s| *s == name)
        {
            // Hash or source, number of keys, the key.
            record.push((name.to_owned(), command.words.iter().skip(4).cloned().collect()));
        }
        let count = state.counts.entry(name.to_owned()).or_default();
        *count += 1;
        let nth = *count;
        let point = state.armed.take_if(|p| p.call == name && p.nth == nth)?;
        state.fired = true;
        Some((point.when, point.blow))
    }

    /// Whether the line is still there afterwards.
    async fn strike(&self, blow: Blow) -> Result<bool> {
        if blow == Blow::Cut {
            return Ok(false);
        }
        let pid = *self.victim.subscribe().wait_for(|pid| *pid != 0).await?;
        if blow == Blow::Hold {
            return Ok(true);
        }
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
        self.deaths.send_modify(|n| *n += 1);
        Ok(false)
    }

    async fn connection(&self, client: TcpStream) -> Result<()> {
        let mut deaths = self.deaths.subscribe();
        let server = TcpStream::connect(("127.0.0.1", self.upstream)).await?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        client.set_zero_linger()?;
        let (client_read, mut client_write) = client.into_split();
        let (server_read, mut server_write) = server.into_split();
        let (mut client_read, mut server_read) = (BufReader::new(client_read), BufReader::new(server_read));
        loop {
            let command = tokio::select! {
                command = resp::command(&mut client_read) => command?,
                _ = deaths.changed() => return Ok(()),
            };
            let Some(command) = command else { return Ok(()) };
            let blow = self.passes(&self.name_of(&command), &command);
            if let Some((When::Before, blow)) = blow
                && !self.strike(blow).await?
            {
                return Ok(());
            }
            server_write.write_all(&command.raw).await?;
            // One call after the other; whoever hangs up while he waits leaves no call behind that swallows something.
            let reply = tokio::select! {
                reply = resp::reply(&mut server_read) => reply?,
                () = hung_up(&mut client_read) => return Ok(()),
                _ = deaths.changed() => return Ok(()),
            };
            let Some(reply) = reply else { return Ok(()) };
            if let Some((When::After, blow)) = blow
                && !self.strike(blow).await?
            {
                return Ok(());
            }
            client_write.write_all(&reply).await?;
        }
    }
}

/// Completes when the client has closed; what it sends meanwhile stays in the buffer.
async fn hung_up(client: &mut BufReader<tokio::net::tcp::OwnedReadHalf>) {
    match client.fill_buf().await {
        Ok([]) | Err(_) => {}
        Ok(_) => std::future::pending().await,
    }
}
