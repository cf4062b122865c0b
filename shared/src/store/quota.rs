//! The governor's record of an endpoint and model, shared by the whole fleet: pace, cool-down, breaker, calls in flight.

use super::args::arg;
use super::{Result, Store, StoreError, reply, scripts};
use redis::Value;
use serde::{Deserialize, Serialize};

/// Whose call goes first where not all may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Manager,
    Reviewer,
    Worker,
}

/// What a call must know of the endpoint to ask for its turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Short word of endpoint and model together.
    pub endpoint: &'a str,
    /// The same for people.
    pub name: &'a str,
    /// Never used twice.
    pub call: &'a str,
    pub lane: Lane,
    /// A member that is not kept is gone after this.
    pub expiry_ms: u64,
    /// 0: no cap.
    pub in_flight_max: u32,
    /// Network failures in a row that open the breaker; 0: it never opens.
    pub failures_max: u32,
    /// 0: learnt from the refusals.
    pub requests_per_minute: u32,
    /// Whose call it is: its tenant's limits hold beside the endpoint's. Empty: nobody's.
    pub goal: &'a str,
    /// What it may take at worst.
    pub worst: Tokens,
    /// Tokens a minute that the endpoint allows; 0: no limit.
    pub tokens_per_minute: Tokens,
}

/// Tokens that go into a model and come out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
}

/// Whether a call may be sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The note of its entry, which [`Store::quota_leave`] wants back.
    Ok { entry: String },
    /// Not before this, and why: `cool-down`, `breaker`, `in flight`, `tokens`, `pace`, `ramp`, or `tenant` for the
    /// limits of its own tenant. It is to ask again within two seconds, or it loses its place.
    Wait { ms: u64, why: String },
}

/// What the endpoint did with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It answered, whatever it said.
    Answer,
    /// 429, with its hint if it gave one.
    Quota {
        retry_after_ms: Option<u64>,
    },
    Network,
    Overload,
    /// Nothing was learnt: the call was not sent, or was stopped.
    Nothing,
}

/// How an endpoint stands, for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// Its short word, for [`Store::quota_lift`].
    pub word: String,
    pub name: String,
    pub in_flight: u64,
    pub managers_waiting: u64,
    pub reviewers_waiting: u64,
    pub workers_waiting: u64,
    /// Requests a second that the fleet keeps to; 0: no limit was met.
    pub rate: f64,
    pub cool_down_ms: u64,
    /// Network failures in a row.
    pub failures: u64,
    /// The breaker is open for so long.
    pub closed_for_ms: u64,
    /// Calls that wait because of their own tenants' limits.
    pub held: u64,
}

impl Store {
    /// Asks to be let in.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable with the same call id.
    pub async fn quota_enter(&self, turn: &Turn<'_>) -> Result<Admission> {
        let lane: u8 = match turn.lane {
            Lane::Manager => 0,
            Lane::Reviewer => 1,
            Lane::Worker => 2,
        };
        let args = [
            arg("enter"),
            arg(turn.endpoint),
            arg(turn.call),
            arg(turn.expiry_ms),
            arg(lane),
            arg(turn.in_flight_max),
            arg(turn.failures_max),
            arg(turn.requests_per_minute),
            arg(turn.name),
            arg(turn.goal),
            arg(turn.worst.input),
            arg(turn.worst.output),
            arg(turn.tokens_per_minute.input),
            arg(turn.tokens_per_minute.output),
        ];
        let parts = reply::texts(self.call(&scripts::QUOTA, &args).await?)?;
        let part = |n: usize| parts.get(n).map_or("", String::as_str);
        let number = || part(1).parse().map_err(|_| StoreError::Broken(format!("quota answered {parts:?}")));
        match part(0) {
            "OK" => Ok(Admission::Ok { entry: part(1).to_owned() }),
            "WAIT" => Ok(Admission::Wait { ms: number()?, why: part(2).to_owned() }),
            _ => Err(StoreError::Broken(format!("quota answered {parts:?}"))),
        }
    }

    /// The call goes on.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn quota_keep(&self, endpoint: &str, call: &str, goal: &str, expiry_ms: u64) -> Result<()> {
        let args = [arg("keep"), arg(endpoint), arg(call), arg(expiry_ms), arg(goal)];
        self.call(&scripts::QUOTA, &args).await?;
        Ok(())
    }

    /// The call is over, or waits no more; `entry` is empty when it was never let in, `used` is what it took of the
    /// endpoint's tokens. `true`: the breaker is open.
    ///
    /// # Errors
    /// [`StoreError`]; the member expires by itself then.
    pub async fn quota_leave(
        &self,
        turn: &Turn<'_>,
        entry: &str,
        heard: Heard,
        used: Tokens,
        open_ms: u64,
    ) -> Result<bool> {
        let (word, hint) = match heard {
            Heard::Answer => ("ok", None),
            Heard::Quota { retry_after_ms } => ("quota", retry_after_ms),
            Heard::Network => ("network", None),
            Heard::Overload => ("overload", None),
            Heard::Nothing => ("none", None),
        };
        let hint = hint.map(|ms| ms.to_string()).unwrap_or_default();
        let args = [
            arg("leave"),
            arg(turn.endpoint),
            arg(turn.call),
            arg(entry),
            arg(word),
            arg(hint),
            arg(turn.failures_max),
            arg(open_ms),
            arg(turn.requests_per_minute),
            arg(turn.goal),
            arg(turn.worst.input),
            arg(turn.worst.output),
            arg(used.input),
            arg(used.output),
        ];
        let parts = reply::array(self.call(&scripts::QUOTA, &args).await?)?;
        Ok(reply::number(parts.into_iter().next().unwrap_or(Value::Nil))? == 1)
    }

    /// Takes cool-down and breaker off an endpoint: the next call tries it. `false`: nobody knows it.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn quota_lift(&self, word: &str) -> Result<bool> {
        let parts = reply::array(self.call(&scripts::QUOTA, &[arg("lift"), arg(word)]).await?)?;
        Ok(reply::number(parts.into_iter().next().unwrap_or(Value::Nil))? == 1)
    }

    /// Every endpoint that was called within the last day, and how it stands.
    ///
    /// # Errors
    /// [`StoreError`]; changes nothing but what has expired.
    pub async fn quotas(&self) -> Result<Vec<Endpoint>> {
        let mut found = vec![];
        for word in reply::texts(self.command("SMEMBERS", &[&self.keys.at("govs")]).await?)? {
            let parts = reply::texts(self.call(&scripts::QUOTA, &[arg("look"), arg(&word)]).await?)?;
            let field = |name: &str| {
                let pair = parts.chunks(2).find(|pair| pair.first().is_some_and(|f| f == name));
                pair.and_then(|pair| pair.get(1)).cloned().unwrap_or_default()
            };
            let number = |name: &str| field(name).parse().unwrap_or(0);
            let endpoint = Endpoint {
                word: word.clone(),
                name: field("name"),
                in_flight: number("in_flight"),
                managers_waiting: number("managers_waiting"),
                reviewers_waiting: number("reviewers_waiting"),
                workers_waiting: number("workers_waiting"),
                rate: field("rate").parse().unwrap_or(0.0),
                cool_down_ms: number("cool_down_ms"),
                failures: number("failures"),
                closed_for_ms: number("closed_for_ms"),
                held: number("held"),
            };
            if endpoint.name.is_empty() {
                // Nobody called it for a day: its record has expired.
                self.command("SREM", &[&self.keys.at("govs"), &word]).await?;
            } else {
                found.push(endpoint);
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}
