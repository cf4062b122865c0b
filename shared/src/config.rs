//! The configuration: one file plus the environment (`MUSTER_…`, `__` between levels), one struct a section.
//!
//! Every key is documented, with its unit in its name, in `deploy/config/muster.toml`; a test compares the two.
//! Unknown keys are refused by name. A wrong configuration ends a program with exit code 64 before a port is bound.

mod canaries;
mod egress;
mod intake;
mod memory;
mod model;
mod standards;
mod tenants;
mod tools;
mod wake;
mod web;
mod webhooks;

pub use crate::ticket::limits::{Limits, is_word};
use crate::ticket::{Caps, ReviewPolicy, Tier};
pub use canaries::Canaries;
pub use egress::{Allowed, Egress};
pub use intake::{Intake, Intent};
pub use memory::Memory;
pub use model::{Dialect, Fallback, Images, Model, ModelPrice, Price, Wire};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, Serializer};
pub use standards::Standards;
use std::path::{Path, PathBuf};
pub use tenants::{Period, Tenant, TenantLimits, Tenants};
pub use tools::Tools;
pub use wake::Wake;
pub use web::{Search, Web};
pub use webhooks::Webhooks;

/// All of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub redis: Redis,
    pub blobs: Blobs,
    pub lease: Lease,
    pub caps: Caps,
    pub limits: Limits,
    pub model: Model,
    pub tenants: Tenants,
    pub tools: Tools,
    pub egress: Egress,
    pub webhooks: Webhooks,
    pub intake: Intake,
    pub memory: Memory,
    pub standards: Standards,
    pub manager: Manager,
    pub worker: Worker,
    pub reviewer: Reviewer,
    pub telemetry: Telemetry,
}

/// Where the fleet meets.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Redis {
    /// `redis://[user:password@]host:port/db`, `rediss://…` (TLS), `redis-sentinel://host:port,…/master`,
    /// `redis-cluster://host:port,…`.
    #[serde(serialize_with = "no_password")]
    pub url: String,
    /// Password when it should not stand in the URL.
    #[serde(serialize_with = "redacted")]
    pub password: SecretString,
    /// First part of every key.
    pub prefix: String,
    pub connect_timeout_ms: u64,
    pub response_timeout_ms: u64,
    /// Replicas that have to confirm a submitted goal; 0: none is asked. The submitter is told what was not confirmed.
    pub confirm_replicas: u32,
    /// How long they have.
    pub confirm_timeout_ms: u64,
    /// Start although persistence is off: what is lost then is lost.
    pub allow_no_persistence: bool,
}

/// Where files are kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Blobs {
    /// A folder that every host of the fleet sees.
    pub folder: PathBuf,
    /// A goal and its files are deleted this long after its end.
    pub retention_s: u64,
}

/// The two clocks of a ticket, the sweeper, and how long people have.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lease {
    pub lease_ms: u64,
    pub renew_ms: u64,
    /// An attempt that shows no progress for this long loses its lease.
    pub progress_limit_ms: u64,
    /// An attempt ends after this long whatever it shows.
    pub run_limit_ms: u64,
    pub sweep_ms: u64,
    /// Nobody swept for this long: an outage; nothing is re-queued for one lease.
    pub outage_ms: u64,
    /// Wait before a failed attempt is tried again, doubled each time.
    pub retry_delay_ms: u64,
    /// A person's decision expires after this long (= denied, failed).
    pub person_expiry_ms: u64,
    /// Finished work without an eligible reviewer, or ready work in a lane that no live worker serves, goes to a
    /// person after this long.
    pub reviewer_wait_ms: u64,
    /// An owner that ignores a cancel is fenced after this long.
    pub cancel_grace_ms: u64,
    /// How often the store is audited and repaired.
    pub audit_ms: u64,
}

