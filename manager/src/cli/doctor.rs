//! `muster doctor`: checks one by one what the fleet stands on, and says the way out of what is wrong.
//! Looks at Redis itself, so that it can tell what is wrong when no manager starts.

use super::client::{self, Client, Found};
use super::context::Context;
use super::error::{CliError, Exit};
use super::model::Choice;
use super::out::{Out, size};
use super::{config, model, ways};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use shared::blob::Blobs;
use shared::config::{Config, without_password};
use shared::sandbox::Sandbox;
use shared::store::Store;
use std::time::Duration;

/// One check may take this long.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster doctor\n  muster doctor --model\n  muster doctor --config /etc/muster.toml --json | jq '.checks[] | select(.state==\"bad\")'"
)]
pub(crate) struct Args {
    /// Try the model out by some short calls: tools, parallel calls, JSON, roles, usage; kept for the fleet.
    #[arg(long)]
    model: bool,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ok,
    /// Works, but a person should know.
    Warn,
    Bad,
    /// Could not be looked at, because something before it is bad.
    Skipped,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Skipped => "skipped",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Check {
    name: &'static str,
    pub(crate) state: State,
    pub(crate) what: String,
    pub(crate) hint: String,
}

impl Check {
    pub(crate) fn new(
        name: &'static str,
        state: State,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { name, state, what: what.into(), hint: hint.into() }
    }

    pub(crate) fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, State::Ok, what, "")
    }

    fn draw(&self, out: Out) -> String {
        let (mark, sgr) = match self.state {
            State::Ok => ("ok  ", "32"),
            State::Warn => ("warn", "33"),
            State::Bad => ("BAD ", "1;31"),
            State::Skipped => ("-   ", "2"),
        };
        let mut text = format!("{}  {:<15} {}", out.paint(mark, sgr), self.name, self.what);
        if !self.hint.is_empty() {
            text.push_str(&format!("\n      {} {}", out.paint("hint:", "1;36"), self.hint));
        }
        text
    }

    fn to_json(&self) -> Value {
        json!({"name": self.name, "state": self.state.as_str(), "what": self.what, "hint": self.hint})
    }
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let mut checks = Vec::new();
    let mut say = |check: Check| -> Result<(), CliError> {
        if !ctx.out.json {
            ctx.out.line(&check.draw(ctx.out))?;
        }
        checks.push(check);
        Ok(())
    };
    match config::load(ctx) {
        Err(e) => say(Check::new("configuration", State::Bad, e.to_string(), e.hint()))?,
        Ok(mut config) => {
            say(Check::ok("configuration", overlay(ctx, &mut config)))?;
            let none_there = if ctx.home.fleet().is_none() { found(&mut config).await } else { None };
            for check in store(&config).await {
                say(check)?;
            }
            say(sandbox().await)?;
            say(python().await)?;
            match none_there {
                Some(wrong) => say(wrong)?,
                None => say(language_model(&config).await)?,
            }
            if args.model {
                for check in ways::of(&config).await {
                    say(check)?;
                }
            }
            say(manager(ctx).await)?;
        }
    }
    let bad = checks.iter().filter(|c| c.state == State::Bad).count();
    if ctx.out.json {
        ctx.out.document(&json!({
            "ok": bad == 0, "checks": checks.iter().map(Check::to_json).collect::<Vec<_>>(),
        }))?;
    } else if bad > 0 {
        ctx.out.note(&format!("{bad} of {} checks are bad", checks.len()));
    }
    Ok(if bad == 0 { Exit::Done } else { Exit::Failed })
}

