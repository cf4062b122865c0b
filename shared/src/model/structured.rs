//! JSON that is asked for by a schema, validated here whatever the server promised, and asked again if it is wrong.

use super::error::{ErrorClass, ModelError};
use super::session::Session;
use super::wire::Format;
use super::{Ask, CallRecord, Finish, Message, tolerant, wording};
use serde_json::Value;

/// Problems that are quoted back at once.
const PROBLEMS_MAX: usize = 12;
/// Bytes of one problem: a validator quotes the whole value.
const PROBLEM_BYTES_MAX: usize = 400;
/// Bytes of a wrong answer that is shown to the model again.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// A compiled JSON Schema. `$ref` never leaves the document.
pub struct Schema {
    validator: jsonschema::Validator,
}

impl Schema {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with the schema, as one sentence.
    pub fn new(schema: &Value) -> Result<Self, String> {
        match crate::ticket::graph::params::schema(schema) {
            Ok(validator) => Ok(Self { validator }),
            Err(problem) => Err(tolerant::cut(&problem, PROBLEM_BYTES_MAX).to_owned()),
        }
    }

    /// What is wrong with the value, each with its path; empty when it is valid.
    #[must_use]
    pub fn problems(&self, value: &Value) -> Vec<String> {
        self.validator
            .iter_errors(value)
            .take(PROBLEMS_MAX)
            .map(|e| {
                let path = e.instance_path().to_string();
                let at = if path.is_empty() { "/" } else { path.as_str() };
                format!("at {at}: {}", tolerant::cut(&e.to_string(), PROBLEM_BYTES_MAX))
            })
            .collect()
    }
}

pub(super) async fn ask<T>(
    mut session: Session<'_>,
    ask: &Ask<'_>,
    name: &str,
    schema: &Value,
    check: impl Fn(&Value) -> Result<T, Vec<String>>,
) -> Result<(T, Vec<CallRecord>), ModelError> {
    if !ask.tools.is_empty() {
        return Err(session.fail(ErrorClass::Ours, "a structured answer cannot be asked together with tools"));
    }
    let compiled = match Schema::new(schema) {
        Ok(compiled) => compiled,
        Err(problem) => return Err(session.fail(ErrorClass::Ours, &format!("schema of `{name}`: {problem}"))),
    };
    let format = Format { name, schema };
    let mut messages = ask.messages.to_vec();
    loop {
        let draft = session.answer(&messages, Some(&format)).await?;
        let cut = draft.finish == Some(Finish::Length);
        let problems = match accept(&draft.text, cut, &compiled, &check) {
            Ok(value) => return Ok((value, session.records)),
            Err(problems) => problems,
        };
        session.refuse_answer(&problems.join("; "));
        if session.is_spent() {
            let words = if cut { "cut off by the token limit" } else { "not valid" };
            let detail =
                format!("no acceptable `{name}`: the last answer was {words}: {}", problems.join("; "));
            return Err(session.fail(ErrorClass::Reply, &detail));
        }
        // Only the last wrong answer is shown: the conversation does not grow with the tries.
        messages.truncate(ask.messages.len());
        messages.push(Message::Assistant {
            text: tolerant::cut(&draft.text, ANSWER_BYTES_MAX).to_owned(),
            reasoning: draft.reasoning,
            calls: vec![],
        });
        messages.push(Message::User(wording::invalid(&problems, cut)));
    }
}

/// The first candidate that is valid and accepted, or what is wrong with the likeliest one.
fn accept<T>(
    text: &str,
    cut: bool,
    schema: &Schema,
    check: impl Fn(&Value) -> Result<T, Vec<String>>,
) -> Result<T, Vec<String>> {
    // A cut answer counts only if all of it is there; its inner objects are not what was asked for.
    let candidates = match tolerant::json(text.trim()) {
        Ok((value, _)) => vec![value],
        Err(e) if cut => return Err(vec![format!("the answer was cut off: {}", e.problem)]),
        Err(_) => tolerant::candidates(text),
    };
    let mut first = None;
    for value in &candidates {
        let problems = schema.problems(value);
        let problems = if problems.is_empty() {
            match check(value) {
                Ok(accepted) => return Ok(accepted),
                Err(problems) => problems,
            }
        } else {
            problems
        };
        first.get_or_insert(problems);
    }
    let mut problems = first.unwrap_or_else(|| vec!["the answer holds no JSON object".into()]);
    problems.truncate(PROBLEMS_MAX);
    if problems.is_empty() {
        problems.push("the answer was refused without a reason".into());
    }
    Err(problems)
}