/// The manager: planning, escalations, the API.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Manager {
    /// Address of the API, dashboard, metrics and health. Loopback unless told otherwise.
    pub listen: String,
    /// First token of the API, with every scope; empty: none but those in the store.
    #[serde(serialize_with = "redacted")]
    pub admin_token: SecretString,
    /// Goals that this process works on at once.
    pub slots: usize,
    pub drain_ms: u64,
    pub tier: Tier,
    /// Review policy of tickets whose plan says none.
    pub review: ReviewPolicy,
    /// News on which it asks a model whether the plan still fits; empty: never.
    pub replan_on: Vec<Wake>,
    pub request_bytes_max: usize,
    /// Live copies of each goal's workspace are kept here; empty: none.
    pub live_folder: PathBuf,
}

/// The worker: slots, pools, the agent's limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Worker {
    /// Tickets at once.
    pub slots: usize,
    /// Served lanes are `work.<pool>`.
    pub pools: Vec<String>,
    pub listen: String,
    pub drain_ms: u64,
    pub steps_max: u32,
    /// A text of a tool longer than this goes to a file, its head and tail stay in the prompt.
    pub tool_output_bytes_max: usize,
    /// A finished step longer than this is kept in a blob, not in Redis.
    pub step_bytes_inline_max: usize,
    pub code_timeout_ms: u64,
    pub code_memory_bytes_max: u64,
    pub code_processes_max: u64,
    /// Folder of role files (Markdown with front matter) beside the shipped ones, read again when it changes; empty: none.
    pub roles_folder: PathBuf,
    /// Folder of folders with a SKILL.md: a ticket gets those whose description fits it; empty: none.
    pub knowledge_folder: PathBuf,
    /// Attempts are made below this folder.
    pub scratch_folder: PathBuf,
    /// Start although there is no sandbox: tickets that run code fail here, for a person to decide.
    pub allow_no_sandbox: bool,
}

/// The reviewer: slots and its model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reviewer {
    pub slots: usize,
    pub listen: String,
    pub drain_ms: u64,
    pub tier: Tier,
    /// The reviewer's model must be another than the worker's.
    pub other_model: bool,
    /// Text of one deliverable shown to the judge.
    pub file_bytes_max: usize,
    pub scratch_folder: PathBuf,
    pub canaries: Canaries,
}

/// Logs and traces.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// `human` or `json`.
    pub log_format: String,
    /// A tracing filter, such as `info` or `info,shared=debug`.
    pub log_filter: String,
    /// Base URL of an OTLP/HTTP collector; empty: no traces leave.
    pub otlp_url: String,
}

impl Default for Redis {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".into(),
            password: SecretString::default(),
            prefix: "muster".into(),
            connect_timeout_ms: 1_000,
            response_timeout_ms: 2_000,
            confirm_replicas: 0,
            confirm_timeout_ms: 1_000,
            allow_no_persistence: false,
        }
    }
}

impl Default for Blobs {
    fn default() -> Self {
        Self { folder: ".muster/blobs".into(), retention_s: 7 * 86_400 }
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            lease_ms: 30_000,
            renew_ms: 10_000,
            progress_limit_ms: 600_000,
            run_limit_ms: 3_600_000,
            sweep_ms: 1_000,
            outage_ms: 10_000,
            retry_delay_ms: 1_000,
            person_expiry_ms: 7 * 86_400_000,
            reviewer_wait_ms: 600_000,
            cancel_grace_ms: 10_000,
            audit_ms: 300_000,
        }
    }
}

impl Default for Manager {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7700".into(),
            admin_token: SecretString::default(),
            slots: 4,
            drain_ms: 20_000,
            tier: Tier::Strong,
            review: ReviewPolicy::Judged,
            replan_on: Wake::ALL.to_vec(),
            request_bytes_max: 8 * 1024 * 1024,
            live_folder: PathBuf::new(),
        }
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            slots: 8,
            pools: vec!["default".into()],
            listen: "127.0.0.1:0".into(),
            drain_ms: 20_000,
            steps_max: 30,
            tool_output_bytes_max: 16 * 1024,
            step_bytes_inline_max: 16 * 1024,
            code_timeout_ms: 120_000,
            code_memory_bytes_max: 1024 * 1024 * 1024,
            code_processes_max: 64,
            roles_folder: PathBuf::new(),
            knowledge_folder: PathBuf::new(),
            scratch_folder: std::env::temp_dir().join("muster"),
            allow_no_sandbox: false,
        }
    }
}

