//! A whole fleet on this machine, under one folder: private Redis, manager, workers, reviewer, and the
//! rehearsal model when no other plays it. `up` keeps one, `run` starts one for the time of a goal.

use super::children::{self, Fatal, Program, Stop};
use super::client::Client;
use super::context::Context;
use super::error::CliError;
use super::home::{ApiFile, FleetFile, Home};
use super::model::{self, Choice, Wish};
use super::out::{Out, items, text};
use super::redis::{PrivateRedis, free_port};
use secrecy::ExposeSecret;
use shared::config::Config;
use shared::sandbox::Sandbox;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest wait for Redis to load its data.
const REDIS_START: Duration = Duration::from_secs(60);
/// Longest wait for the manager, and for the others to show themselves.
const START: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// What a program may take beyond its drain deadline before it is killed.
const SLACK: Duration = Duration::from_secs(12);
/// Redis only has to write what it holds.
const REDIS_STOP: Duration = Duration::from_secs(10);
/// A stop that takes longer is explained.
const PATIENCE: Duration = Duration::from_secs(1);
/// The port of the API when it is free.
const API_PORT: u16 = 7700;

/// What kind of fleet.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) workers: usize,
    pub(crate) model: Wish,
    /// It plays the demo: with the rehearsal model when there is no other.
    pub(crate) demo: bool,
    /// Why a model is needed; refused at once when there is none.
    pub(crate) needs_model: Option<String>,
    /// The rehearsal's script.
    pub(crate) script: Option<PathBuf>,
    /// A recording plays the model, whatever else is there.
    pub(crate) recorded: Option<Recorded>,
}

/// Where a recording is served, and how its models were asked.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) url: String,
    /// Dialect of tool calls that has to be spoken from the start, if not the native one.
    pub(crate) dialect: Option<String>,
}

impl Recorded {
    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = vec![
            // What a probe says was not recorded.
            ("MUSTER_MODEL__PROBE".to_owned(), "false".to_owned()),
            ("MUSTER_MODEL__WIRE".to_owned(), "openai".to_owned()),
        ];
        settings.extend(self.dialect.iter().map(|d| ("MUSTER_MODEL__DIALECT".to_owned(), d.clone())));
        settings
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 2, model: Wish::Auto, demo: false, needs_model: None, script: None, recorded: None }
    }
}

/// A running fleet. Dropping it kills its processes; [`Fleet::stop`] drains them.
pub(crate) struct Fleet {
    out: Out,
    home: Home,
    pub(crate) url: String,
    token: String,
    pub(crate) choice: Choice,
    services: Stop,
    store: Stop,
    service_tasks: JoinSet<()>,
    store_tasks: JoinSet<()>,
    fatal: mpsc::Receiver<Fatal>,
    fatal_to: mpsc::Sender<Fatal>,
    lock: File,
}

impl Fleet {
    /// Starts everything and waits until it is ready for goals.
    ///
    /// # Errors
    /// What is missing, with the way out; nothing that was started stays behind.
    pub(crate) async fn start(ctx: &Context, config: Config, options: Options) -> Result<Self, CliError> {
        let (out, home) = (ctx.out, ctx.home.clone());
        home.make()?;
        let lock = home.lock()?;
        let binaries = Binaries::find()?;
        let choice = match &options.recorded {
            Some(recorded) => Choice::Found {
                url: recorded.url.clone(),
                name: "recording".into(),
                key: String::new(),
                origin: "what was recorded; no model is asked".into(),
            },
            None => model::choose(&config, options.model, options.demo).await?,
        };
        if let (Choice::None, Some(why)) = (&choice, &options.needs_model) {
            return Err(CliError::usage(
                format!("no model is configured, and one is needed: {why}"),
                "set MUSTER_MODEL_URL or OPENAI_API_KEY, start Ollama, llama.cpp or LM Studio, or write a plan file \
                 of direct tool calls (deploy/examples/parallel.toml)",
            ));
        }
        out.note(&choice.say());
        let redis = PrivateRedis::prepare(&home).await?;
        let drain_ms = config.worker.drain_ms.max(config.reviewer.drain_ms).max(config.manager.drain_ms);
        let now = CancellationToken::new();
        let stop = |deadline| Stop { drain: CancellationToken::new(), now: now.clone(), deadline };
        let (fatal_to, fatal) = mpsc::channel(8);
        let mut fleet = Self {
            out,
            url: String::new(),
            token: home.token()?,
            choice,
            services: stop(Duration::from_millis(drain_ms) + SLACK),
            store: stop(REDIS_STOP),
            service_tasks: JoinSet::new(),
            store_tasks: JoinSet::new(),
            fatal,
            fatal_to,
            lock,
            home,
        };
        match fleet.bring_up(ctx, &config, &options, &binaries, &redis).await {
            Ok(()) => Ok(fleet),
            Err(e) => {
                fleet.services.now.cancel();
                let _ = fleet.stop().await;
                Err(e)
            }
        }
    }

