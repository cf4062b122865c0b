//! The frame of every page: head, navigation, main part; and the page of a refusal.

use super::posted::proof;
use super::session::Session;
use super::{assets, state};
use crate::api::types::ErrorDetail;
use axum::http::StatusCode;
use maud::{DOCTYPE, Markup, html};

/// Which part of the navigation a page belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Goals,
    Submit,
    Inbox,
    Fleet,
}

const PLACES: [(Place, &str, &str); 4] = [
    (Place::Goals, "/goals", "Goals"),
    (Place::Submit, "/submit", "New goal"),
    (Place::Inbox, "/inbox", "Inbox"),
    (Place::Fleet, "/fleet", "Fleet"),
];

/// A page for a visitor.
pub(super) fn page(session: &Session, place: Place, title: &str, main: &Markup) -> Markup {
    bare(
        title,
        html! {
            a.skip href="#main" { "To the main part" }
            header.top {
                a.brand href="/goals" { "Muster" }
                nav aria-label="Main" {
                    ul {
                        @for (of, href, name) in PLACES {
                            li { a href=(href) aria-current=[(of == place).then_some("page")] { (name) } }
                        }
                    }
                }
                form.inline method="post" action="/logout" { (proof(session)) button.quiet type="submit" { "Log out" } }
            }
            main id="main" tabindex="-1" { (main) }
        },
    )
}

/// A page without navigation.
pub(super) fn bare(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Muster" }
                link rel="icon" href=(assets::url("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::url("style.css"));
                script src=(assets::url("live.js")) defer {}
            }
            body { (state::shapes()) (body) p.hidden id="said" role="status" {} }
        }
    }
}

/// What the API refused, and the way out.
pub(super) fn refusal(status: StatusCode, detail: &ErrorDetail) -> Markup {
    let title = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::CONFLICT => "Not possible now",
        _ if status.is_server_error() => "Something is wrong",
        _ => "Not taken",
    };
    let message = if detail.message.is_empty() { "no reason was given" } else { &detail.message };
    bare(
        title,
        html! {
            main id="main" class="narrow" tabindex="-1" {
                h1 { (title) }
                p.fault role="alert" { @if !detail.field.is_empty() { strong { (detail.field) ": " } } span.text { (message) } }
                @if !detail.hint.is_empty() { p { (detail.hint) } }
                p { "Nothing was lost: go back to correct what you wrote, or to " a href="/goals" { "the goals" } "." }
            }
        },
    )
}
