//! How a program starts and stops: command line, configuration, telemetry, signals, drain deadline.
//!
//! A program's `main` is one call of [`run`]. A wrong command line or configuration ends it with 64 before
//! anything is opened; the first SIGINT or SIGTERM cancels the stop token, the second leaves at once (130).

use crate::config::Config;
use crate::telemetry::{self, metrics::Role};
use std::future::Future;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Usage or configuration is wrong.
pub const EXIT_USAGE: u8 = 64;
/// Interrupted: a second signal came.
pub const EXIT_INTERRUPTED: i32 = 130;
/// What a drain may take beyond its own deadline (handing back, saying goodbye) before the process leaves anyway.
pub const DRAIN_SLACK_MS: u64 = 10_000;

/// Which program it is.
pub struct Program {
    /// The binary's name, such as `muster-worker`.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Where its drain deadline stands in the configuration.
    pub drain_ms: fn(&Config) -> u64,
}

/// What a program is given.
pub struct Context {
    pub name: &'static str,
    pub config: Config,
    /// Cancelled by the first signal: take nothing new, end within the drain deadline.
    pub stop: CancellationToken,
}

/// Runs a service to its end: its error, a signal, or by itself.
///
/// Cancellation: `serve` is expected to return soon after `stop` is cancelled; past the drain deadline and
/// [`DRAIN_SLACK_MS`] it is dropped and the process ends with 1 (what it held is swept).
pub fn run<F, Fut, E>(program: &Program, serve: F) -> ExitCode
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            say_error(&format!("{}: {problem}\n  hint: {} --help", program.name, program.name));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let config = match args {
        Args::Help => {
            print(&usage(program));
            return ExitCode::SUCCESS;
        }
        Args::Version => {
            print(&format!("{} {}\n", program.name, env!("CARGO_PKG_VERSION")));
            return ExitCode::SUCCESS;
        }
        Args::Run { config, print_config } => {
            let loaded = match Config::load(config.as_deref()) {
                Ok(loaded) => loaded,
                Err(wrong) => {
                    say_error(&format!("{}: {wrong}", program.name));
                    return ExitCode::from(EXIT_USAGE);
                }
            };
            if print_config {
                print(&render_config(&loaded));
                return ExitCode::SUCCESS;
            }
            loaded
        }
    };
    telemetry::metrics::begin(Role::of(program.name.trim_start_matches("muster-")));
    // Before the runtime: the exporter's blocking client must not be made inside one.
    let telemetry = match telemetry::init(program.name, &config.telemetry) {
        Ok(guard) => guard,
        Err(wrong) => {
            say_error(&format!("{}: {wrong}", program.name));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say_error(&format!("{}: cannot start: {error}", program.name));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(supervise(program, config, serve));
    // A handler stuck in blocking code must not hold the process.
    runtime.shutdown_timeout(Duration::from_millis(500));
    telemetry.shutdown();
    code
}

async fn supervise<F, Fut, E>(program: &Program, config: Config, serve: F) -> ExitCode
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let stop = CancellationToken::new();
    if let Err(error) = watch_signals(stop.clone()) {
        tracing::error!(%error, "cannot listen for signals");
        return ExitCode::FAILURE;
    }
    let drain = Duration::from_millis((program.drain_ms)(&config).saturating_add(DRAIN_SLACK_MS));
    let serving = serve(Context { name: program.name, config, stop: stop.clone() });
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        ended = serving => match ended {
            Ok(()) => {
                tracing::info!("stopped");
                ExitCode::SUCCESS
            }
            Err(error) => {
                tracing::error!(error = %format_args!("{error:#}"), "ended by an error");
                ExitCode::FAILURE
            }
        },
        () = overdue => {
            tracing::error!(drain_ms = drain.as_millis() as u64, "did not stop within the drain deadline, leaving");
            ExitCode::FAILURE
        }
    }
}

