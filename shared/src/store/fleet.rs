//! The fleet's record: consumers and their orders, gauges, dead letters, the blob nonce, API tokens.

use super::fields::Map;
use super::{Consumer, DeadLetter, Gauges, Result, Store, StoreError, reply, scripts};
use base64::Engine;
use redis::Value;
use std::collections::BTreeMap;

/// A consumer that did not beat for this long is gone.
const CONSUMER_TTL_S: u64 = 90;
/// Consumers listed at most.
const CONSUMERS_MAX: usize = 10_000;

impl Store {
    /// Publishes a consumer (gone after 90 s without a renewal) and its lanes; `actor` is what it reviews as.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer; repeatable.
    pub async fn publish_consumer(&self, consumer: &Consumer, actor: &str) -> Result<()> {
        let key = self.keys.consumer(&consumer.id);
        let record = serde_json::to_string(consumer).map_err(|e| StoreError::Broken(e.to_string()))?;
        self.command("HSET", &[&key, "record", &record, "actor", actor]).await?;
        self.command("EXPIRE", &[&key, &CONSUMER_TTL_S.to_string()]).await?;
        let now = self.now_ms().await?.to_string();
        for lane in &consumer.lanes {
            self.command("ZADD", &[&self.keys.at(&format!("cons:{lane}")), &now, &consumer.id]).await?;
            self.command("SADD", &[&self.keys.at("lanes"), lane]).await?;
        }
        self.command("ZADD", &[&self.keys.at("consumers"), &now, &consumer.id]).await?;
        Ok(())
    }

    /// Takes it off the lists (drain's end).
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer; it disappears by itself then.
    pub async fn retire_consumer(&self, id: &str, lanes: &[String]) -> Result<()> {
        for lane in lanes {
            self.command("ZREM", &[&self.keys.at(&format!("cons:{lane}")), id]).await?;
        }
        self.command("ZREM", &[&self.keys.at("consumers"), id]).await?;
        self.command("DEL", &[&self.keys.consumer(id)]).await?;
        Ok(())
    }

