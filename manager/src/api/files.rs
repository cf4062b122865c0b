//! Files: uploads that come in, and a goal's workspace as it goes out.
//!
//! What a goal made is untrusted: it is served as data that no browser runs.

use super::Api;
use super::auth::{Reader, Submitter};
use super::drain;
use super::error::{Answer, ApiError};
use super::types::{FileInfo, FileList, InputFile, Uploaded};
use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use shared::blob::{BlobError, Blobs, is_reference};
use shared::goal::Goal;
use shared::workspace::{self, Change, Entry, FILE_INDEX, Manifest, Overlay, TODO, mime_of, safe_path};
use std::io::{Seek as _, SeekFrom};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

/// Uploads live under a pseudo goal a day until a submit copies them into its own; older ones are deleted.
const UPLOAD_DAYS: i64 = 2;
/// How far back leftovers are looked for, so that a fleet that slept for a while cleans up too.
const LEFTOVER_DAYS: i64 = 30;
const CLEAN_EVERY: Duration = Duration::from_secs(3_600);

/// Where uploads of so many days ago are kept.
fn uploads(days_ago: i64) -> String {
    let day = jiff::Timestamp::now().as_second().div_euclid(86_400) - days_ago;
    format!("uploads-{day}")
}

/// Deletes uploads that nobody submitted, until `stop`.
pub(crate) async fn clean_uploads(blobs: Blobs, stop: CancellationToken) {
    loop {
        for days_ago in UPLOAD_DAYS..=LEFTOVER_DAYS {
            if let Err(error) = blobs.delete_goal(&uploads(days_ago)).await {
                tracing::debug!(%error, "old uploads stay for now");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(CLEAN_EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}

impl From<BlobError> for ApiError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::NotFound(_) | BlobError::Name(_) => Self::bad("blob", error.to_string())
                .hint("upload the file with PUT /v1/uploads and use the answer's blob"),
            BlobError::TooBig { bytes_max, .. } => {
                Self::too_large("file", "limits.input_bytes_max", bytes_max)
            }
            BlobError::Damaged(_) => {
                tracing::error!(%error, "a blob is damaged");
                Self::internal("a file is damaged in the blob store")
            }
            BlobError::Changed | BlobError::Refused(_) | BlobError::Unavailable(_) => {
                tracing::warn!(%error, "blob store not answering a request");
                Self::unavailable("the blob store is not answering as it should")
            }
        }
    }
}

/// Streams the body into a blob; nothing of it is kept when it is too large or breaks off.
pub(super) async fn upload(
    State(api): State<Api>,
    Submitter(_): Submitter,
    request: Request,
) -> Result<(StatusCode, Json<Uploaded>), ApiError> {
    let max = api.config.limits.input_bytes_max;
    let too_large = || ApiError::too_large("body", "limits.input_bytes_max", max);
    let said = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if said.and_then(|v| v.parse::<u64>().ok()).is_some_and(|n| n > max) {
        drain::whole(request.into_body()).await;
        return Err(too_large());
    }
    let mut file = tokio::fs::File::from_std(scratch_file()?);
    let mut size_bytes = 0_u64;
    let mut parts = request.into_body().into_data_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|e| ApiError::bad("body", format!("the body broke off: {e}")))?;
        size_bytes += part.len() as u64;
        if size_bytes > max {
            drain::rest(parts).await;
            return Err(too_large());
        }
        file.write_all(&part).await.map_err(|e| disk(&e))?;
    }
    file.flush().await.map_err(|e| disk(&e))?;
    let (blob, size_bytes) = api.blobs.put_open(&uploads(0), file.into_std().await, max).await?;
    Ok((StatusCode::CREATED, Json(Uploaded { blob, size_bytes })))
}

fn scratch_file() -> Result<std::fs::File, ApiError> {
    tempfile::tempfile().map_err(|e| disk(&e))
}

fn disk(error: &std::io::Error) -> ApiError {
    tracing::error!(%error, "scratch file failed");
    ApiError::unavailable("the manager cannot write to its temporary folder")
}

