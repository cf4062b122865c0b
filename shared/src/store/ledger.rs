//! The budget ledger: what a call may cost is reserved before it is sent and settled by its real usage.
//!
//! Settled and reserved tokens of a goal together never pass its budget. A reservation whose caller died is settled
//! once, at its worst case, by the sweep that finds it expired.

use super::args::arg;
use super::{Result, Store, StoreError, reply, scripts};

/// The worst case of one model call.
#[derive(Clone, Copy, Debug)]
pub struct Reservation<'a> {
    /// Never used twice.
    pub call: &'a str,
    pub goal: &'a str,
    /// Empty: a call about the whole goal.
    pub ticket: &'a str,
    pub tokens: u64,
    /// Millionths of a dollar.
    pub microusd: u64,
    /// The call is over by then, or its caller is dead.
    pub expiry_ms: u64,
    /// How long a person has to raise the budget of a goal that is refused.
    pub person_expiry_ms: u64,
}

/// Calls of one role, tier and model.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Used {
    pub role: String,
    pub tier: String,
    pub model: String,
    pub calls: u64,
    /// Those of them that came to nothing.
    pub failed: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    /// Millionths of a dollar.
    pub microusd: u64,
    /// Tickets that it worked on last before their first verdict, and how many of these passed.
    pub judged: u64,
    pub first_pass: u64,
}

/// Whose budget it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payer {
    Goal,
    Tenant,
}

/// Whether the call may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    Ok,
    /// Not yet: what other calls have reserved may be enough, once they give back the rest.
    Later {
        left: u64,
    },
    /// Never within this budget. The goal waits for a person (cause `budget`) or for its tenant's next period (cause
    /// `tenant_budget`), its tickets are not claimed.
    Refused {
        left: u64,
        of: Payer,
    },
    /// The goal is over.
    Gone,
}

impl Store {
    /// Reserves before a call is sent. A goal without a budget is never refused.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable with the same call id.
    pub async fn reserve(&self, r: &Reservation<'_>) -> Result<Reserved> {
        let args = [
            arg(r.call),
            arg(r.goal),
            arg(r.ticket),
            arg(r.tokens),
            arg(r.microusd),
            arg(r.expiry_ms),
            arg(r.person_expiry_ms),
        ];
        let parts = reply::texts(self.call(&scripts::RESERVE, &args).await?)?;
        let left = || parts.get(1).and_then(|n| n.parse().ok()).unwrap_or(0);
        Ok(match parts.first().map_or("", String::as_str) {
            "OK" => Reserved::Ok,
            "LATER" => Reserved::Later { left: left() },
            "REFUSED" => {
                let tenant = parts.get(2).is_some_and(|of| of == "tenant");
                Reserved::Refused { left: left(), of: if tenant { Payer::Tenant } else { Payer::Goal } }
            }
            "GONE" => Reserved::Gone,
            other => return Err(StoreError::Broken(format!("reserve answered {other:?}"))),
        })
    }

    /// A reservation of a call that goes on lives for `expiry_ms` from now.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn keep_reserved(&self, goal: &str, call: &str, expiry_ms: u64) -> Result<()> {
        let until = (self.now_ms().await? + expiry_ms).to_string();
        self.command("ZADD", &[&self.keys.at("res"), "XX", &until, &format!("{goal}|{call}")]).await?;
        Ok(())
    }

    /// Books what a reserved call really took, in place of its reservation, and keeps its record in the event log.
    /// Repeatable: a call is booked once. `false`: it had been booked before, or its goal is gone.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn settle(
        &self,
        call: &str,
        goal: &str,
        ticket: &str,
        tokens: u64,
        microusd: u64,
        record: &serde_json::Value,
    ) -> Result<bool> {
        let word = |name: &str| record.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        let count = |name: &str| arg(record.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0));
        let label = match word("model") {
            "" => String::new(),
            model => format!("{}|{}|{model}", word("role"), word("tier")),
        };
        let args = [
            arg(call),
            arg(goal),
            arg(ticket),
            arg(tokens),
            arg(microusd),
            arg(record),
            arg(label),
            count("input_tokens"),
            count("output_tokens"),
            count("cached_tokens"),
            arg(u8::from(!word("error").is_empty())),
        ];
        Ok(reply::number(self.call(&scripts::SETTLE, &args).await?)? == 1)
    }

    /// What was booked since the store began, by role, tier and model.
    ///
    /// # Errors
    /// [`StoreError`]; changes nothing.
    pub async fn usage(&self) -> Result<Vec<Used>> {
        let mut found = vec![];
        for label in reply::texts(self.command("SMEMBERS", &[&self.keys.at("uses")]).await?)? {
            let fields =
                reply::texts(self.command("HGETALL", &[&self.keys.at(&format!("use:{label}"))]).await?)?;
            let number = |name: &str| {
                let pair = fields.chunks(2).find(|pair| pair.first().is_some_and(|f| f == name));
                pair.and_then(|pair| pair.get(1)).and_then(|n| n.parse().ok()).unwrap_or(0)
            };
            let mut words = label.splitn(3, '|').map(str::to_owned);
            let mut next = || words.next().unwrap_or_default();
            found.push(Used {
                role: next(),
                tier: next(),
                model: next(),
                calls: number("calls"),
                failed: number("failed"),
                input_tokens: number("input"),
                output_tokens: number("output"),
                cached_tokens: number("cached"),
                microusd: number("microusd"),
                judged: number("judged"),
                first_pass: number("first_pass"),
            });
        }
        found.sort_by(|a, b| (&a.role, &a.tier, &a.model).cmp(&(&b.role, &b.tier, &b.model)));
        Ok(found)
    }

    /// Books what was never reserved.
    ///
    /// # Errors
    /// [`StoreError`]; a repeat books twice, so callers do not repeat it.
    pub async fn book(
        &self,
        goal: &str,
        ticket: &str,
        tokens: u64,
        microusd: u64,
        record: &serde_json::Value,
    ) -> Result<()> {
        self.settle("", goal, ticket, tokens, microusd, record).await?;
        Ok(())
    }
}
