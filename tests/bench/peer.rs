//! Who is measured: this program, this program at another revision, or another job queue, all started with the same words
//! (`worker QUEUE`, `enqueue KIND N`, `pace PER_S SECONDS`, `fanout N`) and the same environment.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) version: String,
    program: Vec<String>,
    env: Vec<(&'static str, String)>,
    folder: Option<PathBuf>,
    /// Jobs at once.
    pub(crate) slots: usize,
    /// No-op jobs that take it a few seconds.
    pub(crate) jobs: usize,
    /// Queues of the two hops, the second one first: its worker has to be there before the first job comes.
    pub(crate) hops: [&'static str; 2],
    pub(crate) fans_out: bool,
    /// Whether its idle worker says that it is ready; otherwise it is given a few seconds.
    pub(crate) settles: bool,
}

/// How one of the other queues is started and what it can.
struct Known {
    name: &'static str,
    package: &'static str,
    script: &'static str,
    slots: usize,
    jobs: usize,
    fans_out: bool,
    env: &'static [(&'static str, &'static str)],
}

const KNOWN: &[Known] = &[
    known("bullmq", "bullmq", "bullmq_peer.mjs", 64, 40_000, true),
    known("saq", "saq", "saq_peer.py", 64, 5_000, false),
    known("arq", "arq", "arq_peer.py", 64, 3_000, false),
    known("dramatiq", "dramatiq", "dramatiq_peer.py", 8, 8_000, false),
    Known { env: &[("PEER_POOL", "threads")], ..known("celery", "celery", "celery_peer.py", 8, 4_000, true) },
    known("rq", "rq", "rq_peer.py", 1, 600, false),
];

const fn known(
    name: &'static str,
    package: &'static str,
    script: &'static str,
    slots: usize,
    jobs: usize,
    fans_out: bool,
) -> Known {
    Known { name, package, script, slots, jobs, fans_out, env: &[] }
}

/// Names of the other queues that can be measured.
pub(crate) fn known_names() -> Vec<&'static str> {
    KNOWN.iter().map(|k| k.name).collect()
}

impl Peer {
    /// This program.
    pub(crate) fn own() -> Result<Self> {
        Self::muster("muster", &std::env::current_exe()?)
    }

    /// This program as another build.
    pub(crate) fn muster(name: &str, program: &Path) -> Result<Self> {
        ensure!(program.exists(), "{} is not there", program.display());
        Ok(Self {
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            program: vec![program.to_string_lossy().into_owned()],
            env: vec![],
            folder: None,
            slots: 64,
            jobs: 40_000,
            hops: ["review", "a"],
            fans_out: true,
            settles: false,
        })
    }

    /// Another queue, installed below `installed` as `compare.sh` does it.
    pub(crate) fn other(name: &str, installed: &Path) -> Result<Self> {
        let known = KNOWN
            .iter()
            .find(|k| k.name == name)
            .with_context(|| format!("no peer {name}: {}", known_names().join(", ")))?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/peers");
        let python = known.script.ends_with(".py");
        let (program, version) = if python {
            let python = installed.join(format!("venv-{}/bin/python", known.package));
            let ask = format!("import importlib.metadata as m; print(m.version('{}'))", known.package);
            let said = Command::new(&python).args(["-c", &ask]).output();
            let said = said.with_context(|| format!("{name} is not installed: no {}", python.display()))?;
            (python.to_string_lossy().into_owned(), String::from_utf8_lossy(&said.stdout).trim().to_owned())
        } else {
            let manifest = installed.join(format!("node/node_modules/{}/package.json", known.package));
            let text = std::fs::read_to_string(&manifest)
                .with_context(|| format!("{name} is not installed: no {}", manifest.display()))?;
            let manifest: serde_json::Value = serde_json::from_str(&text)?;
            ("node".to_owned(), manifest["version"].as_str().unwrap_or_default().to_owned())
        };
        let mut env: Vec<_> = known.env.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        env.push(("PEER_NODE", installed.join("node").to_string_lossy().into_owned()));
        env.push(("PYTHONDONTWRITEBYTECODE", "1".to_owned()));
        Ok(Self {
            name: name.to_owned(),
            version,
            program: vec![program, known.script.to_owned()],
            env,
            folder: Some(folder),
            slots: known.slots,
            jobs: known.jobs,
            hops: ["b", "a"],
            fans_out: known.fans_out,
            settles: true,
        })
    }

    /// The same one with a word more in its environment.
    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.env.push((name, value.to_string()));
        self
    }

    /// The process for these words; the caller adds server and mark file.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command> {
        let Some((program, rest)) = self.program.split_first() else { bail!("{} has no program", self.name) };
        let mut command = Command::new(program);
        command.args(rest).args(words).envs(self.env.iter().map(|(k, v)| (*k, v)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        Ok(command)
    }
}
