//! Speaks HTTP to a manager: where it is, with which token, and what its errors mean to a person.

use super::env;
use super::error::CliError;
use super::home::Home;
use super::out::{items, text};
use super::types::ErrorBody;
use reqwest::header::HeaderValue;
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for a plain answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for an answer that a model has to think about.
const THINKING_TIMEOUT: Duration = Duration::from_secs(1_800);
/// Is the address in `.muster/api.json` still served?
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for a local manager that is being started again.
const RESTART_WAIT: Duration = Duration::from_secs(10);
const RESTART_LOOK: Duration = Duration::from_millis(100);
/// Pauses between tries of a request that carries its idempotency key.
const RETRY_PAUSES_MS: [u64; 5] = [200, 500, 1_000, 2_000, 4_000];

/// Tries when there is not even a connection.
const RETRIES_NOBODY: usize = 3;

/// A manager that can be asked. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

/// Where a manager was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// By `--url` or `MUSTER_URL`: if it does not answer, that is an error.
    Named {
        url: String,
        token: Option<String>,
    },
    /// By `.muster/api.json`, and it answers.
    Local {
        url: String,
        token: Option<String>,
    },
    Nothing,
}

/// Looks for a manager: the argument (or `MUSTER_URL`), then the folder of the local fleet.
pub(crate) async fn find(url: Option<&str>, home: &Home) -> Result<Found, CliError> {
    let token = env::get(env::TOKEN);
    if let Some(url) = url {
        return Ok(Found::Named { url: checked(url)?, token: token.or_else(|| token_for(url, home)) });
    }
    let since = Instant::now();
    loop {
        if let Some(api) = home.api()
            && Client::new(&api.url, None)?.answers().await
        {
            let token = token.or_else(|| read_token(&api.token_file));
            return Ok(Found::Local { url: api.url, token });
        }
        // A fleet that is just coming up says where it is in a moment, and one that lives starts its manager again.
        if !home.is_locked() || since.elapsed() > RESTART_WAIT {
            return Ok(Found::Nothing);
        }
        tokio::time::sleep(RESTART_LOOK).await;
    }
}

/// The local fleet's own token fits when the named address is that of the local fleet.
fn token_for(url: &str, home: &Home) -> Option<String> {
    let api = home.api()?;
    (api.url.trim_end_matches('/') == url.trim_end_matches('/'))
        .then(|| read_token(&api.token_file))
        .flatten()
}

fn read_token(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
}

fn checked(url: &str) -> Result<String, CliError> {
    let url = url.trim_end_matches('/').trim_end_matches("/v1");
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(url.to_owned());
    }
    Err(CliError::usage(
        format!("`{url}` is no address of a manager"),
        "give it as http://host:port or https://host:port, by --url or MUSTER_URL",
    ))
}

/// The environment's trace as a header; one that cannot be sent counts as none, as a malformed one does at the manager.
fn trace_header(given: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(given.trim()).ok()
}

