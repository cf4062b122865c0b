//! Every metric of the three programs: name, help, labels. A number to watch is added here and nowhere else, and
//! described in `deploy/METRICS.md` (a test compares them).
//!
//! Label values come from the enums in [`words`] or from the configuration (lanes, at most [`LANES_MAX`] of them),
//! never from ids, tenants, hosts, URLs, model output or error texts (Q51): the count of series must not grow with
//! the work. [`begin`] makes every series of a program at its start, so that a rate has a zero to begin from.

mod words;

pub use words::{Answer, Call, Outcome, Redis, Replan, Role, Tool, Webhook};

use prometheus::proto::MetricFamily;
use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use words::{ASKED_FOR, TIERS};

/// Seconds; from a hop in Redis to an hour's run.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
    3600.0,
];
/// Lanes with series of their own; a plan may name any pool, so the rest goes together as `other`.
const LANES_MAX: usize = 32;

struct All {
    registry: Registry,
    submitted: IntCounter,
    claimed: IntCounterVec,
    outcomes: IntCounterVec,
    writes: IntCounterVec,
    renewals: IntCounterVec,
    swept: IntCounterVec,
    sweeps: IntCounterVec,
    redis: IntCounterVec,
    model_calls: IntCounterVec,
    model_tokens: IntCounterVec,
    model_fallbacks: IntCounterVec,
    model_microusd: IntCounterVec,
    tool_calls: IntCounterVec,
    review_items: IntCounterVec,
    reviewer_probes: IntCounterVec,
    http: IntCounterVec,
    replans: IntCounterVec,
    webhooks: IntCounterVec,
    queue_wait: HistogramVec,
    run: HistogramVec,
    model_seconds: HistogramVec,
    model_wait: HistogramVec,
    renew_seconds: Histogram,
    redis_seconds: Histogram,
    model_waiting: IntGaugeVec,
    busy: IntGauge,
    slots: IntGauge,
    leaked: IntGauge,
}

#[expect(clippy::expect_used, reason = "names and labels are constants; the test below makes them all")]
static ALL: LazyLock<All> = LazyLock::new(|| All::new().expect("metric definitions are valid"));
/// What a manager last measured; `None`: nothing is known, so nothing is said.
static SEEN: Mutex<Option<Seen>> = Mutex::new(None);

impl All {
    #[rustfmt::skip]
    fn new() -> Result<Self, prometheus::Error> {
        let r = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| -> Result<IntCounterVec, prometheus::Error> {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            r.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let metric = IntGauge::new(name, help)?;
            r.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let by_role = |name: &str, help: &str| -> Result<HistogramVec, prometheus::Error> {
            let metric = HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), &["role"])?;
            r.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let seconds = |name: &str, help: &str| -> Result<Histogram, prometheus::Error> {
            let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))?;
            r.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let submitted = IntCounter::new("muster_submitted_total", "Goals submitted through this manager")?;
        let model_waiting = IntGaugeVec::new(
            Opts::new("muster_model_waiting", "Calls of this process that wait for the governor or the budget"), &["role"])?;
        r.register(Box::new(model_waiting.clone()))?;
        let all = Self {
            submitted,
            model_waiting,
            claimed: counter("muster_claimed_total", "Tickets (or goals) claimed", &["role"])?,
            outcomes: counter("muster_outcomes_total", "What the handler made of a ticket", &["role", "outcome"])?,
            writes: counter("muster_writes_total", "What the store said to an outcome", &["role", "answer"])?,
            renewals: counter("muster_renewals_total", "Answers to renewals, one a ticket", &["answer"])?,
            swept: counter("muster_swept_total", "What this process's sweeps moved", &["what"])?,
            sweeps: counter("muster_sweeps_total", "Sweeps of this process by how they ended", &["outcome"])?,
            redis: counter("muster_redis_events_total", "What became of calls of Redis beside an answer", &["event"])?,
            model_calls: counter("muster_model_calls_total", "Calls of a model by how they ended", &["role", "tier", "outcome"])?,
            model_tokens: counter("muster_model_tokens_total", "Tokens as the endpoint counts them", &["role", "direction"])?,
            model_fallbacks: counter("muster_model_fallbacks_total", "Times that a model was out and the next of its chain was asked", &["role"])?,
            model_microusd: counter("muster_model_cost_microusd_total", "Millionths of a dollar by the configured prices", &["role"])?,
            tool_calls: counter("muster_tool_calls_total", "Tool calls by whose tool it is and how they ended", &["kind", "outcome"])?,
            review_items: counter("muster_review_items_total", "Items of verdicts by who decided them and how", &["by", "result"])?,
            reviewer_probes: counter("muster_reviewer_probes_total", "Known deliverables put before this process's judge, by what it said", &["kind", "outcome"])?,
            http: counter("muster_http_requests_total", "API requests by class of status", &["status"])?,
            replans: counter("muster_replans_total", "Times that a model looked at a whole plan anew, by what came of it", &["outcome"])?,
            webhooks: counter("muster_webhooks_total", "Calls of the configured address outside, by what became of them", &["outcome"])?,
            queue_wait: by_role("muster_queue_wait_seconds", "From ready to claimed, by the Redis clock")?,
            run: by_role("muster_run_seconds", "From claimed to the handler's outcome")?,
            model_seconds: by_role("muster_model_seconds", "Duration of a model call, waiting for its turn included")?,
            model_wait: by_role("muster_model_wait_seconds", "How long a call that had to wait waited for its turn")?,
            renew_seconds: seconds("muster_renew_seconds", "Round trip of a renewal")?,
            redis_seconds: seconds("muster_redis_seconds", "Round trip of a call of Redis that was answered")?,
            busy: gauge("muster_slots_busy", "Tickets in work in this process")?,
            slots: gauge("muster_slots", "Slots of this process")?,
            leaked: gauge("muster_slots_leaked", "Slots whose handler ignores its stop token")?,
            registry: r.clone(),
        };
        #[cfg(target_os = "linux")]
        r.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(all)
    }
}

