//! Claims and outcomes of tickets.

use super::args::{arg, head, json};
use super::{
    Claim, ClaimReply, ClaimRequest, Completion, Decision, Failure, Held, Permit, Renewal, Result, Store,
    StoreError, Written, fields, reply, scripts,
};
use crate::codec;
use crate::message::Kind;
use crate::ticket::Ticket;
use redis::Value;

/// Tickets read in one round trip.
const PAGE: usize = 100;

fn roots(args: &mut Vec<Vec<u8>>, roots: Option<&(String, String)>) {
    match roots {
        Some((base, new)) => args.extend([arg("1"), arg(base), arg(new)]),
        None => args.extend([arg("0"), vec![], vec![]]),
    }
}

impl Store {
    /// Claims up to `n` tickets. Repeating it with the same `lease_prefix` after a lost reply is safe.
    ///
    /// # Errors
    /// [`StoreError`]; a retryable one means that the outcome is unknown: repeat with the same prefix.
    pub async fn claim(&self, request: &ClaimRequest<'_>) -> Result<ClaimReply> {
        let kind = match request.kind {
            Kind::Work => "work",
            Kind::Review => "review",
        };
        let mut args = vec![
            arg(kind),
            arg(request.consumer),
            arg(request.lease_prefix),
            arg(request.lease_ms),
            arg(request.n),
            arg(request.actor),
        ];
        args.extend(request.lanes.iter().map(arg));
        let mut items = reply::array(self.call(&scripts::CLAIM, &args).await?)?.into_iter();
        let word = reply::text(items.next().unwrap_or(Value::Nil))?;
        let hint_ms = reply::number(items.next().unwrap_or(Value::Nil))?;
        match word.as_str() {
            "EMPTY" => Ok(ClaimReply::Empty),
            "AGAIN" => Ok(ClaimReply::Again { hint_ms }),
            "PAUSED" => Ok(ClaimReply::Paused { hint_ms }),
            "OK" => {
                // Read side by side on one connection. What could not be read stays claimed: the repeat gets it.
                let read =
                    futures::future::try_join_all(items.map(|item| self.claimed(request, item))).await?;
                Ok(ClaimReply::Got(read.into_iter().flatten().collect()))
            }
            other => Err(StoreError::Broken(format!("claim answered {other:?}"))),
        }
    }

