//! The manager as a service: start-up in order, then slots, sweeper, API, and the way out.

use crate::api::{self, Api};
use crate::dashboard;
use crate::mcp;
use crate::presence;
use crate::slots::{LANE, Slots};
use crate::step::Manager;
use crate::webhooks::Sender;
use anyhow::Context as _;
use shared::blob::Blobs;
use shared::model::Model;
use shared::service;
use shared::store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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
    shared::consumer::check_blobs(&store, &blobs).await?;
    if store.publish_tenants(&config.tenants).await.context("the tenants' limits")? {
        tracing::info!(named = config.tenants.of.len(), "limits of tenants published");
    }
    let webhooks = Sender::new(&store, &config)?;
    store.hooks_listen(webhooks.is_some()).await.context("redis")?;
    let listener = tokio::net::TcpListener::bind(&config.manager.listen)
        .await
        .with_context(|| format!("cannot listen on manager.listen = {}", config.manager.listen))?;
    let address = listener.local_addr().context("the API's address")?;

    let id = presence::consumer_id();
    let manager = Manager {
        store: store.clone(),
        blobs: blobs.clone(),
        config: Arc::clone(&config),
        model: model.clone(),
        id: id.as_str().into(),
    };
    let readiness = shared::consumer::readiness(&config.lease);
    let slots = Slots::new(manager, readiness.clone(), stop.clone());

    // Cancelled when a slot or the sweeper ends, in whatever way (Q27).
    let died = CancellationToken::new();
    let work = TaskTracker::new();
    for _ in 0..config.manager.slots {
        work.spawn(guarded(slots.clone().run(), &died));
    }
    work.close();
    let beside = TaskTracker::new();
    beside.spawn(presence::run(slots.clone()));
    let sweeping = shared::consumer::sweeper::run(
        store.clone(),
        blobs.clone(),
        config.lease.clone(),
        config.blobs.retention_s,
        stop.clone(),
    );
    beside.spawn(guarded(sweeping, &died));
    beside.spawn(api::files::clean_uploads(blobs.clone(), stop.clone()));
    if let Some(webhooks) = webhooks {
        beside.spawn(webhooks.run(stop.clone()));
    }
    let live = config.manager.live_folder.clone();
    if !live.as_os_str().is_empty() {
        beside.spawn(crate::live::run(store.clone(), blobs.clone(), live, stop.clone()));
    }
    beside.close();

    let router = api::router(
        Api::new(store.clone(), blobs, Arc::clone(&config), model, stop.clone()),
        readiness.clone(),
    );
    let router = mcp::router(router.clone()).fallback_service(dashboard::before(router, stop.clone()));
    let ended = stop.clone();
    let mut server = tokio::spawn(async move {
        axum::serve(listener, router).with_graceful_shutdown(ended.cancelled_owned()).await
    });
    tracing::info!(%address, slots = config.manager.slots, consumer = id, "manager serves");

    let mut lost = false;
    tokio::select! {
        () = stop.cancelled() => {}
        () = died.cancelled() => {
            // At a stop they end as well.
            lost = !stop.is_cancelled();
            if lost {
                readiness.end();
            }
            stop.cancel();
        }
        ended = &mut server => {
            stop.cancel();
            ended.context("the API's task")?.context("the API's listener")?;
        }
    }
    drain(&slots, &work, config.manager.drain_ms).await;
    if tokio::time::timeout(REQUESTS_DRAIN, beside.wait()).await.is_err() {
        tracing::warn!("the sweeper did not stop in time");
    }
    // At a stop the listener may be the first to end, above; whoever has ended is not waited for again.
    if !server.is_finished() && tokio::time::timeout(REQUESTS_DRAIN, &mut server).await.is_err() {
        server.abort();
    }
    // Gone by itself after its time to live if this does not go through.
    let _ = store.retire_consumer(&id, &[LANE.to_owned()]).await;
    anyhow::ensure!(!lost, "a slot or the sweeper ended by itself; the log says why");
    Ok(())
}

/// Runs it and says so when it is over, panics included.
fn guarded<T: Future<Output = ()>>(task: T, died: &CancellationToken) -> impl Future<Output = ()> + use<T> {
    let guard = died.clone().drop_guard();
    async move {
        let _guard = guard;
        task.await;
    }
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
