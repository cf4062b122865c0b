//! What waits for a person, soonest expiry first, and the person's answer.

use super::desk::{Fault, path_of};
use super::page::{Place, page};
use super::posted::{Fields, PROOF, Posted, proof, proven, same_site};
use super::session::Session;
use super::state::{badge, word};
use super::submit::{base_name, text_of, upload};
use super::wording::{counted, until};
use super::{Dashboard, live, verdict};
use crate::api::auth::{digest, hex};
use crate::api::types::{Ack, AnswerTicket, DeliverFiles, Inbox, InputFile, Words};
use axum::extract::{Multipart, Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::Value;
use shared::store::{OpenDecision, PersonDecision, REVIEWER_DECISION};
use shared::ticket::Ticket;
use shared::ticket::patch::Edit;

pub(super) async fn show(State(dashboard): State<Dashboard>, session: Session) -> Result<Markup, Fault> {
    let list = list(&dashboard, &session).await?;
    let main = html! { h1 { "Inbox" } div data-live="/inbox/live" { (list) } };
    Ok(page(&session, Place::Inbox, "Inbox", &main))
}

pub(super) async fn live(State(dashboard): State<Dashboard>, session: Session) -> Response {
    let of = dashboard.clone();
    live::part(&dashboard, move || {
        let (of, session) = (of.clone(), session.clone());
        async move { list(&of, &session).await }
    })
}

async fn list(dashboard: &Dashboard, session: &Session) -> Result<Markup, Fault> {
    let inbox: Inbox = dashboard.desk.get(session, "/v1/inbox").await?;
    Ok(html! {
        @if inbox.decisions.is_empty() {
            p { "Nothing waits for a person." }
        } @else {
            p.help { (counted(inbox.decisions.len() as u64, "decision")) }
            @for decision in &inbox.decisions { (asked(session, decision, None)) }
        }
    })
}

/// One decision with its answers. With the ticket at hand its texts can be edited.
pub(super) fn asked(session: &Session, of: &OpenDecision, ticket: Option<&Ticket>) -> Markup {
    if of.kind == REVIEWER_DECISION {
        return about_reviewer(session, of);
    }
    let name = if of.key.is_empty() { "The goal's manager".to_owned() } else { format!("Ticket {}", of.key) };
    let state = if of.kind == "goal" { "needs_human" } else { &of.kind };
    let page = if of.key.is_empty() { format!("/goals/{}", of.goal) } else { format!("/tickets/{}", of.id) };
    html! {
        section.asked aria-label=(name) data-decision=(of.id) {
            h2 { a href=(page) { (name) } }
            p.facts {
                (badge(state)) span { (word(&of.cause)) }
                span { @if of.expires_at_ms == 0 { "does not expire" } @else { "expires " (until(of.expires_at_ms, "now")) } }
                @if !of.key.is_empty() { a href=(format!("/goals/{}", of.goal)) { "its goal" } }
            }
            pre.text tabindex="0" { (detail(&of.detail)) }
            details { summary { "What each answer does" } ul { @for choice in &of.choices { li { (choice) } } } }
            @match of.kind.as_str() {
                "goal" => { (for_goal(session, of)) }
                "awaiting_approval" => { (for_call(session, of)) }
                _ => { (for_ticket(session, of, ticket)) }
            }
        }
    }
}

/// A suspended reviewer: it waits for a person, no work waits for it.
fn about_reviewer(session: &Session, of: &OpenDecision) -> Markup {
    html! {
        section.asked aria-label="A reviewer" data-decision=(of.id) {
            h2 { "A reviewer" }
            p.facts { (badge("needs_human")) span { (word(&of.cause)) } span { "does not expire" } }
            pre.text tabindex="0" { (of.detail) }
            details { summary { "What each answer does" } ul { @for choice in &of.choices { li { (choice) } } } }
            form method="post" action=(format!("/reviewers/{}/lift", path_of(&of.id))) {
                (proof(session))
                button type="submit" { "Lift the suspension" }
            }
        }
    }
}

/// The form of [`about_reviewer`].
pub(super) async fn lift(
    State(dashboard): State<Dashboard>,
    Path(reviewer): Path<String>,
    posted: Posted,
) -> Result<Response, Fault> {
    let path = format!("/v1/reviewers/{}/lift", path_of(&reviewer));
    let _: Ack = dashboard.desk.post(&posted.session, &path, &Words::default()).await?;
    Ok(Redirect::to("/inbox").into_response())
}

/// A cause may be a verdict behind a word or two.
fn detail(text: &str) -> String {
    match text.find('{') {
        Some(at) => {
            // The verdict as it is kept, then perhaps its comment once more.
            let end = text.rfind('}').map_or(text.len(), |e| e + 1);
            let words = verdict::in_words(text.get(at..end).unwrap_or_default());
            if Some(words.as_str()) == text.get(at..end) {
                text.to_owned()
            } else {
                format!("{}{words}", &text[..at])
            }
        }
        None => text.to_owned(),
    }
}

/// The same form sent twice is one answer; a form for another epoch is another.
fn request_id(session: &Session, of: &OpenDecision) -> String {
    hex(&digest(&format!("{}\n{}\n{}", session.proof(), of.id, of.epoch)))[..32].to_owned()
}

fn hidden(session: &Session, of: &OpenDecision) -> Markup {
    html! {
        (proof(session))
        input type="hidden" name="epoch" value=(of.epoch);
        input type="hidden" name="request" value=(request_id(session, of));
    }
}

fn for_goal(session: &Session, of: &OpenDecision) -> Markup {
    let id = |name: &str| format!("{name}-{}", of.id);
    if of.cause == shared::goal::PLAN_APPROVAL {
        return html! {
            form method="post" action=(format!("/goals/{}/answer", of.id)) {
                (hidden(session, of))
                label for=(id("text")) { "Words for the planner" }
                textarea id=(id("text")) name="text" rows="3" {}
                button type="submit" name="decision" value="approve" { "Approve the plan" }
                button.danger type="submit" name="decision" value="deny" { "Deny" }
            }
        };
    }
    html! {
        form method="post" action=(format!("/goals/{}/answer", of.id)) {
            (hidden(session, of))
            label for=(id("text")) { "Your answer" }
            textarea id=(id("text")) name="text" rows="3" required {}
            @if of.cause.contains("budget") {
                label for=(id("budget")) { "New budget, tokens" }
                input id=(id("budget")) name="budget_tokens" inputmode="numeric" pattern="[0-9]*";
            }
            button type="submit" { "Answer" }
        }
    }
}

fn for_call(session: &Session, of: &OpenDecision) -> Markup {
    let id = |name: &str| format!("{name}-{}", of.id);
    html! {
        form method="post" action=(format!("/tickets/{}/answer", of.id)) {
            (hidden(session, of))
            label for=(id("note")) { "Why not (when you deny)" }
            input id=(id("note")) name="note";
            details {
                summary { "Other arguments" }
                label for=(id("args")) { "Arguments, a JSON object; empty: as shown" }
                textarea id=(id("args")) name="args" rows="4" {}
            }
            button type="submit" name="decision" value="approve" { "Approve" }
            button.danger type="submit" name="decision" value="deny" { "Deny" }
        }
    }
}

fn for_ticket(session: &Session, of: &OpenDecision, ticket: Option<&Ticket>) -> Markup {
    let id = |name: &str| format!("{name}-{}", of.id);
    html! {
        form method="post" action=(format!("/tickets/{}/answer", of.id)) {
            (hidden(session, of))
            label for=(id("note")) { "A note, or your reason" }
            textarea id=(id("note")) name="note" rows="2" {}
            details {
                summary { "Edit what is asked" }
                label for=(id("description")) { "Description" }
                textarea id=(id("description")) name="description" rows="4" { (ticket.map_or("", |t| t.description.as_str())) }
                label for=(id("expected")) { "Expected output" }
                textarea id=(id("expected")) name="expected_output" rows="2" { (ticket.map_or("", |t| t.expected_output.as_str())) }
                p.help { "Empty: as it is." }
            }
            button type="submit" name="decision" value="retry" { "Try again" }
            button.quiet type="submit" name="decision" value="skip" { "Skip" }
            button.danger type="submit" name="decision" value="fail" { "Give up" }
        }
        details {
            summary { "Deliver files yourself" }
            form method="post" action=(format!("/tickets/{}/deliver", of.id)) enctype="multipart/form-data" {
                (hidden(session, of))
                label for=(id("folder")) { "Folder in the workspace" }
                input id=(id("folder")) name="folder" value="outputs";
                label for=(id("files")) { "Files; they are reviewed like everybody's" }
                input id=(id("files")) name="files" type="file" multiple required;
                label for=(id("what")) { "What they are" }
                input id=(id("what")) name="text";
                button type="submit" { "Deliver" }
            }
        }
    }
}

/// The fields of a form as the decision that they mean.
fn meant(fields: &Fields) -> Result<PersonDecision, Fault> {
    let note = fields.text("note").trim().to_owned();
    let some = |name: &str| Some(fields.text(name).trim().replace("\r\n", "\n")).filter(|t| !t.is_empty());
    Ok(match fields.text("decision") {
        "retry" => {
            let edit = Edit {
                description: some("description"),
                expected_output: some("expected_output"),
                ..Edit::default()
            };
            PersonDecision::Retry { note, edit: Box::new(edit) }
        }
        "skip" => PersonDecision::Skip { reason: note },
        "fail" => PersonDecision::Fail { reason: note },
        "deny" => PersonDecision::Deny { reason: note },
        "approve" => {
            let read = |text: String| {
                serde_json::from_str::<Value>(&text)
                    .map_err(|e| Fault::bad(&format!("the arguments are no JSON: {e}")))
            };
            PersonDecision::Approve { args: some("args").map(read).transpose()? }
        }
        other => return Err(Fault::bad(&format!("there is no decision {other:?}"))),
    })
}

pub(super) async fn answer_ticket(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    posted: Posted,
) -> Result<Response, Fault> {
    let answer = AnswerTicket {
        decision: meant(&posted.fields)?,
        request_id: posted.fields.text("request").to_owned(),
        expected_epoch: posted.fields.number("epoch")?.unwrap_or(0),
    };
    let path = format!("/v1/tickets/{}/answer", path_of(&id));
    let _: Ack = dashboard.desk.post(&posted.session, &path, &answer).await?;
    Ok(Redirect::to("/inbox").into_response())
}

pub(super) async fn answer_goal(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    posted: Posted,
) -> Result<Response, Fault> {
    let words = Words {
        text: posted.fields.text("text").trim().to_owned(),
        request_id: posted.fields.text("request").to_owned(),
        expected_epoch: posted.fields.number("epoch")?.unwrap_or(0),
        decision: posted.fields.text("decision").to_owned(),
        budget_tokens: posted.fields.number("budget_tokens")?,
        budget_microusd: None,
    };
    let path = format!("/v1/goals/{}/answer", path_of(&id));
    let _: Ack = dashboard.desk.post(&posted.session, &path, &words).await?;
    Ok(Redirect::to("/inbox").into_response())
}

/// A person's files in the ticket's place.
pub(super) async fn deliver(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path(id): Path<String>,
    headers: HeaderMap,
    mut parts: Multipart,
) -> Result<Response, Fault> {
    let mut fields = Fields::default();
    let mut names = vec![];
    let broken =
        |e: axum::extract::multipart::MultipartError| Fault::bad(&format!("the form broke off: {e}"));
    while let Some(mut field) = parts.next_field().await.map_err(broken)? {
        let name = field.name().unwrap_or_default().to_owned();
        if name != PROOF && !(same_site(&headers) && proven(&session, fields.text(PROOF))) {
            return Err(Fault::foreign());
        }
        match field.file_name().map(str::to_owned) {
            Some(file) if file.is_empty() => {}
            Some(file) => {
                let uploaded = upload(&dashboard, &session, field).await?;
                names.push((base_name(&file).to_owned(), uploaded.blob));
            }
            None => {
                let text = text_of(&mut field).await?;
                fields.0.insert(name, text);
            }
        }
    }
    let folder = fields.text("folder").trim().trim_matches('/');
    let path = |name: String| if folder.is_empty() { name } else { format!("{folder}/{name}") };
    let wanted = DeliverFiles {
        files: names.into_iter().map(|(name, blob)| InputFile { path: path(name), blob }).collect(),
        text: fields.text("text").to_owned(),
        request_id: fields.text("request").to_owned(),
        expected_epoch: fields.number("epoch")?.unwrap_or(0),
    };
    let path = format!("/v1/tickets/{}/deliver", path_of(&id));
    let _: Ack = dashboard.desk.post(&session, &path, &wanted).await?;
    Ok(Redirect::to(&format!("/tickets/{}", path_of(&id))).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn a_form_becomes_exactly_one_decision() {
        let retry = meant(&fields(&[
            ("decision", "retry"),
            ("note", " n "),
            ("description", ""),
            ("expected_output", "x"),
        ]));
        let Ok(PersonDecision::Retry { note, edit }) = retry else { panic!("{retry:?}") };
        assert_eq!(
            (note.as_str(), edit.description, edit.expected_output.as_deref()),
            ("n", None, Some("x"))
        );
        assert_eq!(
            meant(&fields(&[("decision", "approve"), ("args", " ")])).unwrap(),
            PersonDecision::Approve { args: None }
        );
        let edited = meant(&fields(&[("decision", "approve"), ("args", "{\"a\":1}")])).unwrap();
        assert_eq!(edited, PersonDecision::Approve { args: Some(serde_json::json!({"a": 1})) });
        // What cannot be read is no approval.
        assert!(meant(&fields(&[("decision", "approve"), ("args", "{a")])).is_err());
        assert!(meant(&fields(&[])).is_err() && meant(&fields(&[("decision", "shrug")])).is_err());
    }

    #[test]
    fn a_verdict_in_a_cause_is_read_out() {
        let text =
            "3 faults {\"items\":[{\"item\":\"i\",\"pass\":false,\"reason\":\"r\",\"by_code\":true}]} - i: r";
        assert_eq!(detail(text), "3 faults - i: r");
        assert_eq!(
            detail("wants to call pay {\"amount\":1}\ndigest x"),
            "wants to call pay {\"amount\":1}\ndigest x"
        );
    }
}