/// A private fleet that runs here has its own Redis, blobs and model: those are looked at then.
fn overlay(ctx: &Context, config: &mut Config) -> String {
    let file = match &ctx.config {
        Some(file) => file.display().to_string(),
        None if std::path::Path::new("muster.toml").is_file() => "muster.toml".into(),
        None => "defaults and environment".into(),
    };
    let Some(fleet) = ctx.home.fleet() else { return file };
    config.redis.url = fleet.redis_url;
    config.redis.password = SecretString::from(fleet.redis_password);
    config.blobs.folder = fleet.blobs_folder;
    config.model.url = fleet.model_url;
    config.model.standard = fleet.model_name;
    config.model.api_key = SecretString::from(fleet.model_key);
    format!("{file}; looking at the fleet in {}", ctx.home.folder().display())
}

/// Without a fleet here the model is the one that `muster up` would take: of the environment, or of this machine. What
/// is wrong with one that is named there.
async fn found(config: &mut Config) -> Option<Check> {
    match model::choose(config, model::Wish::Auto, false).await {
        Ok(Choice::Found { url, name, key, .. }) => {
            config.model.url = url;
            config.model.standard = name;
            config.model.api_key = SecretString::from(key);
            None
        }
        Ok(Choice::Configured { .. } | Choice::Rehearsal | Choice::None) => None,
        Err(e) => Some(Check::new("model", State::Bad, e.to_string(), e.hint())),
    }
}