    async fn bring_up(
        &mut self,
        ctx: &Context,
        config: &Config,
        options: &Options,
        binaries: &Binaries,
        redis: &PrivateRedis,
    ) -> Result<(), CliError> {
        let keep = children::keep(
            self.out,
            self.home.clone(),
            redis.program(),
            self.store.clone(),
            self.fatal_to.clone(),
        );
        self.store_tasks.spawn(keep);
        self.until(REDIS_START, "redis", || redis.answers()).await?;

        let port = if std::net::TcpListener::bind(("127.0.0.1", API_PORT)).is_ok() {
            API_PORT
        } else {
            free_port()?
        };
        self.url = format!("http://127.0.0.1:{port}");
        let mut env = vec![
            ("MUSTER_REDIS__URL".to_owned(), redis.url()),
            ("MUSTER_REDIS__PASSWORD".to_owned(), redis.password.clone()),
            ("MUSTER_BLOBS__FOLDER".to_owned(), self.home.path("blobs").display().to_string()),
            ("MUSTER_WORKER__SCRATCH_FOLDER".to_owned(), self.home.path("scratch").display().to_string()),
            ("MUSTER_REVIEWER__SCRATCH_FOLDER".to_owned(), self.home.path("scratch").display().to_string()),
            ("MUSTER_MANAGER__LIVE_FOLDER".to_owned(), self.home.path("live").display().to_string()),
            ("MUSTER_MANAGER__LISTEN".to_owned(), format!("127.0.0.1:{port}")),
            // Several of one kind share this machine: each takes a port of its own.
            ("MUSTER_WORKER__LISTEN".to_owned(), "127.0.0.1:0".to_owned()),
            ("MUSTER_REVIEWER__LISTEN".to_owned(), "127.0.0.1:0".to_owned()),
        ];
        let mut file = FleetFile {
            redis_url: redis.url(),
            redis_password: redis.password.clone(),
            blobs_folder: self.home.path("blobs"),
            model_url: config.model.url.clone(),
            model_key: config.model.api_key.expose_secret().to_owned(),
            model_name: config.model.standard.clone(),
        };
        // I7: no sandbox, no code; everything else works without one.
        if let Ok(Err(missing)) = tokio::task::spawn_blocking(Sandbox::probe).await {
            self.out.note(&format!("code tools are off: {missing}"));
            env.push(("MUSTER_WORKER__ALLOW_NO_SANDBOX".to_owned(), "true".to_owned()));
        }
        if self.choice == Choice::Rehearsal {
            let found = self.rehearse(binaries, options).await?;
            env.extend(found.settings());
            // Its script holds the demo's words and no others.
            env.push(("MUSTER_MODEL__PROBE".to_owned(), "false".to_owned()));
            file.set_model(&found);
        }
        env.extend(self.choice.settings());
        env.extend(options.recorded.iter().flat_map(Recorded::settings));
        file.set_model(&self.choice);
        self.home.write_fleet(&file)?;

        let arguments = |binary: &Path| -> Vec<OsString> {
            let mut argv = vec![binary.as_os_str().to_owned()];
            if let Some(config) = &ctx.config {
                argv.extend(["--config".into(), config.clone().into_os_string()]);
            }
            argv
        };
        let mut manager = env.clone();
        manager.push(("MUSTER_MANAGER__ADMIN_TOKEN".to_owned(), self.token.clone()));
        self.keep(Program { name: "manager".into(), argv: arguments(&binaries.manager), env: manager });
        for n in 1..=options.workers {
            let name = format!("worker-{n}");
            self.keep(Program { name, argv: arguments(&binaries.worker), env: env.clone() });
        }
        self.keep(Program { name: "reviewer".into(), argv: arguments(&binaries.reviewer), env });

        let client = self.client()?;
        self.until(START, "manager", || client.is_ready()).await?;
        let wanted = options.workers + 1;
        let works = |consumer: &serde_json::Value| ["worker", "reviewer"].contains(&text(consumer, "role"));
        let all_here = || async {
            let fleet = client.get("/v1/fleet").await;
            fleet.is_ok_and(|fleet| items(&fleet, "consumers").iter().filter(|c| works(c)).count() >= wanted)
        };
        // Goals may come before everybody is there: late ones are waited for, not insisted on.
        if let Err(e @ CliError::Usage { .. }) = self.until(START, "workers", all_here).await {
            return Err(e);
        }
        self.home.write_api(&ApiFile {
            url: self.url.clone(),
            token_file: self.home.path("token"),
            pid: std::process::id(),
        })?;
        self.out.note(&format!(
            "fleet: redis {} on port {}, manager, {} workers, reviewer; data and logs in {}",
            redis.version,
            redis.port(),
            options.workers,
            self.home.folder().display()
        ));
        Ok(())
    }

