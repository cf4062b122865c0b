//! A new goal: the form, and its way to the API, files included.

use super::Dashboard;
use super::desk::Fault;
use super::page::{Place, page};
use super::posted::{Fields, PROOF, proof, proven, same_site};
use super::session::Session;
use crate::api::types::{GoalSubmitted, InputFile, SubmitGoal, Uploaded};
use axum::body::Body;
use axum::extract::State;
use axum::extract::multipart::{Field, Multipart};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Redirect, Response};
use bytes::Bytes;
use maud::{Markup, html};
use shared::config::Limits;
use shared::planfile::PlanFile;
use shared::ticket::ReviewPolicy;
use tokio_stream::wrappers::ReceiverStream;

/// Largest field that is no file; the API's own limits are smaller.
const FIELD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pieces of an upload under way.
const PIECES: usize = 8;

pub(super) async fn form(session: Session) -> Markup {
    let main = html! {
        h1 { "New goal" }
        form.wide method="post" action="/submit" enctype="multipart/form-data" {
            (proof(&session))
            input type="hidden" name="key" value=(shared::ticket::new_id());
            label for="text" { "What shall be done?" }
            textarea id="text" name="text" rows="5" aria-describedby="text-help" {}
            p.help id="text-help" { "In your own words. May be empty when a plan file below says it." }
            label for="constraints" { "Constraints, one a line" }
            textarea id="constraints" name="constraints" rows="3" {}
            label for="files" { "Files that are needed" }
            input id="files" name="files" type="file" multiple aria-describedby="files-help";
            p.help id="files-help" { "They stand under data/ in the goal's workspace." }
            details {
                summary { "More" }
                label for="plan" { "A plan file (TOML or JSON) instead of a plan by a model" }
                input id="plan" name="plan" type="file" accept=".toml,.json";
                label for="review" { "Review" }
                select id="review" name="review" {
                    option value="" { "as configured" }
                    option value="none" { "none" }
                    option value="code" { "by code" }
                    option value="judged" { "by code and a model" }
                }
                label for="budget_tokens" { "Budget, tokens" }
                input id="budget_tokens" name="budget_tokens" inputmode="numeric" pattern="[0-9]*";
                label for="deadline_min" { "Deadline, minutes from now" }
                input id="deadline_min" name="deadline_min" inputmode="numeric" pattern="[0-9]*";
                label for="tenant" { "Tenant (only for a token that is bound to none)" }
                input id="tenant" name="tenant";
            }
            button type="submit" { "Hand it in" }
        }
    };
    page(&session, Place::Submit, "New goal", &main)
}

pub(super) async fn send(
    State(dashboard): State<Dashboard>,
    session: Session,
    headers: HeaderMap,
    mut parts: Multipart,
) -> Result<Response, Fault> {
    let mut fields = Fields::default();
    let mut inputs = vec![];
    let mut plan = None;
    let broken =
        |e: axum::extract::multipart::MultipartError| Fault::bad(&format!("the form broke off: {e}"));
    while let Some(mut field) = parts.next_field().await.map_err(broken)? {
        let name = field.name().unwrap_or_default().to_owned();
        // The proof is the form's first field: nothing is taken before it is there.
        if name != PROOF && !(same_site(&headers) && proven(&session, fields.text(PROOF))) {
            return Err(Fault::foreign());
        }
        let file = field.file_name().map(str::to_owned);
        match (name.as_str(), file) {
            // A file field that was left empty.
            (_, Some(file)) if file.is_empty() => {}
            ("plan", Some(file)) => plan = Some((file, text_of(&mut field).await?)),
            (_, Some(file)) => {
                let Uploaded { blob, .. } = upload(&dashboard, &session, field).await?;
                inputs.push(InputFile { path: format!("data/{}", base_name(&file)), blob });
            }
            (_, None) => {
                let text = text_of(&mut field).await?;
                fields.0.insert(name, text);
            }
        }
    }
    let wanted = wanted(&fields, inputs, plan)?;
    let made: GoalSubmitted = dashboard.desk.post(&session, "/v1/goals", &wanted).await?;
    Ok(Redirect::to(&format!("/goals/{}", made.goal)).into_response())
}

