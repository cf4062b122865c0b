//! The soak: a fleet over two Redis servers and a sentinel, goals all the time, a random program killed every few seconds,
//! the master killed every minute. Ends with a report and an exit code. `tests/soak.sh run` calls it.

mod load;
mod memory;
mod report;
mod storm;

use anyhow::{Context, Result};
use harness::fleet::Fleet;
use harness::oracle;
use harness::topology::Sentinel;
use harness::wait;
use memory::Memory;
use report::Report;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What the soak is told.
#[derive(Clone, Debug)]
struct Options {
    time: Duration,
    goals: usize,
    kill_every: Duration,
    flip_every: Duration,
    seed: u64,
    json: Option<std::path::PathBuf>,
}

/// Goals of half an hour.
const GOALS: f64 = 50.0;

const USAGE: &str = "\
A fleet over two Redis servers and a sentinel; programs and masters are killed while goals run. Exit code 0: all was good,
1: it was not (see the report), 2: it could not be run.

usage: muster-soak [OPTIONS]
  --minutes M      how long goals are submitted (30)
  --goals N        how many (50 in half an hour)
  --kill-every S   seconds between kills of a random program (5)
  --flip-every S   seconds between kills of the master (60)
  --seed N         of all that is random (1)
  --json FILE      the report for programs
  --help           this text";

impl Options {
    /// `None`: help is wanted.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let (mut minutes, mut goals, mut kill_s, mut flip_s, mut seed, mut json) =
            (30.0, None, 5.0, 60.0, 1, None);
        while let Some(word) = words.next() {
            if matches!(word.as_str(), "-h" | "--help") {
                return Ok(None);
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--minutes" => minutes = value.parse()?,
                "--goals" => goals = Some(value.parse()?),
                "--kill-every" => kill_s = value.parse()?,
                "--flip-every" => flip_s = value.parse()?,
                "--seed" => seed = value.parse()?,
                "--json" => json = Some(value.into()),
                other => anyhow::bail!("unknown: {other}\n{USAGE}"),
            }
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a handful of goals")]
        let by_time = (GOALS * minutes / 30.0).ceil().max(3.0) as usize;
        let options = Self {
            time: Duration::try_from_secs_f64(minutes * 60.0)?,
            goals: goals.unwrap_or(by_time),
            kill_every: Duration::try_from_secs_f64(kill_s)?,
            flip_every: Duration::try_from_secs_f64(flip_s)?,
            seed,
            json,
        };
        anyhow::ensure!(
            !options.kill_every.is_zero() && !options.flip_every.is_zero(),
            "--kill-every and --flip-every are more than 0 seconds"
        );
        Ok(Some(options))
    }

    /// How often that fits into the time, by half: whoever is down is waited for, and each kill takes its time.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some thousand kills at most"
    )]
    fn half_of(&self, every: Duration) -> usize {
        (self.time.as_secs_f64() / every.as_secs_f64() / 2.0) as usize
    }
}

// One thread: the kernel ends the programs with the thread that started them.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let ended = async {
        let Some(options) = Options::parse(std::env::args().skip(1))? else {
            writeln!(std::io::stdout(), "{USAGE}")?;
            return Ok(true);
        };
        let report = soak(&options).await?;
        writeln!(std::io::stdout(), "{report}")?;
        if let Some(file) = &options.json {
            std::fs::write(file, report.to_json().to_string()).with_context(|| file.display().to_string())?;
        }
        Ok::<_, anyhow::Error>(report.is_good())
    };
    match ended.await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "soak: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// A fleet whose periods fit a kill every five seconds: recovery is seen many times, not once.
async fn fleet(url: &str) -> Result<Fleet> {
    Fleet::plan()
        .managers(2)
        .workers(4)
        .reviewers(2)
        .on(url)
        .env("WORKER__SLOTS", "4")
        .env("REDIS__CONFIRM_REPLICAS", "1")
        .env("REDIS__CONFIRM_TIMEOUT_MS", "500")
        // Ended goals go while it runs: what is left of them would be a leak.
        .env("BLOBS__RETENTION_S", "60")
        .env("TELEMETRY__LOG_FILTER", "info")
        // A ticket is lost far more often here than a real one is.
        .env("CAPS__LOSSES", "50")
        .env("CAPS__REVIEW_LOSSES", "50")
        .env("CAPS__GOAL_LOSSES", "50")
        .lease(|lease| {
            (lease.lease_ms, lease.renew_ms, lease.sweep_ms) = (5_000, 1_000, 500);
            (lease.outage_ms, lease.audit_ms, lease.retry_delay_ms) = (5_000, 5_000, 200);
            (lease.progress_limit_ms, lease.run_limit_ms) = (120_000, 300_000);
        })
        .start()
        .await
}

async fn soak(options: &Options) -> Result<Report> {
    let mut servers = Sentinel::start().await?;
    let mut fleet = fleet(&servers.url()).await?;
    let store = fleet.store().await?;
    let apis = [fleet.api_of(0), fleet.api_of(1)];
    let begun = Instant::now();
    let calm = CancellationToken::new();
    let mut memory = Memory::default();
    let loading = async {
        let ended = load::run(&store, &apis, options).await;
        calm.cancel();
        ended
    };
    // Without a master nothing ends: whatever fails first is said at once.
    let (goals, mut kills, flips) = tokio::try_join!(
        loading,
        storm::kills(&mut fleet, &mut memory, &store, options, &calm),
        storm::flips(&mut servers, options, &calm),
    )?;
    // Nobody kills any more; what was killed last comes back.
    let back = wait::until("all programs are ready", Duration::from_secs(90), async || {
        storm::supervise(&mut fleet, &mut kills)?;
        fleet.ready().await.map(Some)
    });
    back.await?;
    let mut findings: Vec<String> = goals.iter().flat_map(|g| g.problems.clone()).collect();
    let audited = wait::until("the audit finds nothing", Duration::from_secs(60), async || {
        oracle::check(&store).await.map(Some)
    });
    if let Err(error) = audited.await {
        findings.push(format!("{error:#}"));
    }
    if let Err(error) = fleet.no_panics() {
        findings.push(format!("{error:#}"));
    }
    // The last goals' retention, so that the end can be held against the start.
    let forgotten = wait::until("ended goals are deleted", Duration::from_secs(240), async || {
        Ok(store.goals(None, 0, 1).await?.is_empty().then_some(()))
    });
    if let Err(error) = forgotten.await {
        findings.push(format!("{error:#}"));
    }
    storm::sample(&mut fleet, &mut memory, &store).await;
    let repairs = fleet.logs().lines().filter(|l| l.contains("repaired")).count();
    Ok(Report {
        options: options.clone(),
        took: begun.elapsed(),
        goals,
        kills,
        flips,
        memory,
        findings,
        repairs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Option<Options>> {
        Options::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_and_help_runs_nothing() {
        assert!(parse("--help").unwrap().is_none() && parse("--minutes 2 -h").unwrap().is_none());
        let options = parse("--minutes 2 --kill-every 5").unwrap().unwrap();
        assert_eq!((options.half_of(options.kill_every), options.half_of(options.flip_every)), (12, 1));
        for wrong in ["--colour red", "--minutes", "--kill-every 0"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
