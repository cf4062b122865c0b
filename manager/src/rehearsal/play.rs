//! From a request to the turn that answers it; and the tally of what was asked.

use super::answer::{self, Words};
use super::request::Request;
use super::script::{Rule, Script, Turn};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Problems that the tally keeps, the first ones: the first is the cause of the others.
const PROBLEMS_MAX: usize = 20;
/// Items of a verdict when the request does not say how many there are.
const ITEMS_DEFAULT: u64 = 1;

/// What was asked of a rehearsal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// By the script, its faults included.
    pub(crate) answered: u64,
    /// Wrong requests: 400.
    pub(crate) refused: u64,
    /// Requests that the script holds nothing for: 500.
    pub(crate) missed: u64,
    /// Answers by rule.
    pub(crate) rules: BTreeMap<String, u64>,
    /// What was wrong, oldest first, at most 20.
    pub(crate) problems: Vec<String>,
}

pub(super) struct Player {
    script: Script,
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tally: Tally,
    uses: BTreeMap<usize, u32>,
}

impl Player {
    pub(super) fn new(script: Script, stop: CancellationToken) -> Self {
        tracing::info!(about = script.about, rules = script.rules.len(), "the rehearsal model plays");
        Self { script, stop, state: Mutex::default() }
    }

    pub(super) fn tally(&self) -> Tally {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).tally.clone()
    }

    /// Answers one request.
    pub(super) async fn play(&self, headers: &HeaderMap, body: &[u8]) -> Response {
        let request = match Request::read(headers, body) {
            Ok(request) => request,
            Err(problem) => {
                tracing::warn!(problem, "refused a request");
                self.note(|tally| {
                    tally.refused += 1;
                    keep(tally, &problem);
                });
                return answer::error(400, &problem, "invalid_request_error", None);
            }
        };
        let (turn, words) = match self.pick(&request) {
            Ok(picked) => picked,
            Err(problem) => {
                tracing::error!(problem, "the script holds no answer");
                self.note(|tally| {
                    tally.missed += 1;
                    keep(tally, &problem);
                });
                return answer::error(500, &format!("rehearsal: {problem}"), "rehearsal_script", None);
            }
        };
        let delay = Duration::from_millis(turn.delay_ms.unwrap_or(self.script.delay_ms));
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(delay) => {}
        }
        match &turn.fault {
            Some(fault) => answer::fault(fault, &request, &self.stop),
            None => answer::words(&words, &request, &self.stop),
        }
    }

    fn note(&self, change: impl FnOnce(&mut Tally)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tally.requests += 1;
        change(&mut state.tally);
    }

    /// The turn of the first rule that fits, its words filled in. Counted as one use of the rule.
    fn pick(&self, request: &Request) -> Result<(&Turn, Words), String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut nearest = String::new();
        for (number, rule) in self.script.rules.iter().enumerate() {
            if !fits(rule, request) {
                continue;
            }
            let used = state.uses.get(&number).copied().unwrap_or(0);
            if rule.times.is_some_and(|max| used >= max) {
                nearest = format!("; rule `{}` fits, but has been used {used} times", rule.name);
                continue;
            }
            let Some(turn) = rule.turns.get(request.turns) else {
                nearest = format!("; rule `{}` fits, but has only {} turns", rule.name, rule.turns.len());
                continue;
            };
            let words = fill(rule, turn, request)?;
            state.uses.insert(number, used + 1);
            state.tally.requests += 1;
            state.tally.answered += 1;
            *state.tally.rules.entry(rule.name.clone()).or_default() += 1;
            return Ok((turn, words));
        }
        let role = request.role.map_or("somebody", super::script::Role::as_str);
        let last: String = request.prompt.trim_end().chars().rev().take(160).collect();
        let last: String = last.chars().rev().map(|c| if c == '\n' { ' ' } else { c }).collect();
        Err(format!("no rule for turn {} of a {role}{nearest}; the prompt ends: {last}", request.turns))
    }
}

fn keep(tally: &mut Tally, problem: &str) {
    if tally.problems.len() < PROBLEMS_MAX {
        tally.problems.push(problem.to_owned());
    }
}

fn fits(rule: &Rule, request: &Request) -> bool {
    rule.role.is_none_or(|role| request.role == Some(role))
        && rule.contains.iter().all(|part| request.prompt.contains(part))
        && !rule.lacks.iter().any(|part| request.prompt.contains(part))
        && rule.saw.iter().all(|part| request.results.contains(part))
}

/// Puts the captures into the words, and a verdict into as many items as the request asks for.
fn fill(rule: &Rule, turn: &Turn, request: &Request) -> Result<Words, String> {
    let captures = Captures { rule, request };
    let mut words = Words {
        text: captures.put(&turn.text)?,
        reasoning: turn.reasoning.clone(),
        calls: vec![],
        finish: turn.finish.clone(),
    };
    if let Some(value) = &turn.json {
        words.text = captures.put_all(value)?.to_string();
    }
    if let Some(verdict) = &turn.verdict {
        let items: Vec<Value> = (1..=request.items.unwrap_or(ITEMS_DEFAULT))
            .map(|n| json!({"item": n, "evidence": verdict.evidence, "reason": verdict.reason, "pass": verdict.pass}))
            .collect();
        let word = if verdict.pass { "pass" } else { "fail" };
        words.text = json!({"items": items, "verdict": word}).to_string();
    }
    for (n, call) in turn.calls.iter().enumerate() {
        if !request.tools.contains(&call.tool) {
            return Err(format!(
                "rule `{}` calls `{}`, a tool that the request does not offer",
                rule.name, call.tool
            ));
        }
        let args = call.args.iter().map(|(k, v)| Ok((k.clone(), captures.put_all(v)?)));
        let args = args.collect::<Result<Map<String, Value>, String>>()?;
        // Unique in this history, and the same each time: replays are byte-equal.
        let id = format!("call_{}_{n}", request.turns);
        words.calls.push((id, call.tool.clone(), Value::Object(args).to_string()));
    }
    Ok(words)
}

struct Captures<'a> {
    rule: &'a Rule,
    request: &'a Request,
}

impl Captures<'_> {
    fn put(&self, text: &str) -> Result<String, String> {
        let mut filled = text.to_owned();
        for (name, pattern) in &self.rule.patterns {
            let place = format!("{{{{{name}}}}}");
            if !filled.contains(&place) {
                continue;
            }
            let found = pattern.captures(&self.request.last_result).and_then(|c| c.get(1));
            let found = found.ok_or_else(|| {
                let head: String = self.request.last_result.chars().take(300).collect();
                format!("rule `{}`: the last tool result holds no {name}: {head}", self.rule.name)
            })?;
            filled = filled.replace(&place, found.as_str().trim());
        }
        Ok(filled)
    }

    fn put_all(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => Value::String(self.put(text)?),
            Value::Array(items) => {
                Value::Array(items.iter().map(|v| self.put_all(v)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => Value::Object(
                map.iter().map(|(k, v)| Ok((k.clone(), self.put_all(v)?))).collect::<Result<_, String>>()?,
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }
}
