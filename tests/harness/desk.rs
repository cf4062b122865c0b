//! A desk at which a test plays manager, worker and reviewer itself, against the store and a real Redis.

use crate::redis::{Options, Redis};
use crate::scale::scale;
use anyhow::{Context, Result, bail};
use shared::config::Lease;
use shared::goal::NewGoal;
use shared::message::Kind;
use shared::store::{
    Claim, ClaimReply, ClaimRequest, Completion, Consumer, Decision, Failure, Finish, Finished, GoalClaim,
    Held, Store, Submitted, Written,
};
use shared::ticket::patch::NewTicket;
use shared::ticket::{
    FailClass, Report, ReviewPolicy, Status, Ticket, TicketSpec, Verdict, VerdictItem, new_id,
};
use std::collections::BTreeMap;

/// Lane of the default pool.
pub const WORK: &str = "work.default";
pub const REVIEW: &str = "review";
const EXPIRY_MS: u64 = 3_600_000;

/// Store, server and periods.
pub struct Desk {
    pub redis: Redis,
    pub store: Store,
    pub lease: Lease,
}

/// A goal whose plan is sealed.
#[derive(Clone, Debug)]
pub struct Planned {
    pub goal: String,
    /// Ticket ids by key.
    pub ids: BTreeMap<String, String>,
}

impl Planned {
    /// Id of the ticket with this key.
    #[must_use]
    pub fn id(&self, key: &str) -> &str {
        self.ids.get(key).map_or("", String::as_str)
    }
}

/// A ticket of a plan: key, needs, policy.
#[must_use]
pub fn spec(key: &str, needs: &[&str], review: ReviewPolicy) -> TicketSpec {
    TicketSpec {
        needs: needs.iter().map(|n| (*n).to_owned()).collect(),
        review,
        ..TicketSpec::new(key, &format!("do {key}"), &format!("outputs/{key}.md"))
    }
}

/// `n` tickets without needs and without review.
#[must_use]
pub fn independent(n: usize) -> Vec<TicketSpec> {
    (0..n).map(|i| spec(&format!("t{i:04}"), &[], ReviewPolicy::None)).collect()
}

impl Desk {
    /// Store on a server as production has it.
    ///
    /// # Errors
    /// When the server or the store does not start.
    pub async fn start() -> Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// Store on a server with these options.
    ///
    /// # Errors
    /// As [`Desk::start`].
    pub async fn start_with(options: Options) -> Result<Self> {
        let redis = Redis::start_with(options).await?;
        let store = Store::connect(&redis.config()).await?;
        Ok(Self { redis, store, lease: scale().lease() })
    }

    /// A second store on the same server, with connections of its own (through a proxy when `url` is one's).
    ///
    /// # Errors
    /// When it does not connect.
    pub async fn another_store(&self, url: &str) -> Result<Store> {
        Ok(Store::connect(&self.redis.config_at(url)).await?)
    }

    /// Submits a goal and seals this plan of it; the manager's step is finished.
    ///
    /// # Errors
    /// When any step is answered otherwise than with OK.
    pub async fn plan(&self, specs: &[TicketSpec]) -> Result<Planned> {
        self.plan_of(NewGoal { text: "test goal".into(), ..NewGoal::default() }, specs).await
    }

    /// As [`Desk::plan`], for a goal with settings of its own; its id is made here.
    ///
    /// # Errors
    /// As [`Desk::plan`].
    pub async fn plan_of(&self, goal: NewGoal, specs: &[TicketSpec]) -> Result<Planned> {
        let goal = NewGoal { id: new_id(), ..goal };
        let claim = self.submit(&goal).await?;
        let planned = self.seal(&claim, specs).await?;
        self.finish(&claim, claim.read).await?;
        Ok(planned)
    }

    /// Submits and takes the goal as its manager.
    ///
    /// # Errors
    /// When the goal is not new or another one is first in the queue.
    pub async fn submit(&self, goal: &NewGoal) -> Result<GoalClaim> {
        expect(self.store.submit_goal(goal, usize::MAX / 2).await?, Submitted::New)?;
        let claim = self.manage().await?.context("the goal's manager is not called")?;
        if claim.held.id != goal.id {
            bail!("another goal is first in the queue");
        }
        Ok(claim)
    }

