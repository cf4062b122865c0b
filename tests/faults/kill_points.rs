//! Every call that a program makes to Redis while a goal is done is a point to die at: before the server gets the call, and
//! after it has done it and before the answer is there. The points are found by watching a run; a seeded sample is tried
//! in every run of the tests, every one of them under the full scale. 0 lost, 0 accepted twice.

use harness::fleet::{Fleet, Role};
use harness::oracle;
use harness::redis::Redis;
use harness::scale::{Scale, scale};
use harness::turnstile::{Blow, Point, Turnstile, When};
use harness::wait;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use shared::store::Store;
use std::collections::BTreeMap;

/// The same call again is the same point again: only what waits and beats is repeated more often than this in a goal.
const NTH_MAX: usize = 12;

/// A point that hangs on time (the second beat, the ninth wait) may be passed by in a run; so often it is looked for.
const TRIES_PER_POINT: usize = 4;

/// One program of each kind, each behind a turnstile of its own.
struct Gated {
    fleet: Fleet,
    gates: Vec<(Role, Turnstile)>,
    store: Store,
    runs: usize,
}

impl Gated {
    async fn start() -> Self {
        let redis = Redis::start().await.unwrap();
        let plan = Fleet::plan().managers(0).workers(0).reviewers(0).lease(|lease| {
            if scale() == Scale::Short {
                lease.lease_ms = 1_000;
                lease.renew_ms = 200;
                lease.sweep_ms = 100;
            } else {
                // Hundreds of goals: the periods are those of a hasty fleet, the points are what counts here.
                (lease.lease_ms, lease.renew_ms, lease.sweep_ms, lease.outage_ms) = (1_000, 200, 100, 3_000);
                lease.audit_ms = 1_000;
                lease.retry_delay_ms = 50;
            }
        });
        let mut fleet = plan.start_on(redis).await.unwrap();
        let mut gates = vec![];
        for role in [Role::Manager, Role::Worker, Role::Reviewer] {
            let gate = Turnstile::start(fleet.redis.port()).await.unwrap();
            fleet.add_with(role, &[("REDIS__URL", &gate.url())]).unwrap();
            gates.push((role, gate));
        }
        fleet.ready().await.unwrap();
        let store = fleet.store().await.unwrap();
        Self { fleet, gates, store, runs: 0 }
    }

    /// Runs a goal with the point armed, and says whether the program came to it.
    async fn reaches(&mut self, role: Role, point: &Point) -> bool {
        self.run(role, Some(point)).await;
        self.gate(role).fired()
    }

    fn gate(&self, role: Role) -> &Turnstile {
        &self.gates.iter().find(|(r, _)| *r == role).unwrap().1
    }

    /// A goal from its submit to its end, with a program that is started for it and dies at the point; whoever is dead is
    /// started again.
    async fn run(&mut self, role: Role, point: Option<&Point>) {
        self.runs += 1;
        self.fleet.program(role, 0).kill();
        self.gate(role).arm(point.cloned());
        self.fleet.program(role, 0).start().unwrap();
        let pid = self.fleet.program(role, 0).pid();
        self.gate(role).aim(pid);
        let what = point.map_or_else(|| format!("{role:?} is watched"), |p| format!("{role:?}: {p}"));
        let text = format!("{what} in run {}", self.runs);
        let body = json!({"text": text, "idempotency_key": text,
            "plan": {"goal": {"text": text}, "tickets": tickets()}});
        let api = self.fleet.api();
        let mut goal = None;
        let ended = wait::until(&what, scale().patience() * 2, async || {
            let program = self.fleet.program(role, 0);
            if program.has_ended().is_some() {
                program.start()?;
            }
            if goal.is_none() {
                goal = Some(api.submit(&body).await?);
            }
            let now = self.store.goal(goal.as_deref().unwrap_or_default()).await?;
            Ok(now.filter(|g| g.state.is_terminal()))
        });
        let ended = ended.await.unwrap();
        assert_eq!(ended.state.as_str(), "done", "{what}: {} {}", ended.cause, ended.cause_detail);
        self.holds(role, &what, &ended.id).await;
    }

    /// 0 lost, 0 accepted twice, effects once.
    async fn holds(&mut self, role: Role, what: &str, goal: &str) {
        let events = oracle::events(&self.store, goal).await.unwrap();
        let times = oracle::acceptances(&events);
        assert_eq!((times.len(), times.values().all(|n| *n == 1)), (3, true), "{what}: {times:?}");
        let checked = wait::until("the oracle finds nothing", scale().patience(), async || {
            oracle::check_goal(&self.store, goal).await.map(Some)
        });
        checked.await.unwrap_or_else(|e| panic!("{what}: {e:#}"));
        let api = self.fleet.api();
        let listed = wait::until("the files are listed", scale().patience(), async || {
            // It may have died when all was done.
            let program = self.fleet.program(role, 0);
            if program.has_ended().is_some() {
                program.start()?;
            }
            api.get(&format!("/v1/goals/{goal}/files")).await.map(Some)
        });
        let files = listed.await.unwrap_or_else(|e| panic!("{what}: {e:#}"));
        for file in files["files"].as_array().unwrap() {
            assert_eq!(file["version"], 1, "{what}: published more than once: {file}");
        }
        assert_eq!(files["files"].as_array().unwrap().len(), 3, "{what}: {files}");
    }