impl Default for Reviewer {
    fn default() -> Self {
        Self {
            slots: 8,
            listen: "127.0.0.1:0".into(),
            drain_ms: 20_000,
            tier: Tier::Standard,
            other_model: false,
            file_bytes_max: 48 * 1024,
            scratch_folder: std::env::temp_dir().join("muster"),
            canaries: Canaries::default(),
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { log_format: "human".into(), log_filter: "info".into(), otlp_url: String::new() }
    }
}

fn redacted<S: Serializer>(secret: &SecretString, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if secret.expose_secret().is_empty() { "" } else { "[redacted]" })
}

fn no_password<S: Serializer>(url: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&without_password(url))
}

/// The URL to be shown: user and password left out.
#[must_use]
pub fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}://…{}", &url[..scheme], &url[at..]),
        _ => url.to_owned(),
    }
}

/// The configuration is wrong; the message names the key and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "configuration: {0}\n  hint: every key is documented in deploy/config/muster.toml; `--print-config` shows what is in force"
    )]
    Read(#[from] config::ConfigError),
    #[error("configuration: {key} {problem}\n  hint: set it in the file or as MUSTER_{env}")]
    Value { key: &'static str, problem: String, env: String },
}

impl Config {
    /// Reads the file (if one is named, or `muster.toml` stands in the current folder), then the environment.
    ///
    /// # Errors
    /// [`ConfigError`] for an unreadable file, an unknown key, a wrong type or a value out of its range.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut builder = config::Config::builder();
        builder = match file {
            Some(path) => builder.add_source(config::File::from(path).format(config::FileFormat::Toml)),
            None => builder.add_source(
                config::File::from(Path::new("muster.toml")).format(config::FileFormat::Toml).required(false),
            ),
        };
        let environment = config::Environment::with_prefix("MUSTER")
            .prefix_separator("_")
            .separator("__")
            .try_parsing(true)
            .list_separator(",")
            .with_list_parse_key("worker.pools")
            .with_list_parse_key("tools.confirm")
            .with_list_parse_key("manager.replan_on")
            .with_list_parse_key("egress.allow")
            .source(Some(settings_of_environment()));
        let config: Self = builder.add_source(environment).build()?.try_deserialize()?;
        config.check()?;
        Ok(config)
    }

    /// Ranges and relations between keys.
    ///
    /// # Errors
    /// [`ConfigError::Value`] names the first key that does not hold.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key: &'static str, problem: &str| {
            Err(ConfigError::Value {
                key,
                problem: problem.into(),
                env: key.to_uppercase().replace('.', "__"),
            })
        };
        if ![
            "redis://",
            "rediss://",
            "redis-sentinel://",
            "rediss-sentinel://",
            "redis-cluster://",
            "rediss-cluster://",
            "redis+unix://",
            "unix://",
        ]
        .iter()
        .any(|scheme| self.redis.url.starts_with(scheme))
        {
            return wrong(
                "redis.url",
                "must begin with redis://, rediss://, redis-sentinel:// or redis-cluster://",
            );
        }
        if self.redis.prefix.is_empty() || self.redis.prefix.contains(['{', '}', '*', ' ']) {
            return wrong("redis.prefix", "must be a word without braces, stars or blanks");
        }
        if self.lease.lease_ms < 200 {
            return wrong("lease.lease_ms", "must be at least 200");
        }
        if self.lease.renew_ms == 0 || self.lease.renew_ms * 2 > self.lease.lease_ms {
            return wrong("lease.renew_ms", "must be above 0 and at most half of lease.lease_ms");
        }
        if self.lease.sweep_ms == 0 {
            return wrong("lease.sweep_ms", "must be above 0");
        }
        if self.worker.slots == 0 {
            return wrong("worker.slots", "must be above 0");
        }
        if self.worker.pools.is_empty() || self.worker.pools.iter().any(|p| !is_word(p)) {
            return wrong("worker.pools", "must name at least one pool, of letters, digits, - and _");
        }
        if self.reviewer.slots == 0 {
            return wrong("reviewer.slots", "must be above 0");
        }
        if let Some((key, problem)) = self.reviewer.canaries.problem() {
            return wrong(key, problem);
        }
        if self.manager.slots == 0 {
            return wrong("manager.slots", "must be above 0");
        }
        if self.caps.faults == 0 || self.caps.losses == 0 {
            return wrong("caps.faults", "and caps.losses must be above 0");
        }
        if !["human", "json"].contains(&self.telemetry.log_format.as_str()) {
            return wrong("telemetry.log_format", "must be human or json");
        }
        if self.model.is_configured()
            && !self.model.url.starts_with("http://")
            && !self.model.url.starts_with("https://")
        {
            return wrong("model.url", "must begin with http:// or https://");
        }
        if let Some(problem) = self.model.fallback_problem() {
            return wrong("model.fallback", &problem);
        }
        if self.model.images_max > 0 && self.model.image_bytes_max == 0 {
            return wrong("model.image_bytes_max", "must be above 0, or model.images_max 0");
        }
        if self.model.cool_down_max_ms == 0 {
            return wrong("model.cool_down_max_ms", "must be above 0");
        }
        if self.model.prices.iter().any(|p| p.model.is_empty()) {
            return wrong("model.prices", "holds a table without `model`");
        }
        if let Some(problem) = self.tenants.problem() {
            return wrong("tenants.of", &problem);
        }
        if let Some(problem) = self.tools.problem() {
            return wrong("tools.http", &problem);
        }
        if let Err(problem) = self.egress.parsed() {
            return wrong("egress.allow", &problem);
        }
        if let Some((key, problem)) = self.webhooks.problem() {
            return wrong(key, &problem);
        }
        if let Some((key, problem)) = self.intake.problem() {
            return wrong(key, &problem);
        }
        if self.model.is_configured() && self.model.standard.is_empty() {
            return wrong("model.standard", "must name the model of the standard tier when model.url is set");
        }
        Ok(())
    }
}