    /// `None`: the ticket does not read, or is gone between the claim and this read.
    async fn claimed(&self, request: &ClaimRequest<'_>, item: Value) -> Result<Option<Claim>> {
        let mut parts = reply::array(item)?.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        let id = reply::text(next())?;
        let epoch = reply::number(next())?;
        let lease_id = reply::text(next())?;
        let raw = reply::bytes(next())?;
        let queue_wait_ms = reply::number(next())?;
        let rest: Vec<String> = parts.map(reply::text).collect::<Result<_>>()?;
        let read = if rest.is_empty() {
            self.ticket(&id).await
        } else {
            // Fresh: the claim said all that its hash holds.
            let more = vec![
                ("task_id", id.clone()),
                ("status", "running".into()),
                ("epoch", epoch.to_string()),
                ("lease_id", lease_id.clone()),
                ("assignee", request.consumer.to_owned()),
                ("attempts", "1".into()),
            ];
            fields::ticket(&fields::Map::fresh(rest.into_iter(), more)).map(Some)
        };
        let ticket = match read {
            Ok(Some(ticket)) => ticket,
            Ok(None) => return Ok(None),
            // The others of the batch go on; this one lapses until its cap, and then a person sees it.
            Err(StoreError::Broken(problem)) => {
                tracing::error!(ticket = id, problem, "a claimed ticket does not read");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // The hash is the truth: a body that does not decode costs nothing but its trace context.
        let delivery = match codec::decode(&raw) {
            Ok(delivery) => Some(delivery),
            Err(_) if raw.is_empty() => None,
            Err(e) => {
                let lane = request.lanes.first().map_or("", String::as_str);
                self.dead_letter(lane, &raw, &e.to_string()).await?;
                None
            }
        };
        let held = Held { id, epoch, lease_id };
        Ok(Some(Claim { kind: request.kind, held, ticket, delivery, queue_wait_ms }))
    }

    /// Renews leases and beats the consumer. `idle_ms` (second of each pair) is how long ago the work last moved.
    /// A manager renews its goal as `g:<goal id>`.
    ///
    /// # Errors
    /// [`StoreError`]; whoever cannot renew must stop before its lease ends.
    pub async fn renew(
        &self,
        consumer: &str,
        lanes: &[String],
        lease_ms: u64,
        progress_limit_ms: u64,
        run_limit_ms: u64,
        held: &[(Held, u64)],
    ) -> Result<Vec<Renewal>> {
        let mut args =
            vec![arg(consumer), arg(lease_ms), arg(progress_limit_ms), arg(run_limit_ms), arg(lanes.len())];
        args.extend(lanes.iter().map(arg));
        for (h, idle_ms) in held {
            args.extend([arg(&h.id), arg(h.epoch), arg(&h.lease_id), arg(idle_ms)]);
        }
        let mut out = vec![];
        for item in reply::array(self.call(&scripts::RENEW, &args).await?)? {
            let mut parts = reply::array(item)?.into_iter();
            let word = reply::text(parts.next().unwrap_or(Value::Nil))?;
            let expires_in_ms = reply::number(parts.next().unwrap_or(Value::Nil))?;
            out.push(match word.as_str() {
                "OK" => Renewal::Ok { expires_in_ms },
                "CANCEL" => Renewal::Cancel,
                _ => Renewal::Lost,
            });
        }
        Ok(out)
    }

    /// Hands in finished work; under review policy none it publishes.
    ///
    /// # Errors
    /// [`StoreError`]; a retryable one: repeat, DUP counts as accepted.
    pub async fn complete(&self, done: &[Completion]) -> Result<Vec<Written>> {
        let mut args = vec![];
        for c in done {
            args.extend([arg(&c.held.id), arg(c.held.epoch), arg(&c.held.lease_id), json(&c.report)?]);
            args.extend([arg(&c.overlay_ref), arg(&c.actor)]);
            roots(&mut args, c.roots.as_ref());
        }
        self.words(&scripts::COMPLETE, &args).await
    }

    /// A reviewer's verdicts; a pass publishes and releases the dependents.
    ///
    /// # Errors
    /// [`StoreError`]; a retryable one: repeat, DUP counts as accepted.
    pub async fn decide(&self, decisions: &[Decision]) -> Result<Vec<Written>> {
        let mut args = vec![];
        for d in decisions {
            let pass = if d.verdict.passes() { "1" } else { "0" };
            args.extend([arg(&d.held.id), arg(d.held.epoch), arg(&d.held.lease_id), json(&d.verdict)?]);
            args.extend([arg(pass), arg(head(&d.verdict.comment()))]);
            roots(&mut args, d.roots.as_ref());
        }
        self.words(&scripts::DECIDE, &args).await
    }

    async fn words(&self, script: &scripts::Script, args: &[Vec<u8>]) -> Result<Vec<Written>> {
        reply::texts(self.call(script, args).await?)?.iter().map(|w| reply::written(w)).collect()
    }

    async fn outcome(&self, what: &str, held: &Held, rest: Vec<Vec<u8>>) -> Result<Written> {
        let mut args = vec![arg(what), arg(&held.id), arg(held.epoch), arg(&held.lease_id)];
        args.extend(rest);
        reply::written(&reply::text(self.call(&scripts::OUTCOME, &args).await?)?)
    }

    /// The attempt (or the review) failed.
    ///
    /// # Errors
    /// [`StoreError`]; a retryable one: repeat, DUP counts as accepted.
    pub async fn fail(&self, failure: &Failure) -> Result<Written> {
        let rest = vec![arg(failure.class.as_str()), arg(head(&failure.detail)), arg(failure.delay_ms)];
        self.outcome("fail", &failure.held, rest).await
    }

    /// Gives the ticket back unharmed (drain).
    ///
    /// # Errors
    /// [`StoreError`]; a retryable one: repeat, DUP counts as accepted.
    pub async fn release(&self, held: &Held) -> Result<Written> {
        self.outcome("release", held, vec![]).await
    }

    /// Asks a person to confirm one exact call.
    ///
    /// # Errors
    /// [`StoreError`]; a retryable one: repeat, DUP counts as accepted.
    pub async fn park(&self, held: &Held, permit: &Permit, expiry_ms: u64) -> Result<Written> {
        self.outcome("park", held, vec![json(permit)?, arg(expiry_ms)]).await
    }

    /// One of its paths changed under it.
    ///
    /// # Errors
    /// [`StoreError`]; a retryable one: repeat, DUP counts as accepted.
    pub async fn conflict(
        &self,
        held: &Held,
        detail: &str,
        again: bool,
        overlay_ref: &str,
    ) -> Result<Written> {
        let args = vec![arg(head(detail)), arg(u8::from(again)), arg(overlay_ref)];
        self.outcome("conflict", held, args).await
    }

    /// A ticket, or `None`.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer or the hash does not read.
    pub async fn ticket(&self, id: &str) -> Result<Option<Ticket>> {
        let map = fields::Map::of(self.command("HGETALL", &[&self.keys.ticket(id)]).await?)?;
        if map.is_empty() { Ok(None) } else { fields::ticket(&map).map(Some) }
    }

    /// A page of a goal's tickets in plan order.
    ///
    /// # Errors
    /// As [`Store::ticket`].
    pub async fn tickets(&self, goal: &str, offset: usize, limit: usize) -> Result<Vec<Ticket>> {
        if limit == 0 {
            return Ok(vec![]);
        }
        let last = offset + limit - 1;
        let ids = reply::texts(
            self.command("ZRANGE", &[&self.keys.of_goal(goal, "t"), &offset.to_string(), &last.to_string()])
                .await?,
        )?;
        let reads = futures::future::join_all(ids.iter().map(|id| self.ticket(id))).await;
        let mut out = vec![];
        for read in reads {
            out.extend(read?);
        }
        Ok(out)
    }

    /// All of a goal's tickets in plan order (read in pages).
    ///
    /// # Errors
    /// As [`Store::ticket`].
    pub async fn all_tickets(&self, goal: &str) -> Result<Vec<Ticket>> {
        let mut out = vec![];
        loop {
            let page = self.tickets(goal, out.len(), PAGE).await?;
            let last = page.len() < PAGE;
            out.extend(page);
            if last {
                return Ok(out);
            }
        }
    }

    /// A worker's progress: an event, a conclusion for the shared list, and for an obstacle a word to the manager.
    ///
    /// # Errors
    /// [`StoreError`]; a repeat writes a second event, never a second effect.
    pub async fn progress(
        &self,
        held: &Held,
        status: &str,
        message: &str,
        conclusion: Option<&str>,
    ) -> Result<Written> {
        let args = [
            arg(&held.id),
            arg(held.epoch),
            arg(&held.lease_id),
            arg(status),
            arg(head(message)),
            arg(head(conclusion.unwrap_or_default())),
        ];
        reply::written(&reply::text(self.call(&scripts::PROGRESS, &args).await?)?)
    }
}
