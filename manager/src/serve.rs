//! The manager as a service: start-up in order, then slots, sweeper, API, and the way out.

use crate::api::{self, Api};
use crate::step::{Manager, Pulse};
use anyhow::Context as _;
use shared::blob::Blobs;
use shared::config::Config;
use shared::model::Model;
use shared::service;
use shared::store::{Consumer, GoalClaim, Held, Renewal, Store};
use shared::telemetry::probe::Readiness;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The lane on which goals with news wake a manager.
const LANE: &str = "manage";
/// One wait for news; a lost wake-up costs at most this.
const WAIT_MS: u64 = 2_000;
/// Wait after a claim that the store did not answer.
const RETRY: Duration = Duration::from_millis(500);
/// How often the process says that it lives.
const BEAT: Duration = Duration::from_secs(10);
/// Goals are not ready to be served when no claim went through for this long.
const READY_LIMIT: Duration = Duration::from_secs(15);
/// How long a start waits for the mark that another program is just leaving in the blob store.
const NONCE_LOOKS: u32 = 25;
const NONCE_EVERY: Duration = Duration::from_millis(200);
/// After the slots have ended, open requests get this long.
const REQUESTS_DRAIN: Duration = Duration::from_secs(3);

/// Runs the manager until `stop`; returns when everything it held is finished or given back.
///
/// # Errors
/// What cannot be opened at the start, with the way out; later only the end of the listener.
pub(crate) async fn serve(context: service::Context) -> anyhow::Result<()> {
    let service::Context { config, stop, .. } = context;
    let config = Arc::new(config);
    let model = if config.model.is_configured() {
        Some(Model::new(&config.model).context("the model client")?)
    } else {
        tracing::warn!("no model is configured: plan files are served, goals without one wait for a person");
        None
    };
    let store = Store::connect(&config.redis).await.context("redis")?;
    let blobs = Blobs::open(&config.blobs).context("blobs")?;
    see_fleet_nonce(&store, &blobs).await?;
    let listener = tokio::net::TcpListener::bind(&config.manager.listen)
        .await
        .with_context(|| format!("cannot listen on manager.listen = {}", config.manager.listen))?;
    let address = listener.local_addr().context("the API's address")?;

    let id = consumer_id();
    let manager = Manager {
        store: store.clone(),
        blobs: blobs.clone(),
        config: Arc::clone(&config),
        model: model.clone(),
        id: id.as_str().into(),
    };
    let readiness = Readiness::new(READY_LIMIT);
    let slots = Slots {
        manager,
        readiness: readiness.clone(),
        busy: Arc::new(AtomicUsize::new(0)),
        stop: stop.clone(),
        cut: CancellationToken::new(),
    };

    let work = TaskTracker::new();
    for _ in 0..config.manager.slots {
        work.spawn(slots.clone().run());
    }
    work.close();
    let beside = TaskTracker::new();
    beside.spawn(slots.clone().beat());
    // SWEEPER
    beside.close();

    let router =
        api::router(Api::new(store.clone(), blobs, Arc::clone(&config), model, stop.clone()), readiness);
    let ended = stop.clone();
    let mut server = tokio::spawn(async move {
        axum::serve(listener, router).with_graceful_shutdown(ended.cancelled_owned()).await
    });
    tracing::info!(%address, slots = config.manager.slots, consumer = id, "manager serves");

    tokio::select! {
        () = stop.cancelled() => {}
        ended = &mut server => {
            stop.cancel();
            ended.context("the API's task")?.context("the API's listener")?;
        }
    }
    drain(&slots, &work, config.manager.drain_ms).await;
    if tokio::time::timeout(REQUESTS_DRAIN, beside.wait()).await.is_err() {
        tracing::warn!("the sweeper did not stop in time");
    }
    if tokio::time::timeout(REQUESTS_DRAIN, &mut server).await.is_err() {
        server.abort();
    }
    // Gone by itself after its time to live if this does not go through.
    let _ = store.retire_consumer(&id, &[LANE.to_owned()]).await;
    Ok(())
}

/// Steps end by themselves until the deadline, then they are cut off and give their goals back.
async fn drain(slots: &Slots, work: &TaskTracker, drain_ms: u64) {
    const GIVE_BACK: Duration = Duration::from_secs(5);
    if tokio::time::timeout(Duration::from_millis(drain_ms), work.wait()).await.is_ok() {
        return;
    }
    tracing::info!("drain deadline: steps are cut off, their goals go back");
    slots.cut.cancel();
    // Bounded even if Redis is down: the sweeper takes over then.
    let _ = tokio::time::timeout(GIVE_BACK, work.wait()).await;
}

/// Several hosts must see the same blobs: the first manager leaves a mark, every other has to find it.
async fn see_fleet_nonce(store: &Store, blobs: &Blobs) -> anyhow::Result<()> {
    let (nonce, made) = store.fleet_nonce().await.context("the fleet's record")?;
    if made {
        blobs.write_nonce(&nonce).await.context("blobs")?;
    }
    // Whoever made it may be about to write it.
    let mut seen = blobs.sees_nonce(&nonce).await;
    for _ in 0..NONCE_LOOKS {
        if seen {
            break;
        }
        tokio::time::sleep(NONCE_EVERY).await;
        seen = blobs.sees_nonce(&nonce).await;
    }
    anyhow::ensure!(
        seen,
        "the blob folder is not the one that the rest of this fleet uses\n  \
         hint: all hosts must share blobs.folder; for a fresh start with an empty folder use another redis.prefix"
    );
    Ok(())
}