    /// Live consumers. Those that are gone are taken off the lists on the way.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn consumers(&self) -> Result<Vec<Consumer>> {
        let now = self.now_ms().await?;
        let last = CONSUMERS_MAX.to_string();
        let ids = reply::texts(self.command("ZRANGE", &[&self.keys.at("consumers"), "0", &last]).await?)?;
        let mut out = vec![];
        for id in ids {
            let map = Map::of(self.command("HGETALL", &[&self.keys.consumer(&id)]).await?)?;
            let Ok(mut consumer) = serde_json::from_str::<Consumer>(&map.text("record")) else {
                let lanes = reply::texts(self.command("SMEMBERS", &[&self.keys.at("lanes")]).await?)?;
                self.retire_consumer(&id, &lanes).await?;
                continue;
            };
            let mut beat = 0;
            for lane in &consumer.lanes {
                let score = self.command("ZSCORE", &[&self.keys.at(&format!("cons:{lane}")), &id]).await?;
                beat = beat.max(score_of(score));
            }
            consumer.beat_age_ms = now.saturating_sub(beat);
            let order = map.text("order");
            if !order.is_empty() {
                consumer.state = order;
            }
            out.push(consumer);
        }
        Ok(out)
    }

    /// Tells one consumer to take no new work (`cordoned`), to leave (`draining`), or to go on (`active`).
    /// `false`: nobody of that id is there.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer; repeatable.
    pub async fn order_consumer(&self, id: &str, state: &str) -> Result<bool> {
        let key = self.keys.consumer(id);
        if reply::number(self.command("EXISTS", &[&key]).await?)? == 0 {
            return Ok(false);
        }
        self.command("HSET", &[&key, "order", state]).await?;
        Ok(true)
    }

    /// What was ordered for it, or `active`.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn order_for(&self, id: &str) -> Result<String> {
        let order = reply::text(self.command("HGET", &[&self.keys.consumer(id), "order"]).await?)?;
        Ok(if order.is_empty() { "active".into() } else { order })
    }

    /// Gauges, for metrics, `muster stats` and scaling.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn gauges(&self) -> Result<Gauges> {
        let now = self.now_ms().await?;
        let mut demand = BTreeMap::new();
        let mut consumers = BTreeMap::new();
        let alive = now.saturating_sub(CONSUMER_TTL_S * 1000).to_string();
        for lane in reply::texts(self.command("SMEMBERS", &[&self.keys.at("lanes")]).await?)? {
            let n = reply::number(self.command("SCARD", &[&self.keys.at(&format!("dem:{lane}"))]).await?)?;
            demand.insert(lane.clone(), n);
            let key = self.keys.at(&format!("cons:{lane}"));
            consumers.insert(lane, reply::number(self.command("ZCOUNT", &[&key, &alive, "+inf"]).await?)?);
        }
        let first = self.command("ZRANGE", &[&self.keys.at("lease"), "0", "0", "WITHSCORES"]).await?;
        let oldest = oldest_score(first)?;
        let card = async |key: &str| -> Result<u64> {
            reply::number(self.command("ZCARD", &[&self.keys.at(key)]).await?)
        };
        let memory = reply::text(self.command("INFO", &["memory"]).await?).unwrap_or_default();
        let used = memory
            .lines()
            .find_map(|l| l.strip_prefix("used_memory:"))
            .and_then(|v| v.trim().parse().ok())
            .unwrap_or(0);
        Ok(Gauges {
            demand,
            consumers,
            leased: card("lease").await?,
            delayed: card("delay").await?,
            people: card("ask").await?,
            goals_live: card("live").await?,
            dead_letters: reply::number(self.command("LLEN", &[&self.keys.at("dead")]).await?)?,
            oldest_lease_overdue_ms: oldest.map_or(0, |due| now.saturating_sub(due)),
            used_memory_bytes: used,
        })
    }

    /// Keeps what does not decode, unchanged, with the reason.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn dead_letter(&self, lane: &str, raw: &[u8], reason: &str) -> Result<()> {
        let args = [b"push".to_vec(), lane.into(), raw.to_vec(), reason.into()];
        self.call(&scripts::DEAD_LETTERS, &args).await?;
        Ok(())
    }

    /// The dead letters, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>> {
        let last = limit.saturating_sub(1).to_string();
        let items = reply::array(self.command("LRANGE", &[&self.keys.at("dead"), "0", &last]).await?)?;
        let mut out = vec![];
        for item in items {
            let bytes = reply::bytes(item)?;
            let cut = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
            let (head, raw) = bytes.split_at(cut);
            let head: serde_json::Value = serde_json::from_slice(head).unwrap_or_default();
            let word = |f: &str| head.get(f).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
            out.push(DeadLetter {
                at_ms: head.get("at_ms").and_then(serde_json::Value::as_f64).map_or(0, |f| f as u64),
                lane: word("lane"),
                reason: word("reason"),
                raw: base64::engine::general_purpose::STANDARD.encode(raw.get(1..).unwrap_or_default()),
            });
        }
        Ok(out)
    }

    /// Takes up to `limit` dead letters off the list; the tickets they named, if they wait for a delivery, get a
    /// fresh one from their hash. Returns how many were taken and how many tickets were queued again.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn requeue_dead_letters(&self, limit: usize) -> Result<(usize, usize)> {
        let (mut taken, mut queued) = (0, 0);
        while taken < limit {
            let answer = self.call(&scripts::DEAD_LETTERS, &[b"requeue".to_vec()]).await?;
            let mut parts = reply::array(answer)?.into_iter();
            if reply::number(parts.next().unwrap_or(Value::Nil))? == 0 {
                break;
            }
            taken += 1;
            queued += usize::from(reply::number(parts.next().unwrap_or(Value::Nil))? == 1);
        }
        Ok((taken, queued))
    }

    /// The fleet's nonce, if there is one: it proves that two hosts see the same blob store.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn fleet_nonce(&self) -> Result<Option<String>> {
        let value = self.command("HGET", &[&self.keys.ctl(), "nonce"]).await?;
        if value == Value::Nil { Ok(None) } else { reply::text(value).map(Some) }
    }

    /// Offers a nonce whose mark is written; returns the one that holds, this one or an earlier.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer; repeatable.
    pub async fn offer_fleet_nonce(&self, nonce: &str) -> Result<String> {
        let key = self.keys.ctl();
        self.command("HSETNX", &[&key, "nonce", nonce]).await?;
        reply::text(self.command("HGET", &[&key, "nonce"]).await?)
    }

    /// Keeps an API token: its hash and what it may do.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer; repeatable.
    pub async fn token_put(&self, hash: &str, record: &serde_json::Value) -> Result<()> {
        self.command("HSET", &[&self.keys.at("tokens"), hash, &record.to_string()]).await?;
        Ok(())
    }

    /// What the token of that hash may do.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn token_get(&self, hash: &str) -> Result<Option<serde_json::Value>> {
        let raw = reply::text(self.command("HGET", &[&self.keys.at("tokens"), hash]).await?)?;
        Ok(serde_json::from_str(&raw).ok())
    }

    /// All tokens, by hash.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn token_list(&self) -> Result<Vec<(String, serde_json::Value)>> {
        let all: BTreeMap<String, String> =
            redis::from_redis_value(self.command("HGETALL", &[&self.keys.at("tokens")]).await?)
                .map_err(|e| StoreError::Broken(e.to_string()))?;
        Ok(all.into_iter().map(|(h, r)| (h, serde_json::from_str(&r).unwrap_or_default())).collect())
    }

    /// Revokes a token; `false`: there was none.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer; repeatable.
    pub async fn token_delete(&self, hash: &str) -> Result<bool> {
        Ok(reply::number(self.command("HDEL", &[&self.keys.at("tokens"), hash]).await?)? == 1)
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enum grows; whatever else comes is read as a number"
)]
fn score_of(value: Value) -> u64 {
    match value {
        Value::Double(d) => d as u64,
        other => reply::number(other).unwrap_or(0),
    }
}

/// The score of the first member of a `WITHSCORES` reply, in either protocol version.
fn oldest_score(value: Value) -> Result<Option<u64>> {
    let mut items = reply::array(value)?;
    Ok(match items.pop() {
        None => None,
        Some(Value::Array(mut pair)) => pair.pop().map(score_of),
        Some(score) => Some(score_of(score)),
    })
}
