//! The script's format: which request gets which words, or which fault. TOML, unknown keys refused.
//!
//! ```toml
//! delay_ms = 300                       # before every answer, unless a turn says otherwise
//!
//! [[rules]]                            # the first rule that fits answers
//! name = "measure"
//! role = "worker"                      # planner | worker | reviewer, by header X-Muster-Role or the prompt's opening
//! contains = ["# Your ticket: measure"] # all of these stand in the system or user messages
//! lacks = ["was tried before"]         # none of these do
//! saw = ["Traceback"]                  # all of these stand in the tool results
//! times = 1                            # so often at most; then the next fitting rule answers
//! captures = { fact = "FACT: (.+)" }   # from the last tool result; `{{fact}}` in the words below
//!
//!   [[rules.turns]]                    # one a turn: the number of assistant turns so far picks it
//!   text = "I look at the data."
//!   calls = [{ tool = "code_interpreter", args = { code = "print(1)" } }]
//!
//!   [[rules.turns]]
//!   json = { any = "structured answer" } # sent as text
//!
//!   [[rules.turns]]                    # a verdict over every item that the request asks for
//!   verdict = { pass = true, evidence = "outputs/report.md:1-3", reason = "it stands there" }
//!
//!   [[rules.turns]]
//!   fault = { kind = "status", status = 429, message = "slow down", retry_after_s = 1 }
//!   # kind = "stall" (begins, then silence) | "cut" (begins, then the connection breaks) | "garbage" (body = "…")
//! ```

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most rules of a script.
const RULES_MAX: usize = 1_000;

/// A script as a whole.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// What it plays, for people.
    #[serde(default)]
    pub(super) about: String,
    #[serde(default)]
    pub(super) delay_ms: u64,
    pub(super) rules: Vec<Rule>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    Planner,
    Worker,
    Reviewer,
}

impl Role {
    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Planner, Self::Worker, Self::Reviewer].into_iter().find(|r| r.as_str() == word)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Worker => "worker",
            Self::Reviewer => "reviewer",
        }
    }
}

/// Which requests, and what they get.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) name: String,
    #[serde(default)]
    pub(super) role: Option<Role>,
    #[serde(default)]
    pub(super) contains: Vec<String>,
    #[serde(default)]
    pub(super) lacks: Vec<String>,
    #[serde(default)]
    pub(super) saw: Vec<String>,
    #[serde(default)]
    pub(super) times: Option<u32>,
    #[serde(default)]
    captures: BTreeMap<String, String>,
    #[serde(skip)]
    pub(super) patterns: Vec<(String, Regex)>,
    pub(super) turns: Vec<Turn>,
}

/// One answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    #[serde(default)]
    pub(super) text: String,
    #[serde(default)]
    pub(super) reasoning: String,
    #[serde(default)]
    pub(super) calls: Vec<Call>,
    #[serde(default)]
    pub(super) json: Option<Value>,
    #[serde(default)]
    pub(super) verdict: Option<Verdict>,
    #[serde(default)]
    pub(super) fault: Option<Fault>,
    /// `stop`, `tool_calls`, `length` or `content_filter` instead of what fits the words.
    #[serde(default)]
    pub(super) finish: Option<String>,
    #[serde(default)]
    pub(super) delay_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) tool: String,
    #[serde(default)]
    pub(super) args: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Verdict {
    pub(super) pass: bool,
    #[serde(default)]
    pub(super) evidence: String,
    pub(super) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Fault {
    Status {
        status: u16,
        #[serde(default)]
        message: String,
        #[serde(default)]
        retry_after_s: Option<u64>,
    },
    Stall,
    Cut,
    Garbage {
        body: String,
    },
}

/// The script is wrong: a usage error, found before anything is served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    #[error("rule {rule}: {problem}")]
    Rule { rule: String, problem: String },
    #[error("a script has 1 to {RULES_MAX} rules, this one has {0}")]
    Rules(usize),
}

impl Script {
    /// Reads and checks a script.
    ///
    /// # Errors
    /// [`ScriptError`] names the line, or the rule and what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut script: Self = toml::from_str(text)?;
        if script.rules.is_empty() || script.rules.len() > RULES_MAX {
            return Err(ScriptError::Rules(script.rules.len()));
        }
        for rule in &mut script.rules {
            let problem = |problem: String| ScriptError::Rule { rule: rule.name.clone(), problem };
            if rule.turns.is_empty() {
                return Err(problem("it has no turns".into()));
            }
            for (number, turn) in rule.turns.iter().enumerate() {
                turn.check().map_err(|p| problem(format!("turn {number}: {p}")))?;
            }
            let mut patterns = vec![];
            for (name, pattern) in &rule.captures {
                let regex = Regex::new(pattern).map_err(|e| problem(format!("capture {name}: {e}")))?;
                if regex.captures_len() < 2 {
                    return Err(problem(format!("capture {name} has no group in brackets")));
                }
                patterns.push((name.clone(), regex));
            }
            rule.patterns = patterns;
        }
        Ok(script)
    }
}

impl Turn {
    fn check(&self) -> Result<(), String> {
        let kinds = [
            !self.text.is_empty() || !self.calls.is_empty(),
            self.json.is_some(),
            self.verdict.is_some(),
            self.fault.is_some(),
        ];
        if kinds.iter().filter(|k| **k).count() != 1 {
            return Err("it must have exactly one of: text and calls, json, verdict, fault".into());
        }
        if let Some(finish) = &self.finish
            && !["stop", "tool_calls", "length", "content_filter"].contains(&finish.as_str())
        {
            return Err(format!("there is no finish `{finish}`: stop, tool_calls, length or content_filter"));
        }
        if let Some(Fault::Status { status, .. }) = self.fault
            && !(400..=599).contains(&status)
        {
            return Err(format!("a fault's status is 400 to 599, not {status}"));
        }
        Ok(())
    }
}