/// First signal: `stop`. Second: leave now.
fn watch_signals(stop: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping; a second signal leaves at once");
        stop.cancel();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(EXIT_INTERRUPTED);
    });
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Args {
    Help,
    Version,
    Run { config: Option<PathBuf>, print_config: bool },
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut config, mut print_config) = (None, false);
        while let Some(word) = words.next() {
            match word.as_str() {
                "-h" | "--help" => return Ok(Self::Help),
                "-V" | "--version" => return Ok(Self::Version),
                "--print-config" => print_config = true,
                "--config" => match words.next() {
                    Some(file) => config = Some(PathBuf::from(file)),
                    None => return Err("--config needs a file".into()),
                },
                other => match other.strip_prefix("--config=") {
                    Some(file) if !file.is_empty() => config = Some(PathBuf::from(file)),
                    Some(_) => return Err("--config needs a file".into()),
                    None => return Err(format!("unknown argument {other:?}")),
                },
            }
        }
        Ok(Self::Run { config, print_config })
    }
}

fn usage(program: &Program) -> String {
    format!(
        "{}: {}\n\nUsage: {} [--config FILE] [--print-config]\n\n\
         Options:\n  \
         --config FILE    configuration (TOML); without it ./muster.toml, if it is there\n  \
         --print-config   print the configuration in force, secrets hidden, and end\n  \
         -V, --version    print the version\n  \
         -h, --help       print this\n\n\
         Every key can be set in the environment too: MUSTER_<SECTION>__<KEY>, such as MUSTER_REDIS__URL.\n",
        program.name, program.about, program.name
    )
}

/// The configuration in force as TOML, secrets hidden.
#[must_use]
pub fn render_config(config: &Config) -> String {
    // Through text: a float of 32 bits keeps its short form.
    let value: serde_json::Value = serde_json::to_string(config)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or(serde_json::Value::Null);
    let mut out = String::new();
    for (section, keys) in value.as_object().into_iter().flatten() {
        out.push_str(&format!("[{section}]\n"));
        for (key, value) in keys.as_object().into_iter().flatten() {
            out.push_str(&format!("{key} = {}\n", inline(value)));
        }
        out.push('\n');
    }
    out
}

/// A value in one line. JSON's scalars are TOML's too; its objects have `=`, and there is no null.
fn inline(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let pairs = map.iter().filter(|(_, v)| !v.is_null());
            let pairs: Vec<String> =
                pairs.map(|(k, v)| format!("{} = {}", Value::from(k.as_str()), inline(v))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn say_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, String> {
        Args::parse(words.iter().map(ToString::to_string))
    }

    #[test]
    fn arguments_are_few_and_unknown_ones_are_named() {
        assert_eq!(parse(&[]), Ok(Args::Run { config: None, print_config: false }));
        assert_eq!(
            parse(&["--config", "a.toml", "--print-config"]),
            Ok(Args::Run { config: Some("a.toml".into()), print_config: true })
        );
        assert_eq!(
            parse(&["--config=a.toml"]),
            Ok(Args::Run { config: Some("a.toml".into()), print_config: false })
        );
        assert_eq!(parse(&["--help"]), Ok(Args::Help));
        assert!(parse(&["--confg", "x"]).is_err_and(|e| e.contains("--confg")));
        assert!(parse(&["--config"]).is_err());
    }

    #[test]
    fn i12_the_printed_configuration_reads_back_and_hides_secrets() {
        let mut config = Config::default();
        config.model.api_key = "sk-planted".to_string().into();
        config.worker.pools = vec!["a".into(), "b".into()];
        for example in ["tools.toml", "mcp.toml"] {
            let file = format!("{}/../deploy/examples/{example}", env!("CARGO_MANIFEST_DIR"));
            let tools = Config::load(Some(std::path::Path::new(&file))).unwrap().tools;
            config.tools.http.extend(tools.http);
            config.tools.mcp.extend(tools.mcp);
        }
        let text = render_config(&config);
        assert!(!text.contains("sk-planted"));
        let back: Config = toml::from_str(&text).unwrap();
        assert_eq!(back.worker.pools, config.worker.pools);
        assert_eq!((back.tools.http, back.tools.mcp), (config.tools.http, config.tools.mcp));
        assert_eq!(back.lease.lease_ms, config.lease.lease_ms);
        assert!((back.model.temperature - config.model.temperature).abs() < f32::EPSILON);
    }
}
