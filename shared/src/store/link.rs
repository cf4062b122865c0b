//! Connections to Redis: how one is made, when it is thrown away, which errors mean what.
//!
//! redis-rs alone does not drop a connection whose server became read-only, and answers after 500 ms with a
//! time-out by default: both are set right here. A time-out means "outcome unknown": the same call is made
//! again, and the scripts answer DUP where it had been done.

use super::{Result, StoreError};
use crate::config;
use crate::telemetry::metrics::{self, Redis as Event};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, IntoConnectionInfo, ServerErrorKind, Value};
use secrecy::ExposeSecret;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Tries of one call before it is given back as unavailable; the waits between them are doubled.
const TRIES: u32 = 4;
/// Connections that one dial may make in turn: sentinels, the master, its role.
const DIAL_STEPS: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// What an error asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Throw the connection away and try again.
    Reconnect,
    /// Wait and try again on the same connection.
    Wait,
    /// The script is not cached there.
    Load,
    OutOfMemory,
    Refused,
    Broken,
}

/// Which of these an error is.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enums grow; what is not known is not retried"
)]
pub(super) fn class(e: &redis::RedisError) -> Ask {
    let code = e.code().unwrap_or_default();
    if code == "OOM" || e.to_string().contains("OOM command not allowed") {
        return Ask::OutOfMemory;
    }
    // A script on a slot that moves just now, or on a cluster that elects: it was refused before it wrote (see scripts.rs).
    let text = e.to_string();
    if text.contains("non local key in a cluster node") || text.contains("cluster is down") {
        return Ask::Wait;
    }
    match e.kind() {
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::MasterNameNotFoundBySentinel => {
            Ask::Reconnect
        }
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => Ask::Refused,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown | ServerErrorKind::ReadOnly => {
                Ask::Reconnect
            }
            ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask => Ask::Wait,
            ServerErrorKind::NoScript => Ask::Load,
            ServerErrorKind::NoPerm => Ask::Refused,
            _ => Ask::Broken,
        },
        _ if e.is_unrecoverable_error() || e.is_connection_dropped() || e.is_timeout() => Ask::Reconnect,
        _ => match code {
            "UNBLOCKED" | "LOADING" | "READONLY" | "MASTERDOWN" => Ask::Reconnect,
            "NOREPLICAS" | "MISCONF" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" => Ask::Wait,
            "NOAUTH" | "WRONGPASS" | "NOPERM" => Ask::Refused,
            _ => Ask::Broken,
        },
    }
}

#[derive(Clone)]
pub(super) enum Conn {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Conn {
    pub(super) async fn run(&mut self, cmd: &Cmd) -> redis::RedisResult<Value> {
        match self {
            Self::One(c) => c.req_packed_command(cmd).await.and_then(Value::extract_error),
            Self::Cluster(c) => c.req_packed_command(cmd).await.and_then(Value::extract_error),
        }
    }
}

enum Target {
    Single(redis::Client),
    Sentinel(SentinelTarget),
    Cluster { nodes: Vec<String>, username: Option<String>, password: Option<String> },
}

/// What is known of a master behind sentinels.
struct SentinelTarget {
    sentinels: Vec<redis::ConnectionAddr>,
    master: String,
    db: Option<i64>,
    tls: bool,
    username: Option<String>,
    password: Option<String>,
}

impl SentinelTarget {
    /// A client that has asked nobody yet. One for each connection, so that a dial that was given up leaves nothing behind.
    fn client(&self) -> redis::RedisResult<SentinelClient> {
        let (sentinels, master) = (self.sentinels.clone(), self.master.clone());
        let mut builder = SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?;
        if let Some(db) = self.db {
            builder = builder.set_client_to_redis_db(db);
        }
        if self.tls {
            builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
        }
        if let Some(user) = &self.username {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password);
        }
        builder.build()
    }
}

/// Makes connections to the server that the configuration names.
pub(super) struct Dialer {
    target: Target,
    connect_timeout: Duration,
}

