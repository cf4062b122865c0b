//! Benchmarks of the delivery layer, beside the peers of the queue benchmark.
//!
//! `muster-bench run` measures this program, `muster-bench compare` measures it beside others in turning rounds
//! (`compare.sh` installs those and calls it); build it with `--release`. The other words make this program a peer like the
//! others: `worker LANE|review`, `enqueue KIND N`, `pace PER_S SECONDS`, `fanout N`, with the environment `PEER_REDIS`
//! (URL), `PEER_MARKS` (file), `PEER_CONC` (tickets at once), `PEER_DELAY_US` (each handler waits so long before its mark:
//! a slower program, made to see whether `compare` finds it).
#![expect(clippy::print_stdout, reason = "the result is its output")]
#![expect(clippy::print_stderr, reason = "progress")]

mod agents;
mod compare;
mod costs;
mod dialects;
mod feed;
mod field;
mod marks;
mod own;
mod peer;
mod quota;
mod scenario;
mod serve;
mod simulate;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use peer::Peer;
use scenario::Size;
use std::path::PathBuf;

/// Benchmarks of Muster's delivery layer.
#[derive(Parser)]
#[command(name = "muster-bench", after_help = "Example: muster-bench run noop --percent 10")]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Measure this program; one JSON line a number.
    Run {
        /// noop, two_hop, latency, fanout, crash, critical_path, independent, recovery, tenants, memory, retained, costs, agents, waiting_agents,
        /// quota; none
        /// means all.
        scenarios: Vec<String>,
        #[command(flatten)]
        sizes: Sizes,
    },
    /// Measure this program beside others, in turning rounds; a table, or JSON lines.
    Compare {
        #[arg(long = "scenario")]
        scenarios: Vec<String>,
        /// Installed peers, by name.
        #[arg(long, value_delimiter = ',')]
        peers: Vec<String>,
        /// Where they are installed.
        #[arg(long, default_value = ".")]
        installed: PathBuf,
        /// Other builds of this program, NAME=FILE.
        #[arg(long = "build")]
        builds: Vec<String>,
        #[arg(long, default_value_t = 9, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
        rounds: usize,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        sizes: Sizes,
    },
    /// Compute what one Redis carries, from measured costs (deploy/SCALING.md).
    Simulate {
        #[arg(long)]
        agents: usize,
        /// Model calls of a ticket.
        #[arg(long, default_value_t = 6)]
        calls: u64,
        #[arg(long, default_value_t = 5_000)]
        call_ms: u64,
        /// Redis' time for a ticket's life, in microseconds.
        #[arg(long)]
        life_us: u64,
        /// Redis' time for one model call.
        #[arg(long)]
        call_us: u64,
        /// Redis' time for one renewal of one ticket.
        #[arg(long)]
        renew_us: u64,
        #[arg(long, default_value_t = 200_000)]
        tickets: usize,
    },
    /// Serve a lane until killed.
    Worker { lane: String },
    /// Submit N tickets of a kind.
    Enqueue { kind: String, n: usize },
    /// Add RATE tickets a second for SECS.
    Pace { rate: u64, secs: u64 },
    /// N tickets and one that needs them all.
    Fanout { n: usize },
    /// N callers of a model server without end, booked on a goal.
    Callers { goal: String, url: String, n: usize },
    /// The dialect experiment against a model server (key in PEER_KEY); one JSON line a dialect.
    Dialects { url: String, model: String },
}

#[derive(Args, Clone, Copy)]
struct Sizes {
    /// Part of the usual number of jobs.
    #[arg(long, default_value_t = Size::default().percent, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    percent: usize,
    /// Seconds that the orphans of a killed worker are waited for.
    #[arg(long, default_value_t = Size::default().crash_cap_s)]
    crash_cap_s: u64,
}

impl From<Sizes> for Size {
    fn from(s: Sizes) -> Self {
        Self { percent: s.percent, crash_cap_s: s.crash_cap_s }
    }
}

fn names(wanted: Vec<String>, all: &[&str]) -> Vec<String> {
    if wanted.is_empty() { all.iter().map(|s| (*s).to_owned()).collect() } else { wanted }
}

fn main() -> Result<()> {
    let word = Cli::parse().word;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(act(word))
}

async fn act(word: Word) -> Result<()> {
    match word {
        Word::Run { scenarios, sizes } => {
            scenario::need_tools()?;
            for name in names(scenarios, &[scenario::SCENARIOS, scenario::OWN].concat()) {
                for row in scenario::run(&name, &Peer::own()?, sizes.into()).await? {
                    println!("{row}");
                }
            }
            Ok(())
        }
        Word::Compare { scenarios, peers, installed, builds, rounds, json, sizes } => {
            let mut all = vec![Peer::own()?];
            for build in &builds {
                let (name, file) = build.split_once('=').unwrap_or((build, build));
                all.push(Peer::muster(name, file.as_ref())?);
            }
            for name in &peers {
                all.push(Peer::other(name, &installed)?);
            }
            let scenarios = names(scenarios, scenario::SCENARIOS);
            let plan = compare::Plan { scenarios, peers: all, rounds, size: sizes.into(), json };
            compare::run(&plan, &mut |line| println!("{line}")).await
        }
        Word::Simulate { agents, calls, call_ms, life_us, call_us, renew_us, tickets } => {
            let fleet = simulate::Fleet { agents, calls, call_ms, life_us, call_us, renew_us };
            println!("{}", simulate::run(fleet, tickets));
            Ok(())
        }
        Word::Worker { lane } => serve::worker(&lane).await,
        Word::Enqueue { kind, n } => {
            let secs = feed::enqueue(&kind, n).await?;
            println!("{}", serde_json::json!({ "secs": secs }));
            Ok(())
        }
        Word::Pace { rate, secs } => feed::pace(rate, secs).await,
        Word::Fanout { n } => feed::fanout(n).await,
        Word::Callers { goal, url, n } => quota::callers(&goal, &url, n).await,
        Word::Dialects { url, model } => dialects::run(&url, &model).await,
    }
}
