//! Plays a recording: each request gets the answer that the same one got, found by who asks, about which ticket, and
//! for which time. A request that is not the recorded one is a divergence: it is named, and nothing is guessed.

use super::answer::{self, Words};
use super::compare;
use super::recording::{Call, Recording};
use super::request::Request;
use super::script::Role;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// How the ticket is named in the prompts of each role (`shared/src/prompt`).
const HEADINGS: [(Role, &str); 3] = [
    (Role::Planner, "# The ticket: "),
    (Role::Worker, "# Your ticket: "),
    (Role::Reviewer, "# The ticket under review: "),
];

/// Role and key of the ticket.
type Asker = (String, String);

/// Answers from a recording.
pub(crate) struct Replayer {
    calls: BTreeMap<Asker, Vec<Call>>,
    state: Mutex<State>,
    diverged: CancellationToken,
    stop: CancellationToken,
}

#[derive(Default)]
struct State {
    next: BTreeMap<Asker, usize>,
    first: Option<String>,
}

impl Replayer {
    /// One that has answered nothing yet. Open answers end at `stop`.
    pub(crate) fn new(recording: &Recording, stop: CancellationToken) -> Self {
        let mut calls: BTreeMap<Asker, Vec<Call>> = BTreeMap::new();
        for call in recording.calls.iter().filter(|c| !passed(&c.answer)) {
            calls.entry((call.role.clone(), call.key.clone())).or_default().push(call.clone());
        }
        Self { calls, state: Mutex::default(), diverged: CancellationToken::new(), stop }
    }

    /// Cancelled at the first divergence.
    pub(crate) fn diverged(&self) -> &CancellationToken {
        &self.diverged
    }

    /// The first divergence in words, if there was one.
    pub(crate) fn divergence(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).first.clone()
    }

    /// How many answers were given, and the first recorded call that was never made.
    pub(crate) fn rest(&self) -> (usize, Option<String>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = |asker: &Asker| state.next.get(asker).copied().unwrap_or(0);
        let left = self.calls.iter().find(|(asker, calls)| used(asker) < calls.len());
        (
            state.next.values().sum(),
            left.map(|(asker, _)| format!("{} was recorded and never made", named(asker, used(asker)))),
        )
    }

    /// Answers one request.
    pub(super) fn play(&self, headers: &HeaderMap, body: &[u8]) -> Response {
        let (request, raw) = match Request::read(headers, body) {
            // Once more, for what the reading leaves out; it is JSON, or it would not have been read.
            Ok(request) => (request, serde_json::from_slice(body).unwrap_or(Value::Null)),
            Err(problem) => {
                let problem = format!("a request is not sound: {problem}");
                self.diverge(&problem);
                return answer::error(400, &problem, "invalid_request_error", None);
            }
        };
        match self.pick(&request, &raw) {
            Ok(Picked::Call(call)) => said(&call.answer, &request, &self.stop),
            Ok(Picked::Refused(why)) => answer::error(400, why, "invalid_request_error", None),
            Err(problem) => {
                self.diverge(&problem);
                answer::error(500, &format!("replay: {problem}"), "replay_diverged", None)
            }
        }
    }

    fn pick(&self, request: &Request, raw: &Value) -> Result<Picked<'_>, String> {
        let asker = self.asker(request);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.next.entry(asker.clone()).or_default();
        let calls = self.calls.get(&asker).map_or(&[][..], Vec::as_slice);
        let Some(call) = calls.get(*next) else {
            return Err(format!(
                "{} comes now, and only {} were recorded",
                named(&asker, *next),
                calls.len()
            ));
        };
        if let Some(why) = unlearnt(call, raw) {
            return Ok(Picked::Refused(why));
        }
        let raw = &shared::model::without_images(raw);
        let redacted = serde_json::from_str(&shared::model::redacted(&raw.to_string())).unwrap_or_default();
        if let Some(difference) = compare::difference(&call.request, &redacted) {
            return Err(format!("{}: {difference}", named(&asker, *next)));
        }
        *next += 1;
        Ok(Picked::Call(call))
    }

    fn asker(&self, request: &Request) -> Asker {
        let role = request.role.map_or("somebody", Role::as_str).to_owned();
        let heading = HEADINGS.iter().find(|(r, _)| request.role == Some(*r)).map_or("", |(_, h)| *h);
        let keys = request.prompt.lines().filter_map(|line| line.strip_prefix(heading)).map(str::trim);
        // The goal's own text stands before the heading and may hold such a line too: only a recorded key is one.
        let known =
            |key: &&str| !heading.is_empty() && self.calls.contains_key(&(role.clone(), (*key).to_owned()));
        let key = keys.clone().find(known).or_else(|| match request.role {
            Some(Role::Worker | Role::Reviewer) => keys.clone().next(),
            Some(Role::Planner) | None => None,
        });
        let key = key.unwrap_or_default().to_owned();
        (role, key)
    }

    fn diverge(&self, problem: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The first is the cause of the others.
        state.first.get_or_insert_with(|| problem.to_owned());
        drop(state);
        self.diverged.cancel();
    }
}