impl Dialer {
    pub(super) fn new(config: &config::Redis) -> Result<Self> {
        let refused = |e: redis::RedisError| StoreError::Refused(format!("redis.url: {e}"));
        let secret = config.password.expose_secret();
        let url = config.url.as_str();
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let target = match scheme {
            "redis-sentinel" | "rediss-sentinel" => {
                let (auth, hosts) = split_auth(rest)?;
                let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
                let mut path = path.split('/');
                let master = path.next().filter(|m| !m.is_empty()).unwrap_or("mymaster");
                let sentinels = hosts
                    .split(',')
                    .map(|h| format!("redis://{h}").into_connection_info().map(|i| i.addr().clone()))
                    .collect::<redis::RedisResult<Vec<_>>>()
                    .map_err(refused)?;
                let password = if secret.is_empty() { auth.1 } else { Some(secret.to_owned()) };
                let target = SentinelTarget {
                    sentinels,
                    master: master.to_owned(),
                    db: path.next().and_then(|d| d.parse().ok()),
                    tls: scheme.starts_with("rediss"),
                    username: auth.0,
                    password,
                };
                target.client().map_err(refused)?;
                Target::Sentinel(target)
            }
            "redis-cluster" | "rediss-cluster" => {
                let (auth, hosts) = split_auth(rest)?;
                let plain = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
                let nodes =
                    hosts.trim_end_matches('/').split(',').map(|h| format!("{plain}://{h}")).collect();
                let password = if secret.is_empty() { auth.1 } else { Some(secret.to_owned()) };
                Target::Cluster { nodes, username: auth.0, password }
            }
            _ => {
                let mut info = url.into_connection_info().map_err(refused)?;
                if !secret.is_empty() {
                    let settings = info.redis_settings().clone().set_password(secret);
                    info = info.set_redis_settings(settings);
                }
                Target::Single(redis::Client::open(info).map_err(refused)?)
            }
        };
        Ok(Self { target, connect_timeout: Duration::from_millis(config.connect_timeout_ms) })
    }

    /// Whether it is a Cluster, whose slots may move.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster { .. })
    }

    /// A new connection whose replies may take `response`. Bounded as a whole: it is several connections in
    /// turn behind a sentinel or a cluster.
    pub(super) async fn dial(&self, response: Duration) -> redis::RedisResult<Conn> {
        let limit = self.connect_timeout * DIAL_STEPS;
        tokio::time::timeout(limit, self.dial_once(response))
            .await
            .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }

    async fn dial_once(&self, response: Duration) -> redis::RedisResult<Conn> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(response));
        match &self.target {
            Target::Single(client) => {
                Ok(Conn::One(client.get_multiplexed_async_connection_with_config(&config).await?))
            }
            Target::Sentinel(client) => {
                Ok(Conn::One(client.client()?.get_async_connection_with_config(&config).await?))
            }
            Target::Cluster { nodes, username, password } => {
                let mut builder = ClusterClient::builder(nodes.clone())
                    .connection_timeout(self.connect_timeout)
                    .response_timeout(response);
                if let Some(user) = username {
                    builder = builder.username(user.clone());
                }
                if let Some(password) = password {
                    builder = builder.password(password.clone());
                }
                Ok(Conn::Cluster(builder.build()?.get_async_connection().await?))
            }
        }
    }
}

/// User and password.
type Auth = (Option<String>, Option<String>);

/// User and password before the `@`, as they are meant: `%40` in a password is an `@`, as in every URL.
fn split_auth(rest: &str) -> Result<(Auth, &str)> {
    let Some((auth, hosts)) = rest.rsplit_once('@') else { return Ok(((None, None), rest)) };
    let (user, password) = auth.split_once(':').unwrap_or((auth, ""));
    let word =
        |text: &str| -> Result<Option<String>> { Ok(Some(percent_decoded(text)?).filter(|t| !t.is_empty())) };
    Ok(((word(user)?, word(password)?), hosts))
}

