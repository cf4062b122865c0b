//! Every metric of the three programs: name, help, labels. A number to watch is added here and nowhere else.
//!
//! Label values come from the enums below or from the configuration (lanes), never from ids, tenants, hosts,
//! URLs, model output or error texts (Q51): the count of series must not grow with the work.

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};
use std::sync::LazyLock;
use std::time::Duration;

/// Which program, or whose phase of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Manager,
    Worker,
    Reviewer,
}

impl Role {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Worker => "worker",
            Self::Reviewer => "reviewer",
        }
    }

    /// The role of that name; what is not known counts as the worker's.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "manager" | "planner" => Self::Manager,
            "reviewer" => Self::Reviewer,
            _ => Self::Worker,
        }
    }
}

/// What a handler made of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    Passed,
    ItemFailed,
    Fault,
    Wait,
    NotRetryable,
    Released,
    Parked,
    Conflict,
    Panic,
    /// The lease was lost or the ticket cancelled under it.
    Dropped,
}

impl Outcome {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Passed => "passed",
            Self::ItemFailed => "item_failed",
            Self::Fault => "fault",
            Self::Wait => "wait",
            Self::NotRetryable => "not_retryable",
            Self::Released => "released",
            Self::Parked => "parked",
            Self::Conflict => "conflict",
            Self::Panic => "panic",
            Self::Dropped => "dropped",
        }
    }
}

/// What the store said to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Ok,
    Dup,
    Fenced,
    Moved,
    Gone,
    Escalated,
    Cancelled,
    Unavailable,
}

impl Answer {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Dup => "dup",
            Self::Fenced => "fenced",
            Self::Moved => "moved",
            Self::Gone => "gone",
            Self::Escalated => "escalated",
            Self::Cancelled => "cancelled",
            Self::Unavailable => "unavailable",
        }
    }
}

/// How a model call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Ok,
    Ours,
    Reply,
    Quota,
    Overload,
    Context,
    Auth,
    Network,
    Budget,
    Cancelled,
}

impl Call {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Ours => "ours",
            Self::Reply => "reply",
            Self::Quota => "quota",
            Self::Overload => "overload",
            Self::Context => "context",
            Self::Auth => "auth",
            Self::Network => "network",
            Self::Budget => "budget",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Seconds; from a hop in Redis to an hour's run.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
    3600.0,
];

struct All {
    registry: Registry,
    submitted: IntCounter,
    claimed: IntCounterVec,
    outcomes: IntCounterVec,
    writes: IntCounterVec,
    renewals: IntCounterVec,
    swept: IntCounterVec,
    model_calls: IntCounterVec,
    model_tokens: IntCounterVec,
    tool_calls: IntCounterVec,
    http: IntCounterVec,
    queue_wait: HistogramVec,
    run: HistogramVec,
    model_seconds: HistogramVec,
    renew_seconds: Histogram,
    model_waiting: IntGaugeVec,
    busy: IntGauge,
    slots: IntGauge,
    leaked: IntGauge,
    demand: IntGaugeVec,
    consumers: IntGaugeVec,
    leased: IntGauge,
    delayed: IntGauge,
    people: IntGauge,
    dead_letters: IntGauge,
    goals_live: IntGauge,
    overdue: IntGauge,
    memory: IntGauge,
}

#[expect(clippy::expect_used, reason = "names and labels are constants; the test below makes them all")]
static ALL: LazyLock<All> = LazyLock::new(|| All::new().expect("metric definitions are valid"));

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
        let by_lane = |name: &str, help: &str| -> Result<IntGaugeVec, prometheus::Error> {
            let metric = IntGaugeVec::new(Opts::new(name, help), &["lane"])?;
            r.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let model_waiting = IntGaugeVec::new(
            Opts::new("muster_model_waiting", "Calls that wait for their turn at the endpoint"), &["role"])?;
        r.register(Box::new(model_waiting.clone()))?;
        let seconds = |name: &str, help: &str| -> Result<HistogramVec, prometheus::Error> {
            let metric = HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), &["role"])?;
            r.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let submitted = IntCounter::new("muster_submitted_total", "Goals submitted through this manager")?;
        r.register(Box::new(submitted.clone()))?;
        let renew_seconds = Histogram::with_opts(
            HistogramOpts::new("muster_renew_seconds", "Round trip of a renewal").buckets(SECONDS.to_vec()))?;
        r.register(Box::new(renew_seconds.clone()))?;
        let all = Self {
            submitted,
            renew_seconds,
            model_waiting,
            claimed: counter("muster_claimed_total", "Tickets (or goals) claimed", &["role"])?,
            outcomes: counter("muster_outcomes_total", "What the handler made of a ticket", &["role", "outcome"])?,
            writes: counter("muster_writes_total", "What the store said to an outcome", &["role", "answer"])?,
            renewals: counter("muster_renewals_total", "Answers to renewals, one a ticket", &["answer"])?,
            swept: counter("muster_swept_total", "What this process's sweeps moved", &["what"])?,
            model_calls: counter("muster_model_calls_total", "Calls of a model by how they ended", &["role", "tier", "outcome"])?,
            model_tokens: counter("muster_model_tokens_total", "Tokens as the endpoint counts them", &["role", "direction"])?,
            tool_calls: counter("muster_tool_calls_total", "Tool calls by how they ended", &["outcome"])?,
            http: counter("muster_http_requests_total", "API requests by class of status", &["status"])?,
            queue_wait: seconds("muster_queue_wait_seconds", "From ready to claimed, by the Redis clock")?,
            run: seconds("muster_run_seconds", "From claimed to the handler's outcome")?,
            model_seconds: seconds("muster_model_seconds", "Duration of a model call")?,
            busy: gauge("muster_slots_busy", "Tickets in work in this process")?,
            slots: gauge("muster_slots", "Slots of this process")?,
            leaked: gauge("muster_slots_leaked", "Slots whose handler ignores its stop token")?,
            demand: by_lane("muster_demand", "Ready or leased tickets of a lane")?,
            consumers: by_lane("muster_consumers", "Live consumers of a lane")?,
            leased: gauge("muster_leased", "Leases in force")?,
            delayed: gauge("muster_delayed", "Tickets that wait for a due time")?,
            people: gauge("muster_open_decisions", "Decisions that wait for a person")?,
            dead_letters: gauge("muster_dead_letters", "Envelopes that did not decode")?,
            goals_live: gauge("muster_goals_live", "Goals that are not over")?,
            overdue: gauge("muster_oldest_lease_overdue_ms", "How long the oldest lease is overdue")?,
            memory: gauge("muster_redis_memory_bytes", "Memory that Redis says it uses")?,
            registry: r.clone(),
        };
        #[cfg(target_os = "linux")]
        r.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(all)
    }
}