/// Makes every series that a program of this role will ever have.
pub fn begin(role: Role) {
    let (all, word) = (&*ALL, role.as_str());
    all.claimed.with_label_values(&[word]);
    Outcome::ALL.iter().for_each(|o| drop(all.outcomes.with_label_values(&[word, o.as_str()])));
    Answer::ALL.iter().for_each(|a| drop(all.writes.with_label_values(&[word, a.as_str()])));
    renewals(0, 0, 0);
    swept(0, 0, 0, 0);
    ["ok", "failed"].iter().for_each(|o| drop(all.sweeps.with_label_values(&[*o])));
    Redis::ALL.iter().for_each(|e| drop(all.redis.with_label_values(&[e.as_str()])));
    for tier in TIERS {
        Call::ALL.iter().for_each(|c| drop(all.model_calls.with_label_values(&[word, tier, c.as_str()])));
    }
    ["input", "output"].iter().for_each(|d| drop(all.model_tokens.with_label_values(&[word, *d])));
    all.model_microusd.with_label_values(&[word]);
    all.model_fallbacks.with_label_values(&[word]);
    all.model_waiting.with_label_values(&[word]);
    for histogram in [&all.queue_wait, &all.run, &all.model_seconds, &all.model_wait] {
        histogram.with_label_values(&[word]);
    }
    match role {
        Role::Manager => {
            // Only a manager takes goals in and serves people.
            let _ = all.registry.register(Box::new(all.submitted.clone()));
            HTTP.iter().for_each(|class| drop(all.http.with_label_values(&[*class])));
            Webhook::ALL.iter().for_each(|w| drop(all.webhooks.with_label_values(&[w.as_str()])));
            Replan::ALL.iter().for_each(|r| drop(all.replans.with_label_values(&[r.as_str()])));
        }
        Role::Worker => {
            for kind in Tool::ALL {
                ["ok", "error"]
                    .iter()
                    .for_each(|o| drop(all.tool_calls.with_label_values(&[kind.as_str(), o])));
            }
        }
        Role::Reviewer => {
            for by in ["code", "model"] {
                ["pass", "fail"].iter().for_each(|r| drop(all.review_items.with_label_values(&[by, *r])));
            }
            for (kind, outcome) in PROBES {
                all.reviewer_probes.with_label_values(&[kind, outcome]);
            }
        }
    }
}