    /// Takes whatever goal waits for a manager.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn manage(&self) -> Result<Option<GoalClaim>> {
        Ok(self.store.manage_claim("manager-test", &new_id(), self.lease.lease_ms.max(10_000)).await?)
    }

    /// Stores and seals the plan under the manager's lease.
    ///
    /// # Errors
    /// When any page or the seal is not taken.
    pub async fn seal(&self, claim: &GoalClaim, specs: &[TicketSpec]) -> Result<Planned> {
        expect(self.store.plan_store(&claim.held, "plan").await?, Written::Ok)?;
        let planned = self.pages(claim, specs).await?;
        expect(self.store.seal(&claim.held, specs.len()).await?, Written::Ok)?;
        Ok(planned)
    }

    /// Stores the tickets of a plan under the manager's lease, not sealed yet.
    ///
    /// # Errors
    /// When any page is not taken.
    pub async fn pages(&self, claim: &GoalClaim, specs: &[TicketSpec]) -> Result<Planned> {
        let ids: BTreeMap<String, String> = specs.iter().map(|s| (s.key.clone(), new_id())).collect();
        let tickets = specs
            .iter()
            .map(|s| {
                let need_ids =
                    s.needs.iter().map(|n| ids.get(n).cloned().with_context(|| format!("need {n}")));
                Ok(NewTicket {
                    id: ids.get(&s.key).cloned().unwrap_or_default(),
                    parent_id: claim.held.id.clone(),
                    need_ids: need_ids.collect::<Result<_>>()?,
                    spec: s.clone(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        for page in tickets.chunks(100) {
            expect(self.store.submit_tickets(&claim.held, page).await?, Written::Ok)?;
        }
        Ok(Planned { goal: claim.held.id.clone(), ids })
    }

    /// Ends the manager's step: it decided something, more may come.
    ///
    /// # Errors
    /// When the finish is refused.
    pub async fn finish(&self, claim: &GoalClaim, read: usize) -> Result<Finished> {
        let finish = Finish::Continue { decided: true };
        let done = self.store.manage_finish(&claim.held, &new_id(), 0, read, &finish, EXPIRY_MS).await?;
        if !matches!(done, Finished::Ok | Finished::Again) {
            bail!("finish answered {done:?}");
        }
        Ok(done)
    }

    /// One claim call with a prefix of its own.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn claim(&self, kind: Kind, consumer: &str, n: usize) -> Result<ClaimReply> {
        claim_through(&self.store, kind, consumer, &new_id(), self.lease.lease_ms, n).await
    }

    /// Up to `n` tickets for work; empty when there are none.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn work(&self, n: usize) -> Result<Vec<Claim>> {
        self.take(Kind::Work, "worker-test", n).await
    }

    /// Up to `n` tickets for review; empty when there are none.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn reviews(&self, n: usize) -> Result<Vec<Claim>> {
        self.take(Kind::Review, "reviewer-test", n).await
    }

    /// Claims again while the answer is AGAIN.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn take(&self, kind: Kind, consumer: &str, n: usize) -> Result<Vec<Claim>> {
        for _ in 0..1_000 {
            match self.claim(kind, consumer, n).await? {
                ClaimReply::Got(claims) => return Ok(claims),
                ClaimReply::Empty | ClaimReply::Paused { .. } => return Ok(vec![]),
                ClaimReply::Again { .. } => {}
            }
        }
        bail!("AGAIN a thousand times")
    }

    /// The one ticket that is there for work.
    ///
    /// # Errors
    /// When there is none.
    pub async fn one(&self) -> Result<Claim> {
        self.work(1).await?.pop().context("nothing to claim")
    }

    /// The one ticket that is there for review.
    ///
    /// # Errors
    /// When there is none.
    pub async fn one_review(&self) -> Result<Claim> {
        self.reviews(1).await?.pop().context("nothing to review")
    }

    /// Hands in the work, without files.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn complete(&self, held: &Held) -> Result<Written> {
        self.store.complete(&[completion(held)]).await?.pop().context("one answer")
    }

    /// Passes or rejects.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn decide(&self, held: &Held, pass: bool) -> Result<Written> {
        self.store.decide(&[decision(held, pass)]).await?.pop().context("one answer")
    }

    /// The attempt failed.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn fail(&self, held: &Held, class: FailClass, delay_ms: u64) -> Result<Written> {
        Ok(self.store.fail(&Failure { held: held.clone(), class, detail: "test".into(), delay_ms }).await?)
    }

    /// One round of the sweeper.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn sweep(&self) -> Result<shared::store::Swept> {
        Ok(self.store.sweep(&self.lease).await?)
    }

    /// A live worker of these lanes appears.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn serves(&self, lanes: &[&str]) -> Result<()> {
        let lanes = lanes.iter().map(|lane| (*lane).to_owned()).collect();
        let worker =
            Consumer { id: "worker-desk".into(), role: "worker".into(), lanes, ..Consumer::default() };
        Ok(self.store.publish_consumer(&worker, "").await?)
    }

    /// The ticket as it stands.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn ticket(&self, id: &str) -> Result<Ticket> {
        self.store.ticket(id).await?.with_context(|| format!("no ticket {id}"))
    }

    /// Its status.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn status(&self, id: &str) -> Result<Status> {
        Ok(self.ticket(id).await?.status)
    }

    /// Claims, completes and passes whatever there is until nothing is left; sweeps in between.
    ///
    /// # Errors
    /// When a write is not taken.
    pub async fn drain(&self) -> Result<usize> {
        let (mut done, mut empty_rounds) = (0, 0);
        loop {
            let work = self.work(16).await?;
            let reviews = self.reviews(16).await?;
            if work.is_empty() && reviews.is_empty() {
                empty_rounds += 1;
                // A sweep may release what was not there a moment ago.
                if empty_rounds > 1 && !self.sweep().await?.more {
                    return Ok(done);
                }
                self.sweep().await?;
                continue;
            }
            empty_rounds = 0;
            for claim in work {
                expect(self.complete(&claim.held).await?, Written::Ok)?;
                done += usize::from(claim.ticket.review == ReviewPolicy::None);
            }
            for claim in reviews {
                expect(self.decide(&claim.held, true).await?, Written::Ok)?;
                done += 1;
            }
        }
    }

    /// What must hold after every test: see [`crate::oracle`].
    ///
    /// # Errors
    /// All that does not hold.
    pub async fn oracle(&self) -> Result<()> {
        crate::oracle::check(&self.store).await
    }
}