/// The environment without the variables that belong to the command line alone.
fn settings_of_environment() -> std::collections::HashMap<String, String> {
    std::env::vars().filter(|(name, _)| name.starts_with("MUSTER_") && name.contains("__")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// `section.key` -> value.
    fn flat(config: &serde_json::Value) -> BTreeMap<String, serde_json::Value> {
        let sections = config.as_object().unwrap();
        sections
            .iter()
            .flat_map(|(section, keys)| {
                keys.as_object()
                    .unwrap()
                    .iter()
                    .map(move |(key, value)| (format!("{section}.{key}"), value.clone()))
            })
            .collect()
    }

    #[test]
    fn a_password_in_the_url_is_not_printed() {
        let mut config = Config::default();
        config.redis.url = "redis://user:hunter2@h:6379/0".into();
        let shown = serde_json::to_string(&config).unwrap();
        assert!(!shown.contains("hunter2") && shown.contains("redis://…@h:6379/0"), "{shown}");
        assert_eq!(without_password("redis://h:6379"), "redis://h:6379");
    }

    #[test]
    fn the_documented_file_has_every_key_with_its_default_and_no_other() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/config/muster.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let documented: serde_json::Value = toml::from_str(&text).unwrap();
        let documented = flat(&documented);
        let defaults = flat(&serde_json::to_value(Config::default()).unwrap());
        assert_eq!(documented.keys().collect::<Vec<_>>(), defaults.keys().collect::<Vec<_>>());
        // Where temporary files go is the machine's to say.
        for (key, value) in defaults.iter().filter(|(key, _)| !key.ends_with("scratch_folder")) {
            match (value.as_f64(), documented[key].as_f64()) {
                (Some(default), Some(shown)) => assert!((default - shown).abs() < 1e-6, "{key}"),
                _ => assert_eq!(value, &documented[key], "{key}"),
            }
        }
        Config::load(Some(Path::new(file))).unwrap();
    }

    #[test]
    fn every_key_stands_under_a_comment() {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/config/muster.toml"))
                .unwrap();
        // One comment may speak for the keys that follow it directly.
        let mut spoken = false;
        for line in text.lines() {
            match line.trim() {
                "" => spoken = false,
                l if l.starts_with('#') => spoken = true,
                l if l.starts_with('[') => {}
                l => assert!(spoken, "no comment above `{l}`"),
            }
        }
    }
}
