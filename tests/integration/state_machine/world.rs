//! One goal on both sides: the tickets in Redis, their lives in the pure table, and every event that can be tried on them.

use anyhow::{Result, bail, ensure};
use harness::redis::Redis;
use shared::config;
use shared::goal::NewGoal;
use shared::message::Kind;
use shared::store::*;
use shared::ticket::patch::NewTicket;
use shared::ticket::{
    Caps, Cause, Event, FailClass, Illegal, Life, Report, ReviewPolicy, Status, Ticket, TicketSpec, Verdict,
    VerdictItem, new_id,
};
use std::collections::BTreeSet;

mod changes;

pub(super) type Next = fn(&Life, Event, &Caps) -> std::result::Result<Life, Illegal>;
const TICKETS_MAX: usize = 7;
const LONG_MS: u64 = 3_600_000;

/// What was reached over all histories.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) pairs: BTreeSet<(Status, String)>,
    pub(super) codes: BTreeSet<String>,
}

pub(super) struct World {
    pub(super) store: Store,
    raw: redis::aio::MultiplexedConnection,
    prefix: String,
    manager: Held,
    version: u64,
    steps: u64,
    caps: Caps,
    next: Next,
    ids: Vec<String>,
    lives: Vec<Life>,
    needs: Vec<BTreeSet<usize>>,
    open: Vec<BTreeSet<usize>>,
    held: Vec<Option<Held>>,
    accepted: Vec<[Option<(u64, String)>; 2]>,
    pub(super) seen: Seen,
}

fn lease(reviewer_wait_ms: u64) -> config::Lease {
    config::Lease { reviewer_wait_ms, ..config::Lease::default() }
}

fn spec(key: &str, review: ReviewPolicy) -> TicketSpec {
    TicketSpec { review, mandatory: false, ..TicketSpec::new(key, "do it", "it is done") }
}

impl World {
    pub(super) async fn new(server: &Redis, next: Next, reviews: [ReviewPolicy; 4]) -> Result<Self> {
        let prefix = format!("t{}", new_id());
        let cfg = config::Redis { url: server.url(), prefix: prefix.clone(), ..config::Redis::default() };
        let store = Store::connect(&cfg).await?;
        let raw = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
        let caps = Caps { waits: 3, releases: 3, review_releases: 3, asks: 3, ..Caps::default() };
        let goal =
            NewGoal { id: new_id(), tenant: "t".into(), text: "goal".into(), caps, ..NewGoal::default() };
        ensure!(store.submit_goal(&goal, 1000).await? == Submitted::New);
        let claim = store.manage_claim("m1", "lease-m", LONG_MS * 10).await?.expect("the plan event waits");
        let ids: Vec<String> = (0..4).map(|_| new_id()).collect();
        // 0 -> 1 -> 2: a need, a subject, a dependent; 3 stands alone.
        let page: Vec<NewTicket> = (0..4)
            .map(|i| NewTicket {
                id: ids[i].clone(),
                parent_id: goal.id.clone(),
                need_ids: if i == 1 || i == 2 { vec![ids[i - 1].clone()] } else { vec![] },
                spec: spec(&format!("k{i}"), reviews[i]),
            })
            .collect();
        ensure!(store.submit_tickets(&claim.held, &page).await? == Written::Ok);
        ensure!(store.submit_tickets(&claim.held, &page).await? == Written::Dup);
        ensure!(store.seal(&claim.held, 4).await? == Written::Ok);
        let mut world = Self {
            store,
            raw,
            prefix,
            manager: claim.held,
            version: 1,
            steps: 0,
            caps,
            next,
            ids,
            lives: reviews.iter().map(|r| Life::new(*r, true)).collect(),
            needs: vec![BTreeSet::new(), BTreeSet::from([0]), BTreeSet::from([1]), BTreeSet::new()],
            open: vec![BTreeSet::new(), BTreeSet::from([0]), BTreeSet::from([1]), BTreeSet::new()],
            held: vec![None; 4],
            accepted: vec![[None, None]; 4],
            seen: Seen::default(),
        };
        for root in [0, 3] {
            world.lives[root].needs_open = false;
            ensure!(world.apply(root, Event::NeedsMet)?.is_ok());
        }
        Ok(world)
    }

