//! One HTTP request and its streamed answer: timeouts, limits, cancellation. It knows nothing of retries.

use super::error::{ErrorClass, Fault};
use super::hint::retry_after_ms;
use super::sse::{self, Line, Lines};
use super::wire::{Assemble, Draft, Wire};
use super::{openai, tolerant};
use bytes::Bytes;
use secrecy::SecretString;
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Until the first line a server may read a long prompt or keep us in its queue: so many idle times.
const FIRST_LINE_IDLES: u32 = 3;

/// After the finish reason only the usage is missing: a server that keeps the connection open costs this much.
const TAIL_MS_MAX: u64 = 3_000;

/// Most bytes read of an error's body.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// What bounds a request.
pub(super) struct Bounds<'a> {
    /// Longest silence between two lines: bytes that never become a line do not count (A5).
    pub(super) idle: Duration,
    /// End of the whole answer, retries included.
    pub(super) deadline: Instant,
    pub(super) response_bytes_max: usize,
    pub(super) stop: &'a CancellationToken,
    pub(super) on_bytes: &'a (dyn Fn() + Send + Sync),
}

/// What is sent.
pub(super) struct Post<'a> {
    pub(super) http: &'a reqwest::Client,
    pub(super) wire: Wire,
    /// Base URL.
    pub(super) base: &'a str,
    pub(super) key: &'a SecretString,
    pub(super) body: Bytes,
    /// Name of the structured answer that is asked for.
    pub(super) format: Option<&'a str>,
}

/// Sends the body and reads the answer to its end. Cancellation safe: dropping it closes the connection.
pub(super) async fn exchange(post: Post<'_>, bounds: &Bounds<'_>) -> Result<Draft, Fault> {
    let received = AtomicUsize::new(0);
    let talk = talk(post, bounds, &received);
    let outcome = tokio::select! {
        biased;
        () = bounds.stop.cancelled() => Err(Fault::new(ErrorClass::Cancelled, "stopped by the caller")),
        outcome = timeout_at(bounds.deadline, talk) => outcome
            .unwrap_or_else(|_| Err(Fault::new(ErrorClass::Network, "the call took longer than call_timeout_ms"))),
    };
    outcome.map_err(|fault| Fault { output_bytes: received.load(Ordering::Relaxed), ..fault })
}

async fn talk(post: Post<'_>, bounds: &Bounds<'_>, received: &AtomicUsize) -> Result<Draft, Fault> {
    let Post { http, wire, base, key, body, format } = post;
    let request = wire
        .post(http, base, key)
        .header(reqwest::header::CONTENT_TYPE, "application/json")
        .header(reqwest::header::ACCEPT, "text/event-stream, application/json")
        .body(body);
    let begun = Instant::now();
    let first = begun + bounds.idle * FIRST_LINE_IDLES;
    let response = match timeout_at(first, request.send()).await {
        Ok(Ok(response)) => response,
        Ok(Err(e)) => return Err(network(&e)),
        Err(_) => return Err(stalled("before it answered")),
    };
    let status = response.status().as_u16();
    if !response.status().is_success() {
        let retry_after = retry_after_ms(response.headers());
        let body = timeout_at(Instant::now() + bounds.idle, error_text(response)).await.unwrap_or_default();
        return Err(openai::error_body(status, &body, retry_after));
    }
    read(response, wire.assembly(format), bounds, first, received).await
}

async fn read(
    mut response: reqwest::Response,
    assembly: Box<dyn Assemble>,
    bounds: &Bounds<'_>,
    first: Instant,
    received: &AtomicUsize,
) -> Result<Draft, Fault> {
    let mut lines = Lines::new(bounds.response_bytes_max);
    let mut events = Events { assembly, pending: String::new(), loose: String::new(), chunks: 0 };
    let mut until = first;
    loop {
        let bytes = match timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => break,
            // After the end, or the usage that follows it, nothing is missing (A4).
            Ok(Err(_)) | Err(_) if events.assembly.has_ended() || events.assembly.has_usage() => break,
            Ok(Err(e)) => return Err(network(&e)),
            Err(_) if events.assembly.has_begun() => return Err(stalled("in the middle of its answer")),
            Err(_) => return Err(stalled("before its first line")),
        };
        let total = received.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        if total > bounds.response_bytes_max {
            return Err(too_long(bounds));
        }
        for line in lines.push(&bytes).map_err(|_| too_long(bounds))? {
            if events.take(&line, bounds.on_bytes)? {
                return events.into_draft();
            }
            let tail = Duration::from_millis(TAIL_MS_MAX).min(bounds.idle);
            until = Instant::now() + if events.assembly.has_ended() { tail } else { bounds.idle };
        }
    }
    if let Some(line) = lines.rest() {
        events.take(&line, bounds.on_bytes)?;
    }
    events.into_draft()
}