/// The exposition text.
#[must_use]
pub fn text() -> String {
    let mut families = ALL.registry.gather();
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // Its definitions are constants as well.
    families.extend(seen.and_then(|seen| seen.families().ok()).unwrap_or_default());
    families.sort_by(|a, b| a.name().cmp(b.name()));
    let mut out = Vec::new();
    let _ = TextEncoder::new().encode(&families, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Tickets claimed in one call; each one's wait is observed by [`queue_wait`].
pub fn claimed(role: Role, n: usize, busy: usize) {
    ALL.claimed.with_label_values(&[role.as_str()]).inc_by(n as u64);
    ALL.busy.set(busy as i64);
}

pub fn submitted() {
    ALL.submitted.inc();
}

pub fn queue_wait(role: Role, wait_ms: u64) {
    ALL.queue_wait.with_label_values(&[role.as_str()]).observe(wait_ms as f64 / 1000.0);
}

/// A handler ended.
pub fn outcome(role: Role, outcome: Outcome, run: Duration) {
    ALL.outcomes.with_label_values(&[role.as_str(), outcome.as_str()]).inc();
    ALL.run.with_label_values(&[role.as_str()]).observe(run.as_secs_f64());
}

/// The store answered a write, or did not.
pub fn written(role: Role, answer: Answer) {
    ALL.writes.with_label_values(&[role.as_str(), answer.as_str()]).inc();
}

/// Answers of one renewal.
pub fn renewed(ok: usize, cancel: usize, lost: usize, round_trip: Duration) {
    renewals(ok, cancel, lost);
    ALL.renew_seconds.observe(round_trip.as_secs_f64());
}

fn renewals(ok: usize, cancel: usize, lost: usize) {
    for (word, n) in [("ok", ok), ("cancel", cancel), ("lost", lost)] {
        ALL.renewals.with_label_values(&[word]).inc_by(n as u64);
    }
}

pub fn swept(requeued: u64, escalated: u64, promoted: u64, repaired: u64) {
    for (word, n) in
        [("requeued", requeued), ("escalated", escalated), ("promoted", promoted), ("repaired", repaired)]
    {
        ALL.swept.with_label_values(&[word]).inc_by(n);
    }
}

/// A round of the sweeper ended.
pub fn sweep(ok: bool) {
    ALL.sweeps.with_label_values(&[if ok { "ok" } else { "failed" }]).inc();
}

/// A call of Redis was answered.
pub fn redis_call(round_trip: Duration) {
    ALL.redis_seconds.observe(round_trip.as_secs_f64());
}

pub fn redis_event(event: Redis) {
    ALL.redis.with_label_values(&[event.as_str()]).inc();
}

/// A model was out, and the next one is asked. `role` as below.
pub fn model_fallback(role: &str) {
    ALL.model_fallbacks.with_label_values(&[Role::of(role).as_str()]).inc();
}

/// A call begins to wait for its turn. `role` is the word of a [`crate::model::Ask`].
pub fn model_wait_begins(role: &str) {
    ALL.model_waiting.with_label_values(&[Role::of(role).as_str()]).inc();
}

/// It has its turn, or gave up.
pub fn model_wait_ends(role: &str, waited: Duration) {
    let word = Role::of(role).as_str();
    ALL.model_waiting.with_label_values(&[word]).dec();
    ALL.model_wait.with_label_values(&[word]).observe(waited.as_secs_f64());
}

/// A model call ended. `tier` is the word of a [`crate::ticket::Tier`].
pub fn model_call(role: Role, tier: &'static str, call: Call, took: Duration, input: u64, output: u64) {
    ALL.model_calls.with_label_values(&[role.as_str(), tier, call.as_str()]).inc();
    ALL.model_seconds.with_label_values(&[role.as_str()]).observe(took.as_secs_f64());
    ALL.model_tokens.with_label_values(&[role.as_str(), "input"]).inc_by(input);
    ALL.model_tokens.with_label_values(&[role.as_str(), "output"]).inc_by(output);
}

/// What calls cost, in millionths of a dollar.
pub fn model_cost(role: Role, microusd: u64) {
    ALL.model_microusd.with_label_values(&[role.as_str()]).inc_by(microusd);
}

pub fn tool_call(kind: Tool, ok: bool) {
    ALL.tool_calls.with_label_values(&[kind.as_str(), if ok { "ok" } else { "error" }]).inc();
}

/// An item of a verdict.
pub fn review_item(by_code: bool, pass: bool) {
    let (by, result) = (if by_code { "code" } else { "model" }, if pass { "pass" } else { "fail" });
    ALL.review_items.with_label_values(&[by, result]).inc();
}

/// Kinds of known deliverables, and what a judge may say to each.
const PROBES: [(&str, &str); 6] = [
    ("canary", "found"),
    ("canary", "missed"),
    ("canary", "unread"),
    ("control", "passed"),
    ("control", "failed"),
    ("control", "unread"),
];

/// A known deliverable was judged; `right`: none when no verdict came of it.
pub fn reviewer_probe(is_canary: bool, right: Option<bool>) {
    let (kind, outcome) = PROBES[usize::from(!is_canary) * 3 + right.map_or(2, |right| usize::from(!right))];
    ALL.reviewer_probes.with_label_values(&[kind, outcome]).inc();
}

/// A look at a whole plan ended.
pub fn replan(outcome: Replan) {
    ALL.replans.with_label_values(&[outcome.as_str()]).inc();
}

/// A call of the configured address outside ended.
pub fn webhook(outcome: Webhook) {
    ALL.webhooks.with_label_values(&[outcome.as_str()]).inc();
}

const HTTP: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "other"];

/// An API request was answered.
pub fn http_request(status: u16) {
    let class = match status / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    };
    ALL.http.with_label_values(&[class]).inc();
}

