//! Goals as a client sees them: list, show, their tickets, and what people do to them.

use super::Api;
use super::auth::{Caller, Decider, Reader, Submitter};
use super::error::{Answer, ApiError, Body};
use super::types::{Ack, Audit, GoalList, TicketList, Words};
use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use shared::goal::{Goal, GoalState};
use shared::store::{Answered, PersonDecision};
use shared::ticket::Ticket;

/// Goals of one page.
const PAGE_MAX: usize = 200;
/// Goals looked through for one page of a tenant's.
const SCAN_MAX: usize = 2_000;
/// Longest note or answer, in bytes.
pub(super) const WORDS_BYTES_MAX: usize = 16 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    state: Option<String>,
    /// Words that a goal's text holds, or the beginning of its id.
    #[serde(default)]
    q: String,
    #[serde(default)]
    offset: usize,
    #[serde(default = "default_limit")]
    limit: usize,
}

fn default_limit() -> usize {
    50
}

impl Api {
    /// The goal, if it is there and the caller may see it; otherwise the same 404.
    pub(super) async fn goal_for(&self, caller: &Caller, id: &str) -> Result<Goal, ApiError> {
        let missing = || ApiError::not_found("goal", id);
        if !is_id(id) {
            return Err(missing().hint("a goal's id is 32 hex digits; `muster list` shows them"));
        }
        let mut goal = self.store.goal(id).await?.filter(|g| caller.sees(g)).ok_or_else(missing)?;
        // The proof of a lease is for its holder alone (I3).
        goal.lease_id.clear();
        Ok(goal)
    }

    /// The ticket, if it is there and the caller may see its goal; otherwise the same 404.
    pub(super) async fn ticket_for(&self, caller: &Caller, id: &str) -> Result<Ticket, ApiError> {
        let missing = || ApiError::not_found("ticket", id);
        if !is_id(id) {
            return Err(missing().hint("a ticket's id is 32 hex digits; `muster tickets GOAL` shows them"));
        }
        let mut ticket = self.store.ticket(id).await?.ok_or_else(missing)?;
        if !caller.sees_all() {
            let goal = self.store.goal(&ticket.goal).await?.ok_or_else(missing)?;
            if !caller.sees(&goal) {
                return Err(missing());
            }
        }
        ticket.lease_id.clear();
        Ok(ticket)
    }
}

pub(super) fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Every word of the search stands in the text, or it is the beginning of the id; letters of either case.
fn is_meant(goal: &Goal, search: &str) -> bool {
    let search = search.trim().to_lowercase();
    let text = goal.text.to_lowercase();
    search.split_whitespace().all(|word| text.contains(word)) || goal.id.starts_with(&search)
}

pub(super) async fn list(
    State(api): State<Api>,
    Reader(caller): Reader,
    Query(query): Query<ListQuery>,
) -> Answer<GoalList> {
    let state = match query.state.as_deref().filter(|s| !s.is_empty()) {
        None => None,
        Some(word) => Some(GoalState::parse(word).ok_or_else(|| {
            let known: Vec<&str> = GoalState::ALL.into_iter().map(GoalState::as_str).collect();
            ApiError::bad("state", format!("there is no state {word}; there are {}", known.join(", ")))
        })?),
    };
    let limit = query.limit.clamp(1, PAGE_MAX);
    let mut goals = vec![];
    let mut offset = query.offset;
    let mut more = true;
    // A tenant's page, or what is searched for, is picked out of the store's pages, with an end to the search.
    while goals.len() < limit && more && offset.saturating_sub(query.offset) < SCAN_MAX {
        let page = api.store.goals(state, offset, limit).await?;
        more = page.len() == limit;
        for mut goal in page {
            if goals.len() == limit {
                more = true;
                break;
            }
            offset += 1;
            if caller.sees(&goal) && is_meant(&goal, &query.q) {
                goal.lease_id.clear();
                goals.push(goal);
            }
        }
    }
    Ok(Json(GoalList { goals, next_offset: more.then_some(offset) }))
}

pub(super) async fn show(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(id): Path<String>,
) -> Answer<Goal> {
    api.goal_for(&caller, &id).await.map(Json)
}

pub(super) async fn tickets(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(id): Path<String>,
) -> Answer<TicketList> {
    api.goal_for(&caller, &id).await?;
    let mut tickets = api.store.all_tickets(&id).await?;
    tickets.iter_mut().for_each(|t| t.lease_id.clear());
    Ok(Json(TicketList { tickets }))
}

pub(super) async fn audit(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(id): Path<String>,
) -> Answer<Audit> {
    api.goal_for(&caller, &id).await?;
    let violations = api.store.audit_goal(&id).await?;
    Ok(Json(Audit { violations }))
}

pub(super) async fn cancel(
    State(api): State<Api>,
    Submitter(caller): Submitter,
    Path(id): Path<String>,
    Body(_): Body<Words>,
) -> Answer<Ack> {
    api.goal_for(&caller, &id).await?;
    let outcome = api.store.cancel_goal(&id, &caller.who).await?;
    changed(outcome, "goal", &id)
}

pub(super) async fn pause(
    State(api): State<Api>,
    Submitter(caller): Submitter,
    Path(id): Path<String>,
    Body(_): Body<Words>,
) -> Answer<Ack> {
    set_paused(&api, &caller, &id, true).await
}

pub(super) async fn resume(
    State(api): State<Api>,
    Submitter(caller): Submitter,
    Path(id): Path<String>,
    Body(_): Body<Words>,
) -> Answer<Ack> {
    set_paused(&api, &caller, &id, false).await
}

