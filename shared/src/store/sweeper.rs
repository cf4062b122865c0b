//! The sweeper: lapsed leases, due delays, expired decisions, ended goals, retention, audit and repair.
//!
//! Every process runs it; selection and transition are one script, so any number of sweepers is safe.

use super::args::arg;
use super::{LostLease, Result, Store, Swept, Violation, reply, scripts};
use crate::config::Lease;
use redis::Value;

/// Items one script call touches (L7).
const PAGE: usize = 100;
/// Pages of one round; the next round goes on.
const PAGES_MAX: usize = 200;

fn lost_lease(words: Vec<String>) -> LostLease {
    let mut words = words.into_iter();
    let mut next = || words.next().unwrap_or_default();
    LostLease {
        ticket: next(),
        goal: next(),
        epoch: next().parse().unwrap_or_default(),
        what: next(),
        number: next().parse().unwrap_or_default(),
        consumer: next(),
        traceparent: next(),
    }
}

impl Store {
    /// One round: sweeps, promotes, fans out, ends goals, finishes seals; page by page until nothing is left.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer; the next round does what was left.
    pub async fn sweep(&self, lease: &Lease) -> Result<Swept> {
        let args = [
            arg(lease.lease_ms),
            arg(lease.outage_ms),
            arg(lease.person_expiry_ms),
            arg(lease.cancel_grace_ms),
            arg(PAGE),
        ];
        let mut total = Swept::default();
        for _ in 0..PAGES_MAX {
            let mut parts = reply::array(self.call(&scripts::SWEEP, &args).await?)?.into_iter();
            let mut next = || reply::number(parts.next().unwrap_or(Value::Nil));
            total.requeued += next()?;
            total.escalated += next()?;
            total.promoted += next()?;
            total.grace = next()? == 1;
            total.more = next()? == 1;
            // A script of the version before answers none.
            for lost in parts.next().map_or(Ok(vec![]), reply::array)? {
                total.lost.push(lost_lease(reply::texts(lost)?));
            }
            if !total.more {
                break;
            }
        }
        for goal in reply::texts(self.command("SRANDMEMBER", &[&self.keys.at("sealing"), "10"]).await?)? {
            // Without a lease: only what is sealed already goes on.
            let mut more = true;
            while more {
                let answer = self.call(&scripts::SEAL, &[arg(&goal), vec![], vec![], arg(0)]).await?;
                more = reply::texts(answer)?.get(1).is_some_and(|m| m == "1");
            }
        }
        self.call(&scripts::UNSERVED, &[arg(lease.reviewer_wait_ms), arg(lease.person_expiry_ms)]).await?;
        Ok(total)
    }

    /// Read-only check of the store's rules over everything live. Empty: all holds.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer.
    pub async fn audit(&self) -> Result<Vec<Violation>> {
        self.check(false, 0).await
    }

    /// Puts back into its place what the audit finds out of place; returns what was found.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer.
    pub async fn repair(&self, lease: &Lease) -> Result<Vec<Violation>> {
        self.check(true, lease.person_expiry_ms).await
    }

    /// Audits one goal, live or ended.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer.
    pub async fn audit_goal(&self, goal: &str) -> Result<Vec<Violation>> {
        self.check_goal(goal, false, 0).await
    }

    async fn check(&self, fix: bool, expiry_ms: u64) -> Result<Vec<Violation>> {
        let mut out = vec![];
        for goal in reply::texts(self.command("ZRANGE", &[&self.keys.at("live"), "0", "-1"]).await?)? {
            out.extend(self.check_goal(&goal, fix, expiry_ms).await?);
        }
        Ok(out)
    }

    async fn check_goal(&self, goal: &str, fix: bool, expiry_ms: u64) -> Result<Vec<Violation>> {
        let before = self.last_event(goal).await?;
        let (mut out, mut offset, mut running, mut mandatory) = (vec![], 0, 0, 0);
        loop {
            let args = [arg(goal), arg(offset), arg(PAGE), arg(u8::from(fix)), arg(expiry_ms)];
            let mut parts = reply::array(self.call(&scripts::AUDIT, &args).await?)?.into_iter();
            let seen = reply::number(parts.next().unwrap_or(Value::Nil))?;
            running += reply::number(parts.next().unwrap_or(Value::Nil))?;
            mandatory += reply::number(parts.next().unwrap_or(Value::Nil))?;
            for item in parts {
                let mut words = reply::texts(item)?.into_iter();
                let mut next = || words.next().unwrap_or_default();
                out.push(Violation { rule: next(), id: next(), detail: next() });
            }
            offset += usize::try_from(seen).unwrap_or(0);
            if seen < PAGE as u64 {
                break;
            }
        }
        // The goal's counts are only comparable when nothing happened since the first page: the script looks.
        let args = [
            arg("count"),
            arg(goal),
            arg(running),
            arg(mandatory),
            arg(&before),
            arg(u8::from(fix)),
            arg(offset),
        ];
        let wrong = reply::text(self.call(&scripts::GOAL_KEYS, &args).await?)?;
        if !wrong.is_empty() {
            out.push(Violation { rule: "L6".into(), id: goal.into(), detail: wrong });
        }
        Ok(out)
    }

    /// Last entry of the goal's event log: it moves with every transition.
    async fn last_event(&self, goal: &str) -> Result<String> {
        let last =
            self.command("XREVRANGE", &[&self.keys.of_goal(goal, "ev"), "+", "-", "COUNT", "1"]).await?;
        Ok(match reply::array(last)?.into_iter().next() {
            Some(entry) => reply::text(reply::array(entry)?.into_iter().next().unwrap_or(Value::Nil))?,
            None => String::new(),
        })
    }

    /// Goals whose retention is over: their blobs are to be deleted, then [`Store::forget_goal`].
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer.
    pub async fn expired_goals(&self, retention_s: u64, limit: usize) -> Result<Vec<String>> {
        let before = self.now_ms().await?.saturating_sub(retention_s * 1000).to_string();
        let args = [&self.keys.at("done"), "-inf", &before, "LIMIT", "0", &limit.to_string()];
        reply::texts(self.command("ZRANGEBYSCORE", &args).await?)
    }

    /// Deletes a finished goal's keys, page by page.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer; repeatable.
    pub async fn forget_goal(&self, goal: &str) -> Result<()> {
        while reply::number(self.call(&scripts::GOAL_KEYS, &[arg("forget"), arg(goal)]).await?)? == 1 {}
        Ok(())
    }
}
