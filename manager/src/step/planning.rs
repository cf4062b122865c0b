//! A step before the plan is sealed: a plan that was stored, one that was given, or one that a model makes.

use super::{Step, Stop};
use crate::calls;
use crate::planner::apply::{Applied, apply};
use crate::planner::{self, Input, Stored};
use serde_json::Value;
use shared::blob::BlobError;
use shared::goal::{Intake, PLAN_APPROVAL};
use shared::model::Model;
use shared::store::Written;
use shared::workspace::Manifest;

impl Step<'_> {
    /// Planning: what was stored before is applied again, a given plan is read, or a model is asked.
    pub(super) async fn plan(&mut self) -> Result<(), Stop> {
        let specs = match self.stored_plan().await? {
            Some(stored) => stored.tickets,
            None => {
                let mut stored = match (self.goal.given_plan_ref.as_str(), self.goal.intake) {
                    ("", Intake::Plan) => self.ask_for_plan().await?,
                    ("", Intake::Route) => self.route().await?,
                    _ => self.given_plan().await?,
                };
                self.hold(stored.tickets.iter_mut().collect()).await?;
                self.store_plan(&stored).await?;
                stored.tickets
            }
        };
        // I7: only a person opens this gate; the stored plan waits with the goal.
        if self.goal.approve_plan {
            return Err(Stop::person(
                PLAN_APPROVAL,
                planner::drawn::drawn(&specs, &self.manager.config.model),
            ));
        }
        let store = &self.manager.store;
        match self.patiently(|| apply(store, &self.held, &self.goal, &specs)).await? {
            Applied::Sealed => {
                tracing::info!(goal = self.goal.id, tickets = specs.len(), "plan sealed");
                Ok(())
            }
            Applied::Dropped => Err(Stop::Dropped),
        }
    }

    /// The plan of a manager that died between storing and sealing: it is not paid for twice.
    async fn stored_plan(&self) -> Result<Option<Stored>, Stop> {
        if self.goal.plan_ref.is_empty() {
            return Ok(None);
        }
        let raw = self.blob(&self.goal.plan_ref).await?;
        match serde_json::from_value(raw) {
            Ok(stored) => Ok(Some(stored)),
            Err(error) => {
                tracing::warn!(%error, goal = self.goal.id, "the stored plan does not read; planning again");
                Ok(None)
            }
        }
    }

    async fn given_plan(&self) -> Result<Stored, Stop> {
        let raw = self.blob(&self.goal.given_plan_ref).await?;
        match planner::given(&raw, &self.goal, &self.manager.config) {
            Ok(specs) => Ok(Stored::new("given", raw, specs)),
            Err(problems) => Err(Stop::person(
                "plan_refused",
                format!("{}; submit a mended plan file as a new goal", problems.join("; ")),
            )),
        }
    }

    pub(super) async fn ask_for_plan(&self) -> Result<Stored, Stop> {
        // I11: a person who denies every plan has to write one.
        if self.goal.replans >= self.manager.config.limits.replans_max {
            let detail =
                format!("its plan was denied {} times; submit a plan file as a new goal", self.goal.replans);
            return Err(Stop::person("plan_denied", detail));
        }
        let model = &self.may_ask("")?;
        let files = self.inputs().await?;
        let (beat, config) = (|| self.pulse.beat(), &self.manager.config);
        let (store, goal) = (&self.manager.store, &self.goal);
        let lessons = self.patiently(|| planner::lessons(store, config, &goal.tenant, &goal.text)).await?;
        let asked = planner::ask(model, config, goal, files, &lessons, &self.cut, &beat).await;
        self.book("", &asked.records).await;
        match asked.outcome {
            Ok(proposal) => Ok(Stored::new("model", proposal.raw, proposal.specs)),
            Err(failure) => {
                tracing::warn!(goal = self.goal.id, cause = failure.cause(), "no plan");
                Err(Stop::of_failure(&failure))
            }
        }
    }

    /// A quick request: which intents it has, by one classification; nothing of it is clear: the person is asked.
    async fn route(&self) -> Result<Stored, Stop> {
        let model = &self.may_ask("")?;
        let beat = || self.pulse.beat();
        let config = &self.manager.config;
        let asked = planner::route::ask(model, config, &self.goal, &self.cut, &beat).await;
        self.book("", &asked.records).await;
        let (raw, scored) = asked.outcome.map_err(|failure| Stop::of_failure(&failure))?;
        let chosen = planner::route::chosen(&scored, &config.intake);
        if chosen.is_empty() {
            return Err(Stop::person("unclear", planner::route::clearer(&config.intake)));
        }
        let specs = planner::route::specs(&chosen, &config.intake);
        let names = planner::roles::names(&planner::roles::known(&config.worker.roles_folder));
        let problems = planner::problems(&specs, &names, config);
        if !problems.is_empty() {
            return Err(Stop::person("plan_refused", format!("[intake]: {}", problems.join("; "))));
        }
        Ok(Stored::new("route", raw, specs))
    }

    /// The model, if there is one and the goal may still spend (I7).
    pub(super) fn may_ask(&self, ticket: &str) -> Result<Model, Stop> {
        let (m, lease) = (self.manager, &self.manager.config.lease);
        let model = calls::model_for(m.model.as_ref(), &m.store, &m.blobs, &self.goal, ticket, lease);
        model.map_err(|failure| Stop::of_failure(&failure))
    }

    async fn inputs(&self) -> Result<Vec<Input>, Stop> {
        let load = || Manifest::load(&self.manager.blobs, &self.goal.id, &self.goal.root);
        match load().await {
            Ok(manifest) => Ok(manifest
                .files
                .into_iter()
                .map(|(path, entry)| Input { path, size_bytes: entry.size_bytes, mime: entry.mime })
                .collect()),
            Err(error) => {
                Err(Stop::person("blobs", format!("the goal's input files cannot be read: {error}")))
            }
        }
    }

    pub(super) async fn store_plan(&mut self, stored: &Stored) -> Result<(), Stop> {
        let bytes = serde_json::to_vec(stored).map_err(|e| Stop::person("internal", e.to_string()))?;
        let put = self.manager.blobs.put(&self.goal.id, bytes).await;
        let plan_ref = put.map_err(|e| Stop::person("blobs", format!("the plan cannot be stored: {e}")))?;
        let written = self.patiently(|| self.manager.store.plan_store(&self.held, &plan_ref)).await?;
        match written {
            Written::Ok | Written::Dup => {
                self.goal.plan_ref = plan_ref;
                Ok(())
            }
            Written::Fenced | Written::Gone | Written::Cancelled => Err(Stop::Dropped),
            Written::Moved | Written::Escalated => {
                Err(Stop::person("internal", format!("storing the plan was answered with {written:?}")))
            }
        }
    }

    async fn blob(&self, r: &str) -> Result<Value, Stop> {
        let max = 4 * self.manager.config.limits.plan_bytes_max as u64;
        let bytes = match self.manager.blobs.get(&self.goal.id, r, max).await {
            Ok(bytes) => bytes,
            Err(error @ BlobError::NotFound(_)) => {
                return Err(Stop::person(
                    "blobs",
                    format!("the plan's {error}; do all hosts share blobs.folder? (`muster doctor`)"),
                ));
            }
            Err(error) => return Err(Stop::person("blobs", format!("the plan cannot be read: {error}"))),
        };
        serde_json::from_slice(&bytes)
            .map_err(|e| Stop::person("internal", format!("the plan's blob is no JSON: {e}")))
    }
}