/// Path of an input in the workspace, or why it cannot stand there.
pub(super) fn check_inputs(inputs: &[InputFile], files_max: usize) -> Result<(), ApiError> {
    if inputs.len() > files_max {
        return Err(ApiError::bad(
            "inputs",
            format!("{} files, at most limits.input_files_max = {files_max} are taken", inputs.len()),
        ));
    }
    let mut seen = std::collections::HashSet::new();
    for (i, input) in inputs.iter().enumerate() {
        let field = format!("inputs[{i}].path");
        if let Err(error) = safe_path(&input.path) {
            return Err(ApiError::bad(field, format!("{}: {error}", input.path))
                .hint("a path inside the workspace, such as data/sales.csv"));
        }
        if input.path == TODO || input.path == FILE_INDEX || input.path.starts_with("temp/") {
            return Err(ApiError::bad(field, format!("{} cannot be an input", input.path))
                .hint("TODO.md and FILE_INDEX.json are drawn, temp/ is never kept; use data/"));
        }
        if !seen.insert(&input.path) {
            return Err(ApiError::bad(field, format!("{} stands there twice", input.path)));
        }
        if !is_reference(&input.blob) {
            return Err(ApiError::bad(format!("inputs[{i}].blob"), "this is not a blob's hash")
                .hint("upload the file with PUT /v1/uploads and use the answer's blob"));
        }
    }
    Ok(())
}

impl Api {
    /// Copies uploads into the goal and makes its first manifest; `""` without inputs.
    pub(super) async fn take_inputs(&self, goal: &str, inputs: &[InputFile]) -> Result<String, ApiError> {
        if inputs.is_empty() {
            return Ok(String::new());
        }
        let max = self.config.limits.input_bytes_max;
        let mut left = max;
        let mut manifest = Manifest::default();
        for (i, input) in inputs.iter().enumerate() {
            let (key, entry) =
                self.take_upload(goal, i, input, &mut left, "limits.input_bytes_max", max).await?;
            if manifest.is_blocked(&key) {
                return Err(ApiError::bad(
                    format!("inputs[{i}].path"),
                    format!("{key} is both a file and a folder"),
                ));
            }
            manifest.insert(&key, entry);
        }
        manifest.save(&self.blobs, goal).await.map_err(|error| {
            tracing::error!(%error, "the inputs' manifest could not be saved");
            ApiError::unavailable("the blob store is not answering as it should")
        })
    }

    /// The paths of an overlay that the goal has; answers 400 when it has no such one.
    pub(super) async fn own_overlay(&self, goal: &str, overlay: &str) -> Result<Vec<String>, ApiError> {
        let read = Overlay::load(&self.blobs, goal, overlay).await;
        read.map(|overlay| overlay.files.into_keys().collect()).map_err(|e| {
            ApiError::bad("overlay_ref", e.to_string())
                .hint("`muster deliver` or POST …/deliver makes one of uploads")
        })
    }

    /// Makes an overlay of uploads: what a person delivers in a ticket's place.
    pub(super) async fn overlay_of(
        &self,
        goal: &Goal,
        creator: &str,
        note: &str,
        inputs: &[InputFile],
    ) -> Result<String, ApiError> {
        let max = self.config.limits.attempt_bytes_max;
        let manifest = self.manifest(goal).await?;
        let mut overlay = Overlay::new(&goal.root);
        let mut left = max;
        for (i, input) in inputs.iter().enumerate() {
            let (key, mut entry) =
                self.take_upload(&goal.id, i, input, &mut left, "limits.attempt_bytes_max", max).await?;
            entry.creator = creator.into();
            entry.description = note.chars().take(200).collect();
            let base_hash = manifest.hash(&key).map(str::to_owned);
            overlay.files.insert(key, Change { entry: Some(entry), base_hash });
        }
        overlay.save(&self.blobs, &goal.id).await.map_err(|error| {
            tracing::error!(%error, goal = goal.id, "a person's files could not be saved");
            ApiError::unavailable("the blob store is not answering as it should")
        })
    }

    /// Copies one upload into the goal; its place in the workspace and what is known of it.
    async fn take_upload(
        &self,
        goal: &str,
        i: usize,
        input: &InputFile,
        left: &mut u64,
        limit: &str,
        max: u64,
    ) -> Result<(String, Entry), ApiError> {
        let key =
            safe_path(&input.path).map_err(|e| ApiError::bad(format!("inputs[{i}].path"), e.to_string()))?;
        let file = self.upload_of(&input.blob).await?.ok_or_else(|| {
            ApiError::from(BlobError::NotFound(input.blob.clone())).at(format!("inputs[{i}].blob"))
        })?;
        let (hash, size_bytes) = self.blobs.put_open(goal, file, max).await?;
        *left = left.checked_sub(size_bytes).ok_or_else(|| ApiError::too_large("inputs", limit, max))?;
        let entry = Entry {
            hash,
            size_bytes,
            mime: mime_of(&input.path).into(),
            creator: "input".into(),
            description: String::new(),
            version: 1,
        };
        Ok((key.to_string_lossy().into_owned(), entry))
    }

