//! Quick requests: one classification, each intent a ticket, one answer passed through, several merged in one call.
//!
//! A router is a classification and not an agent: what the model says is scores, the rest is rules (I6).

use super::newest;
use crate::calls::{Asked, Call, Failure};
use serde_json::{Value, json};
use shared::config::{Config, Intake, Intent};
use shared::goal::Goal;
use shared::model::{Message, Model};
use shared::prompt;
use shared::ticket::{Check, NeedsPolicy, ReviewPolicy, TicketSpec};
use tokio_util::sync::CancellationToken;

/// The ticket that makes one answer of several; no intent may have its name.
pub(crate) const MERGE: &str = "merge";
/// Intents of one request that become tickets, best first.
const CHOSEN_MAX: usize = 8;
const EXPECTED: &str = "The answer itself, as the summary of the report; no file.";

/// What the model says of one intent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scored {
    pub(crate) name: String,
    pub(crate) score: f64,
}

/// Asks for the scores: the raw answer and what stands in it. Bad answers go back with the reason, as everywhere.
pub(crate) async fn ask(
    model: &Model,
    config: &Config,
    goal: &Goal,
    stop: &CancellationToken,
    on_bytes: &(dyn Fn() + Send + Sync),
) -> Asked<(Value, Vec<Scored>)> {
    let messages = match words(goal, &config.intake) {
        Ok(messages) => messages,
        Err(error) => return Asked::failed(Failure::Ours(error.to_string())),
    };
    let schema = json!({"type": "object", "required": ["intents"], "properties": {"intents": {"type": "array",
        "items": {"type": "object", "required": ["name", "score"], "properties": {
            "name": {"type": "string"}, "score": {"type": "number", "minimum": 0, "maximum": 1}}}}}});
    let call = Call { model, tier: config.intake.tier, messages: &messages, stop, on_bytes };
    call.structured("route", &schema, |value| Ok((value.clone(), scored(value)))).await
}

fn scored(value: &Value) -> Vec<Scored> {
    let items = value["intents"].as_array().map_or(&[][..], Vec::as_slice);
    let item =
        |v: &Value| Some(Scored { name: v["name"].as_str()?.trim().to_owned(), score: v["score"].as_f64()? });
    items.iter().filter_map(item).collect()
}

/// The rule: known names from the threshold on, each once, best first.
pub(crate) fn chosen<'a>(scored: &[Scored], intake: &'a Intake) -> Vec<&'a Intent> {
    let mut scored: Vec<&Scored> = scored.iter().filter(|s| s.score >= intake.threshold).collect();
    scored.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut chosen: Vec<&Intent> = vec![];
    for intent in scored.iter().filter_map(|s| intake.intents.iter().find(|i| i.name == s.name)) {
        if chosen.len() < CHOSEN_MAX && !chosen.iter().any(|c| c.name == intent.name) {
            chosen.push(intent);
        }
    }
    chosen
}

/// What the person is told when nothing is clear.
pub(crate) fn clearer(intake: &Intake) -> String {
    let known: Vec<String> = intake.intents.iter().map(|i| format!("- {}", i.description)).collect();
    format!("please say more precisely what you want; what can be done here:\n{}", known.join("\n"))
}

/// A ticket for each intent, all at once; of several, one more that makes one answer of theirs.
pub(crate) fn specs(chosen: &[&Intent], intake: &Intake) -> Vec<TicketSpec> {
    let mut specs: Vec<TicketSpec> = chosen.iter().map(|intent| one(intent)).collect();
    if let [only] = specs.as_mut_slice() {
        // Passed through: its answer is the goal's.
        only.integrates = true;
        return specs;
    }
    let mut merge = TicketSpec::new(
        MERGE,
        "Make one answer of the answers that the tickets before yours gave to the request. Leave out what stands there \
         twice; add nothing that none of them says. If one of them is missing, say that this part could not be answered.",
        EXPECTED,
    );
    merge.needs = specs.iter().map(|s| s.key.clone()).collect();
    // One that fails does not take the others' answers with it.
    merge.needs_policy = NeedsPolicy::Run;
    merge.role.clone_from(&intake.merge_role);
    // Nothing but words: no tool that would cost another call.
    merge.tools = vec!["fleet".into()];
    merge.tier = intake.tier;
    merge.review = ReviewPolicy::None;
    merge.integrates = true;
    specs.push(merge);
    specs
}

