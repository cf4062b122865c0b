//! The three programs as processes, on a Redis and with folders of their own; what CI runs is what is started.

mod api;
mod binary;
mod cli;
mod program;
mod rehearsal;

pub use api::{Api, Refused, is_terminal};
pub use cli::Ran;
pub use program::{Program, Role};
pub use rehearsal::Rehearsal;

use crate::redis::{Options, Redis};
use crate::scale::scale;
use crate::{process, wait};
use anyhow::{Context, Result};
use shared::config::Lease;
use shared::store::Store;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Token of the API that every fleet here has.
pub const TOKEN: &str = "test-admin-token-0123456789";

/// What a fleet shall be; see the methods.
#[derive(Clone, Debug)]
pub struct Plan {
    workers: usize,
    reviewers: usize,
    managers: usize,
    redis: Options,
    redis_url: Option<String>,
    /// The test itself too speaks through `redis_url`.
    everybody: bool,
    env: BTreeMap<String, String>,
    /// Text of the `muster.toml` that all programs read.
    file: String,
    lease: Lease,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            workers: 1,
            reviewers: 1,
            managers: 1,
            redis: Options::default(),
            redis_url: None,
            everybody: false,
            env: BTreeMap::new(),
            file: String::new(),
            lease: scale().lease(),
        }
    }
}

impl Plan {
    #[must_use]
    pub fn workers(mut self, n: usize) -> Self {
        self.workers = n;
        self
    }

    #[must_use]
    pub fn reviewers(mut self, n: usize) -> Self {
        self.reviewers = n;
        self
    }

    #[must_use]
    pub fn managers(mut self, n: usize) -> Self {
        self.managers = n;
        self
    }

    /// The model server that all roles ask.
    #[must_use]
    pub fn model(self, url: &str) -> Self {
        self.env("MODEL__URL", url).env("MODEL__STANDARD", "test-model")
    }

    /// A setting of every program, without the leading `MUSTER_`: `("WORKER__SLOTS", "1")`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(format!("MUSTER_{name}"), value.into());
        self
    }

    /// The configuration file of every program.
    #[must_use]
    pub fn file(mut self, text: &str) -> Self {
        self.file = text.into();
        self
    }

    #[must_use]
    pub fn redis(mut self, options: Options) -> Self {
        self.redis = options;
        self
    }

    /// Another period than the scale's.
    #[must_use]
    pub fn lease(mut self, change: impl FnOnce(&mut Lease)) -> Self {
        change(&mut self.lease);
        self
    }

    /// Starts everything and waits until each program is ready.
    ///
    /// # Errors
    /// When a binary is missing or a program does not become ready; its log is in the message.
    pub async fn start(self) -> Result<Fleet> {
        let redis = Redis::start_with(self.redis.clone()).await?;
        self.start_on(redis).await
    }

    /// The programs speak to Redis through this address (a proxy's); the test itself does not.
    #[must_use]
    pub fn through(mut self, url: &str) -> Self {
        self.redis_url = Some(url.into());
        self
    }

    /// Programs and test alike speak to Redis through this address: a Cluster's or a Sentinel's.
    #[must_use]
    pub fn on(mut self, url: &str) -> Self {
        self.everybody = true;
        self.through(url)
    }

    /// As [`Plan::start`], on a server that is there already.
    ///
    /// # Errors
    /// As [`Plan::start`].
    pub async fn start_on(self, redis: Redis) -> Result<Fleet> {
        let folder = tempfile::Builder::new().prefix("muster-fleet-").tempdir()?;
        if !self.file.is_empty() {
            std::fs::write(folder.path().join("muster.toml"), &self.file)?;
        }
        let mut fleet = Fleet { redis, folder, plan: self.clone(), programs: vec![], silent: false };
        let wanted =
            [(Role::Manager, self.managers), (Role::Worker, self.workers), (Role::Reviewer, self.reviewers)];
        for (role, count) in wanted {
            for _ in 0..count {
                fleet.add(role)?;
            }
        }
        fleet.ready().await?;
        Ok(fleet)
    }
}

/// A running fleet. Dropping it kills it; when the test failed, the ends of the logs are shown.
pub struct Fleet {
    pub redis: Redis,
    folder: TempDir,
    plan: Plan,
    programs: Vec<Program>,
    silent: bool,
}

