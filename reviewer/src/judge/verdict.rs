//! What the judge answers: its schema, and what is made of an answer. Pure.
//!
//! The model numbers the items; the words of an item are never read back from it.

use serde::Deserialize;
use serde_json::{Value, json};
use shared::standard::LEFT_OUT;

/// Most characters kept of a reason or a pointer.
const TEXT_CHARS_MAX: usize = 600;

/// One item as the judge found it, before its pointer was resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) pass: bool,
    pub(crate) reason: String,
    pub(crate) evidence: String,
    /// The answer says nothing about it.
    pub(crate) left_out: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    items: Vec<Item>,
    verdict: Word,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    item: usize,
    evidence: String,
    reason: String,
    pass: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Pass,
    Fail,
}

/// JSON Schema of an answer about `items` items. Evidence and reason stand before the pass: a model that
/// writes the verdict first makes up the reasons for it.
pub(crate) fn schema(items: usize) -> Value {
    json!({
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "minItems": 1,
                "maxItems": items,
                "items": {
                    "type": "object",
                    "properties": {
                        "item": {"type": "integer", "minimum": 1, "maximum": items},
                        "evidence": {"type": "string"},
                        "reason": {"type": "string"},
                        "pass": {"type": "boolean"}
                    },
                    "required": ["item", "evidence", "reason", "pass"],
                    "additionalProperties": false
                }
            },
            "verdict": {"type": "string", "enum": ["pass", "fail"]}
        },
        "required": ["items", "verdict"],
        "additionalProperties": false
    })
}

/// One finding for each of `items` items, in their order.
///
/// An item that the answer leaves out is not passed; one that it judges twice passes only if it passes twice.
///
/// # Errors
/// What is wrong with the answer, for the model: among others a rejection in which no item fails (C4), and a
/// failed item without a reason.
pub(crate) fn findings(answer: &Value, items: usize) -> Result<Vec<Finding>, Vec<String>> {
    let answer: Answer = serde::Deserialize::deserialize(answer).map_err(|e| vec![e.to_string()])?;
    let mut found: Vec<Option<Finding>> = vec![None; items];
    let mut problems = vec![];
    for item in answer.items {
        let Some(place) = item.item.checked_sub(1).and_then(|i| found.get_mut(i)) else {
            problems.push(format!("there is no item {}, only 1 to {items}", item.item));
            continue;
        };
        if !item.pass && item.reason.trim().is_empty() {
            problems.push(format!("item {} fails without a reason: say what is missing or wrong", item.item));
        }
        let finding = Finding {
            pass: item.pass,
            reason: clip(&item.reason),
            evidence: clip(&item.evidence),
            left_out: false,
        };
        match place {
            Some(before) if !before.pass => {}
            Some(before) => *before = finding,
            None => *place = Some(finding),
        }
    }
    // C4: a vague rejection sends nobody anywhere.
    if answer.verdict == Word::Fail && found.iter().flatten().all(|f| f.pass) {
        problems.push("the verdict is fail, but no item fails: say which item fails and why, or pass".into());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let missing =
        || Finding { pass: false, reason: LEFT_OUT.into(), evidence: String::new(), left_out: true };
    Ok(found.into_iter().map(|f| f.unwrap_or_else(missing)).collect())
}

fn clip(text: &str) -> String {
    text.trim().chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: usize, pass: bool, reason: &str) -> Value {
        json!({"item": n, "evidence": "report:1-1", "reason": reason, "pass": pass})
    }

    #[test]
    fn d8_a_missing_item_is_not_passed() {
        let answer = json!({"items": [item(2, true, "ok")], "verdict": "pass"});
        let found = findings(&answer, 3).unwrap();
        assert_eq!(found.iter().map(|f| f.pass).collect::<Vec<_>>(), [false, true, false]);
        assert!(found[0].reason.contains("left this item out"));
    }

    #[test]
    fn c4_a_rejection_without_a_failed_item_is_invalid() {
        let answer = json!({"items": [item(1, true, "could be better")], "verdict": "fail"});
        assert!(findings(&answer, 1).unwrap_err()[0].contains("no item fails"));
        let answer = json!({"items": [item(1, false, " ")], "verdict": "fail"});
        assert!(findings(&answer, 1).unwrap_err()[0].contains("without a reason"));
    }

    #[test]
    fn d8_the_items_decide_and_a_fail_is_not_overwritten() {
        let answer = json!({"items": [item(1, false, "no"), item(1, true, "yes")], "verdict": "pass"});
        assert!(!findings(&answer, 1).unwrap()[0].pass);
        let answer = json!({"items": [item(1, true, "yes"), item(1, false, "no")], "verdict": "pass"});
        assert!(!findings(&answer, 1).unwrap()[0].pass);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bad in [
            json!({}),
            json!([]),
            json!({"items": [], "verdict": "improve it"}),
            json!({"items": [item(9, true, "x")], "verdict": "pass"}),
        ] {
            assert!(findings(&bad, 2).is_err(), "{bad}");
        }
        assert!(shared::ticket::graph::params::schema(&schema(3)).is_ok());
    }
}
