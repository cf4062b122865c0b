//! One review, from the claim to its outcome: code checks, then the judge if they all pass.

use crate::checks::{self, Bench, CheckError};
use crate::deliverable::{Deliverable, DeliverableError};
use crate::judge::{Case, Judge, JudgeError};
use shared::blob::Blobs;
use shared::config::Config;
use shared::consumer::{Handler, Job, Outcome};
use shared::lesson::kind_of;
use shared::model::{Account, CallRecord, Model};
use shared::sandbox::Sandbox;
use shared::standard::{Standard, State};
use shared::store::Store;
use shared::telemetry::metrics;
use shared::ticket::{FailClass, Report, ReviewPolicy, Ticket, Tier, Verdict, VerdictItem};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a stopped judge has to hand over the records of its calls; the engine's own grace is longer.
const RECORDS_GRACE: Duration = Duration::from_secs(2);
/// Tries to book a call while the store does not answer; then the log has its record.
const BOOK_TRIES: u32 = 5;
const BOOK_PAUSE: Duration = Duration::from_millis(200);

/// Reviews what the consumer claims.
pub(crate) struct Reviewer {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) model: Option<Model>,
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) config: Arc<Config>,
    /// Who reviews: see [`crate::actor`].
    pub(crate) actor: String,
    /// Told of each judged review: perhaps a known deliverable is due now.
    pub(crate) judged: Arc<Notify>,
}

