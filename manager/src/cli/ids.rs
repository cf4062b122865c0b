//! Turns what a person typed (a unique prefix, `last`, `GOAL/key`) into ids.

use super::client::{Client, segment};
use super::error::CliError;
use super::out::{items, short, text};
use serde_json::Value;

/// Digits of a whole id.
const ID_LEN: usize = 32;
/// Goals looked at for a prefix, newest first.
const GOALS_MAX: usize = 5_000;
const PAGE: usize = 500;
/// Goals whose tickets are looked at for a ticket's prefix, newest first.
const TICKET_GOALS_MAX: usize = 20;

/// A goal or one of its tickets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    Goal(String),
    Ticket(Box<Value>),
}

fn is_id(word: &str) -> bool {
    word.len() == ID_LEN && is_prefix(word)
}

fn is_prefix(word: &str) -> bool {
    !word.is_empty() && word.len() <= ID_LEN && word.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The goal's id. `last` is the newest goal.
pub(crate) async fn goal(client: &Client, word: &str) -> Result<String, CliError> {
    if is_id(word) {
        return Ok(word.to_ascii_lowercase());
    }
    if word == "last" {
        let page = client.get("/v1/goals?limit=1").await?;
        return match items(&page, "goals").first() {
            Some(goal) => Ok(text(goal, "id").to_owned()),
            None => Err(CliError::usage("there is no goal yet", "submit one: `muster run \"…\"`")),
        };
    }
    if !is_prefix(word) {
        return Err(CliError::usage(
            format!("`{word}` is no goal"),
            "goals are named by the first digits of their id, as `muster list` shows them, or by `last`",
        ));
    }
    let mut found = Vec::new();
    for offset in (0..GOALS_MAX).step_by(PAGE) {
        let page = client.get(&format!("/v1/goals?offset={offset}&limit={PAGE}")).await?;
        let goals = items(&page, "goals");
        found.extend(goals.iter().map(|g| text(g, "id").to_owned()));
        if goals.is_empty()
            || page.get("next_offset").is_some_and(Value::is_null)
            || page.get("next_offset").is_none()
        {
            break;
        }
    }
    one_of(word, found, "goal", "`muster list` shows them")
}

/// A ticket, as the API shows it: `GOAL/key`, a whole id, or a unique prefix among the newest goals.
pub(crate) async fn ticket(client: &Client, word: &str) -> Result<Value, CliError> {
    match any(client, word).await? {
        Target::Ticket(ticket) => Ok(*ticket),
        Target::Goal(id) => Err(CliError::usage(
            format!("`{word}` is a goal, and a ticket is wanted"),
            format!(
                "name one of its tickets: {}/KEY; `muster tickets {}` lists them",
                short(&id),
                short(&id)
            ),
        )),
    }
}

/// A goal or a ticket. A goal wins when a prefix fits both.
pub(crate) async fn any(client: &Client, word: &str) -> Result<Target, CliError> {
    if let Some((goal_word, key)) = word.split_once('/') {
        let goal = goal(client, goal_word).await?;
        let page = client.get(&format!("/v1/goals/{goal}/tickets")).await?;
        let tickets = items(&page, "tickets");
        return match tickets.iter().find(|t| text(t, "key") == key) {
            Some(ticket) => Ok(Target::Ticket(Box::new(ticket.clone()))),
            None => {
                let keys: Vec<&str> = tickets.iter().take(20).map(|t| text(t, "key")).collect();
                Err(CliError::usage(
                    format!("the goal {} has no ticket `{key}`", short(&goal)),
                    format!("it has: {}", keys.join(", ")),
                ))
            }
        };
    }
    if is_id(word) {
        return match client.get(&format!("/v1/tickets/{}", segment(word))).await {
            Ok(ticket) => Ok(Target::Ticket(Box::new(ticket))),
            Err(CliError::Refused { status: 404, .. }) => Ok(Target::Goal(word.to_ascii_lowercase())),
            Err(e) => Err(e),
        };
    }
    match goal(client, word).await {
        Ok(id) => Ok(Target::Goal(id)),
        Err(e @ CliError::Usage { .. }) if !is_prefix(word) => Err(e),
        Err(CliError::Usage { .. }) => {
            ticket_by_prefix(client, word).await.map(|t| Target::Ticket(Box::new(t)))
        }
        Err(e) => Err(e),
    }
}

async fn ticket_by_prefix(client: &Client, word: &str) -> Result<Value, CliError> {
    let page = client.get(&format!("/v1/goals?limit={TICKET_GOALS_MAX}")).await?;
    let mut all = Vec::new();
    for goal in items(&page, "goals") {
        let tickets = client.get(&format!("/v1/goals/{}/tickets", segment(text(goal, "id")))).await?;
        all.extend(items(&tickets, "tickets").iter().cloned());
    }
    let ids = all.iter().map(|t| text(t, "task_id").to_owned()).collect();
    let id = one_of(word, ids, "goal or ticket", "`muster list` shows goals; tickets are GOAL/KEY")?;
    all.into_iter()
        .find(|t| text(t, "task_id") == id)
        .ok_or_else(|| CliError::failed(format!("`{word}` has gone"), ""))
}

fn one_of(word: &str, ids: Vec<String>, what: &str, hint: &str) -> Result<String, CliError> {
    let word = word.to_ascii_lowercase();
    let mut fitting: Vec<String> = ids.into_iter().filter(|id| id.starts_with(&word)).collect();
    fitting.sort();
    fitting.dedup();
    match fitting.len() {
        0 => Err(CliError::usage(format!("no {what} begins with `{word}`"), hint)),
        1 => Ok(fitting.remove(0)),
        n => {
            let some: Vec<&str> = fitting.iter().take(5).map(String::as_str).collect();
            Err(CliError::usage(
                format!("{n} {what}s begin with `{word}`"),
                format!("give more digits: {}", some.join(", ")),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_must_fit_exactly_one() {
        let ids = || vec!["aa11".to_owned(), "aa22".to_owned(), "bb33".to_owned()];
        assert_eq!(one_of("BB", ids(), "goal", "").unwrap(), "bb33");
        let e = one_of("aa", ids(), "goal", "").unwrap_err();
        assert_eq!(e.to_string(), "2 goals begin with `aa`");
        assert!(e.hint().contains("aa11, aa22"));
        assert_eq!(one_of("cc", ids(), "goal", "h").unwrap_err().hint(), "h");
    }

    #[test]
    fn ids_are_32_hex_digits() {
        assert!(is_id("0193f0a0b1c2d3e4f5060718293a4b5c"));
        assert!(!is_id("last"));
        assert!(is_prefix("0193") && !is_prefix("") && !is_prefix("xyz"));
    }
}