    /// The points of this role, found by watching two runs: what one of them does, all of its kind do.
    async fn points(&mut self, role: Role) -> Vec<Point> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..2 {
            self.run(role, None).await;
            for (call, n) in self.gate(role).counts() {
                let most = counts.entry(call).or_default();
                *most = n.min(NTH_MAX).max(*most);
            }
        }
        let mut points = vec![];
        for (call, most) in counts {
            for nth in 1..=most {
                for (when, blow) in [
                    (When::Before, Blow::Kill),
                    (When::After, Blow::Kill),
                    (When::Before, Blow::Cut),
                    (When::After, Blow::Cut),
                ] {
                    points.push(Point { call: call.clone(), nth, when, blow });
                }
            }
        }
        points
    }
}

/// Work without review, work that is reviewed, and one that needs both. No model, no sandbox.
fn tickets() -> Value {
    let ticket = |id: &str, needs: &[&str], review: &str| {
        let path = format!("data/{id}.txt");
        json!({"id": id, "needs": needs, "description": "note", "tool": "write_file", "outputs": [path],
            "args": {"path": path, "content": "noted\n"}, "review": review})
    };
    json!([ticket("a", &[], "none"), ticket("b", &[], "code"), ticket("join", &["a", "b"], "code")])
}

/// Calls that every program of the role makes in a goal: were one of them not seen, the watching would be wrong.
fn must_be_seen(role: Role) -> &'static [&'static str] {
    match role {
        Role::Manager => &["submit_goal", "manage_claim", "plan_store", "tickets", "seal", "manage_finish"],
        Role::Worker => &["claim", "complete"],
        Role::Reviewer => &["claim", "decide"],
    }
}

/// Calls of every program's clock: seen or not, as a short goal has it.
const PERIODIC: &[&str] = &["renew", "sweep"];

async fn enumerate(role: Role, sample: usize) {
    let mut gated = Gated::start().await;
    let mut points = gated.points(role).await;
    for call in must_be_seen(role) {
        assert!(points.iter().any(|p| p.call == *call), "{role:?} was never seen to call {call}");
    }
    let all = points.len();
    let (mut tried, mut missed) = (0, vec![]);
    if scale() == Scale::Short {
        // Of the calls that change tickets and goals, and of all others. What depends on time (a beat, a wait) is not
        // reached in every run: the next one of the sample takes its place.
        points.shuffle(&mut StdRng::seed_from_u64(7));
        let (carrying, others): (Vec<_>, Vec<_>) = points.into_iter().partition(|p| {
            let call = p.call.as_str();
            (must_be_seen(role).contains(&call) || PERIODIC.contains(&call))
                && p.blow == Blow::Kill
                && p.nth <= 2
        });
        for (group, wanted) in [(carrying, sample), (others, sample / 2)] {
            let mut reached = 0;
            for point in group.iter().take(wanted * TRIES_PER_POINT) {
                tried += 1;
                if gated.reaches(role, point).await {
                    reached += 1;
                } else {
                    missed.push(point.to_string());
                }
                if reached == wanted {
                    break;
                }
            }
            assert_eq!(reached, wanted, "{role:?}: a sample of {all} points was not reached: {missed:?}");
        }
    } else {
        for point in &points {
            tried += 1;
            let mut tries = 1;
            while !gated.reaches(role, point).await && tries < TRIES_PER_POINT {
                tries += 1;
            }
            if tries == TRIES_PER_POINT && !gated.gate(role).fired() {
                missed.push(point.to_string());
            }
        }
        assert!(missed.len() * 10 < all, "{} of {all} points were never reached: {missed:?}", missed.len());
    }
    eprintln!("{role:?}: {all} points known, {tried} tried, never reached: {missed:?}");
    gated.fleet.no_panics().unwrap();
    gated.fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn kill_points_of_the_worker() {
    enumerate(Role::Worker, 4).await;
}

#[tokio::test]
async fn kill_points_of_the_reviewer() {
    enumerate(Role::Reviewer, 4).await;
}

#[tokio::test]
async fn kill_points_of_the_manager() {
    enumerate(Role::Manager, 4).await;
}
