//! The lessons of a tenant: a person reads, edits and forgets them. Each call is about one tenant: the token's own, or the
//! one that it names.

use super::Api;
use super::auth::{Decider, Reader};
use super::error::{Answer, ApiError, Body};
use super::types::{EditLesson, Forgotten, LessonList};
use axum::Json;
use axum::extract::{Path, Query, State};
use shared::lesson::Lesson;

/// Whose lessons, and which of them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(super) struct Which {
    tenant: String,
    /// Empty: of every kind.
    kind: String,
}

pub(super) async fn list(
    State(api): State<Api>,
    Reader(caller): Reader,
    Query(which): Query<Which>,
) -> Answer<LessonList> {
    let tenant = caller.tenant_for(Some(&which.tenant))?;
    let mut lessons = api.store.all_lessons(&tenant).await?;
    lessons.retain(|lesson| which.kind.is_empty() || lesson.kind == which.kind);
    Ok(Json(LessonList { tenant, lessons }))
}

async fn find(api: &Api, tenant: &str, id: &str) -> Result<Lesson, ApiError> {
    let lessons = api.store.all_lessons(tenant).await?;
    lessons
        .into_iter()
        .find(|lesson| lesson.id == id)
        .ok_or_else(|| ApiError::not_found("lesson", id).hint("`muster memory list` shows them"))
}

pub(super) async fn show(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Answer<Lesson> {
    let tenant = caller.tenant_for(Some(&which.tenant))?;
    find(&api, &tenant, &id).await.map(Json)
}

pub(super) async fn edit(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Query(which): Query<Which>,
    Body(wanted): Body<EditLesson>,
) -> Answer<Lesson> {
    let tenant = caller.tenant_for(Some(&which.tenant))?;
    let max = api.config.memory.lesson_chars_max;
    if wanted.text.trim().is_empty() || wanted.text.chars().count() > max {
        return Err(ApiError::bad("text", format!("must have from 1 to {max} characters"))
            .hint("to be rid of it: `muster memory forget`"));
    }
    let text = wanted.text.trim().to_owned();
    let lesson = Lesson { text, edited_by: caller.who.clone(), ..find(&api, &tenant, &id).await? };
    if !api.store.edit_lesson(&tenant, &lesson).await? {
        return Err(ApiError::not_found("lesson", &id));
    }
    tracing::info!(who = caller.who, tenant, lesson = id, "a lesson was edited");
    Ok(Json(lesson))
}

pub(super) async fn forget(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Answer<Forgotten> {
    let tenant = caller.tenant_for(Some(&which.tenant))?;
    if !api.store.forget_lesson(&tenant, &id).await? {
        return Err(ApiError::not_found("lesson", &id).hint("`muster memory list` shows them"));
    }
    tracing::info!(who = caller.who, tenant, lesson = id, "a lesson was forgotten");
    Ok(Json(Forgotten { lessons: 1 }))
}

pub(super) async fn forget_all(
    State(api): State<Api>,
    Decider(caller): Decider,
    Query(which): Query<Which>,
) -> Answer<Forgotten> {
    let tenant = caller.tenant_for(Some(&which.tenant))?;
    let lessons = api.store.forget_lessons(&tenant).await?;
    tracing::info!(who = caller.who, tenant, lessons, "all lessons were forgotten");
    Ok(Json(Forgotten { lessons }))
}
