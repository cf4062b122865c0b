//! Forty callers in two processes against a model server with a request limit: how much of it they use, how often
//! they are refused, how long a manager's call waits; one process is killed in the middle.
//!
//! No pace is configured: the governor finds it. The server has a bucket of 10 requests a second, burst 10.

use crate::feed;
use crate::serve::store;
use anyhow::{Result, anyhow, ensure};
use harness::limited::{Bucket, Limited};
use harness::redis::Redis;
use harness::{process, wait};
use serde_json::{Value, json};
use shared::config;
use shared::model::{Account, Ask, Message, Model, ignore_wait};
use shared::store::Store;
use shared::ticket::Tier;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const PER_S: f64 = 10.0;
const BURST: f64 = 10.0;
const SECONDS: u64 = 60;
const CALLERS: usize = 40;
/// A manager's call every so often.
const MANAGER_EVERY: Duration = Duration::from_millis(1_700);

async fn call(store: &Store, goal: &str, url: &str, role: &'static str) -> Result<()> {
    let config =
        config::Model { url: url.into(), standard: "m".into(), probe: false, ..config::Model::default() };
    let account = Account::new(store, goal, "", &config::Lease::default());
    let model = Model::new(&config)?.on_account(account);
    let messages = [Message::User("hello".into())];
    let ask = Ask {
        role,
        tier: Tier::Standard,
        messages: &messages,
        tools: &[],
        output_tokens_max: 10,
        stop: &CancellationToken::new(),
        on_bytes: &|| {},
        on_wait: &ignore_wait,
    };
    model.chat(&ask).await.map(|_| ()).map_err(|e| anyhow!("{e}"))
}

/// A process of callers that ask without end.
pub(crate) async fn callers(goal: &str, url: &str, n: usize) -> Result<()> {
    let (store, _) = store().await?;
    let ask = async || -> Result<()> {
        loop {
            call(&store, goal, url, "worker").await?;
        }
    };
    futures::future::try_join_all((0..n).map(|_| ask())).await?;
    Ok(())
}

/// Child processes that die with this one.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

async fn measure(hint: Option<&'static str>, kill: bool) -> Result<Value> {
    let redis = Redis::start().await?;
    let store = Store::connect(&redis.config()).await?;
    let goal = feed::goal(&store).await?;
    let server = Limited::start(Bucket { per_s: PER_S, burst: BURST, hint }).await?;
    let url = server.url();
    let start = |n: usize| -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["callers", &goal, &url, &n.to_string()]).env("PEER_REDIS", redis.url());
        process::spawn(command.stdout(Stdio::null()).stderr(Stdio::inherit()))
    };
    let begun = Instant::now();
    let mut children = Children(vec![start(CALLERS / 2)?, start(CALLERS / 2)?]);
    let end = begun + Duration::from_secs(SECONDS);
    let mut waits: Vec<f64> = vec![];
    let mut killed = false;
    while Instant::now() < end {
        tokio::time::sleep(MANAGER_EVERY).await;
        let asked = Instant::now();
        call(&store, &goal, &url, "planner").await?;
        waits.push(asked.elapsed().as_secs_f64() * 1_000.0);
        if kill && !killed && begun.elapsed() > Duration::from_secs(SECONDS / 2) {
            killed = true;
            if let Some(child) = children.0.first_mut() {
                child.kill()?;
                child.wait()?;
                *child = start(CALLERS / 2)?;
            }
        }
    }
    let secs = begun.elapsed().as_secs_f64();
    let (answered, refused) = server.counts();
    drop(children);
    let ghosts = wait::until("the dead callers' members to expire", Duration::from_secs(60), async || {
        let left: u64 = store.quotas().await?.iter().map(|e| e.in_flight).sum();
        Ok((left == 0).then_some(0))
    })
    .await?;
    waits.sort_by(f64::total_cmp);
    ensure!(!waits.is_empty(), "no manager's call was made");
    let at = |q: f64| waits[((waits.len() as f64 * q) as usize).min(waits.len() - 1)];
    let allowed = BURST + PER_S * secs;
    Ok(json!({"peer": "muster", "version": env!("CARGO_PKG_VERSION"), "scenario": "quota",
        "value": answered as f64 / allowed, "unit": "of the allowed requests",
        "refused": refused as f64 / (answered + refused) as f64, "answered": answered, "refusals": refused,
        "manager_ms_p50": at(0.5), "manager_ms_max": at(1.0), "manager_calls": waits.len(), "secs": secs,
        "callers": CALLERS, "per_s": PER_S, "burst": BURST, "retry_after": hint, "killed": killed, "ghosts": ghosts}))
}

/// Without a hint of the server, with one, and with a process killed in the middle.
pub(crate) async fn run() -> Result<Vec<Value>> {
    Ok(vec![measure(None, false).await?, measure(Some("1"), false).await?, measure(None, true).await?])
}
