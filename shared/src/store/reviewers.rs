//! How good the fleet's reviewers are: what became of the known deliverables that were put before each.

use super::args::{arg, json};
use super::{OpenDecision, Result, Store, StoreError, reply, scripts};
use redis::Value;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kind of an [`OpenDecision`] that asks about a reviewer.
pub const REVIEWER_DECISION: &str = "reviewer";

/// What is known of a deliverable that is put before a reviewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// It has a planted defect, which must be found.
    Canary,
    /// It is good and must pass.
    Control,
}

impl ProbeKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Control => "control",
        }
    }
}

/// What a reviewer said to a known deliverable; kept as JSON, the last hundred of each reviewer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeRecord {
    /// Version of this format; readers take N and N−1.
    pub v: u32,
    /// Redis clock.
    pub at_ms: u64,
    /// Name of the deliverable.
    pub name: String,
    /// `canary` or `control`.
    pub kind: String,
    /// `found`, `missed`, `passed`, `failed`; `unread`: no verdict came of it.
    pub outcome: String,
    /// The verdict's items as they were answered, or why there is none.
    pub detail: serde_json::Value,
    /// What the calls were, without what was said in them.
    pub calls: Vec<serde_json::Value>,
}

/// A reviewer as the fleet has measured it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReviewerBook {
    /// Model and prompt in one word: who it is to the store.
    pub actor: String,
    pub model: String,
    pub tier: String,
    /// Judged reviews.
    pub reviews: u64,
    pub canaries: u64,
    /// Canaries whose defect was found.
    pub canaries_found: u64,
    pub controls: u64,
    /// Controls that were passed.
    pub controls_passed: u64,
    /// Known deliverables that no verdict came of.
    pub unread: u64,
    /// Share of the last canaries that were found, in percent; `None`: there were none since the last lift.
    pub catch_percent: Option<u32>,
    /// Share of the last controls that were passed.
    pub pass_percent: Option<u32>,
    /// Known deliverables that a person asked for and that are still to be drawn.
    pub ordered: u64,
    /// Spent on all of that.
    pub tokens: u64,
    pub microusd: u64,
    /// 0: it is not suspended. Redis clock.
    pub suspended_at_ms: u64,
    pub why: String,
    /// Who lifted its last suspension.
    pub lifted_by: String,
    /// When one of its processes was last there. Redis clock.
    pub seen_at_ms: u64,
}

/// What measured a reviewer, and by which floor.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    pub actor: &'a str,
    pub kind: ProbeKind,
    pub right: bool,
    /// Results of the kind that the rate looks back on, and those that it needs.
    pub window: u32,
    pub count_min: u32,
    pub floor_percent: u32,
    pub tokens: u64,
    pub microusd: u64,
}

fn percent(last: &str) -> Option<u32> {
    let right = last.bytes().filter(|b| *b == b'1').count();
    (!last.is_empty()).then(|| u32::try_from(right * 100 / last.len()).unwrap_or(100))
}

impl Store {
    async fn reviewers_call(&self, args: &[Vec<u8>]) -> Result<Value> {
        let answer = reply::array(self.call(&scripts::REVIEWERS, args).await?)?;
        Ok(answer.into_iter().next().unwrap_or(Value::Nil))
    }

    /// One more judged review of this reviewer.
    ///
    /// # Errors
    /// [`StoreError`]; a repeat counts twice.
    pub async fn reviewed(&self, actor: &str) -> Result<()> {
        self.reviewers_call(&[arg("reviewed"), arg(actor)]).await.map(drop)
    }

