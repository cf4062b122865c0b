//! Benchmarks of the delivery layer, beside the peers of the queue benchmark.
//!
//! `muster-bench run [SCENARIO…]` measures (see `run.rs`); build it with `--release`. The other words make this program a
//! peer like the others: `muster-bench worker LANE|review`, `enqueue KIND N`, `pace PER_S SECONDS`, `fanout N`, with the environment
//! `PEER_REDIS` (URL), `PEER_MARKS` (file), `PEER_CONC` (tickets at once): the words that the other peers' programs take, so
//! that one driver runs them all. Handlers append one line with a time to the mark file and do nothing else.
#![expect(clippy::print_stdout, reason = "the result is its output")]

mod feed;
mod marks;
mod quota;
mod run;
mod serve;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match words.as_slice() {
            ["worker", lane] => serve::worker(lane).await,
            ["enqueue", kind, n] => {
                let secs = feed::enqueue(kind, n.parse()?).await?;
                println!("{}", serde_json::json!({ "secs": secs }));
                Ok(())
            }
            ["pace", rate, secs] => feed::pace(rate.parse()?, secs.parse()?).await,
            ["callers", goal, url, n] => quota::callers(goal, url, n.parse()?).await,
            ["fanout", n] => feed::fanout(n.parse()?).await,
            ["run", names @ ..] => {
                let all = if names.is_empty() { run::SCENARIOS } else { names };
                if all.iter().any(|name| *name != "quota") {
                    run::need_tools()?;
                }
                for name in all {
                    for row in run::scenario(name).await? {
                        println!("{row}");
                    }
                }
                Ok(())
            }
            _ => bail!("usage: muster-bench run [noop|two_hop|latency|fanout|quota] | worker LANE | enqueue KIND N | pace PER_S SECONDS | fanout N"),
        }
    })
}