/// There is no verdict; why, and whose fault it is, decides what happens next. Never the work's (I8).
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    Deliverable(#[from] DeliverableError),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Judge(#[from] JudgeError),
    #[error("the goal cannot be read: {0}")]
    Store(#[from] shared::store::StoreError),
    #[error("the goal {0} is not there")]
    NoGoal(String),
    #[error("the review was stopped")]
    Stopped,
}

impl ReviewError {
    fn outcome(&self) -> Outcome {
        let (class, delay_ms) = match self {
            Self::Deliverable(error) => (Some(error.class()), None),
            Self::Check(error) => (Some(error.class()), None),
            Self::Judge(error) => (error.class(), error.delay_ms()),
            Self::Store(error) if error.is_retryable() => (Some(FailClass::Wait), None),
            Self::Store(_) => (Some(FailClass::Fault), None),
            Self::NoGoal(_) => (Some(FailClass::NotRetryable), None),
            Self::Stopped => (None, None),
        };
        match class {
            Some(class) => Outcome::Failed { class, detail: self.to_string(), delay_ms },
            None => Outcome::Released,
        }
    }
}

impl Handler for Reviewer {
    async fn handle(&self, job: Job) -> Outcome {
        let ticket = &job.claim.ticket;
        match self.review(&job).await {
            Ok(items) => {
                let verdict = Verdict { items };
                verdict.items.iter().for_each(|item| metrics::review_item(item.by_code, item.pass));
                let failed = verdict.items.iter().filter(|i| !i.pass).count();
                tracing::info!(ticket = %ticket.task_id, goal = %ticket.goal, epoch = ticket.epoch,
                    items = verdict.items.len(), failed, "reviewed");
                Outcome::Decided { verdict, actor: self.actor.clone() }
            }
            Err(error) => {
                tracing::warn!(ticket = %ticket.task_id, goal = %ticket.goal, epoch = ticket.epoch,
                    error = %error, "no verdict");
                error.outcome()
            }
        }
    }
}

impl Reviewer {
    async fn review(&self, job: &Job) -> Result<Vec<VerdictItem>, ReviewError> {
        tokio::select! {
            // The judge stops by itself, so that its records are kept.
            items = self.verdict(job) => items,
            () = stopped_for_long(job) => Err(ReviewError::Stopped),
        }
    }

    async fn verdict(&self, job: &Job) -> Result<Vec<VerdictItem>, ReviewError> {
        let ticket = &job.claim.ticket;
        let report = report_of(ticket);
        let deliverable = if checks::reads_files(ticket, &report) || ticket.review == ReviewPolicy::Judged {
            Deliverable::open(&self.blobs, ticket).await?
        } else {
            Deliverable::empty(&self.blobs)
        };
        let bench = Bench {
            blobs: &self.blobs,
            sandbox: self.sandbox.as_ref(),
            scratch: &self.config.reviewer.scratch_folder,
            limits: &self.config.limits,
            code: &self.config.worker,
        };
        let mut items = checks::run_all(ticket, &report, &deliverable, &bench).await?;
        items.extend(checks::write_set::check(&self.store, ticket, &deliverable).await?);
        job.pulse.beat();
        // I6: what code has rejected needs no opinion.
        if items.iter().any(|i| !i.pass) || ticket.review != ReviewPolicy::Judged {
            return Ok(items);
        }
        let goal =
            self.store.goal(&ticket.goal).await?.ok_or_else(|| ReviewError::NoGoal(ticket.goal.clone()))?;
        let account =
            Account::new(&self.store, &ticket.goal, &ticket.task_id, &self.config.lease).keeping(&self.blobs);
        let model = self.model.as_ref().map(|model| model.on_account(account));
        let judge = Judge {
            model: model.as_ref(),
            tier: self.config.reviewer.tier,
            blobs: &self.blobs,
            shown_bytes_max: self.config.reviewer.file_bytes_max,
            images_max: self.config.model.images_max,
            image_bytes_max: self.config.model.image_bytes_max,
        };
        let shadow = self.shadow(&goal.tenant, kind_of(&ticket.role)).await;
        let case = Case {
            goal: &goal,
            ticket,
            report: &report,
            deliverable: &deliverable,
            passed: &items,
            shadow: &shadow,
        };
        let mut records = vec![];
        let judged = judge.judge(&case, &job.stop, &|| job.pulse.beat(), &mut records).await;
        self.book(ticket, &records).await;
        let judged = judged?;
        items.extend(judged.items);
        let passes = items.iter().all(|i| i.pass);
        self.tally(&goal.tenant, kind_of(&ticket.role), passes, &judged.shadow).await;
        match self.store.reviewed(&self.actor).await {
            Ok(()) => self.judged.notify_one(),
            Err(error) => tracing::warn!(%error, "a review is not counted for its reviewer"),
        }
        Ok(items)
    }

    /// The standards that are in shadow for the kind. Best effort: no review waits for them.
    async fn shadow(&self, tenant: &str, kind: &str) -> Vec<Standard> {
        match self.store.standards(tenant, kind).await {
            Ok(all) => all.into_iter().filter(|t| t.state == State::Shadow).map(|t| t.standard).collect(),
            Err(error) => {
                tracing::warn!(%error, kind, "no standard is asked in shadow");
                vec![]
            }
        }
    }

    /// Counts what they came to beside the verdict.
    async fn tally(&self, tenant: &str, kind: &str, passes: bool, shadow: &[(String, bool)]) {
        if shadow.is_empty() {
            return;
        }
        let judged: Vec<(&str, bool)> = shadow.iter().map(|(id, pass)| (id.as_str(), *pass)).collect();
        if let Err(error) = self.store.tally_standards(tenant, kind, passes, &judged).await {
            tracing::warn!(%error, kind, "standards in shadow are not counted");
        }
    }

    /// Books what the calls cost, whatever came of them (I10).
    async fn book(&self, ticket: &Ticket, records: &[CallRecord]) {
        for record in records {
            count(self.config.reviewer.tier, record);
            if record.settled {
                continue;
            }
            let mut value = record.to_value();
            value["epoch"] = ticket.epoch.into();
            for attempt in 1..=BOOK_TRIES {
                let (id, tokens, microusd) = (&ticket.task_id, record.tokens(), record.microusd);
                match self.store.settle(&record.call, &ticket.goal, id, tokens, microusd, &value).await {
                    Ok(_) => break,
                    Err(error) if error.is_retryable() && attempt < BOOK_TRIES => {
                        tokio::time::sleep(BOOK_PAUSE * attempt).await;
                    }
                    Err(error) => {
                        tracing::error!(error = %error, record = %value, "model call not booked");
                        break;
                    }
                }
            }
        }
    }
}

/// Counts a call for the metrics.
pub(crate) fn count(tier: Tier, record: &CallRecord) {
    let took = Duration::from_millis(record.duration_ms);
    let role = metrics::Role::Reviewer;
    metrics::model_cost(role, record.microusd);
    let (input, output) = (record.input_tokens, record.output_tokens);
    metrics::model_call(role, tier.as_str(), call_of(&record.error), took, input, output);
}

/// The metric's word for how a call ended.
fn call_of(error: &str) -> metrics::Call {
    use metrics::Call as C;
    [C::Ours, C::Reply, C::Quota, C::Overload, C::Context, C::Auth, C::Network, C::Budget, C::Cancelled]
        .into_iter()
        .find(|call| call.as_str() == error)
        .unwrap_or(C::Ok)
}

/// After a stop the judge is given a moment to hand over its records.
async fn stopped_for_long(job: &Job) {
    job.stop.cancelled().await;
    tokio::time::sleep(RECORDS_GRACE).await;
}

/// The worker's report; a ticket that holds none claims nothing.
fn report_of(ticket: &Ticket) -> Report {
    serde_json::from_value(ticket.result.clone()).unwrap_or_default()
}
