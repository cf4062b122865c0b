//! The fleet's manners towards one endpoint and model: who may call now, and what all learn from how it went.
//!
//! A 429 quiets the whole fleet for as long as it says and teaches it a pace, a row of network failures opens a
//! breaker with one probe at a time, calls in flight may have a cap; managers go before reviewers before workers.
//! A store that does not answer holds no call up.

use super::Ask;
use super::account::{Account, PATIENCE, Worst};
use super::error::{ErrorClass, Fault};
use crate::config;
use crate::store::{Admission, Heard, Lane, Tokens, Turn};
use crate::telemetry::metrics;
use crate::ticket::new_id;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

/// So often within its expiry a call under way says that it lives.
const SIGNS: u64 = 4;
/// Longest sleep between two questions: who asks less often loses its place.
const SLICE: Duration = Duration::from_millis(1_500);
/// Pause before the ledger is asked again.
const PAUSE_MS: u64 = 100;
/// A hint is a lower bound: a fleet comes back spread over this part of it, and a moment at least (A23).
const SPREAD: u64 = 8;
const SPREAD_MIN_MS: u64 = 100;
const SPREAD_MAX_MS: u64 = 5_000;

/// What one answer may still wait, and until when it must be there. Waiting moves the deadline: it is not the
/// server's slowness.
pub(super) struct Clock {
    pub(super) deadline: Instant,
    /// For an endpoint that is out.
    pub(super) patience: Duration,
    /// For its turn: a pace, calls in flight, others' reservations.
    in_line: Duration,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// The endpoint is out for all.
    Endpoint,
    Turn,
}

impl Clock {
    pub(super) fn new(deadline: Instant, account: Option<&Account>) -> Self {
        let (patience, in_line) =
            account.map_or((Duration::ZERO, Duration::ZERO), |account| (account.patience, PATIENCE));
        Self { deadline, patience, in_line }
    }

    fn left(&mut self, what: For) -> &mut Duration {
        match what {
            For::Endpoint => &mut self.patience,
            For::Turn => &mut self.in_line,
        }
    }

    fn waited(&mut self, time: Duration, what: For) {
        self.deadline += time;
        let left = self.left(what);
        *left = left.saturating_sub(time);
    }
}

/// A call that was let in.
pub(super) struct Entered {
    pub(super) call: String,
    entry: String,
}

/// Short word of endpoint and model together: part of keys.
pub(super) fn endpoint(url: &str, model: &str) -> String {
    let hash = Sha256::digest(format!("{} {model}", url.trim_end_matches('/')));
    hash.iter().take(8).map(|b| format!("{b:02x}")).collect()
}

pub(super) struct Governor<'a> {
    account: &'a Account,
    config: &'a config::Model,
    endpoint: String,
    name: String,
    lane: Lane,
    /// Nobody else could answer: it waits for an endpoint that is out.
    is_last: bool,
}

impl<'a> Governor<'a> {
    pub(super) fn new(
        account: &'a Account,
        config: &'a config::Model,
        model: &str,
        role: &str,
        is_last: bool,
    ) -> Self {
        let endpoint = endpoint(&config.url, model);
        let host = reqwest::Url::parse(&config.url).ok().and_then(|u| u.host_str().map(str::to_owned));
        let lane = match role {
            "planner" => Lane::Manager,
            "reviewer" => Lane::Reviewer,
            _ => Lane::Worker,
        };
        let name = format!("{model} at {}", host.unwrap_or_default());
        Self { account, config, endpoint, name, lane, is_last }
    }

    fn turn<'b>(&'b self, call: &'b str, worst: Worst) -> Turn<'b> {
        Turn {
            endpoint: &self.endpoint,
            name: &self.name,
            call,
            lane: self.lane,
            expiry_ms: self.config.call_expiry_ms,
            in_flight_max: self.config.in_flight_max,
            failures_max: self.config.breaker_failures,
            requests_per_minute: self.config.requests_per_minute,
            goal: self.account.goal(),
            worst: worst.tokens,
            tokens_per_minute: Tokens {
                input: self.config.input_tokens_per_minute,
                output: self.config.output_tokens_per_minute,
            },
        }
    }

    /// Waits until the endpoint and the goal's budget both have room. Cancellation safe: what it holds expires.
    pub(super) async fn admit(
        &self,
        worst: Worst,
        clock: &mut Clock,
        ask: &Ask<'_>,
    ) -> Result<Entered, Fault> {
        let mut entered = Entered { call: new_id(), entry: String::new() };
        let mut waiting = None;
        loop {
            self.enter(&mut entered, worst, clock, ask, &mut waiting).await?;
            match self.account.reserve(&entered.call, worst, self.config.call_expiry_ms).await {
                Ok(None) => return Ok(entered),
                Ok(Some(why)) => {
                    self.leave(&entered, worst, Heard::Nothing, Tokens::default()).await;
                    let pause = Duration::from_millis(PAUSE_MS + rand::random_range(0..=PAUSE_MS));
                    if *clock.left(For::Turn) < pause {
                        return Err(Fault::new(ErrorClass::Overload, why));
                    }
                    waiting.get_or_insert_with(|| Waiting::begin(ask));
                    sleep(pause, clock, For::Turn, ask).await?;
                }
                Err(fault) => {
                    self.leave(&entered, worst, Heard::Nothing, Tokens::default()).await;
                    return Err(fault);
                }
            }
        }
    }

