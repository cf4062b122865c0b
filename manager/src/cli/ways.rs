//! `muster doctor --model`: how each configured model wants to be asked, found out by asking.

use super::doctor::{Check, State};
use shared::config::Config;
use shared::model::{ErrorClass, Findings, Model, ModelError};
use shared::store::Store;
use shared::ticket::Tier;
use tokio_util::sync::CancellationToken;

const NAME: &str = "model's ways";

/// One check for each model that serves a tier.
pub(crate) async fn of(config: &Config) -> Vec<Check> {
    if !config.model.is_configured() {
        return vec![Check::new(NAME, State::Skipped, "no model is configured", "")];
    }
    let model = match Model::new(&config.model) {
        Ok(model) => model,
        Err(e) => return vec![Check::new(NAME, State::Bad, e.to_string(), "is model.url right?")],
    };
    // What is found is kept where the fleet looks for it; a Redis that is down has its own line above.
    let store = Store::connect_unchecked(&config.redis).await.ok();
    let (mut checks, mut tried) = (vec![], vec![]);
    for tier in [Tier::Standard, Tier::Cheap, Tier::Strong] {
        // Those that answer when it is out have ways of their own.
        for link in model.links(tier) {
            let name = link.described(tier);
            if tried.contains(&name) {
                continue;
            }
            checks.push(match link.probe(tier, store.as_ref(), &CancellationToken::new()).await {
                Ok(found) => drawn(&found),
                Err(e) => failed(&name, &e),
            });
            tried.push(name);
        }
    }
    checks
}

fn failed(name: &str, error: &ModelError) -> Check {
    match error.class {
        ErrorClass::Reply => Check::new(
            NAME,
            State::Bad,
            format!("{name}: {}", error.detail),
            "is model.url that of an API (most end in /v1), and model.wire the one it speaks? Nothing was kept",
        ),
        ErrorClass::Ours
        | ErrorClass::Quota { .. }
        | ErrorClass::Overload
        | ErrorClass::Context
        | ErrorClass::Auth
        | ErrorClass::Network
        | ErrorClass::Budget
        | ErrorClass::Cancelled => {
            Check::new(NAME, State::Bad, format!("{name}: {error}"), "see the line `model` above")
        }
    }
}

fn drawn(found: &Findings) -> Check {
    let yes = |holds: bool, word: &str| if holds { word.to_owned() } else { format!("NO {word}") };
    let mut words = vec![
        format!("tools by {}", found.dialect),
        format!("structured by {}", found.structured),
        yes(found.parallel_calls, "parallel calls"),
        yes(found.obeys_system, "system role"),
        yes(found.names_usage, "usage"),
        (if found.sees_images { "images" } else { "no images" }).to_owned(),
    ];
    if found.reasons {
        words.push(if found.echo_reasoning { "reasoning, sent back".into() } else { "reasoning".into() });
    }
    if let Some(window) = found.context_window {
        words.push(format!("context of {window} tokens"));
    }
    let what = format!("{}: {} ({} calls)", found.model, words.join(", "), found.requests);
    let lacks = [
        (found.calls_tools, "it did not call a tool when asked to"),
        (found.takes_results || !found.calls_tools, "it did not go on after a tool's result"),
        (found.valid_json, "its structured answer was not valid"),
    ];
    let lacks: Vec<&str> = lacks.iter().filter(|(holds, _)| !holds).map(|(_, lack)| *lack).collect();
    match lacks.is_empty() {
        true => Check::ok(NAME, what),
        false => Check::new(NAME, State::Warn, what, format!("{}; a larger model may", lacks.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_cannot_be_read_are_bad() {
        let error = ModelError {
            class: ErrorClass::Reply,
            detail: "no answer could be read: the answer is empty".into(),
            records: vec![],
        };
        let check = failed("m", &error);
        assert_eq!(check.state, State::Bad);
        assert_eq!(check.what, "m: no answer could be read: the answer is empty");
    }

    #[test]
    fn what_a_model_lacks_is_said() {
        let good = Findings {
            model: "m".into(),
            dialect: "native".into(),
            structured: "json_schema".into(),
            calls_tools: true,
            takes_results: true,
            valid_json: true,
            requests: 4,
            context_window: Some(4_096),
            ..Findings::default()
        };
        let check = drawn(&good);
        assert_eq!(check.state, State::Ok);
        assert_eq!(
            check.what,
            "m: tools by native, structured by json_schema, NO parallel calls, NO system role, NO usage, no images, \
             context of 4096 tokens (4 calls)"
        );
        let check = drawn(&Findings { calls_tools: false, takes_results: false, ..good });
        assert_eq!(check.state, State::Warn);
        assert!(check.hint.starts_with("it did not call a tool when asked to; a larger"), "{}", check.hint);
    }
}