pub fn slots(slots: usize, busy: usize, leaked: usize) {
    ALL.slots.set(slots as i64);
    ALL.busy.set(busy as i64);
    ALL.leaked.set(leaked as i64);
}

/// A lane as a manager saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSeen {
    pub ready: u64,
    pub leased: u64,
    /// Ready or leased.
    pub demand: u64,
    pub consumers: u64,
    pub oldest_ready_ms: u64,
}

/// The fleet as a manager saw it: the same from every manager, so take one (`max`), never the sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub lanes: BTreeMap<String, LaneSeen>,
    /// Tickets of live goals by state, every open state named.
    pub tickets: BTreeMap<&'static str, u64>,
    /// Decisions that wait for a person, by word; filled by [`Seen::asked`].
    pub decisions: BTreeMap<&'static str, u64>,
    pub decisions_open: u64,
    pub delayed: u64,
    pub goals_live: u64,
    pub dead_letters: u64,
    pub reserved_calls: u64,
    pub sweep_age_ms: u64,
    pub oldest_lease_overdue_ms: u64,
    pub calls_in_flight: u64,
    pub calls_waiting: u64,
    pub cool_down_ms: u64,
    pub breakers_open: u64,
    pub reviewers_suspended: u64,
    pub memory_bytes: u64,
    /// 0: no limit.
    pub memory_max_bytes: u64,
    pub may_evict: bool,
    pub append_only: bool,
    pub persistence_failing: bool,
}

/// What a manager measured; `None`: it could not, and old numbers are not shown as new ones.
pub fn seen(seen: Option<Seen>) {
    *SEEN.lock().unwrap_or_else(PoisonError::into_inner) = seen;
}

impl Seen {
    /// Counts of open decisions by the cause that stands in the hash.
    pub fn asked(&mut self, by_cause: BTreeMap<String, u64>) {
        self.decisions = ASKED_FOR.into_iter().map(|word| (word, 0)).collect();
        for (cause, n) in by_cause {
            *self.decisions.entry(words::asked_for(&cause)).or_default() += n;
        }
    }

    /// The lanes that get series: those that somebody serves first, then the fullest; the rest together.
    fn folded(&self) -> BTreeMap<&str, LaneSeen> {
        let mut lanes: Vec<(&str, LaneSeen)> = self.lanes.iter().map(|(n, l)| (n.as_str(), *l)).collect();
        lanes.sort_by_key(|(name, lane)| (lane.consumers == 0, std::cmp::Reverse(lane.demand), *name));
        let rest = lanes.split_off(lanes.len().min(LANES_MAX));
        let mut out: BTreeMap<&str, LaneSeen> = lanes.into_iter().collect();
        for (_, lane) in rest {
            let other = out.entry("other").or_default();
            other.ready += lane.ready;
            other.leased += lane.leased;
            other.demand += lane.demand;
            other.consumers += lane.consumers;
            other.oldest_ready_ms = other.oldest_ready_ms.max(lane.oldest_ready_ms);
        }
        out
    }

