//! The fleet as a manager measures it for the metrics: lanes, leases, tickets by state, decisions, the server itself.
//!
//! Reads only, in pages; nothing here is exact while work goes on, and nothing decides by it.

use super::args::arg;
use super::server::field;
use super::{Result, Store, reply, scripts};
use crate::telemetry::metrics::{LaneSeen, Seen};
use crate::ticket::Status;
use redis::Value;
use std::collections::BTreeMap;

/// Pages of one question; what is behind them is not counted (10,000 leases, goals, decisions).
const PAGES_MAX: usize = 100;
/// Entries of one page, as the script has it.
const PAGE: usize = 100;
/// The lane of goals; it has no demand set.
const MANAGE: &str = "manage";

impl Store {
    /// Measures.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer; nothing is kept then.
    pub async fn measure(&self) -> Result<Seen> {
        let mut fleet = reply::array(self.call(&scripts::MEASURE, &[arg("fleet")]).await?)?.into_iter();
        let mut next = || reply::number(fleet.next().unwrap_or(Value::Nil));
        let mut seen = Seen {
            sweep_age_ms: next()?,
            oldest_lease_overdue_ms: next()?,
            delayed: next()?,
            decisions_open: next()?,
            goals_live: next()?,
            dead_letters: next()?,
            reserved_calls: next()?,
            ..Seen::default()
        };
        let goals_ready = next()?;
        let leased = self.counted("leases", &[]).await?;
        let mut names = reply::texts(self.command("SMEMBERS", &[&self.keys.at("lanes")]).await?)?;
        if !names.iter().any(|name| name == MANAGE) {
            names.push(MANAGE.into());
        }
        for name in names {
            let answer = self.call(&scripts::MEASURE, &[arg("lane"), arg(&name)]).await?;
            let mut parts = reply::array(answer)?.into_iter();
            let mut next = || reply::number(parts.next().unwrap_or(Value::Nil));
            let leased = leased.get(&name).copied().unwrap_or(0);
            let (demand, consumers, oldest_ready_ms) = (next()?, next()?, next()?);
            let ready = if name == MANAGE { goals_ready } else { demand.saturating_sub(leased) };
            let lane = LaneSeen { ready, leased, demand: ready + leased, consumers, oldest_ready_ms };
            seen.lanes.insert(name, lane);
        }
        let open: Vec<Status> = Status::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        let words: Vec<Vec<u8>> = open.iter().map(|status| arg(status.as_str())).collect();
        let tickets = self.counted("goals", &words).await?;
        seen.tickets = open
            .into_iter()
            .map(|status| (status.as_str(), tickets.get(status.as_str()).copied().unwrap_or(0)))
            .collect();
        seen.asked(self.counted("asks", &[]).await?);
        self.measure_governor(&mut seen).await?;
        seen.reviewers_suspended = self.reviewers_suspended().await?;
        self.measure_server(&mut seen).await?;
        Ok(seen)
    }

    /// Sums the pages of one question by word.
    async fn counted(&self, what: &str, more: &[Vec<u8>]) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for page in 0..PAGES_MAX {
            let mut args = vec![arg(what), arg(page * PAGE)];
            args.extend_from_slice(more);
            let mut parts = reply::array(self.call(&scripts::MEASURE, &args).await?)?.into_iter();
            let entries = reply::number(parts.next().unwrap_or(Value::Nil))?;
            while let (Some(word), Some(n)) = (parts.next(), parts.next()) {
                *counts.entry(reply::text(word)?).or_default() += reply::number(n)?;
            }
            if entries < PAGE as u64 {
                break;
            }
        }
        Ok(counts)
    }

    async fn measure_governor(&self, seen: &mut Seen) -> Result<()> {
        for endpoint in self.quotas().await? {
            seen.calls_in_flight += endpoint.in_flight;
            seen.calls_waiting += endpoint.managers_waiting
                + endpoint.reviewers_waiting
                + endpoint.workers_waiting
                + endpoint.held;
            seen.cool_down_ms = seen.cool_down_ms.max(endpoint.cool_down_ms);
            seen.breakers_open += u64::from(endpoint.closed_for_ms > 0);
        }
        Ok(())
    }

    async fn measure_server(&self, seen: &mut Seen) -> Result<()> {
        let memory = self.server_info("memory").await?;
        let number = |name: &str| field(&memory, name).parse().unwrap_or(0);
        (seen.memory_bytes, seen.memory_max_bytes) = (number("used_memory"), number("maxmemory"));
        let policy = field(&memory, "maxmemory_policy");
        seen.may_evict = !policy.is_empty() && policy != "noeviction";
        let persistence = self.server_info("persistence").await?;
        seen.append_only = field(&persistence, "aof_enabled") == "1";
        let failed = |name: &str| field(&persistence, name) == "err";
        seen.persistence_failing = failed("aof_last_write_status") || failed("rdb_last_bgsave_status");
        Ok(())
    }
}