async fn set_paused(api: &Api, caller: &Caller, id: &str, paused: bool) -> Answer<Ack> {
    live(api.goal_for(caller, id).await?)?;
    changed(api.store.pause_goal(id, paused, &caller.who).await?, "goal", id)
}

pub(super) async fn note(
    State(api): State<Api>,
    Submitter(caller): Submitter,
    Path(id): Path<String>,
    Body(words): Body<Words>,
) -> Answer<Ack> {
    let text = said(&words)?;
    live(api.goal_for(&caller, &id).await?)?;
    changed(api.store.note(&id, &caller.who, text).await?, "goal", &id)
}

pub(super) async fn reopen(
    State(api): State<Api>,
    Submitter(caller): Submitter,
    Path(id): Path<String>,
    Body(words): Body<Words>,
) -> Answer<Ack> {
    fits(&words.text)?;
    api.goal_for(&caller, &id).await?;
    answered(api.store.reopen_goal(&id, &caller.who, &words.text).await?, "goal", &id)
}

pub(super) async fn answer(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Body(words): Body<Words>,
) -> Answer<Ack> {
    let decision = decision(&words)?;
    api.goal_for(&caller, &id).await?;
    api.decide(&caller, &id, words.expected_epoch, &words.request_id, &decision, "goal").await
}

fn decision(words: &Words) -> Result<PersonDecision, ApiError> {
    fits(&words.text)?;
    let text = words.text.trim().to_owned();
    match words.decision.as_str() {
        "" => Ok(PersonDecision::Answer {
            text: said(words)?.to_owned(),
            budget_tokens: words.budget_tokens,
            budget_microusd: words.budget_microusd,
        }),
        "approve" => Ok(PersonDecision::ApprovePlan { note: text }),
        "deny" => Ok(PersonDecision::DenyPlan { reason: text }),
        other => {
            let other: String = other.chars().take(40).collect();
            Err(ApiError::bad("decision", format!("there is no decision `{other}` on a goal"))
                .hint("approve, deny, or none and a text"))
        }
    }
}

impl Api {
    /// A person's decision on a goal or ticket; the request id makes a repeat harmless.
    pub(super) async fn decide(
        &self,
        caller: &Caller,
        id: &str,
        expected_epoch: u64,
        request_id: &str,
        decision: &PersonDecision,
        what: &str,
    ) -> Answer<Ack> {
        if request_id.len() > 128 {
            return Err(ApiError::bad("request_id", "a request id has at most 128 bytes"));
        }
        let made_up;
        let request_id = if request_id.is_empty() {
            made_up = shared::ticket::new_id();
            &made_up
        } else {
            request_id
        };
        let outcome = self.store.answer(id, expected_epoch, request_id, &caller.who, decision).await?;
        answered(outcome, what, id)
    }
}

pub(super) fn answered(outcome: Answered, what: &str, id: &str) -> Answer<Ack> {
    match outcome {
        Answered::Ok => Ok(Json(Ack { outcome: "ok".into() })),
        Answered::Dup => Ok(Json(Ack { outcome: "duplicate".into() })),
        Answered::Stale => Err(ApiError::conflict(format!("the {what} has moved on since it was read"))
            .at("expected_epoch")
            .hint(format!("read the {what} again and decide on what it is now"))),
        Answered::Refused(reason) => Err(ApiError::conflict(reason).at("decision")),
        Answered::NotFound => Err(ApiError::not_found(what, id)),
    }
}

/// As [`answered`], for what has no request id: a repeat finds it so already.
pub(super) fn changed(outcome: Answered, what: &str, id: &str) -> Answer<Ack> {
    match outcome {
        Answered::Dup => Ok(Json(Ack { outcome: "unchanged".into() })),
        Answered::Ok | Answered::Stale | Answered::Refused(_) | Answered::NotFound => {
            answered(outcome, what, id)
        }
    }
}

fn live(goal: Goal) -> Result<(), ApiError> {
    if goal.state.is_terminal() {
        return Err(ApiError::conflict(format!("the goal is over ({})", goal.state.as_str()))
            .hint("`muster reopen GOAL` makes it run again"));
    }
    Ok(())
}

/// The words of a request that needs some.
fn said(words: &Words) -> Result<&str, ApiError> {
    let text = words.text.trim();
    if text.is_empty() {
        return Err(ApiError::bad("text", "there is no text"));
    }
    fits(text)?;
    Ok(text)
}

pub(super) fn fits(text: &str) -> Result<(), ApiError> {
    if text.len() > WORDS_BYTES_MAX {
        return Err(ApiError::bad(
            "text",
            format!("the text has {} bytes, at most {WORDS_BYTES_MAX} are taken", text.len()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_32_lower_hex_digits() {
        assert!(is_id("0123456789abcdef0123456789abcdef"));
        for wrong in ["", "0123", "0123456789ABCDEF0123456789ABCDEF", "../../../../../../etc/passwd0123"] {
            assert!(!is_id(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_search_finds_words_in_any_order_or_the_id() {
        let goal = Goal { id: "0193f0".into(), text: "Compare the Three offers".into(), ..Goal::default() };
        for hit in ["", " ", "three compare", "OFFERS", "0193"] {
            assert!(is_meant(&goal, hit), "{hit}");
        }
        assert!(!is_meant(&goal, "four") && !is_meant(&goal, "93f0"));
    }

    #[test]
    fn an_answer_without_words_is_refused() {
        assert!(said(&Words::default()).is_err());
        assert!(said(&Words { text: "x".repeat(WORDS_BYTES_MAX + 1), ..Words::default() }).is_err());
        assert_eq!(said(&Words { text: " yes ".into(), ..Words::default() }).ok(), Some("yes"));
    }
}