    /// The model takes the event; `Err` when the table says that it is not possible.
    fn apply(&mut self, i: usize, event: Event) -> Result<std::result::Result<(), Illegal>> {
        self.seen.pairs.insert((self.lives[i].status, format!("{event:?}")));
        let before = self.lives[i];
        match (self.next)(&before, event, &self.caps) {
            Err(e) => Ok(Err(e)),
            Ok(life) => {
                self.lives[i] = life;
                if life.epoch != before.epoch && !life.owned {
                    self.held[i] = None;
                }
                if life.status == Status::Done && before.status != Status::Done {
                    self.met(i)?;
                }
                let reopened =
                    event == Event::Reopened || event == Event::NeedReopened || event == Event::NeedAdded;
                if reopened && before.status == Status::Done {
                    for d in self.dependents(i) {
                        self.reopen(d, i)?;
                    }
                }
                Ok(Ok(()))
            }
        }
    }

    fn dependents(&self, i: usize) -> Vec<usize> {
        (0..self.ids.len()).filter(|d| self.needs[*d].contains(&i)).collect()
    }

    fn met(&mut self, i: usize) -> Result<()> {
        for d in self.dependents(i) {
            if self.open[d].remove(&i) && self.open[d].is_empty() {
                self.lives[d].needs_open = false;
                if self.lives[d].status == Status::Blocked {
                    ensure!(self.apply(d, Event::NeedsMet)?.is_ok());
                }
            }
        }
        Ok(())
    }

    fn reopen(&mut self, d: usize, need: usize) -> Result<()> {
        let status = self.lives[d].status;
        if status.is_terminal() && status != Status::Done {
            return Ok(());
        }
        self.open[d].insert(need);
        ensure!(self.apply(d, Event::NeedReopened)?.is_ok());
        Ok(())
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.needs[from].iter().any(|n| self.reaches(*n, to))
    }

    /// Redis holds what the model says, for every ticket.
    pub(super) async fn compare(&self, what: &str) -> Result<()> {
        for (i, id) in self.ids.iter().enumerate() {
            let t: Ticket = self.store.ticket(id).await?.expect("ticket");
            let l = &self.lives[i];
            let got = (
                t.status,
                t.lease_id.is_empty(),
                t.epoch,
                t.counters,
                t.revision,
                t.generation,
                t.cancel_asked,
            );
            let want = (l.status, !l.owned, l.epoch, l.counters, l.revision, l.generation, l.cancel_asked);
            ensure!(got == want, "{what}: ticket {i}: redis has {got:?}, the table says {want:?}");
            ensure!(
                Cause::parse(&t.cause) == l.cause,
                "{what}: ticket {i}: cause {:?}, {:?}",
                t.cause,
                l.cause
            );
            ensure!(t.review == l.review, "{what}: ticket {i}: review {:?}, {:?}", t.review, l.review);
        }
        Ok(())
    }

    /// Fan entries of cascades are told by the sweeper.
    async fn settle(&self) -> Result<()> {
        self.store.sweep(&lease(LONG_MS)).await?;
        Ok(())
    }

    fn code(&mut self, code: impl std::fmt::Debug) {
        self.seen.codes.insert(
            format!("{code:?}")
                .trim_matches('"')
                .split([' ', '{', '('])
                .next()
                .unwrap_or_default()
                .to_owned(),
        );
    }