enum Picked<'a> {
    Call(&'a Call),
    /// The fleet is to learn what it knew of the recorded model.
    Refused(&'static str),
}

/// A call that failed on its way and was made again as it was: what counts is the one that was answered.
fn passed(answer: &Value) -> bool {
    let error = answer.get("error").and_then(Value::as_str).unwrap_or_default();
    ["quota", "overload", "network", "auth", "budget", "cancelled"].contains(&error)
}

fn named((role, key): &Asker, n: usize) -> String {
    let of = if key.is_empty() { String::new() } else { format!(" of {key}") };
    format!("call {} of the {role}{of}", n + 1)
}

/// What the recorded model was known not to take, and is asked for now.
fn unlearnt(call: &Call, now: &Value) -> Option<&'static str> {
    let shows = |request: &Value| request.to_string().contains("\"image_url\"");
    if shows(now) && !shows(&call.request) {
        return Some("images are not supported by this model");
    }
    let kind = now.pointer("/response_format/type").and_then(Value::as_str);
    match (call.dialect.as_str(), kind) {
        ("json_object", Some("json_schema")) => Some("response_format json_schema is not supported"),
        ("plain", Some(_)) => Some("response_format is not supported"),
        _ => None,
    }
}

/// The recorded answer on the wire.
fn said(recorded: &Value, request: &Request, stop: &CancellationToken) -> Response {
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    match recorded.get("error").and_then(Value::as_str) {
        None => {}
        Some("reply") => {
            return answer::fault(
                &super::script::Fault::Garbage { body: "not an answer".into() },
                request,
                stop,
            );
        }
        Some(_) => return answer::error(400, &text(recorded, "detail"), "invalid_request_error", None),
    }
    let calls = recorded.get("calls").and_then(Value::as_array).into_iter().flatten();
    let finish = match text(recorded, "finish").as_str() {
        "filter" => Some("content_filter".to_owned()),
        "" => None,
        other => Some(other.to_owned()),
    };
    let words = Words {
        text: text(recorded, "text"),
        reasoning: text(recorded, "reasoning"),
        calls: calls.map(|c| (text(c, "id"), text(c, "name"), text(c, "arguments"))).collect(),
        finish,
    };
    answer::words(&words, request, stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(role: &str, key: &str, content: &str, answer: Value) -> Call {
        let request =
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]});
        Call { role: role.into(), key: key.into(), dialect: "native".into(), request, answer }
    }

    fn words(text: &str) -> Value {
        json!({"text": text, "reasoning": "", "calls": [], "finish": "stop"})
    }

    const A: &str = "You are one worker of a fleet.\n# Your ticket: a\nCount.";

    async fn play(replayer: &Replayer, content: &str) -> (u16, String) {
        let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]});
        let response = replayer.play(&HeaderMap::new(), body.to_string().as_bytes());
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    fn replayer(calls: Vec<Call>) -> Replayer {
        Replayer::new(&Recording { calls, ..Recording::default() }, CancellationToken::new())
    }

    #[tokio::test]
    async fn answers_come_by_role_ticket_and_number_and_what_is_left_is_said() {
        let b = A.replace("ticket: a", "ticket: b");
        let replayer = replayer(vec![
            call("worker", "a", A, words("first")),
            call("worker", "b", &b, words("other")),
            call("worker", "a", A, json!({"error": "quota", "detail": "slow down"})),
            call("worker", "a", A, words("second")),
        ]);
        assert!(play(&replayer, &b).await.1.contains("other"));
        assert!(play(&replayer, A).await.1.contains("first"));
        assert_eq!(
            replayer.rest(),
            (2, Some("call 2 of the worker of a was recorded and never made".into()))
        );
        assert!(play(&replayer, A).await.1.contains("second"));
        assert_eq!((replayer.rest(), replayer.divergence()), ((3, None), None));
        let (status, said) = play(&replayer, A).await;
        assert!(status == 500 && said.contains("only 2 were recorded"), "{said}");
        assert!(replayer.diverged().is_cancelled());
    }

    #[tokio::test]
    async fn a_changed_prompt_is_named_once_and_not_answered() {
        let replayer = replayer(vec![call("worker", "a", A, words("first"))]);
        let (status, said) = play(&replayer, &A.replace("Count.", "Guess.")).await;
        assert!(status == 500 && !said.contains("first"), "{said}");
        play(&replayer, &A.replace("Count.", "Weigh.")).await;
        let first = replayer.divergence().unwrap();
        assert_eq!(
            first,
            "call 1 of the worker of a: message 1 (user), line 3:\n  recorded: Count.\n  now:      Guess."
        );
        assert_eq!(replayer.rest().0, 0);
    }

    #[tokio::test]
    async fn a_refusal_that_was_recorded_comes_again() {
        let replayer = replayer(vec![
            call("worker", "a", A, json!({"error": "context", "detail": "too long"})),
            call("worker", "a", A, words("x")),
        ]);
        let (status, said) = play(&replayer, A).await;
        assert!(status == 400 && said.contains("too long"), "{said}");
        assert_eq!(play(&replayer, A).await.0, 200);
    }
}