/// A claim through any store, with the prefix that a repeat would carry.
///
/// # Errors
/// When the store does not answer.
pub async fn claim_through(
    store: &Store,
    kind: Kind,
    consumer: &str,
    prefix: &str,
    lease_ms: u64,
    n: usize,
) -> Result<ClaimReply> {
    let lane = if kind == Kind::Work { WORK } else { REVIEW };
    let lanes = [lane.to_owned()];
    let request = ClaimRequest {
        kind,
        lanes: &lanes,
        consumer,
        lease_prefix: prefix,
        lease_ms,
        n,
        actor: if kind == Kind::Work { "work-actor" } else { "review-actor" },
    };
    Ok(store.claim(&request).await?)
}

/// Work handed in without files.
#[must_use]
pub fn completion(held: &Held) -> Completion {
    Completion {
        held: held.clone(),
        report: Report { status: "done".into(), summary: "done".into(), ..Report::default() },
        overlay_ref: String::new(),
        actor: "work-actor".into(),
        roots: None,
    }
}

/// A verdict with one item.
#[must_use]
pub fn decision(held: &Held, pass: bool) -> Decision {
    let item = VerdictItem {
        item: "it is good".into(),
        pass,
        reason: "seen".into(),
        evidence: String::new(),
        by_code: true,
    };
    Decision {
        held: held.clone(),
        verdict: Verdict { items: vec![item] },
        actor: "review-actor".into(),
        roots: None,
    }
}

/// The answer that is wanted, or an error that names both.
///
/// # Errors
/// When it is another.
#[track_caller]
pub fn expect<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Result<()> {
    if got == want {
        return Ok(());
    }
    bail!("answered {got:?}, wanted {want:?} ({})", std::panic::Location::caller())
}
