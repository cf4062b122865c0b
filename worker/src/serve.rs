//! Wiring: what a worker needs, opened in order, then the engine until the stop.

use crate::tools::Catalogue;
use crate::work::Worker;
use anyhow::{Context as _, bail};
use shared::blob::Blobs;
use shared::consumer::{self, Options, sweeper};
use shared::message::Kind;
use shared::model::Model;
use shared::role::Library;
use shared::sandbox::Sandbox;
use shared::service::Context;
use shared::store::Store;
use shared::telemetry::probe;
use shared::workspace::Folder;
use std::sync::Arc;

/// Serves the lanes `work.<pool>` until the stop.
///
/// # Errors
/// What could not be opened, with the way out; or that the engine died.
pub(crate) async fn serve(ctx: Context) -> anyhow::Result<()> {
    let config = Arc::new(ctx.config);
    let roles = Library::open(&config.worker.roles_folder).context("worker.roles_folder")?;
    let sandbox = sandbox(config.worker.allow_no_sandbox)?;
    let tools = Arc::new(Catalogue::new(&config).context("tools")?);
    let model = if config.model.is_configured() { Some(Model::new(&config.model)?) } else { None };
    if model.is_none() {
        tracing::info!("no model is configured, only direct tool calls can be done here");
    }
    let scratch = &config.worker.scratch_folder;
    std::fs::create_dir_all(scratch)
        .with_context(|| format!("worker.scratch_folder {}", scratch.display()))?;
    Folder::remove_leftovers(scratch);
    let store = Store::connect(&config.redis).await?;
    let blobs = Blobs::open(&config.blobs)?;
    consumer::check_blobs(&store, &blobs).await?;

    let readiness = consumer::readiness(&config.lease);
    probe::serve(&config.worker.listen, readiness.clone(), ctx.stop.clone()).await?;
    let retention = config.blobs.retention_s;
    let sweeping =
        sweeper::run(store.clone(), blobs.clone(), config.lease.clone(), retention, ctx.stop.clone());

    let offered = tools.decls().iter().filter(|t| !t.sandboxed || sandbox.is_some());
    let options = Options {
        role: "worker",
        kind: Kind::Work,
        lanes: config.worker.pools.iter().map(|pool| format!("work.{pool}")).collect(),
        slots: config.worker.slots,
        actor: String::new(),
        tools: offered.map(|t| t.name.clone()).collect(),
        sandbox: sandbox.is_some(),
        drain_ms: config.worker.drain_ms,
        lease: config.lease.clone(),
        redis: config.redis.clone(),
        readiness,
    };
    let worker = Worker { store: store.clone(), blobs: blobs.clone(), model, sandbox, roles, tools, config };
    let stop = ctx.stop.clone();
    let serving = consumer::run(store, blobs, worker, options, ctx.stop);
    Ok(sweeper::beside(sweeping, serving, &stop).await??)
}

/// I7: without a sandbox no code runs, and a worker that cannot run code takes no tickets unless told to.
fn sandbox(allow_none: bool) -> anyhow::Result<Option<Sandbox>> {
    match Sandbox::probe() {
        Ok(sandbox) => Ok(Some(sandbox)),
        Err(missing) if allow_none => {
            tracing::warn!(error = %missing, "no sandbox, code is not run here");
            Ok(None)
        }
        Err(missing) => bail!(
            "no sandbox: {missing}\n  hint: install bubblewrap (apt-get install bubblewrap), or set \
             MUSTER_WORKER__ALLOW_NO_SANDBOX=true to do tickets that run no code"
        ),
    }
}
