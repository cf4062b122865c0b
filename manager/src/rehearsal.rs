//! The rehearsal model: an OpenAI-compatible server whose words stand in a script. For demos and tests.
//!
//! It plays no tricks for its callers: every request is checked as a strict provider would and refused with 400 and
//! the reason; a request that the script holds nothing for is a 500 that says so, and is counted. What the tools do
//! with its words is real. The script's format is in [`script`], `deploy/examples/demo.rehearsal.toml` is one.
//!
//! The same server plays recordings of goals (`muster replay`): [`replay`] answers from a [`recording`].
//!
//! `POST /v1/chat/completions`, `GET /v1/models`, and `GET /rehearsal/tally`: what was asked, answered, refused.

#[path = "rehearsal/answer.rs"]
mod answer;
#[path = "rehearsal/compare.rs"]
pub(crate) mod compare;
#[path = "rehearsal/play.rs"]
mod play;
#[path = "rehearsal/recording.rs"]
pub(crate) mod recording;
#[path = "rehearsal/replay.rs"]
mod replay;
#[path = "rehearsal/request.rs"]
mod request;
#[path = "rehearsal/script.rs"]
mod script;

pub(crate) use play::Tally;
pub(crate) use replay::Replayer;
pub(crate) use script::{Script, ScriptError};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use play::Player;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Largest request taken.
const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// `muster rehearsal`: serve a script until a signal comes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on; port 0 takes a free one. The base URL is printed on stdout.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: String,
    /// The script: TOML, as deploy/examples/demo.rehearsal.toml.
    #[arg(long, value_name = "FILE")]
    script: PathBuf,
}

/// Why the rehearsal cannot start or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RehearsalError {
    /// A usage error: the script cannot be read.
    #[error("{file}: {problem}")]
    Script { file: String, problem: ScriptError },
    #[error("cannot listen on {address}: {problem}")]
    Listen { address: String, problem: std::io::Error },
    #[error("serving failed: {0}")]
    Serve(#[from] std::io::Error),
}

/// Reads the script, prints the base URL and serves until SIGINT or SIGTERM.
///
/// # Errors
/// [`RehearsalError`] names the file or address.
pub(crate) async fn run(args: &Args) -> Result<Tally, RehearsalError> {
    let file = args.script.display().to_string();
    let script = std::fs::read_to_string(&args.script)
        .map_err(ScriptError::from)
        .and_then(|text| Script::parse(&text));
    let script = script.map_err(|problem| RehearsalError::Script { file, problem })?;
    let listen = |problem| RehearsalError::Listen { address: args.listen.clone(), problem };
    let listener = TcpListener::bind(&args.listen).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "http://{address}/v1").and_then(|()| out.flush())?;
    drop(out);
    let stop = CancellationToken::new();
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let ended = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        ended.cancel();
    });
    Ok(serve(script, listener, stop).await?)
}

/// Plays the script on the listener until `stop`; answers under way are cut off then. Gives the tally.
///
/// # Errors
/// An I/O error of the listener.
pub(crate) async fn serve(
    script: Script,
    listener: TcpListener,
    stop: CancellationToken,
) -> std::io::Result<Tally> {
    let player = Arc::new(Player::new(script, stop.clone()));
    let app = Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/models", get(models))
        .route("/rehearsal/tally", get(tally))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(Arc::clone(&player));
    axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await?;
    Ok(player.tally())
}

/// Plays a recording on the listener until `stop`.
///
/// # Errors
/// An I/O error of the listener.
pub(crate) async fn serve_recorded(
    replayer: Arc<Replayer>,
    listener: TcpListener,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let app = Router::new()
        .route("/v1/chat/completions", post(complete_recorded))
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(replayer);
    axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn complete_recorded(
    State(replayer): State<Arc<Replayer>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    replayer.play(&headers, &body)
}

async fn complete(State(player): State<Arc<Player>>, headers: HeaderMap, body: Bytes) -> Response {
    player.play(&headers, &body).await
}

async fn models() -> Json<serde_json::Value> {
    Json(
        serde_json::json!({"object": "list", "data": [{"id": "rehearsal", "object": "model", "owned_by": "muster"}]}),
    )
}

async fn tally(State(player): State<Arc<Player>>) -> Json<Tally> {
    Json(player.tally())
}

#[cfg(test)]
#[path = "rehearsal/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "rehearsal/demo_tests.rs"]
mod demo_tests;