    async fn claim(&mut self, kind: Kind) -> Result<()> {
        let lanes = match kind {
            Kind::Work => vec!["work.default".to_owned()],
            Kind::Review => vec!["review".to_owned()],
        };
        // Never the prefix that starts from the other end: there is one priority here.
        let prefix = format!("f{}", new_id());
        let request = ClaimRequest {
            kind,
            lanes: &lanes,
            consumer: "c1",
            lease_prefix: &prefix,
            lease_ms: LONG_MS,
            n: 1,
            actor: "reviewer",
        };
        let reply = self.store.claim(&request).await?;
        let again = self.store.claim(&request).await?;
        let ready = |l: &Life| match kind {
            Kind::Work => matches!(l.status, Status::Pending | Status::Rejected),
            Kind::Review => l.status == Status::Reviewing && !l.owned,
        };
        match (reply, again) {
            (ClaimReply::Got(got), ClaimReply::Got(repeat)) => {
                self.code("Got");
                ensure!(
                    got.len() == 1 && repeat.len() == 1 && got[0].held == repeat[0].held,
                    "a repeat got another ticket"
                );
                let i = self.ids.iter().position(|id| *id == got[0].held.id).expect("one of ours");
                let delivery = got[0].delivery.as_ref().expect("the delivery decodes");
                ensure!(delivery.ticket == got[0].held.id && delivery.epoch + 1 == got[0].held.epoch);
                ensure!(self.apply(i, Event::Claimed)?.is_ok(), "claimed {:?}", self.lives[i].status);
                self.held[i] = Some(got[0].held.clone());
            }
            (ClaimReply::Empty, ClaimReply::Empty) => {
                self.code("Empty");
                ensure!(!self.lives.iter().any(ready), "EMPTY although something is ready: {:?}", self.lives);
                // The claim of something not ready is impossible in the table too.
                for i in 0..self.ids.len() {
                    let waits = [Status::Reviewing, Status::Pending, Status::Rejected];
                    if !waits.contains(&self.lives[i].status) {
                        ensure!(self.apply(i, Event::Claimed)?.is_err());
                    }
                }
            }
            other => bail!("claim answered {other:?}"),
        }
        Ok(())
    }

    /// An owner's write: with the lease in hand, or with one that never was.
    async fn outcome(&mut self, i: usize, event: Event, zombie: bool) -> Result<()> {
        let stale = Held { id: self.ids[i].clone(), epoch: self.lives[i].epoch, lease_id: "never".into() };
        let held = if zombie { stale } else { self.held[i].clone().unwrap_or(stale) };
        let life = self.lives[i];
        let reviewing = life.status == Status::Reviewing;
        let review_event = matches!(event, Event::Passed | Event::ItemFailed);
        let report = Report { status: "done".into(), summary: "s".into(), ..Report::default() };
        let item = |pass| VerdictItem {
            item: "i".into(),
            pass,
            reason: "r".into(),
            evidence: String::new(),
            by_code: true,
        };
        let goal = self.store.goal(&self.manager.id).await?.expect("goal");
        let roots = Some((goal.root.clone(), format!("root{}", self.steps)));
        let mut answers = vec![];
        for _ in 0..2 {
            let fail = |class| Failure { held: held.clone(), class, detail: "why".into(), delay_ms: 0 };
            answers.push(match event {
                Event::Completed => {
                    let c = Completion {
                        held: held.clone(),
                        report: report.clone(),
                        overlay_ref: "o".into(),
                        actor: "worker".into(),
                        roots: roots.clone(),
                    };
                    self.store.complete(&[c]).await?[0]
                }
                Event::Passed | Event::ItemFailed => {
                    let verdict = Verdict { items: vec![item(true), item(event == Event::Passed)] };
                    let d = Decision {
                        held: held.clone(),
                        verdict,
                        actor: "reviewer".into(),
                        roots: roots.clone(),
                    };
                    self.store.decide(&[d]).await?[0]
                }
                Event::Failed(class) => self.store.fail(&fail(class)).await?,
                Event::Released => self.store.release(&held).await?,
                Event::Conflicted => self.store.conflict(&held, "both hashes", true, "").await?,
                Event::ConflictStands => self.store.conflict(&held, "both hashes", false, "").await?,
                Event::ConfirmationAsked => {
                    let permit = Permit {
                        digest: "d".into(),
                        tool: "t".into(),
                        args: serde_json::json!({"empty": []}),
                        revision: 0,
                        state: "asked".into(),
                        note: String::new(),
                        ..Permit::default()
                    };
                    self.store.park(&held, &permit, LONG_MS).await?
                }
                other => bail!("{other:?} is not an owner's write"),
            });
        }
        answers.iter().for_each(|a| self.code(a));
        let owner = !zombie && self.held[i].is_some() && life.owned;
        let fits = match event {
            Event::Completed | Event::ConfirmationAsked => life.status == Status::Running,
            Event::Passed | Event::ItemFailed => reviewing,
            _ => true,
        };
        if owner && fits {
            ensure!(
                self.apply(i, event)?.is_ok(),
                "{event:?} in {:?} is refused by the table only",
                life.status
            );
            let want = match self.lives[i].status {
                Status::Escalated => Written::Escalated,
                Status::Cancelled => Written::Cancelled,
                _ => Written::Ok,
            };
            let decided = matches!(event, Event::Completed);
            ensure!(
                answers[0] == want || (decided && answers[0] == Written::Ok),
                "{event:?}: {answers:?}, {want:?}"
            );
            // L3: the repeat after a lost reply is known.
            ensure!(answers[1] == Written::Dup, "repeat of {event:?} answered {:?}", answers[1]);
            self.accepted[i][usize::from(reviewing || review_event)] = Some((held.epoch, held.lease_id));
        } else {
            if !owner {
                ensure!(self.apply_is_illegal_or_owned(i, event), "{event:?} in {:?}", life.status);
            }
            // I3
            ensure!(answers.iter().all(|a| *a == Written::Fenced), "{event:?} by a zombie: {answers:?}");
        }
        Ok(())
    }