    /// Starts the rehearsal model; gives its address as a model that was found.
    async fn rehearse(&mut self, binaries: &Binaries, options: &Options) -> Result<Choice, CliError> {
        let Some(script) = &options.script else {
            return Err(CliError::usage(
                "the rehearsal model plays the demo only",
                "use `muster up --demo`, or name a real model by MUSTER_MODEL_URL",
            ));
        };
        let port = free_port()?;
        let argv = vec![
            binaries.muster.clone().into_os_string(),
            "rehearsal".into(),
            "--listen".into(),
            format!("127.0.0.1:{port}").into(),
            "--script".into(),
            script.clone().into_os_string(),
        ];
        self.keep(Program { name: "rehearsal".into(), argv, env: vec![] });
        let listens = || async move { tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() };
        self.until(START, "rehearsal", listens).await?;
        Ok(Choice::Found {
            url: format!("http://127.0.0.1:{port}/v1"),
            name: "rehearsal".into(),
            key: String::new(),
            origin: "rehearsal".into(),
        })
    }

    fn keep(&mut self, program: Program) {
        let keep = children::keep(
            self.out,
            self.home.clone(),
            program,
            self.services.clone(),
            self.fatal_to.clone(),
        );
        self.service_tasks.spawn(keep);
    }

    /// Waits until `ready` says yes; ends early when a program cannot start, or at a signal.
    async fn until<F, R>(&mut self, longest: Duration, what: &str, ready: F) -> Result<(), CliError>
    where
        F: Fn() -> R,
        R: Future<Output = bool>,
    {
        let since = Instant::now();
        let mut interrupt = std::pin::pin!(super::signal::interrupted());
        loop {
            if ready().await {
                return Ok(());
            }
            if since.elapsed() > longest {
                return Err(CliError::failed(
                    format!("{what} is not ready after {} s", longest.as_secs()),
                    format!("the logs are in {}", self.home.path("logs").display()),
                ));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                Some(fatal) = self.fatal.recv() => return Err(fatal.error()),
                () = &mut interrupt => return Err(CliError::Interrupted { hint: String::new() }),
            }
        }
    }

    pub(crate) fn client(&self) -> Result<Client, CliError> {
        Client::new(&self.url, Some(self.token.clone()))
    }

    /// Returns when a program has ended for good, with why.
    pub(crate) async fn broken(&mut self) -> CliError {
        match self.fatal.recv().await {
            Some(fatal) => fatal.error(),
            None => std::future::pending().await,
        }
    }

    /// Kills everything: for a fleet whose work is of no more use.
    ///
    /// # Errors
    /// As [`Fleet::stop`].
    pub(crate) async fn abandon(self) -> Result<(), CliError> {
        self.services.now.cancel();
        self.stop().await
    }

    /// Drains services, then stops Redis. A second signal kills what is left.
    ///
    /// # Errors
    /// Interrupted, when the second signal came.
    pub(crate) async fn stop(mut self) -> Result<(), CliError> {
        // From here on nobody should find it any more.
        let _ = std::fs::remove_file(self.home.path("api.json"));
        self.services.drain.cancel();
        let now = self.services.now.clone();
        let mut ended = Ok(());
        let mut interrupt = std::pin::pin!(super::signal::interrupted());
        let mut patience = std::pin::pin!(tokio::time::sleep(PATIENCE));
        let mut said = false;
        let mut wait = std::pin::pin!(async {
            while self.service_tasks.join_next().await.is_some() {}
            self.store.drain.cancel();
            while self.store_tasks.join_next().await.is_some() {}
        });
        loop {
            tokio::select! {
                () = &mut wait => break,
                () = &mut patience, if !said => {
                    said = true;
                    self.out.note("stopping: what runs is finished or given back (Ctrl-C again: at once)");
                }
                () = &mut interrupt, if ended.is_ok() => {
                    now.cancel();
                    ended = Err(CliError::Interrupted { hint: "everything was killed; nothing accepted is lost".into() });
                }
            }
        }
        self.home.clear();
        drop(self.lock);
        ended
    }
}

impl FleetFile {
    fn set_model(&mut self, choice: &Choice) {
        if let Choice::Found { url, name, key, .. } = choice {
            self.model_url.clone_from(url);
            self.model_name.clone_from(name);
            self.model_key.clone_from(key);
        }
    }
}

/// The programs, which stand beside this one.
struct Binaries {
    muster: PathBuf,
    manager: PathBuf,
    worker: PathBuf,
    reviewer: PathBuf,
}

impl Binaries {
    fn find() -> Result<Self, CliError> {
        let muster = std::env::current_exe().map_err(|e| {
            CliError::failed(format!("this program cannot find itself: {e}"), "call it by its full path")
        })?;
        let folder = muster.parent().unwrap_or(Path::new("/")).to_path_buf();
        let beside = |name: &str| {
            let path = folder.join(name);
            if path.is_file() {
                return Ok(path);
            }
            Err(CliError::usage(
                format!("{name} is missing beside {}", muster.display()),
                "build all of them: cargo build --bins",
            ))
        };
        Ok(Self {
            manager: beside("muster-manager")?,
            worker: beside("muster-worker")?,
            reviewer: beside("muster-reviewer")?,
            muster,
        })
    }
}