    /// An upload's bytes, of whichever day it is.
    async fn upload_of(&self, blob: &str) -> Result<Option<std::fs::File>, ApiError> {
        for days_ago in 0..UPLOAD_DAYS {
            let file = scratch_file()?;
            let copy = file.try_clone().map_err(|e| disk(&e))?;
            match self.blobs.get_to_open(&uploads(days_ago), blob, copy).await {
                Ok(_) => return Ok(Some(file)),
                Err(BlobError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// A file's bytes on their way out.
    pub(super) async fn blob_as_data(
        &self,
        goal: &str,
        hash: &str,
        path: &str,
        size_bytes: u64,
    ) -> Result<Response, ApiError> {
        let mut file = scratch_file()?;
        let copy = file.try_clone().map_err(|e| disk(&e))?;
        self.blobs.get_to_open(goal, hash, copy).await.map_err(|error| {
            tracing::error!(%error, goal, "a file cannot be read");
            ApiError::unavailable("the file cannot be read just now")
        })?;
        file.seek(SeekFrom::Start(0)).map_err(|e| disk(&e))?;
        let stream = tokio_util::io::ReaderStream::new(tokio::fs::File::from_std(file));
        Ok(as_data(HttpBody::from_stream(stream), content_type(path), Some(size_bytes)))
    }

    async fn manifest(&self, goal: &Goal) -> Result<Manifest, ApiError> {
        Manifest::load(&self.blobs, &goal.id, &goal.root).await.map_err(|error| {
            tracing::error!(%error, goal = goal.id, "the goal's manifest could not be read");
            ApiError::unavailable("the goal's files cannot be read just now")
        })
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(id): Path<String>,
) -> Answer<FileList> {
    let goal = api.goal_for(&caller, &id).await?;
    let manifest = api.manifest(&goal).await?;
    let files = manifest
        .files
        .into_iter()
        .map(|(path, entry)| FileInfo {
            path,
            hash: entry.hash,
            size_bytes: entry.size_bytes,
            mime: entry.mime,
            creator: entry.creator,
            description: entry.description,
            version: entry.version,
        })
        .collect();
    Ok(Json(FileList { root: goal.root, files }))
}

pub(super) async fn show(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path((id, path)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let goal = api.goal_for(&caller, &id).await?;
    let manifest = api.manifest(&goal).await?;
    match path.as_str() {
        TODO => {
            let tickets = api.store.all_tickets(&id).await?;
            let text = workspace::todo_md(&goal, &tickets, &manifest, &goal.language);
            return Ok(as_data(HttpBody::from(text), content_type(TODO), None));
        }
        FILE_INDEX => {
            let text = workspace::file_index_json(&manifest);
            return Ok(as_data(HttpBody::from(text), content_type(FILE_INDEX), None));
        }
        _ => {}
    }
    // Looked up in the manifest: a path that leaves the workspace is simply not there.
    let entry = manifest.files.get(&path).ok_or_else(|| ApiError::not_found("file", &path))?;
    api.blob_as_data(&id, &entry.hash, &path, entry.size_bytes).await
}

/// Served so that a planted page, script or SVG runs nothing.
fn as_data(body: HttpBody, mime: HeaderValue, size_bytes: Option<u64>) -> Response {
    let mut response = ([(header::CONTENT_TYPE, mime)], body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox; frame-ancestors 'none'"),
    );
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    if let Some(size) = size_bytes {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    }
    response
}

/// Text is UTF-8 here, whatever it is.
fn content_type(path: &str) -> HeaderValue {
    let mime = mime_of(path);
    let text = mime.starts_with("text/");
    let typed = if text {
        HeaderValue::try_from(format!("{mime}; charset=utf-8"))
    } else {
        HeaderValue::try_from(mime)
    };
    typed.unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(path: &str) -> InputFile {
        InputFile { path: path.into(), blob: "a".repeat(64) }
    }

    #[test]
    fn an_input_stays_inside_the_workspace() {
        for wrong in ["../x", "/etc/passwd", "a/../../b", "", "TODO.md", "FILE_INDEX.json", "temp/x"] {
            let error = check_inputs(&[input("data/ok.csv"), input(wrong)], 10).err().unwrap();
            assert_eq!(error.detail().field, "inputs[1].path", "{wrong}");
        }
        assert!(check_inputs(&[input("data/a.csv"), input("data/a.csv")], 10).is_err());
        assert!(check_inputs(&[input("a"), input("b")], 1).is_err());
        assert!(check_inputs(&[InputFile { path: "a".into(), blob: "../x".into() }], 1).is_err());
        assert!(check_inputs(&[input("data/a.csv")], 1).is_ok());
    }

    #[test]
    fn endings_give_types_and_the_unknown_is_bytes() {
        assert_eq!(content_type("outputs/a.MD"), "text/markdown; charset=utf-8");
        assert_eq!(content_type("x"), "application/octet-stream");
    }
}