fn wanted(
    fields: &Fields,
    inputs: Vec<InputFile>,
    plan: Option<(String, String)>,
) -> Result<SubmitGoal, Fault> {
    let some = |name: &str| Some(fields.text(name).trim().to_owned()).filter(|t| !t.is_empty());
    let plan = match plan {
        None => None,
        Some((name, text)) => {
            let mut file =
                PlanFile::parse(&name, &text, &Limits::default()).map_err(|e| Fault::bad(&e.to_string()))?;
            // What it names beside itself cannot be reached from here; what it needs is sent in the form.
            file.goal.inputs.clear();
            Some(file.to_json())
        }
    };
    let review = match fields.text("review") {
        "none" => Some(ReviewPolicy::None),
        "code" => Some(ReviewPolicy::Code),
        "judged" => Some(ReviewPolicy::Judged),
        _ => None,
    };
    Ok(SubmitGoal {
        text: fields.text("text").trim().replace("\r\n", "\n"),
        constraints: fields
            .text("constraints")
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .collect(),
        inputs,
        plan,
        review,
        budget_tokens: fields.number("budget_tokens")?,
        deadline_s: fields.number("deadline_min")?.map(|m| m.saturating_mul(60)),
        tenant: some("tenant"),
        // Sent twice, it is one goal.
        idempotency_key: some("key"),
        ..SubmitGoal::default()
    })
}

/// Browsers send a name; a folder's parts, if some client sends them, are cut off.
pub(super) fn base_name(file: &str) -> &str {
    file.rsplit(['/', '\\']).next().unwrap_or(file)
}

/// A field in memory, with an end.
pub(super) async fn text_of(field: &mut Field<'_>) -> Result<String, Fault> {
    let mut all = vec![];
    while let Some(piece) =
        field.chunk().await.map_err(|e| Fault::bad(&format!("the form broke off: {e}")))?
    {
        if all.len() + piece.len() > FIELD_BYTES_MAX {
            return Err(Fault::bad("a field of the form is too long"));
        }
        all.extend_from_slice(&piece);
    }
    String::from_utf8(all).map_err(|_| Fault::bad("a field of the form is not text"))
}

/// Streams a file to the API as it comes; the API's limit ends it.
pub(super) async fn upload(
    dashboard: &Dashboard,
    session: &Session,
    mut field: Field<'_>,
) -> Result<Uploaded, Fault> {
    let (to, from) = tokio::sync::mpsc::channel::<Result<Bytes, axum::Error>>(PIECES);
    let feeding = async move {
        loop {
            let piece = match field.chunk().await {
                Ok(Some(piece)) => Ok(piece),
                Ok(None) => return,
                Err(error) => Err(axum::Error::new(error)),
            };
            let last = piece.is_err();
            if to.send(piece).await.is_err() || last {
                return;
            }
        }
    };
    let body = Body::from_stream(ReceiverStream::new(from));
    let (answer, ()) = tokio::join!(dashboard.desk.put(session, "/v1/uploads", body), feeding);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_becomes_a_request() {
        let mut fields = Fields::default();
        for (name, value) in [
            ("text", " a\r\nb "),
            ("constraints", "short\n\nplain\n"),
            ("budget_tokens", ""),
            ("deadline_min", "2"),
            ("key", "k"),
        ] {
            fields.0.insert(name.into(), value.into());
        }
        let made = wanted(&fields, vec![], None).unwrap();
        assert_eq!((made.text.as_str(), made.constraints.len(), made.deadline_s), ("a\nb", 2, Some(120)));
        assert_eq!(
            (made.budget_tokens, made.tenant, made.idempotency_key.as_deref()),
            (None, None, Some("k"))
        );
        fields.0.insert("budget_tokens".into(), "many".into());
        assert!(wanted(&fields, vec![], None).unwrap_err().detail.message.contains("budget_tokens"));
        let broken = wanted(&Fields::default(), vec![], Some(("plan.toml".into(), "[goal]\ntxt = 1".into())))
            .unwrap_err();
        assert!(broken.detail.message.contains("plan.toml"), "{broken:?}");
        assert_eq!(
            (base_name("a/b.csv"), base_name("C:\\x\\y.csv"), base_name("z")),
            ("b.csv", "y.csv", "z")
        );
    }
}