    /// The number of the known deliverable that this reviewer is to be shown now, from 1; `None`: none is due.
    /// What is drawn and not measured is not drawn again.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn probe_due(&self, actor: &str, percent: u32, model: &str, tier: &str) -> Result<Option<u64>> {
        let args = [arg("due"), arg(actor), arg(percent), arg(model), arg(tier)];
        Ok(Some(reply::number(self.reviewers_call(&args).await?)?).filter(|n| *n > 0))
    }

    /// Counts how a known deliverable was judged; `true`: the reviewer is suspended by it.
    ///
    /// # Errors
    /// [`StoreError`]; a repeat counts twice.
    pub async fn reviewer_measured(&self, of: &Measured<'_>, record: &ProbeRecord) -> Result<bool> {
        let args = [
            arg("measured"),
            arg(of.actor),
            arg(of.kind.as_str()),
            arg(u8::from(of.right)),
            arg(of.window),
            arg(of.count_min),
            arg(of.floor_percent),
            arg(of.tokens),
            arg(of.microusd),
            json(record)?,
        ];
        Ok(reply::text(self.reviewers_call(&args).await?)? == "SUSPENDED")
    }

    /// Keeps that no verdict came of a known deliverable: that is no measure of the reviewer.
    ///
    /// # Errors
    /// As [`Store::reviewer_measured`].
    pub async fn probe_unread(
        &self,
        actor: &str,
        tokens: u64,
        microusd: u64,
        record: &ProbeRecord,
    ) -> Result<()> {
        let args = [arg("unread"), arg(actor), arg(tokens), arg(microusd), json(record)?];
        self.reviewers_call(&args).await.map(drop)
    }

    /// A person wants `count` more known deliverables before this reviewer; `false`: it is not known.
    ///
    /// # Errors
    /// [`StoreError`]; a repeat orders twice.
    pub async fn order_probes(&self, actor: &str, count: u64) -> Result<bool> {
        Ok(reply::number(self.reviewers_call(&[arg("order"), arg(actor), arg(count)]).await?)? == 1)
    }

    /// The reviewer claims again, and its rates begin anew; `false`: it was not suspended.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn lift_reviewer(&self, actor: &str, who: &str) -> Result<bool> {
        Ok(reply::number(self.reviewers_call(&[arg("lift"), arg(actor), arg(who)]).await?)? == 1)
    }

    /// All reviewers that were ever there, by model.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn reviewer_books(&self) -> Result<Vec<ReviewerBook>> {
        let mut books = vec![];
        for actor in reply::texts(self.command("SMEMBERS", &[&self.keys.at("reviewers")]).await?)? {
            books.push(self.reviewer_book(&actor).await?);
        }
        books.sort_by(|a, b| (&a.model, &a.actor).cmp(&(&b.model, &b.actor)));
        Ok(books)
    }

    async fn reviewer_book(&self, actor: &str) -> Result<ReviewerBook> {
        let all = self.command("HGETALL", &[&self.keys.at(&format!("rv:{actor}"))]).await?;
        let fields: BTreeMap<String, String> =
            redis::from_redis_value(all).map_err(|e| StoreError::Broken(e.to_string()))?;
        let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let number = |name: &str| text(name).parse().unwrap_or(0);
        Ok(ReviewerBook {
            actor: actor.into(),
            model: text("model"),
            tier: text("tier"),
            reviews: number("reviews"),
            canaries: number("canaries"),
            canaries_found: number("canaries_right"),
            controls: number("controls"),
            controls_passed: number("controls_right"),
            unread: number("unread"),
            catch_percent: percent(&text("canary_last")),
            pass_percent: percent(&text("control_last")),
            ordered: number("ordered"),
            tokens: number("tokens"),
            microusd: number("microusd"),
            suspended_at_ms: number("suspended_at"),
            why: text("why"),
            lifted_by: text("lifted_by"),
            seen_at_ms: number("seen_at"),
        })
    }

    /// The last known deliverables of a reviewer, newest first.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn reviewer_probes(&self, actor: &str) -> Result<Vec<ProbeRecord>> {
        let key = self.keys.at(&format!("rv:{actor}:log"));
        let texts = reply::texts(self.command("LRANGE", &[&key, "0", "-1"]).await?)?;
        Ok(texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
    }

    /// How many reviewers are suspended.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn reviewers_suspended(&self) -> Result<u64> {
        reply::number(self.command("SCARD", &[&self.keys.at("suspended")]).await?)
    }

    /// What a person is asked about suspended reviewers: they wait until they are lifted, and do not expire.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn reviewer_decisions(&self) -> Result<Vec<OpenDecision>> {
        let suspended = self.reviewer_books().await?.into_iter().filter(|book| book.suspended_at_ms > 0);
        Ok(suspended
            .map(|book| OpenDecision {
                id: book.actor.clone(),
                goal: String::new(),
                key: String::new(),
                epoch: 0,
                kind: REVIEWER_DECISION.into(),
                cause: "suspended".into(),
                detail: format!("the reviewer {} ({}) is suspended: {}", book.model, book.actor, book.why),
                expires_at_ms: 0,
                choices: vec![
                    "lift: it claims reviews again, and its rates begin anew".into(),
                    "nothing: other reviewers do its work; without any, finished work comes to you".into(),
                ],
            })
            .collect())
    }
}