impl Client {
    pub(crate) fn new(url: &str, token: Option<String>) -> Result<Self, CliError> {
        let base = checked(url)?;
        let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT);
        // A proxy of the environment has no business between two programs of one machine.
        if ["://127.", "://localhost", "://[::1]"].iter().any(|local| base.contains(local)) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|e| {
            CliError::failed(
                format!("HTTP client: {}", chain(&e)),
                "check the proxy and certificate settings",
            )
        })?;
        Ok(Self { http, base, token })
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Whether anything that looks alive is there; never an error.
    pub(crate) async fn answers(&self) -> bool {
        let asked = self.http.get(format!("{}/healthz", self.base)).timeout(PROBE_TIMEOUT).send().await;
        asked.is_ok_and(|reply| reply.status().is_success())
    }

    /// Whether it says that it is ready for work; never an error.
    pub(crate) async fn is_ready(&self) -> bool {
        let asked = self.http.get(format!("{}/readyz", self.base)).timeout(PROBE_TIMEOUT).send().await;
        asked.is_ok_and(|reply| reply.status().is_success())
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.ask(Method::GET, path, None::<&()>, ANSWER_TIMEOUT).await
    }

    /// The whole id that begins with `named`, of those that the path lists under the field `noun`; `command` shows a person
    /// all of them.
    pub(crate) async fn id(
        &self,
        path: &str,
        noun: &str,
        command: &str,
        named: &str,
    ) -> Result<String, CliError> {
        let reply = self.get(path).await?;
        let ids = items(&reply, noun).iter().map(|item| text(item, "id"));
        let fitting: Vec<&str> = ids.filter(|id| id.starts_with(named)).collect();
        match fitting.as_slice() {
            [one] => Ok((*one).to_owned()),
            many => Err(CliError::usage(
                format!("{} {noun} begin with `{named}`", many.len()),
                format!("`{command}` shows them"),
            )),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &impl Serialize) -> Result<Value, CliError> {
        self.ask(Method::POST, path, Some(body), ANSWER_TIMEOUT).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.ask(Method::DELETE, path, None::<&()>, ANSWER_TIMEOUT).await
    }

    /// A request that a model has to think about.
    pub(crate) async fn post_slow(&self, path: &str, body: &impl Serialize) -> Result<Value, CliError> {
        self.ask(Method::POST, path, Some(body), THINKING_TIMEOUT).await
    }

    /// A write whose body carries an idempotency key or request id: made again while the answer may
    /// have been lost, because repeating it changes nothing.
    pub(crate) async fn post_once(&self, path: &str, body: &impl Serialize) -> Result<Value, CliError> {
        let mut tried = self.post(path, body).await;
        for (n, pause) in RETRY_PAUSES_MS.into_iter().enumerate() {
            match tried {
                // Nobody there may be a manager that restarts, or a wrong address: not worth the whole wait.
                Err(CliError::Unreachable { nobody: true, .. }) if n >= RETRIES_NOBODY => return tried,
                Err(ref e) if e.is_passing() => {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    tried = self.post(path, body).await;
                }
                other => return other,
            }
        }
        tried
    }

    /// Uploads a file's bytes, streamed; answers the blob's name.
    pub(crate) async fn upload(&self, file: &Path, size_bytes: u64) -> Result<Value, CliError> {
        let open = tokio::fs::File::open(file).await.map_err(|e| {
            CliError::usage(format!("input {}: {e}", file.display()), "check path and rights")
        })?;
        let body = reqwest::Body::wrap_stream(tokio_util::io::ReaderStream::with_capacity(open, 64 * 1024));
        let request = self
            .request(Method::PUT, "/v1/uploads")
            .header(reqwest::header::CONTENT_TYPE, "application/octet-stream")
            .header(reqwest::header::CONTENT_LENGTH, size_bytes)
            .timeout(THINKING_TIMEOUT)
            .body(body);
        self.answer(request.send().await).await
    }

    /// The bytes of a path, or the error; for downloads and event streams. Times out on connect only.
    pub(crate) async fn open(&self, path: &str, accept: &str) -> Result<reqwest::Response, CliError> {
        let request = self.request(Method::GET, path).header(reqwest::header::ACCEPT, accept);
        let reply = request.send().await.map_err(|e| self.unreachable(&e))?;
        if reply.status().is_success() {
            return Ok(reply);
        }
        Err(self.refused(reply).await)
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        // Whoever runs this command may keep a trace of its own; a goal that is submitted then belongs to it.
        let request = match env::get(env::TRACEPARENT).and_then(|given| trace_header(&given)) {
            Some(trace) => request.header("traceparent", trace),
            None => request,
        };
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        timeout: Duration,
    ) -> Result<Value, CliError> {
        let mut request = self.request(method, path).timeout(timeout);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request.send().await).await
    }

    async fn answer(&self, sent: reqwest::Result<reqwest::Response>) -> Result<Value, CliError> {
        let reply = sent.map_err(|e| self.unreachable(&e))?;
        if !reply.status().is_success() {
            return Err(self.refused(reply).await);
        }
        let bytes = reply.bytes().await.map_err(|e| self.unreachable(&e))?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|e| {
            CliError::failed(
                format!("{} answered something that is no JSON: {e}", self.base),
                "is this the address of a muster manager, and not of something else?",
            )
        })
    }

    pub(crate) fn unreachable(&self, e: &reqwest::Error) -> CliError {
        CliError::Unreachable {
            url: Some(self.base.clone()),
            nobody: e.is_connect(),
            detail: chain(e),
            hint: "start a fleet here with `muster up`, or give the right address by --url or MUSTER_URL"
                .into(),
        }
    }

    async fn refused(&self, reply: reqwest::Response) -> CliError {
        let status = reply.status();
        let path = reply.url().path().to_owned();
        let body = reply.bytes().await.unwrap_or_default();
        refusal(status, &path, &body)
    }
}