    async fn enter<'w>(
        &self,
        entered: &mut Entered,
        worst: Worst,
        clock: &mut Clock,
        ask: &'w Ask<'w>,
        waiting: &mut Option<Waiting<'w>>,
    ) -> Result<(), Fault> {
        loop {
            let (ms, why) = match self.account.store().quota_enter(&self.turn(&entered.call, worst)).await {
                Ok(Admission::Ok { entry }) => {
                    entered.entry = entry;
                    return Ok(());
                }
                Ok(Admission::Wait { ms, why }) => (ms, why),
                Err(error) => {
                    tracing::warn!(%error, "the governor does not answer; the call is sent");
                    return Ok(());
                }
            };
            let cooling = why == "cool-down";
            let pause = Duration::from_millis(ms);
            let is_out = why == "breaker" || cooling && ms > self.config.fallback_after_ms;
            if waiting.is_none() && (self.is_last || !is_out) {
                tracing::info!(role = ask.role, ms, why, "a call waits for its endpoint");
                *waiting = Some(Waiting::begin(ask));
            }
            let what = if cooling || why == "breaker" { For::Endpoint } else { For::Turn };
            if pause > *clock.left(what) || is_out && !self.is_last {
                clock.patience = Duration::ZERO;
                self.leave(entered, worst, Heard::Nothing, Tokens::default()).await;
                let class = match cooling {
                    true => ErrorClass::Quota { retry_after_ms: Some(ms) },
                    false if why == "breaker" => ErrorClass::Network,
                    false => ErrorClass::Overload,
                };
                return Err(Fault::new(class, format!("the endpoint is out for the whole fleet ({why})")));
            }
            let mut pause = pause.min(SLICE);
            if pause < SLICE && what == For::Endpoint {
                let spread = (ms / SPREAD).clamp(SPREAD_MIN_MS, SPREAD_MAX_MS);
                pause += Duration::from_millis(rand::random_range(0..=spread));
            }
            if let Err(stopped) = sleep(pause, clock, what, ask).await {
                self.leave(entered, worst, Heard::Nothing, Tokens::default()).await;
                return Err(stopped);
            }
        }
    }

    /// The call, kept among those in flight and its reservation kept alive.
    pub(super) async fn while_kept<T>(&self, call: &str, sent: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = sent => done,
            never = self.keep(call) => match never {},
        }
    }

    async fn keep(&self, call: &str) -> Infallible {
        let expiry_ms = self.config.call_expiry_ms;
        loop {
            tokio::time::sleep(Duration::from_millis((expiry_ms / SIGNS).max(1))).await;
            self.account.keep(call, expiry_ms).await;
            if let Err(error) =
                self.account.store().quota_keep(&self.endpoint, call, self.account.goal(), expiry_ms).await
            {
                tracing::warn!(%error, call, "a call in flight could not say that it lives");
            }
        }
    }

    /// Tells the fleet how the call went. `true`: the fleet waits for the endpoint now, and so may this call, without
    /// counting what it has sent.
    pub(super) async fn heard(
        &self,
        entered: &Entered,
        worst: Worst,
        fault: Option<&Fault>,
        used: Tokens,
    ) -> bool {
        let max = self.config.cool_down_max_ms;
        let heard = match fault.map(|f| f.class) {
            Some(ErrorClass::Quota { retry_after_ms }) => {
                Heard::Quota { retry_after_ms: retry_after_ms.map(|ms| ms.min(max)) }
            }
            Some(ErrorClass::Network) => Heard::Network,
            Some(ErrorClass::Overload) => Heard::Overload,
            Some(ErrorClass::Cancelled | ErrorClass::Budget) => Heard::Nothing,
            Some(ErrorClass::Ours | ErrorClass::Reply | ErrorClass::Context | ErrorClass::Auth) | None => {
                Heard::Answer
            }
        };
        let open = self.leave(entered, worst, heard, used).await;
        match heard {
            Heard::Quota { .. } => true,
            Heard::Network | Heard::Overload => open,
            Heard::Answer | Heard::Nothing => false,
        }
    }

    async fn leave(&self, entered: &Entered, worst: Worst, heard: Heard, used: Tokens) -> bool {
        let (turn, open_ms) = (self.turn(&entered.call, worst), self.config.breaker_open_ms);
        let left = self.account.store().quota_leave(&turn, &entered.entry, heard, used, open_ms);
        left.await.unwrap_or_else(|error| {
            tracing::warn!(%error, call = entered.call, "the fleet was not told how a call went");
            false
        })
    }
}

/// A call waits as long as this lives: the work's clock stands still, and the wait can be seen.
struct Waiting<'a> {
    ask: &'a Ask<'a>,
    since: Instant,
}

impl<'a> Waiting<'a> {
    fn begin(ask: &'a Ask<'a>) -> Self {
        (ask.on_wait)(true);
        metrics::model_wait_begins(ask.role);
        Self { ask, since: Instant::now() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        metrics::model_wait_ends(self.ask.role, self.since.elapsed());
        (self.ask.on_wait)(false);
    }
}

async fn sleep(time: Duration, clock: &mut Clock, what: For, ask: &Ask<'_>) -> Result<(), Fault> {
    let begun = Instant::now();
    tokio::select! {
        biased;
        () = ask.stop.cancelled() => {
            return Err(Fault::new(ErrorClass::Cancelled, "stopped by the caller"));
        }
        () = tokio::time::sleep(time) => {}
    }
    (ask.on_bytes)();
    clock.waited(begun.elapsed(), what);
    Ok(())
}