/// Redis, and what can only be seen through it.
async fn store(config: &Config) -> Vec<Check> {
    let skipped = |names: &[&'static str]| -> Vec<Check> {
        names.iter().map(|n| Check::new(n, State::Skipped, "Redis has to be reachable first", "")).collect()
    };
    let connected = match tokio::time::timeout(LIMIT, Store::connect_unchecked(&config.redis)).await {
        Ok(Ok(store)) => tokio::time::timeout(LIMIT, store.now_ms())
            .await
            .unwrap_or_else(|_| Err(shared::store::StoreError::Unavailable("no answer".into())))
            .map(|_| store)
            .map_err(|e| e.to_string()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
    };
    let store = match connected {
        Ok(store) => store,
        Err(why) => {
            let mut checks = vec![Check::new(
                "redis",
                State::Bad,
                format!("{}: {why}", without_password(&config.redis.url)),
                "start it (`muster up` brings its own), or set redis.url and redis.password (MUSTER_REDIS__URL, …)",
            )];
            checks.extend(skipped(&["redis settings", "redis memory", "lanes"]));
            checks.push(blobs(config, None).await);
            return checks;
        }
    };
    let mut checks = vec![Check::ok("redis", without_password(&config.redis.url))];
    match store.problems(config.redis.allow_no_persistence).await {
        Ok(problems) if problems.is_empty() => {
            checks.push(Check::ok("redis settings", "version, eviction policy and persistence are fine"));
        }
        Ok(problems) => checks.extend(problems.into_iter().map(|problem| {
            let (what, hint) = problem.split_once("hint: ").map_or((problem.as_str(), ""), |(w, h)| (w, h));
            Check::new("redis settings", State::Bad, what.trim().trim_end_matches([';', ',']), hint)
        })),
        Err(e) => checks.push(Check::new(
            "redis settings",
            State::Bad,
            e.to_string(),
            "may this user call INFO and CONFIG GET?",
        )),
    }
    checks.push(memory(&store).await);
    match store.gauges().await {
        Ok(gauges) => {
            let unserved: Vec<&String> = gauges
                .demand
                .iter()
                .filter(|(lane, waiting)| {
                    **waiting > 0 && gauges.consumers.get(*lane).copied().unwrap_or(0) == 0
                })
                .map(|(lane, _)| lane)
                .collect();
            checks.push(if unserved.is_empty() {
                let served: Vec<String> = gauges.consumers.iter().map(|(lane, n)| format!("{lane} {n}")).collect();
                let what = if served.is_empty() { "nobody serves, and nothing waits".into() } else { served.join(", ") };
                Check::ok("lanes", what)
            } else {
                let names: Vec<&str> = unserved.iter().map(|l| l.as_str()).collect();
                Check::new(
                    "lanes",
                    State::Bad,
                    format!("tickets wait and nobody serves: {}", names.join(", ")),
                    "start a worker with that pool in worker.pools (lane work.<pool>), or a reviewer (lane review); \
                     a pool that runs code is served only by workers with a sandbox",
                )
            });
        }
        Err(e) => {
            checks.push(Check::new(
                "lanes",
                State::Bad,
                e.to_string(),
                "is this Redis shared with something else?",
            ));
        }
    }
    checks.push(blobs(config, Some(&store)).await);
    checks
}

/// How full the server is.
async fn memory(store: &Store) -> Check {
    let name = "redis memory";
    let info = match store.server_info("memory").await {
        Ok(info) => info,
        Err(e) => return Check::new(name, State::Bad, e.to_string(), "may this user call INFO?"),
    };
    let field = |wanted: &str| -> u64 {
        let found = info.lines().find_map(|l| l.strip_prefix(wanted)?.strip_prefix(':'));
        found.and_then(|v| v.trim().parse().ok()).unwrap_or(0)
    };
    match (field("used_memory"), field("maxmemory")) {
        (used, 0) => Check::ok(name, format!("{} used, no limit set", size(used))),
        (used, limit) if used > limit / 10 * 8 => Check::new(
            name,
            State::Warn,
            format!("{} of {} used", size(used), size(limit)),
            "shorten blobs.retention_s, or raise maxmemory: a full Redis takes no more tickets",
        ),
        (used, limit) => Check::ok(name, format!("{} of {} used", size(used), size(limit))),
    }
}

/// The folder can be written, and is the one that the rest of the fleet sees.
async fn blobs(config: &Config, store: Option<&Store>) -> Check {
    let name = "blobs";
    let folder = config.blobs.folder.display().to_string();
    let hint = "set blobs.folder to a folder that every host of the fleet can write (a shared mount with several hosts)";
    let blobs = match Blobs::open(&config.blobs) {
        Ok(blobs) => blobs,
        Err(e) => return Check::new(name, State::Bad, format!("{folder}: {e}"), hint),
    };
    let probe = format!("doctor-{}", super::request_id());
    if let Err(e) = blobs.put(&probe, b"muster doctor".to_vec()).await {
        return Check::new(name, State::Bad, format!("{folder} cannot be written: {e}"), hint);
    }
    let _ = blobs.delete_goal(&probe).await;
    let Some(store) = store else {
        return Check::ok(name, format!("{folder} (whether it is shared is in Redis)"));
    };
    // Only looked at: a nonce made here, with a wrong folder, would keep the real fleet from starting.
    match store.fleet_nonce().await {
        Ok(Some(nonce)) if blobs.sees_nonce(&nonce).await => {
            Check::ok(name, format!("{folder}, shared with the fleet"))
        }
        Ok(None) => Check::ok(name, format!("{folder}; no fleet has marked it yet")),
        Ok(Some(_)) => {
            Check::new(name, State::Bad, format!("{folder} is not the folder that the fleet writes to"), hint)
        }
        Err(e) => Check::new(name, State::Bad, e.to_string(), hint),
    }
}

async fn sandbox() -> Check {
    match tokio::task::spawn_blocking(Sandbox::probe).await {
        Ok(Ok(_)) => Check::ok("sandbox", "bubblewrap works"),
        Ok(Err(e)) => {
            let message = e.to_string();
            let (what, hint) = message.split_once("hint: ").unwrap_or((
                &message,
                "apt-get install bubblewrap, and allow user namespaces; without it everything but code tools works",
            ));
            Check::new("sandbox", State::Bad, what.trim(), hint)
        }
        Err(e) => Check::new("sandbox", State::Bad, e.to_string(), "try again"),
    }
}

async fn python() -> Check {
    let asked = tokio::process::Command::new("python3").arg("--version").output();
    match tokio::time::timeout(LIMIT, asked).await {
        Ok(Ok(out)) if out.status.success() => {
            Check::ok("python3", String::from_utf8_lossy(&out.stdout).trim())
        }
        Ok(Ok(out)) => Check::new(
            "python3",
            State::Bad,
            format!("python3 --version: {}", out.status),
            "reinstall python3",
        ),
        Ok(Err(e)) => Check::new("python3", State::Bad, e.to_string(), "apt-get install python3"),
        Err(_) => Check::new("python3", State::Bad, "it does not answer", "reinstall python3"),
    }
}

async fn language_model(config: &Config) -> Check {
    let name = "model";
    if !config.model.is_configured() {
        return Check::new(
            name,
            State::Warn,
            "none is configured: plan files with direct tools only",
            "set model.url and model.standard (MUSTER_MODEL__URL, MUSTER_MODEL__STANDARD)",
        );
    }
    let url = &config.model.url;
    let http = match reqwest::Client::builder().build() {
        Ok(http) => http,
        Err(e) => {
            return Check::new(
                name,
                State::Bad,
                client::chain(&e),
                "check the proxy and certificate settings",
            );
        }
    };
    let (key, anthropic) = (config.model.api_key.expose_secret(), config.model.speaks_anthropic());
    match model::models(&http, url, key, anthropic, LIMIT).await {
        Err(why) => Check::new(
            name,
            State::Bad,
            format!("{url}: {why}"),
            "is the server running, and are model.url and model.api_key right?",
        ),
        Ok(names) => {
            let tiers = [&config.model.cheap, &config.model.standard, &config.model.strong];
            let missing: Vec<&str> =
                tiers.iter().filter(|t| !t.is_empty() && !names.contains(t)).map(|t| t.as_str()).collect();
            if missing.is_empty() {
                return Check::ok(name, format!("{} at {url}", config.model.standard));
            }
            Check::new(
                name,
                State::Bad,
                format!("{url} answers, and does not list {}", missing.join(", ")),
                format!("it lists: {}", super::out::one_line(&names.join(", "), 200)),
            )
        }
    }
}

async fn manager(ctx: &Context) -> Check {
    let name = "manager";
    match client::find(ctx.url.as_deref(), &ctx.home).await {
        Ok(Found::Named { url, token } | Found::Local { url, token }) => {
            let client = match Client::new(&url, token) {
                Ok(client) => client,
                Err(e) => return Check::new(name, State::Bad, e.to_string(), e.hint()),
            };
            match client.get("/v1/stats").await {
                Ok(_) => Check::ok(name, client.base()),
                Err(e) => Check::new(name, State::Bad, e.to_string(), e.hint()),
            }
        }
        Ok(Found::Nothing) => Check::new(
            name,
            State::Warn,
            "none is configured and none runs here",
            "`muster up` starts one; a remote one is named by MUSTER_URL and MUSTER_TOKEN",
        ),
        Err(e) => Check::new(name, State::Bad, e.to_string(), e.hint()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_check_shows_the_way_out() {
        let check = Check::new("sandbox", State::Bad, "bwrap is missing", "apt-get install bubblewrap");
        let drawn = check.draw(Out::new(true));
        assert!(drawn.starts_with("BAD ") && drawn.contains("hint: apt-get"), "{drawn}");
        assert_eq!(check.to_json()["state"], "bad");
    }

    #[tokio::test]
    async fn an_unreachable_redis_is_named_with_the_way_out() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.redis.url = format!("redis://127.0.0.1:{port}");
        config.blobs.folder = dir.path().join("b");
        let checks = store(&config).await;
        assert_eq!((checks[0].name, checks[0].state), ("redis", State::Bad));
        assert!(checks[0].hint.contains("muster up"));
        assert!(checks.iter().any(|c| c.name == "lanes" && c.state == State::Skipped));
        assert!(checks.iter().any(|c| c.name == "blobs" && c.state == State::Ok));
    }
}