/// Role, host, process and a random part: never configured, never used again.
fn consumer_id() -> String {
    let host: String = host()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .take(40)
        .collect();
    format!("manager-{host}-{}-{:016x}", std::process::id(), rand::random::<u64>())
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|h| h.trim().to_owned())
        .filter(|h| !h.is_empty())
        .unwrap_or_else(|| "host".into())
}

/// The claim loops and what they share.
#[derive(Clone)]
struct Slots {
    manager: Manager,
    readiness: Readiness,
    busy: Arc<AtomicUsize>,
    /// Take nothing new.
    stop: CancellationToken,
    /// Leave what is in hand.
    cut: CancellationToken,
}

impl Slots {
    async fn run(self) {
        let lanes = [LANE.to_owned()];
        let mut waiter = self.manager.store.waiter();
        while !self.stop.is_cancelled() {
            let lease_id = format!("{:032x}", rand::random::<u128>());
            let lease_ms = self.manager.config.lease.lease_ms;
            match self.manager.store.manage_claim(&self.manager.id, &lease_id, lease_ms).await {
                Ok(Some(claim)) => {
                    self.readiness.good();
                    self.busy.fetch_add(1, Ordering::Relaxed);
                    self.hold(claim).await;
                    self.busy.fetch_sub(1, Ordering::Relaxed);
                }
                Ok(None) => {
                    self.readiness.good();
                    tokio::select! {
                        () = waiter.wait(&lanes, WAIT_MS) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
                Err(error) => {
                    // A claim whose reply was lost lapses and comes back by the sweeper.
                    tracing::warn!(%error, "no claim");
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
            }
        }
    }

    /// One step with its lease kept alive beside it. A panic in the step ends the step, not the slot.
    async fn hold(&self, claim: GoalClaim) {
        let cut = self.cut.child_token();
        let pulse = Pulse::new();
        let held = Held { id: format!("g:{}", claim.held.id), ..claim.held.clone() };
        let goal = claim.goal.id.clone();
        let manager = self.manager.clone();
        let mut step = tokio::spawn({
            let (cut, pulse) = (cut.clone(), pulse.clone());
            async move { manager.step(claim, cut, pulse).await }
        });
        let ended = tokio::select! {
            ended = &mut step => ended,
            () = self.renew(held, &pulse) => {
                tracing::warn!(goal, "the goal's lease is lost");
                cut.cancel();
                step.await
            }
        };
        if let Err(error) = ended {
            tracing::error!(%error, goal, "a step ended badly; the goal comes back when its lease lapses");
        }
    }

    /// Renews until the lease is lost, or the step has not moved for the progress limit.
    async fn renew(&self, held: Held, pulse: &Pulse) {
        let lease = &self.manager.config.lease;
        let mut every = tokio::time::interval(Duration::from_millis(lease.renew_ms));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        every.tick().await;
        let one = [(held, 0)];
        loop {
            every.tick().await;
            let idle_ms = pulse.idle_ms();
            if idle_ms > lease.progress_limit_ms {
                return;
            }
            let mut one = one.clone();
            one[0].1 = idle_ms;
            let renewed = self
                .manager
                .store
                .renew(
                    &self.manager.id,
                    &[],
                    lease.lease_ms,
                    lease.progress_limit_ms,
                    lease.run_limit_ms,
                    &one,
                )
                .await;
            match renewed {
                Ok(answers) => match answers.first() {
                    Some(Renewal::Lost) | None => return,
                    Some(Renewal::Ok { .. } | Renewal::Cancel) => self.readiness.good(),
                },
                // Not lost yet: every write says so itself when it is.
                Err(error) => tracing::warn!(%error, "lease not renewed"),
            }
        }
    }

    /// Publishes the process, so that the fleet's list shows it.
    async fn beat(self) {
        let mut every = tokio::time::interval(BEAT);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let started_at_ms = self.manager.store.now_ms().await.unwrap_or_default();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = every.tick() => {}
            }
            if let Err(error) = self.manager.store.publish_consumer(&self.record(started_at_ms), "").await {
                tracing::debug!(%error, "the fleet's list was not told that we live");
            }
        }
    }

    fn record(&self, started_at_ms: u64) -> Consumer {
        let config: &Config = &self.manager.config;
        Consumer {
            id: self.manager.id.to_string(),
            role: "manager".into(),
            host: host(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            started_at_ms,
            slots: config.manager.slots,
            busy: self.busy.load(Ordering::Relaxed),
            lanes: vec![LANE.into()],
            tools: vec![],
            sandbox: false,
            blobs: true,
            state: "active".into(),
            beat_age_ms: 0,
        }
    }
}