    /// Without an owner the table refuses, or it is a matter of the lease alone.
    fn apply_is_illegal_or_owned(&mut self, i: usize, event: Event) -> bool {
        self.seen.pairs.insert((self.lives[i].status, format!("{event:?}")));
        let l = self.lives[i];
        l.owned || (self.next)(&l, event, &self.caps).is_err()
    }

    async fn lapse(&mut self, i: usize) -> Result<()> {
        let owned = self.lives[i].owned;
        let key = format!("{}:{{s0}}:lease", self.prefix);
        if owned {
            let _: () = redis::cmd("ZADD")
                .arg(&key)
                .arg("XX")
                .arg(1)
                .arg(&self.ids[i])
                .query_async(&mut self.raw)
                .await?;
        }
        let legal = self.apply(i, Event::Lapsed)?.is_ok();
        ensure!(legal == owned);
        self.store.sweep(&lease(LONG_MS)).await?;
        Ok(())
    }

    pub(super) async fn step(&mut self, op: u8, ticket: u8, arg: u8) -> Result<()> {
        let i = usize::from(ticket) % self.ids.len();
        let zombie = arg.is_multiple_of(8);
        let classes = [FailClass::Fault, FailClass::Wait, FailClass::NotRetryable];
        match op % 32 {
            0..=4 => self.claim(Kind::Work).await?,
            5..=7 => self.claim(Kind::Review).await?,
            8 | 9 => self.outcome(i, Event::Completed, zombie).await?,
            10 => self.outcome(i, Event::Passed, zombie).await?,
            11 | 12 => self.outcome(i, Event::ItemFailed, zombie).await?,
            13 | 14 => self.outcome(i, Event::Failed(classes[usize::from(arg / 8) % 3]), zombie).await?,
            15 => self.outcome(i, Event::Released, zombie).await?,
            16 if arg % 4 == 2 => self.outcome(i, Event::ConflictStands, zombie).await?,
            16 => self.outcome(i, Event::Conflicted, zombie).await?,
            17 => self.outcome(i, Event::ConfirmationAsked, zombie).await?,
            18 => self.lapse(i).await?,
            19 => self.patch(i, Event::Rewritten, 0).await?,
            20 => self.patch(i, Event::ReviewAgain, 0).await?,
            21 => self.patch(i, Event::Modified, 0).await?,
            22 if arg.is_multiple_of(4) => self.patch(i, Event::Skipped, 0).await?,
            22 if arg % 4 == 1 => self.patch(i, Event::FailedForGood, 0).await?,
            22 if arg % 4 == 2 => self.patch(i, Event::Split, 0).await?,
            22 => self.cancel(i).await?,
            23 => self.patch(i, Event::HandedOver, 0).await?,
            24 => self.patch(i, Event::NeedAdded, usize::from(arg)).await?,
            25 => self.person(i, Event::PersonRetry, arg).await?,
            26 => self.person(i, Event::PersonDelivers, arg).await?,
            27 => self.person(i, Event::Reopened, arg).await?,
            28 => self.person(i, Event::PermitAnswered, arg).await?,
            29 if arg.is_multiple_of(4) => self.person(i, Event::Skipped, arg).await?,
            29 if arg % 4 == 1 => self.person(i, Event::FailedForGood, arg).await?,
            29 => self.person(i, Event::PermitAnswered, arg).await?,
            30 if arg.is_multiple_of(3) => self.cancel(i).await?,
            30 if arg % 3 == 1 => self.no_reviewer(i).await?,
            _ => self.outcome(i, Event::Failed(FailClass::Fault), false).await?,
        }
        self.settle().await?;
        Ok(())
    }
}
