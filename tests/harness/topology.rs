//! More than one redis-server: a cluster of three masters, a master with a replica and a sentinel.

use crate::redis::{Options, Persistence, Redis};
use crate::scale::scale;
use crate::{process, wait};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Three masters that share the slots.
pub struct Cluster {
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts it and waits until every node says that it is whole.
    ///
    /// # Errors
    /// When a server does not start or the nodes do not find each other.
    pub async fn start() -> Result<Self> {
        let mut nodes = vec![];
        for _ in 0..3 {
            let settings = vec![
                ("cluster-enabled", "yes".to_owned()),
                ("cluster-node-timeout", "2000".to_owned()),
                // The bus is on another free port: port + 10000 may be taken.
                ("cluster-port", process::free_port()?.to_string()),
            ];
            nodes.push(Redis::start_with(Options { settings, ..Options::default() }).await?);
        }
        let slots = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        for (node, (first, last)) in nodes.iter().zip(slots) {
            node.query::<String>(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await?;
        }
        let (head, tail) = nodes.split_first().context("three nodes")?;
        for node in tail {
            let bus: Vec<String> = node.query(&["CONFIG", "GET", "cluster-port"]).await?;
            let bus = bus.get(1).cloned().context("cluster-port")?;
            head.query::<String>(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), &bus]).await?;
        }
        wait::until("the cluster is whole", scale().patience(), async || {
            for node in &nodes {
                let info: String = node.query(&["CLUSTER", "INFO"]).await?;
                if !info.contains("cluster_state:ok") || !info.contains("cluster_known_nodes:3") {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await?;
        Ok(Self { nodes })
    }

    /// `redis-cluster://host:port,…`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|n| format!("127.0.0.1:{}", n.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }
}

/// How often a master is killed until its replica is promoted.
const FLIP_TRIES: usize = 3;

/// A master, its replica and a sentinel that promotes it.
pub struct Sentinel {
    pub master: Redis,
    pub replica: Redis,
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl Sentinel {
    /// Starts all three; the sentinel knows the replica.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn start() -> Result<Self> {
        let master = Redis::start().await?;
        let replica =
            Redis::start_with(Options { persistence: Persistence::Everysec, ..Options::default() }).await?;
        replica.query::<String>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).await?;
        // Before the sentinel looks: it asks a replica only every 10 s, and promotes none whose link it saw down.
        wait::until("the replica follows its master", scale().patience(), async || {
            let info: String = replica.query(&["INFO", "replication"]).await?;
            Ok(info.contains("master_link_status:up").then_some(()))
        })
        .await?;
        let folder = tempfile::Builder::new().prefix("muster-sentinel-").tempdir()?;
        let port = process::free_port()?;
        let config = folder.path().join("sentinel.conf");
        std::fs::write(
            &config,
            format!(
                "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor fleet 127.0.0.1 {} 1\n\
                 sentinel down-after-milliseconds fleet 500\nsentinel failover-timeout fleet 3000\n",
                folder.path().display(),
                master.port()
            ),
        )?;
        let mut command = Command::new("redis-server");
        command
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = process::spawn(&mut command)?;
        let url = format!("redis://127.0.0.1:{port}");
        wait::until("the sentinel knows the replica", scale().patience(), async || {
            let client = ::redis::Client::open(url.as_str())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            let replicas: Vec<HashMap<String, String>> =
                ::redis::cmd("SENTINEL").arg(&["REPLICAS", "fleet"]).query_async(&mut connection).await?;
            let follows =
                |r: &HashMap<String, String>| r.get("master-link-status").is_some_and(|s| s == "ok");
            Ok((replicas.len() == 1 && replicas.iter().all(follows)).then_some(()))
        })
        .await?;
        Ok(Self { master, replica, port, child, _folder: folder })
    }

    /// Waits until the replica has all that the master has. (WAIT would speak for its own connection's writes only.)
    ///
    /// # Errors
    /// When it does not catch up in time.
    pub async fn caught_up(&self) -> Result<()> {
        let offset = async |server: &Redis, field: &str| -> Result<String> {
            let info: String = server.query(&["INFO", "replication"]).await?;
            Ok(info.lines().find_map(|l| l.strip_prefix(field)).unwrap_or_default().trim().to_owned())
        };
        wait::until("the replica has everything", scale().patience(), async || {
            let want = offset(&self.master, "master_repl_offset:").await?;
            let got = offset(&self.replica, "slave_repl_offset:").await?;
            Ok((!got.is_empty() && want == got).then_some(()))
        })
        .await
    }

    /// Kills the master, waits until the replica is the master, and brings the dead one back as its replica.
    ///
    /// # Errors
    /// When the sentinel promotes nobody in time, or the old master does not follow.
    pub async fn flip(&mut self) -> Result<()> {
        // A sentinel that saw its clock jump acts on nothing for 30 s.
        let patience = scale().patience() + std::time::Duration::from_secs(60);
        let mut promoted = Ok(());
        for _ in 0..FLIP_TRIES {
            self.master.kill();
            promoted = wait::until("the replica is promoted", patience, async || {
                let info: String = self.replica.query(&["INFO", "replication"]).await?;
                Ok(info.contains("role:master").then_some(()))
            })
            .await;
            if promoted.is_ok() {
                break;
            }
            // A sentinel that was not scheduled for some seconds takes the replica for too far behind, for good: the master
            // comes back, as a supervisor would have it, and dies again.
            self.master.restart().await?;
            self.caught_up().await?;
        }
        promoted?;
        std::mem::swap(&mut self.master, &mut self.replica);
        self.replica.restart().await?;
        let port = self.master.port().to_string();
        wait::until("the old master follows", patience, async || {
            // The sentinel says so too, within ten seconds.
            self.replica.query::<String>(&["REPLICAOF", "127.0.0.1", &port]).await?;
            let info: String = self.replica.query(&["INFO", "replication"]).await?;
            Ok(info.contains("master_link_status:up").then_some(()))
        })
        .await
    }

    /// `redis-sentinel://host:port/master`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}/fleet", self.port)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        process::kill_now(&mut self.child);
    }
}
