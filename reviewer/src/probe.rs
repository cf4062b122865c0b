//! Puts known deliverables before the judge, one at a time, and counts what it says (D8: who checks the reviewers).
//!
//! The judge, its prompt and its model are those of the reviews; only the ledger differs: the fleet pays.

use crate::canary::Canary;
use crate::deliverable::Deliverable;
use crate::judge::{Case, Judge, JudgeError};
use crate::review;
use shared::blob::Blobs;
use shared::config::Config;
use shared::model::{Account, CallRecord, Model};
use shared::store::{Measured, ProbeKind, ProbeRecord, Store, StoreError};
use shared::telemetry::metrics;
use shared::ticket::VerdictItem;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Version of what is kept of a known deliverable.
const VERSION: u32 = 1;

/// Measures one reviewer: this process's.
pub(crate) struct Prober {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) model: Model,
    pub(crate) config: Arc<Config>,
    pub(crate) actor: String,
    pub(crate) canaries: Vec<Canary>,
}

impl Prober {
    /// Puts forward what is due, after each judged review and now and then, until the stop.
    pub(crate) async fn run(self, judged: Arc<Notify>, stop: CancellationToken) {
        let period = Duration::from_millis(self.config.reviewer.canaries.poll_ms);
        let tier = self.config.reviewer.tier;
        let model = self.config.model.name(tier);
        while !stop.is_cancelled() {
            let percent = self.config.reviewer.canaries.percent;
            match self.store.probe_due(&self.actor, percent, model, tier.as_str()).await {
                Ok(Some(number)) => {
                    if let Some(canary) = self.nth(number)
                        && let Err(error) = self.probe(canary, &stop).await
                    {
                        tracing::warn!(%error, canary = canary.name, "a known deliverable is not counted");
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "cannot see whether a known deliverable is due"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = judged.notified() => {}
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    /// In turn, from 1.
    fn nth(&self, number: u64) -> Option<&Canary> {
        let place = number.saturating_sub(1) % (self.canaries.len().max(1) as u64);
        usize::try_from(place).ok().and_then(|place| self.canaries.get(place))
    }

    async fn probe(&self, canary: &Canary, stop: &CancellationToken) -> Result<(), StoreError> {
        let mut calls = vec![];
        let answer = self.judge(canary, stop, &mut calls).await;
        calls.iter().for_each(|record| review::count(self.config.reviewer.tier, record));
        let is_canary = canary.kind == ProbeKind::Canary;
        let right = answer.as_ref().ok().map(|items| canary.is_right(items));
        let outcome = match (right, is_canary) {
            (Some(true), true) => "found",
            (Some(false), true) => "missed",
            (Some(true), false) => "passed",
            (Some(false), false) => "failed",
            (None, _) => "unread",
        };
        let record = ProbeRecord {
            v: VERSION,
            at_ms: self.store.now_ms().await?,
            name: canary.name.clone(),
            kind: canary.kind.as_str().into(),
            outcome: outcome.into(),
            detail: match &answer {
                Ok(items) => serde_json::to_value(items).unwrap_or_default(),
                Err(error) => error.to_string().into(),
            },
            calls: calls.iter().map(CallRecord::to_value).collect(),
        };
        let (tokens, microusd) = calls.iter().fold((0, 0), |(t, m), c| (t + c.tokens(), m + c.microusd));
        if stop.is_cancelled() && right.is_none() {
            return Ok(());
        }
        metrics::reviewer_probe(is_canary, right);
        tracing::info!(canary = canary.name, kind = record.kind, outcome, "a known deliverable was judged");
        let Some(right) = right else {
            return self.store.probe_unread(&self.actor, tokens, microusd, &record).await;
        };
        let limits = &self.config.reviewer.canaries;
        let measured = Measured {
            actor: &self.actor,
            kind: canary.kind,
            right,
            window: limits.window,
            count_min: limits.count_min,
            floor_percent: if is_canary { limits.catch_floor_percent } else { limits.pass_floor_percent },
            tokens,
            microusd,
        };
        if self.store.reviewer_measured(&measured, &record).await? {
            tracing::error!(
                reviewer = self.actor,
                model = self.config.model.name(self.config.reviewer.tier),
                "suspended: it is under the floor of the known deliverables and claims no more reviews until a person \
                 lifts it (muster reviewers lift)"
            );
        }
        Ok(())
    }

    async fn judge(
        &self,
        canary: &Canary,
        stop: &CancellationToken,
        calls: &mut Vec<CallRecord>,
    ) -> Result<Vec<VerdictItem>, JudgeError> {
        let model = self.model.on_account(Account::of_fleet(&self.store, &self.config.lease));
        let judge = Judge {
            model: Some(&model),
            tier: self.config.reviewer.tier,
            blobs: &self.blobs,
            shown_bytes_max: self.config.reviewer.file_bytes_max,
            images_max: self.config.model.images_max,
            image_bytes_max: self.config.model.image_bytes_max,
        };
        let (goal, ticket, report) = (canary.goal(), canary.ticket(), canary.report());
        let deliverable = Deliverable::at_hand(&self.blobs, &canary.files);
        let case = Case {
            goal: &goal,
            ticket: &ticket,
            report: &report,
            deliverable: &deliverable,
            passed: &[],
            shadow: &[],
        };
        Ok(judge.judge(&case, stop, &|| {}, calls).await?.items)
    }
}