    #[rustfmt::skip]
    fn families(&self) -> Result<Vec<MetricFamily>, prometheus::Error> {
        let r = Registry::new();
        let gauge = |name: &str, help: &str, value: f64| -> Result<(), prometheus::Error> {
            let metric = Gauge::new(name, help)?;
            metric.set(value);
            r.register(Box::new(metric))
        };
        let vec = |name: &str, help: &str, label: &str, values: Vec<(&str, f64)>| -> Result<(), prometheus::Error> {
            let metric = GaugeVec::new(Opts::new(name, help), &[label])?;
            values.iter().for_each(|(word, value)| metric.with_label_values(&[*word]).set(*value));
            r.register(Box::new(metric))
        };
        let (n, s) = (|count: u64| count as f64, |ms: u64| ms as f64 / 1000.0);
        let lanes = self.folded();
        let by_lane = |of: &dyn Fn(&LaneSeen) -> f64| lanes.iter().map(|(name, lane)| (*name, of(lane))).collect();
        let counts = |of: &BTreeMap<&'static str, u64>| of.iter().map(|(word, count)| (*word, n(*count))).collect();
        vec("muster_ready", "Tickets of a lane that wait to be claimed; goals, for the lane manage", "lane", by_lane(&|l| n(l.ready)))?;
        vec("muster_leased", "Tickets of a lane that somebody holds", "lane", by_lane(&|l| n(l.leased)))?;
        vec("muster_demand", "Ready or leased tickets of a lane: what it needs slots for", "lane", by_lane(&|l| n(l.demand)))?;
        vec("muster_consumers", "Live consumers of a lane", "lane", by_lane(&|l| n(l.consumers)))?;
        vec("muster_oldest_ready_seconds", "How long the oldest delivery of a lane waits that may be claimed", "lane", by_lane(&|l| s(l.oldest_ready_ms)))?;
        vec("muster_tickets", "Tickets of live goals by state", "state", counts(&self.tickets))?;
        vec("muster_open_decisions", "Decisions that wait for a person, by what for", "cause", counts(&self.decisions))?;
        gauge("muster_delayed", "Tickets that wait for a due time", n(self.delayed))?;
        gauge("muster_dead_letters", "Envelopes that could not be read", n(self.dead_letters))?;
        gauge("muster_goals_live", "Goals that are not over", n(self.goals_live))?;
        gauge("muster_reserved_calls", "Model calls whose worst case is reserved in the budget ledger", n(self.reserved_calls))?;
        gauge("muster_sweep_age_seconds", "How long ago any process swept", s(self.sweep_age_ms))?;
        gauge("muster_oldest_lease_overdue_seconds", "How long the oldest lease is overdue", s(self.oldest_lease_overdue_ms))?;
        gauge("muster_governor_in_flight", "Model calls in flight, all endpoints", n(self.calls_in_flight))?;
        gauge("muster_governor_waiting", "Model calls of the fleet that wait for their turn", n(self.calls_waiting))?;
        gauge("muster_governor_cool_down_seconds", "How long the longest cool-down of an endpoint still lasts", s(self.cool_down_ms))?;
        gauge("muster_governor_breakers_open", "Endpoints that are not called because they did not answer", n(self.breakers_open))?;
        gauge("muster_reviewers_suspended", "Reviewers (model and prompt) that claim no more reviews until a person lifts them", n(self.reviewers_suspended))?;
        gauge("muster_redis_memory_bytes", "Memory that Redis says it uses", n(self.memory_bytes))?;
        gauge("muster_redis_memory_max_bytes", "Its limit; 0: none", n(self.memory_max_bytes))?;
        gauge("muster_redis_may_evict", "1: its maxmemory-policy may drop tickets", f64::from(u8::from(self.may_evict)))?;
        gauge("muster_redis_append_only", "1: it keeps an append-only file", f64::from(u8::from(self.append_only)))?;
        gauge("muster_redis_persistence_failing", "1: its last write of the file or dump failed", f64::from(u8::from(self.persistence_failing)))?;
        Ok(r.gather())
    }
}

#[cfg(test)]
#[path = "metrics/tests.rs"]
mod tests;
