//! Section `[intake]`: which quick requests the fleet knows, and who answers them.

use super::is_word;
use crate::ticket::{ReviewPolicy, Tier};
use serde::{Deserialize, Serialize};

/// Most intents: a classification over more is none.
const INTENTS_MAX: usize = 50;
/// The ticket that makes one answer of several has this key.
const RESERVED: &str = "merge";

/// How a request is routed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Intake {
    /// Score, 0 to 1, from which an intent counts.
    pub threshold: f64,
    /// Tier of the model that classifies and merges.
    pub tier: Tier,
    /// Role of the one that makes one answer of several.
    pub merge_role: String,
    pub intents: Vec<Intent>,
}

/// One thing that people ask for, and the ticket that answers it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Intent {
    /// Also the ticket's key.
    pub name: String,
    /// By it the model scores; one sentence.
    pub description: String,
    pub role: String,
    /// Replaces the role's, if there is one.
    pub persona: String,
    /// Bundles; empty: the role's.
    pub tools: Vec<String>,
    pub tier: Tier,
    pub pool: String,
    pub review: ReviewPolicy,
}

impl Default for Intake {
    fn default() -> Self {
        Self { threshold: 0.5, tier: Tier::Cheap, merge_role: "summarizer".into(), intents: vec![] }
    }
}

impl Default for Intent {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            role: "general_assistant".into(),
            persona: String::new(),
            tools: vec![],
            tier: Tier::Standard,
            pool: "default".into(),
            review: ReviewPolicy::None,
        }
    }
}

impl Intake {
    /// What is wrong with it, with its key.
    #[must_use]
    pub fn problem(&self) -> Option<(&'static str, String)> {
        if !(0.0..=1.0).contains(&self.threshold) {
            return Some(("intake.threshold", "must be 0 to 1".into()));
        }
        let wrong = |text: String| Some(("intake.intents", text));
        if self.intents.len() > INTENTS_MAX {
            return wrong(format!("has {} intents, at most {INTENTS_MAX}", self.intents.len()));
        }
        for (i, intent) in self.intents.iter().enumerate() {
            let name = &intent.name;
            if !is_word(name) || name == RESERVED {
                return wrong(format!(
                    "[{i}].name `{name}` is no word of letters, digits, - and _, or `{RESERVED}`"
                ));
            }
            if self.intents[..i].iter().any(|other| other.name == *name) {
                return wrong(format!("has two intents named `{name}`"));
            }
            if intent.description.trim().is_empty() {
                return wrong(format!("{name}: description is empty; the model scores by it"));
            }
            if !is_word(&intent.pool) {
                return wrong(format!("{name}: pool `{}` is no word", intent.pool));
            }
            if intent.review == ReviewPolicy::Code {
                return wrong(format!(
                    "{name}: review is none or judged; an answer in words has nothing for code"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_intent_is_named() {
        let intent = |name: &str| Intent { name: name.into(), description: "d".into(), ..Intent::default() };
        let problem = |intents: Vec<Intent>| Intake { intents, ..Intake::default() }.problem().map(|p| p.1);
        assert_eq!(problem(vec![intent("a"), intent("b")]), None);
        assert!(problem(vec![intent("a"), intent("a")]).is_some_and(|p| p.contains("two intents")));
        for name in ["", "a b", "merge"] {
            assert!(problem(vec![intent(name)]).is_some(), "{name}");
        }
        let code = Intent { review: ReviewPolicy::Code, ..intent("a") };
        assert!(problem(vec![code]).is_some_and(|p| p.contains("review")));
        assert!(Intake { threshold: f64::NAN, ..Intake::default() }.problem().is_some());
    }
}
