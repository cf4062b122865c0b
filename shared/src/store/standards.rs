//! A tenant's standards as they are kept, by kind of ticket. No tenant reads another's.

use super::args::{arg, json};
use super::{Result, Store, StoreError, reply, scripts};
use crate::config::Standards as Limits;
use crate::standard::{Standard, State, Tallied};
use redis::Value;
use std::collections::BTreeMap;

/// What became of a person's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    Ok,
    /// It is not there.
    Gone,
    /// As many of the kind are promoted as may be.
    Full,
}

impl Store {
    async fn standards_call(&self, args: &[Vec<u8>]) -> Result<Value> {
        let answer = reply::array(self.call(&scripts::STANDARDS, args).await?)?;
        Ok(answer.into_iter().next().unwrap_or(Value::Nil))
    }

    /// One more ticket was sent back for what this standard says; `true`: by this it is proposed. A ticket counts once.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn notice_standard(
        &self,
        tenant: &str,
        standard: &Standard,
        ticket: &str,
        limits: &Limits,
    ) -> Result<bool> {
        let args = [
            arg("notice"),
            arg(tenant),
            arg(&standard.kind),
            arg(&standard.id),
            arg(ticket),
            json(standard)?,
            arg(limits.seen_min),
            arg(limits.kind_max),
            arg(limits.shadow_max),
        ];
        Ok(reply::text(self.standards_call(&args).await?)? == "SHADOW")
    }

    /// Counts how standards in shadow, by id, were judged in a review; `passes`: what the real items came to.
    ///
    /// # Errors
    /// [`StoreError`]; a repeat counts twice.
    pub async fn tally_standards(
        &self,
        tenant: &str,
        kind: &str,
        passes: bool,
        judged: &[(&str, bool)],
    ) -> Result<()> {
        let mut args = vec![arg("tally"), arg(tenant), arg(kind), arg(u8::from(passes))];
        for (id, pass) in judged {
            args.extend([arg(id), arg(u8::from(*pass))]);
        }
        self.standards_call(&args).await.map(drop)
    }

    /// A person's word on a standard: [`State::Promoted`], else it is dropped. Its text is replaced by the one given.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn decide_standard(
        &self,
        tenant: &str,
        standard: &Standard,
        to: State,
        who: &str,
        promoted_max: usize,
    ) -> Result<Decided> {
        let word = if to == State::Promoted { State::Promoted } else { State::Dropped };
        let args = [
            arg("decide"),
            arg(tenant),
            arg(&standard.kind),
            arg(&standard.id),
            arg(word.as_str()),
            arg(who),
            json(standard)?,
            arg(promoted_max),
        ];
        match reply::text(self.standards_call(&args).await?)?.as_str() {
            "OK" => Ok(Decided::Ok),
            "GONE" => Ok(Decided::Gone),
            "FULL" => Ok(Decided::Full),
            other => Err(StoreError::Broken(format!("a standard was answered with {other}"))),
        }
    }

    async fn by_field(&self, key: String) -> Result<BTreeMap<String, String>> {
        let answer = self.command("HGETALL", &[&key]).await?;
        redis::from_redis_value(answer).map_err(|e| StoreError::Broken(e.to_string()))
    }

    /// The tenant's standards of one kind with their tallies, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn standards(&self, tenant: &str, kind: &str) -> Result<Vec<Tallied>> {
        let records = self.by_field(self.keys.at(&format!("std:{tenant}:k:{kind}"))).await?;
        if records.is_empty() {
            return Ok(vec![]);
        }
        let book = self.by_field(self.keys.at(&format!("std:{tenant}:n:{kind}"))).await?;
        let mut all: Vec<Tallied> = records
            .iter()
            .filter_map(|(id, kept)| Some(tallied(serde_json::from_str(kept).ok()?, id, &book)))
            .collect();
        all.sort_by(|a, b| {
            (a.standard.noticed_at_ms, &a.standard.id).cmp(&(b.standard.noticed_at_ms, &b.standard.id))
        });
        Ok(all)
    }

    /// All standards of the tenant, by kind.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn all_standards(&self, tenant: &str) -> Result<Vec<Tallied>> {
        let key = self.keys.at(&format!("std:{tenant}"));
        let mut kinds = reply::texts(self.command("SMEMBERS", &[&key]).await?)?;
        kinds.sort();
        let mut all = vec![];
        for kind in kinds {
            all.extend(self.standards(tenant, &kind).await?);
        }
        Ok(all)
    }
}

fn tallied(standard: Standard, id: &str, book: &BTreeMap<String, String>) -> Tallied {
    let text = |name: &str| book.get(&format!("{id}:{name}")).cloned().unwrap_or_default();
    let number = |name: &str| text(name).parse().unwrap_or_default();
    let word = text("state");
    Tallied {
        standard,
        state: State::ALL.into_iter().find(|s| s.as_str() == word).unwrap_or_default(),
        seen: number("seen"),
        asked: number("asked"),
        failed: number("failed"),
        flips: number("flips"),
        decided_by: text("by"),
        changed_at_ms: number("at"),
    }
}