impl Fleet {
    /// What may be set before the start.
    #[must_use]
    pub fn plan() -> Plan {
        Plan::default()
    }

    /// Starts one more program of the role; it is not waited for.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn add(&mut self, role: Role) -> Result<usize> {
        self.add_with(role, &[])
    }

    /// As [`Fleet::add`], with settings of its own (without `MUSTER_`).
    ///
    /// # Errors
    /// As [`Fleet::add`].
    pub fn add_with(&mut self, role: Role, settings: &[(&str, &str)]) -> Result<usize> {
        let named: Vec<(String, &str)> = settings.iter().map(|(n, v)| (format!("MUSTER_{n}"), *v)).collect();
        let named: Vec<(&str, &str)> = named.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        self.add_program_with(role, &named)
    }

    /// As [`Fleet::add`], with environment variables by their whole names.
    ///
    /// # Errors
    /// As [`Fleet::add`].
    pub fn add_program_with(&mut self, role: Role, variables: &[(&str, &str)]) -> Result<usize> {
        let n = self.programs.len();
        let port = process::free_port()?;
        let mut env = self.env();
        env.insert(format!("MUSTER_{}__LISTEN", role.section()), format!("127.0.0.1:{port}"));
        env.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut program =
            Program::new(role, port, self.folder.path().join(format!("{n}-{}.log", role.binary())), env);
        program.start()?;
        self.programs.push(program);
        Ok(n)
    }

    /// The settings of every program.
    fn env(&self) -> BTreeMap<String, String> {
        let at = |name: &str| self.folder.path().join(name).to_string_lossy().into_owned();
        let lease = &self.plan.lease;
        let mut env: BTreeMap<String, String> = [
            ("REDIS__URL", self.plan.redis_url.clone().unwrap_or_else(|| self.redis.url())),
            ("REDIS__ALLOW_NO_PERSISTENCE", "true".into()),
            ("BLOBS__FOLDER", at("blobs")),
            ("WORKER__SCRATCH_FOLDER", at("scratch")),
            ("REVIEWER__SCRATCH_FOLDER", at("scratch")),
            ("MANAGER__ADMIN_TOKEN", TOKEN.into()),
            ("MANAGER__DRAIN_MS", "5000".into()),
            ("WORKER__DRAIN_MS", "5000".into()),
            ("REVIEWER__DRAIN_MS", "5000".into()),
            ("LEASE__LEASE_MS", lease.lease_ms.to_string()),
            ("LEASE__RENEW_MS", lease.renew_ms.to_string()),
            ("LEASE__PROGRESS_LIMIT_MS", lease.progress_limit_ms.to_string()),
            ("LEASE__RUN_LIMIT_MS", lease.run_limit_ms.to_string()),
            ("LEASE__SWEEP_MS", lease.sweep_ms.to_string()),
            ("LEASE__OUTAGE_MS", lease.outage_ms.to_string()),
            ("LEASE__RETRY_DELAY_MS", lease.retry_delay_ms.to_string()),
            ("LEASE__PERSON_EXPIRY_MS", lease.person_expiry_ms.to_string()),
            ("LEASE__REVIEWER_WAIT_MS", lease.reviewer_wait_ms.to_string()),
            ("LEASE__CANCEL_GRACE_MS", lease.cancel_grace_ms.to_string()),
            ("LEASE__AUDIT_MS", lease.audit_ms.to_string()),
            ("MODEL__IDLE_TIMEOUT_MS", "5000".into()),
            ("MODEL__CALL_TIMEOUT_MS", "20000".into()),
            // A script answers what it is asked and no more.
            ("MODEL__PROBE", "false".into()),
            ("TELEMETRY__LOG_FILTER", "info,shared=debug".into()),
        ]
        .into_iter()
        .map(|(name, value)| (format!("MUSTER_{name}"), value))
        .collect();
        env.extend(self.plan.env.clone());
        env
    }

    /// Waits until every program that runs says that it is ready.
    ///
    /// # Errors
    /// When one does not in time, or has ended; with the end of its log.
    pub async fn ready(&mut self) -> Result<()> {
        for program in &mut self.programs {
            program.ready(scale().patience()).await?;
        }
        Ok(())
    }

    /// The n-th program of the role, in the order in which they were started.
    ///
    /// # Panics
    /// When there is none.
    pub fn program(&mut self, role: Role, n: usize) -> &mut Program {
        let found = self.programs.iter_mut().filter(|p| p.role() == role).nth(n);
        assert!(found.is_some(), "there is no {role:?} {n}");
        found.unwrap_or_else(|| unreachable!("asserted above"))
    }

    /// All programs of a role.
    pub fn all(&mut self, role: Role) -> impl Iterator<Item = &mut Program> {
        self.programs.iter_mut().filter(move |p| p.role() == role)
    }

    /// The API of the first manager.
    #[must_use]
    pub fn api(&self) -> Api {
        self.api_of(0)
    }

    /// The API of the n-th manager.
    #[must_use]
    pub fn api_of(&self, n: usize) -> Api {
        let port = self.programs.iter().filter(|p| p.role() == Role::Manager).nth(n).map_or(0, Program::port);
        Api::new(port, TOKEN)
    }

    /// The store, for looking and for the oracle.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn store(&self) -> Result<Store> {
        let config = match &self.plan.redis_url {
            Some(url) if self.plan.everybody => self.redis.config_at(url),
            Some(_) | None => self.redis.config(),
        };
        Ok(Store::connect(&config).await?)
    }

    /// What must hold at the end, whatever happened: see [`crate::oracle`].
    ///
    /// # Errors
    /// All that does not hold.
    pub async fn oracle(&self) -> Result<()> {
        let store = self.store().await?;
        // What is under way this very moment is not out of place a moment later.
        wait::until("the oracle finds nothing", Duration::from_secs(10), async || {
            crate::oracle::check(&store).await.map(Some)
        })
        .await
    }

    /// `muster ARGS…` against this fleet's manager, in the fleet's folder.
    ///
    /// # Errors
    /// When the binary is missing or it does not end in time.
    pub async fn muster(&self, args: &[&str]) -> Result<Ran> {
        self.muster_with(args, &[]).await
    }

    /// As [`Fleet::muster`], with further variables.
    ///
    /// # Errors
    /// As [`Fleet::muster`].
    pub async fn muster_with(&self, args: &[&str], env: &[(&str, &str)]) -> Result<Ran> {
        let mut all = self.cli_env();
        all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        cli::run(args, &all, self.folder.path()).await
    }

    fn cli_env(&self) -> BTreeMap<String, String> {
        let mut env = self.env();
        env.insert("MUSTER_URL".into(), self.api().base().to_owned());
        env.insert("MUSTER_TOKEN".into(), TOKEN.into());
        env
    }

    /// Where blobs, scratch folders and logs are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The blobs of the fleet.
    #[must_use]
    pub fn blobs(&self) -> PathBuf {
        self.folder.path().join("blobs")
    }

    /// All logs in one text.
    #[must_use]
    pub fn logs(&self) -> String {
        self.programs.iter().map(Program::log).collect()
    }

    /// Fails when any program panicked.
    ///
    /// # Errors
    /// The line of the panic.
    pub fn no_panics(&self) -> Result<()> {
        let logs = self.logs();
        let line = logs.lines().find(|l| l.contains("panicked at"));
        line.map_or(Ok(()), |l| Err(anyhow::anyhow!("a program panicked: {l}")))
    }

    /// No logs when the test fails: it fails on purpose or shows them itself.
    pub fn silence(&mut self) {
        self.silent = true;
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let failed = std::thread::panicking() && !self.silent;
        for program in &mut self.programs {
            program.kill();
            if failed {
                eprintln!("{}", program.tail(40));
            }
        }
    }
}

/// Path of the command line `muster`, for scripts that run it themselves.
///
/// # Errors
/// When it is not there.
pub fn muster_binary() -> Result<PathBuf> {
    binary::find("muster")
}

/// `muster ARGS…` without any fleet, in this folder, with this environment.
///
/// # Errors
/// When the binary is missing or it does not end in time.
pub async fn muster_in(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<Ran> {
    let env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    cli::run(args, &env, folder).await
}

/// A program that is not part of a fleet, run to its end: exit code and output.
///
/// # Errors
/// When the binary is missing or it does not end in time.
pub async fn run_to_end(role: Role, args: &[&str], env: &[(&str, &str)], folder: &Path) -> Result<Ran> {
    let env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    cli::run_binary(&binary::find(role.binary())?, args, &env, folder).await.context(role.binary())
}