/// The exposition text.
#[must_use]
pub fn text() -> String {
    let mut out = Vec::new();
    let _ = TextEncoder::new().encode(&ALL.registry.gather(), &mut out);
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
    for (word, n) in [("ok", ok), ("cancel", cancel), ("lost", lost)] {
        ALL.renewals.with_label_values(&[word]).inc_by(n as u64);
    }
    ALL.renew_seconds.observe(round_trip.as_secs_f64());
}

pub fn swept(requeued: u64, escalated: u64, promoted: u64, repaired: u64) {
    for (word, n) in
        [("requeued", requeued), ("escalated", escalated), ("promoted", promoted), ("repaired", repaired)]
    {
        ALL.swept.with_label_values(&[word]).inc_by(n);
    }
}

/// A call begins or ends to wait for its endpoint. `role` is the word of an [`crate::model::Ask`].
pub fn model_waits(role: &'static str, begins: bool) {
    ALL.model_waiting.with_label_values(&[role]).add(if begins { 1 } else { -1 });
}

/// A model call ended. `tier` is the word of a [`crate::ticket::Tier`].
pub fn model_call(role: Role, tier: &'static str, call: Call, took: Duration, input: u64, output: u64) {
    ALL.model_calls.with_label_values(&[role.as_str(), tier, call.as_str()]).inc();
    ALL.model_seconds.with_label_values(&[role.as_str()]).observe(took.as_secs_f64());
    ALL.model_tokens.with_label_values(&[role.as_str(), "input"]).inc_by(input);
    ALL.model_tokens.with_label_values(&[role.as_str(), "output"]).inc_by(output);
}

pub fn tool_call(ok: bool) {
    ALL.tool_calls.with_label_values(&[if ok { "ok" } else { "error" }]).inc();
}

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

/// A lane's demand and consumers; set by a manager, one scraper a shard.
pub fn lane(lane: &str, demand: u64, consumers: u64) {
    ALL.demand.with_label_values(&[lane]).set(demand as i64);
    ALL.consumers.with_label_values(&[lane]).set(consumers as i64);
}

/// The store's gauges; set by a manager.
pub struct StoreGauges {
    pub leased: u64,
    pub delayed: u64,
    pub people: u64,
    pub dead_letters: u64,
    pub goals_live: u64,
    pub oldest_lease_overdue_ms: u64,
    pub used_memory_bytes: u64,
}

pub fn store(g: &StoreGauges) {
    ALL.leased.set(g.leased as i64);
    ALL.delayed.set(g.delayed as i64);
    ALL.people.set(g.people as i64);
    ALL.dead_letters.set(g.dead_letters as i64);
    ALL.goals_live.set(g.goals_live as i64);
    ALL.overdue.set(g.oldest_lease_overdue_ms as i64);
    ALL.memory.set(g.used_memory_bytes as i64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q51_the_count_of_series_does_not_grow_with_the_work() {
        let series = || text().lines().filter(|l| !l.starts_with('#')).count();
        let work = || {
            for outcome in [Outcome::Completed, Outcome::Fault] {
                super::outcome(Role::Worker, outcome, Duration::from_millis(5));
            }
            queue_wait(Role::Worker, 3);
            model_call(Role::Reviewer, "standard", Call::Quota, Duration::from_secs(1), 10, 20);
            store(&StoreGauges {
                leased: 1,
                delayed: 0,
                people: 0,
                dead_letters: 0,
                goals_live: 1,
                oldest_lease_overdue_ms: 0,
                used_memory_bytes: 1,
            });
        };
        work();
        let first = series();
        (0..1000).for_each(|_| work());
        assert_eq!(series(), first);
    }
}