/// What the manager's error says, or what its status means when it says nothing.
fn refusal(status: StatusCode, path: &str, body: &[u8]) -> CliError {
    let detail = serde_json::from_slice::<ErrorBody>(body).ok().map(|b| b.error).unwrap_or_default();
    let message = if detail.message.is_empty() {
        format!("the manager answered {status} to {path}")
    } else {
        detail.message
    };
    let hint = if !detail.hint.is_empty() {
        detail.hint
    } else {
        match status.as_u16() {
            401 => "give a valid token by MUSTER_TOKEN; a running local fleet has one in .muster/token",
            403 => {
                "this token lacks the scope or the tenant; make another with `muster token create --scope …`"
            }
            404 => "`muster list` shows the goals, `muster tickets GOAL` their tickets",
            409 => "look at it as it is now with `muster show`",
            413 => "make it smaller, or raise the limit in [limits] of the manager's configuration",
            429 | 503 => "wait a little and try again; `muster stats` shows how much is queued",
            500..=599 => "the manager's log says more; `muster doctor` checks what it stands on",
            _ => "",
        }
        .into()
    };
    CliError::Refused {
        status: status.as_u16(),
        code: if detail.code.is_empty() { status.as_u16().to_string() } else { detail.code },
        message,
        field: Some(detail.field).filter(|f| !f.is_empty()),
        hint,
    }
}

/// An error with its causes: reqwest keeps the interesting part at the end.
pub(crate) fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// A path segment, percent-encoded (slashes too).
pub(crate) fn segment(text: &str) -> String {
    encode(text, b"")
}

/// A path of several segments, percent-encoded between its slashes.
pub(crate) fn segments(text: &str) -> String {
    encode(text, b"/")
}

fn encode(text: &str, keep: &[u8]) -> String {
    text.bytes().fold(String::new(), |mut out, b| {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) || keep.contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_field_and_hint_and_fills_in_what_is_missing() {
        let body = br#"{"error":{"code":"bad_request","message":"cycle: a -> b -> a","field":"tickets[0].needs","hint":"cut it"}}"#;
        let e = refusal(StatusCode::BAD_REQUEST, "/v1/goals", body);
        assert_eq!(e.to_string(), "cycle: a -> b -> a (field tickets[0].needs)");
        assert_eq!((e.hint(), e.exit().code()), ("cut it", 64));
        let e = refusal(StatusCode::UNAUTHORIZED, "/v1/goals", b"<html>");
        assert!(e.hint().contains("MUSTER_TOKEN"));
    }

    #[test]
    fn addresses_are_normalised_or_refused() {
        assert_eq!(checked("http://h:1/").unwrap(), "http://h:1");
        assert_eq!(checked("https://h/v1").unwrap(), "https://h");
        assert_eq!(checked("h:7700").unwrap_err().exit().code(), 64);
    }

    #[test]
    fn q52_a_trace_of_the_environment_that_is_no_header_stops_no_command() {
        let whole = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(trace_header(&format!("{whole}\n")).unwrap(), whole);
        assert_eq!(trace_header("a\nb"), None);
    }

    #[test]
    fn paths_are_encoded() {
        assert_eq!(segments("outputs/a b#?.md"), "outputs/a%20b%23%3F.md");
        assert_eq!(segment("a/b"), "a%2Fb");
    }

    #[tokio::test]
    async fn a_dead_address_is_unreachable_with_a_way_out() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = Client::new(&format!("http://127.0.0.1:{port}"), None).unwrap();
        let e = client.get("/v1/goals").await.unwrap_err();
        assert_eq!(e.exit().code(), 69);
        assert!(e.hint().contains("muster up"));
    }
}