/// Lines into an answer.
struct Events {
    assembly: Box<dyn Assemble>,
    /// Data lines that are no JSON by themselves: an event may spread over several, up to a blank line.
    pending: String,
    /// Lines of an answer that is no event stream.
    loose: String,
    chunks: usize,
}

impl Events {
    /// Takes a line; true when the server said that it was the last.
    fn take(&mut self, line: &str, on_bytes: &(dyn Fn() + Send + Sync)) -> Result<bool, Fault> {
        match sse::kind(line) {
            Line::Done => return Ok(true),
            Line::Other => {}
            Line::Blank if self.pending.is_empty() => {}
            Line::Blank => {
                let event = std::mem::take(&mut self.pending);
                let (value, _) = tolerant::json(&event).map_err(|_| garbage(&event))?;
                self.chunk(&value, on_bytes)?;
            }
            // Some servers send no blank lines, so an event that is complete in its line is taken at once.
            Line::Data(data) if self.pending.is_empty() => match tolerant::json(data) {
                Ok((value, _)) => self.chunk(&value, on_bytes)?,
                Err(problem) if problem.truncated => self.pending = format!("{data}\n"),
                Err(_) => return Err(garbage(data)),
            },
            Line::Data(data) => {
                self.pending.push_str(data);
                self.pending.push('\n');
            }
            Line::Loose(text) => {
                self.loose.push_str(text);
                self.loose.push('\n');
                on_bytes();
            }
        }
        Ok(self.assembly.is_closed())
    }

    fn chunk(&mut self, value: &Value, on_bytes: &(dyn Fn() + Send + Sync)) -> Result<(), Fault> {
        self.chunks += 1;
        self.assembly.take(value)?;
        on_bytes();
        Ok(())
    }

    fn into_draft(mut self) -> Result<Draft, Fault> {
        if !self.pending.is_empty() && !self.assembly.has_ended() {
            return Err(garbage(&self.pending));
        }
        if !self.loose.is_empty() && !self.assembly.has_begun() {
            let (value, _) = tolerant::json(self.loose.trim()).map_err(|_| garbage(&self.loose))?;
            self.chunks += 1;
            self.assembly.take(&value)?;
        }
        if self.chunks > 0 && !self.assembly.has_begun() {
            return Err(Fault::new(ErrorClass::Reply, "the answer holds no choice"));
        }
        if !self.assembly.has_begun() {
            return Err(Fault::new(ErrorClass::Network, "the stream ended before its first chunk"));
        }
        Ok(self.assembly.into_draft())
    }
}

async fn error_text(mut response: reqwest::Response) -> String {
    let mut body = vec![];
    while let Ok(Some(bytes)) = response.chunk().await {
        body.extend_from_slice(&bytes);
        if body.len() > ERROR_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

fn network(error: &reqwest::Error) -> Fault {
    // The sources say what happened (refused, reset, name not found); the URL may carry a secret.
    let mut detail =
        if error.is_connect() { "cannot connect".to_owned() } else { "connection lost".to_owned() };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        detail = format!("{detail}: {cause}");
        source = cause.source();
    }
    Fault::new(ErrorClass::Network, detail)
}

fn stalled(when: &str) -> Fault {
    Fault::new(ErrorClass::Network, format!("the server fell silent {when}"))
}

fn garbage(text: &str) -> Fault {
    Fault::new(ErrorClass::Reply, format!("unreadable answer: {}", tolerant::cut(text.trim(), 200)))
}

fn too_long(bounds: &Bounds<'_>) -> Fault {
    let max = bounds.response_bytes_max;
    Fault::new(ErrorClass::Reply, format!("the answer is longer than model.response_bytes_max ({max} bytes)"))
}
