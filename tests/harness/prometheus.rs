//! A real Prometheus over the shipped configuration, and promtool. Both come with the Debian package `prometheus`.

use crate::process;
use crate::wait;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long it may take to open a fresh store and answer.
const START: Duration = Duration::from_secs(30);

/// The `deploy` folder of this repository.
#[must_use]
pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).join("deploy")
}

/// A server; it ends when it is dropped.
pub struct Prometheus {
    child: Child,
    base: String,
    client: reqwest::Client,
}

impl Prometheus {
    /// Starts it on this configuration, with its data and log in `folder`.
    ///
    /// # Errors
    /// When it is not installed, refuses the configuration or does not answer.
    pub async fn start(config: &Path, folder: &Path) -> Result<Self> {
        let port = process::free_port()?;
        let log = File::create(folder.join("prometheus.log"))?;
        let child = process::spawn(
            Command::new("prometheus")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log),
        )
        .context("apt-get install prometheus, as tests/run.sh does")?;
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        let mut server = Self { child, base: format!("http://127.0.0.1:{port}"), client };
        let ready = format!("{}/-/ready", server.base);
        wait::until("prometheus is ready", START, async || {
            if let Some(status) = server.child.try_wait()? {
                let log = std::fs::read_to_string(folder.join("prometheus.log")).unwrap_or_default();
                return Ok(Some(Err(anyhow::anyhow!("prometheus ended with {status}\n{log}"))));
            }
            let ok = server.client.get(&ready).send().await.is_ok_and(|r| r.status().is_success());
            Ok(ok.then_some(Ok(())))
        })
        .await??;
        Ok(server)
    }

    /// Evaluates an expression now: the samples, each with `metric` and `value`.
    ///
    /// # Errors
    /// What Prometheus says of an expression that does not parse or evaluate.
    pub async fn query(&self, expr: &str) -> Result<Vec<Value>> {
        let url = format!("{}/api/v1/query", self.base);
        let answer: Value = self.client.get(url).query(&[("query", expr)]).send().await?.json().await?;
        if answer["status"] != "success" {
            bail!("{expr}: {}", answer["error"]);
        }
        Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// Names of the alerts that fire.
    ///
    /// # Errors
    /// As [`Prometheus::query`].
    pub async fn firing(&self) -> Result<BTreeSet<String>> {
        let found = self.query("ALERTS{alertstate=\"firing\"}").await?;
        Ok(found.iter().filter_map(|s| s["metric"]["alertname"].as_str().map(str::to_owned)).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        process::kill_now(&mut self.child);
    }
}

/// `promtool ARGS…` with `input`; its whole output.
///
/// # Errors
/// When it is not installed or finds something wrong; with what it says.
pub fn promtool(args: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process::spawn(&mut command).context("it comes with the package prometheus")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let out = child.wait_with_output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        bail!("promtool {}: {}\n{said}", args.join(" "), out.status);
    }
    Ok(said)
}