fn one(intent: &Intent) -> TicketSpec {
    let description = format!(
        "Answer the part of the request that is about this: {} Leave every other part to others. The summary of your \
         report is the answer: words for the person who asked.",
        intent.description
    );
    let mut spec = TicketSpec::new(&intent.name, &description, EXPECTED);
    spec.role.clone_from(&intent.role);
    spec.persona.clone_from(&intent.persona);
    spec.tools.clone_from(&intent.tools);
    spec.tier = intent.tier;
    spec.pool.clone_from(&intent.pool);
    spec.review = intent.review;
    if intent.review == ReviewPolicy::Judged {
        spec.checklist = vec![Check::Judged {
            text: "The answer answers what was asked and says nothing that no tool or file has said.".into(),
        }];
    }
    spec
}

/// System and task. The request stands in it verbatim (I9).
fn words(goal: &Goal, intake: &Intake) -> Result<Vec<Message>, prompt::PromptError> {
    let intents: Vec<Value> =
        intake.intents.iter().map(|i| json!({"name": i.name, "description": i.description})).collect();
    let system = prompt::render("route.j2", &json!({"intents": intents}))?;
    let task = prompt::render(
        "route_task.j2",
        &json!({"goal": goal.text, "constraints": goal.constraints, "notes": newest(&goal.notes)}),
    )?;
    Ok(vec![Message::System(system), Message::User(task)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake() -> Intake {
        let intent = |name: &str| Intent {
            name: name.into(),
            description: format!("about {name}"),
            ..Intent::default()
        };
        Intake { intents: vec![intent("order"), intent("faq"), intent("complaint")], ..Intake::default() }
    }

    fn names(value: &Value) -> Vec<String> {
        chosen(&scored(value), &intake()).iter().map(|i| i.name.clone()).collect()
    }

    #[test]
    fn i6_threshold_unknown_and_double_names_are_rules() {
        let said = json!({"intents": [{"name": "faq", "score": 0.5}, {"name": "order", "score": 0.9},
            {"name": "weather", "score": 1.0}, {"name": "complaint", "score": 0.49}, {"name": "order", "score": 0.8}]});
        assert_eq!(names(&said), ["order", "faq"]);
        for nothing in
            [json!({"intents": []}), json!({}), json!({"intents": [{"name": "order"}, 7, {"score": 1}]})]
        {
            assert!(names(&nothing).is_empty(), "{nothing}");
        }
        assert!(clearer(&intake()).contains("about complaint"));
    }

    #[test]
    fn one_intent_is_passed_through_and_several_meet_in_one_merge() {
        let intake = intake();
        let one = specs(&[&intake.intents[0]], &intake);
        assert_eq!((one.len(), one[0].integrates), (1, true));
        let two = specs(&[&intake.intents[0], &intake.intents[1]], &intake);
        assert_eq!((two.len(), two[2].needs.as_slice()), (3, &["order".to_owned(), "faq".to_owned()][..]));
        assert!(two[2].integrates && two[2].needs_policy == NeedsPolicy::Run && !two[0].integrates);
        let config = Config { intake, ..Config::default() };
        let roles = super::super::roles::names(&super::super::roles::known(std::path::Path::new("")));
        for plan in [one, two] {
            assert_eq!(super::super::problems(&plan, &roles, &config), Vec::<String>::new());
        }
    }

    #[test]
    fn b5_i9_the_request_stands_verbatim_in_the_prompt() {
        let goal =
            Goal { text: "Where is {{ A1 }}?".into(), notes: vec!["order A1".into()], ..Goal::default() };
        let messages = words(&goal, &intake()).unwrap();
        let (Message::System(system), Message::User(task)) = (&messages[0], &messages[1]) else { panic!() };
        assert!(
            task.contains(&goal.text) && task.contains("order A1") && system.contains("- faq: about faq")
        );
    }
}