fn percent_decoded(text: &str) -> Result<String> {
    let wrong =
        || StoreError::Refused("redis.url: user or password has a % that is not %25 or the like".into());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (code, more) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or_else(wrong);
        bytes.push(digit(code[0])? * 16 + digit(code[1])?);
        rest = more;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Makes the command that is sent instead.
type Fallback<'a> = &'a (dyn Fn() -> Cmd + Send + Sync);

/// The command connection: multiplexed, shared, remade when an error says so.
pub(super) struct Link {
    pub(super) dialer: Arc<Dialer>,
    response: Duration,
    conn: Mutex<(u64, Option<Conn>)>,
}

impl Link {
    pub(super) fn new(dialer: Arc<Dialer>, response: Duration) -> Self {
        Self { dialer, response, conn: Mutex::new((0, None)) }
    }

    async fn get(&self) -> redis::RedisResult<(u64, Conn)> {
        let mut slot = self.conn.lock().await;
        if let Some(conn) = &slot.1 {
            return Ok((slot.0, conn.clone()));
        }
        let conn = self.dialer.dial(self.response).await?;
        *slot = (slot.0 + 1, Some(conn.clone()));
        Ok((slot.0, conn))
    }

    async fn drop_if(&self, generation: u64) {
        let mut slot = self.conn.lock().await;
        if slot.0 == generation {
            slot.1 = None;
        }
    }

    /// Runs a command, with reconnects and waits as the error asks; what `fallback` makes is sent when the script is
    /// not cached. Safe to cancel: the command may still run on the server, so only idempotent ones go through here.
    pub(super) async fn run(&self, cmd: &Cmd, fallback: Option<Fallback<'_>>) -> Result<Value> {
        let mut wait = FIRST_WAIT;
        let mut last = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                let jitter = rand::random_range(0.5..1.5);
                tokio::time::sleep(wait.mul_f64(jitter)).await;
                wait *= 3;
            }
            let (generation, mut conn) = match self.get().await {
                Ok(got) => got,
                Err(e) if class(&e) == Ask::Refused => return Err(StoreError::Refused(e.to_string())),
                Err(e) => {
                    last = e.to_string();
                    continue;
                }
            };
            let sent = Instant::now();
            let mut answer = conn.run(cmd).await;
            if let (Err(e), Some(full)) = (&answer, fallback)
                && class(e) == Ask::Load
            {
                metrics::redis_event(Event::ScriptLoaded);
                answer = conn.run(&full()).await;
            }
            let e = match answer {
                Ok(value) => {
                    metrics::redis_call(sent.elapsed());
                    return Ok(value);
                }
                Err(e) => e,
            };
            match class(&e) {
                Ask::Reconnect => {
                    metrics::redis_event(Event::Reconnect);
                    self.drop_if(generation).await;
                }
                Ask::Wait => metrics::redis_event(Event::Wait),
                Ask::OutOfMemory => {
                    metrics::redis_event(Event::OutOfMemory);
                    return Err(StoreError::OutOfMemory);
                }
                Ask::Refused => {
                    metrics::redis_event(Event::Refused);
                    return Err(StoreError::Refused(e.to_string()));
                }
                Ask::Load | Ask::Broken => {
                    metrics::redis_event(Event::Broken);
                    return Err(StoreError::Broken(e.to_string()));
                }
            }
            last = e.to_string();
        }
        metrics::redis_event(Event::Unavailable);
        Err(StoreError::Unavailable(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialer(url: &str) -> Result<Dialer> {
        Dialer::new(&config::Redis { url: url.into(), ..Default::default() })
    }

    #[test]
    fn user_and_password_of_every_kind_of_url_are_percent_decoded() {
        for scheme in ["redis-sentinel", "redis-cluster"] {
            let url = format!("{scheme}://us%65r:p%40ss%3Aw%2525@h1:1,h2:2");
            let (user, password) = match dialer(&url).unwrap().target {
                Target::Sentinel(t) => (t.username, t.password),
                Target::Cluster { username, password, .. } => (username, password),
                Target::Single(_) => panic!("{scheme} is not a single server"),
            };
            assert_eq!((user.as_deref(), password.as_deref()), (Some("user"), Some("p@ss:w%25")), "{scheme}");
            for wrong in ["p%", "p%4", "p%zz", "p%ff"] {
                let refused = dialer(&format!("{scheme}://u:{wrong}@h1:1"));
                assert!(refused.is_err_and(|e| e.to_string().contains("redis.url")), "{scheme} {wrong}");
            }
        }
        let (auth, hosts) = split_auth("h1:1,h2:2/master").unwrap();
        assert_eq!((auth, hosts), ((None, None), "h1:1,h2:2/master"));
    }
}
