//! Wiring: what the reviewer needs, opened in order, then the engine until the stop.

use crate::actor::actor;
use crate::canary;
use crate::probe::Prober;
use crate::review::Reviewer;
use anyhow::Context as _;
use shared::blob::Blobs;
use shared::consumer::{self, Options, sweeper};
use shared::message::Kind;
use shared::model::Model;
use shared::sandbox::Sandbox;
use shared::service::Context;
use shared::store::Store;
use shared::telemetry::probe;
use std::sync::Arc;
use tokio::sync::Notify;

/// The lane of finished work.
const LANE: &str = "review";

/// Serves the review lane until the stop.
///
/// # Errors
/// What could not be opened, with the way out; or that the engine died.
pub(crate) async fn serve(ctx: Context) -> anyhow::Result<()> {
    let config = Arc::new(ctx.config);
    let store = Store::connect(&config.redis).await?;
    let blobs = Blobs::open(&config.blobs)?;
    shared::consumer::check_blobs(&store, &blobs).await?;
    std::fs::create_dir_all(&config.reviewer.scratch_folder)
        .with_context(|| format!("reviewer.scratch_folder {}", config.reviewer.scratch_folder.display()))?;
    let sandbox = match Sandbox::probe() {
        Ok(sandbox) => Some(sandbox),
        Err(missing) => {
            // I7: `command` checks then fail closed, as the reviewer's failure.
            tracing::warn!(error = %missing, "no sandbox, command checks cannot be run here");
            None
        }
    };
    let model = if config.model.is_configured() { Some(Model::new(&config.model)?) } else { None };
    if model.is_none() {
        tracing::info!("no model is configured, only code checks can be decided here");
    }
    let readiness = consumer::readiness(&config.lease);
    probe::serve(&config.reviewer.listen, readiness.clone(), ctx.stop.clone()).await?;
    let sweeping = sweeper::run(
        store.clone(),
        blobs.clone(),
        config.lease.clone(),
        config.blobs.retention_s,
        ctx.stop.clone(),
    );
    let actor = actor(&config);
    let options = Options {
        role: "reviewer",
        kind: Kind::Review,
        lanes: vec![LANE.into()],
        slots: config.reviewer.slots,
        actor: actor.clone(),
        tools: vec![],
        sandbox: sandbox.is_some(),
        drain_ms: config.reviewer.drain_ms,
        lease: config.lease.clone(),
        redis: config.redis.clone(),
        readiness,
    };
    let judged = Arc::new(Notify::new());
    if let Some(model) = model.clone() {
        let canaries = canary::all(&config.reviewer.canaries.folder)?;
        let (store, blobs, config) = (store.clone(), blobs.clone(), Arc::clone(&config));
        let prober = Prober { store, blobs, model, config, actor: actor.clone(), canaries };
        tokio::spawn(prober.run(Arc::clone(&judged), ctx.stop.clone()));
    }
    let reviewer = Reviewer {
        store: store.clone(),
        blobs: blobs.clone(),
        model,
        sandbox,
        config: Arc::clone(&config),
        actor,
        judged,
    };
    let stop = ctx.stop.clone();
    let serving = consumer::run(store, blobs, reviewer, options, ctx.stop);
    Ok(sweeper::beside(sweeping, serving, &stop).await??)
}
