//! Rounds of one scenario over several peers, and what may be said after them.
//!
//! In each round every peer runs once, in turning order, so that a slow minute of the machine meets all of them. What counts
//! is the advantage within a round (how many times better the first peer was), never a number of its own. Whether a
//! difference is real is told by a sign test over the rounds (two-sided, exact).

use crate::peer::Peer;
use crate::scenario::{self, Size};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Below this chance of being luck a difference is said to be one.
const LUCK_MAX: f64 = 0.05;

/// Numbers that are compared; the others of a run are only shown.
const COMPARED: &[&str] =
    &["noop", "two_hop", "latency_p50", "latency_p99", "fanout", "crash_first_rerun", "noop_enqueue"];

/// Whether more of the unit is better.
fn more_is_better(unit: &str) -> bool {
    unit.ends_with("/s")
}

/// How many times better `ours` is than `theirs`. What never happened took for ever.
fn advantage(unit: &str, ours: f64, theirs: f64) -> f64 {
    let (better, worse) = if more_is_better(unit) { (ours, theirs) } else { (theirs, ours) };
    if better.is_infinite() && worse.is_infinite() { 1.0 } else { better / worse }
}

/// A row's number; one that never came (a ticket that nobody ran again) is without end.
fn value_of(row: &Value) -> Option<f64> {
    let value = row.get("value")?;
    if value.is_null() { Some(f64::INFINITY) } else { value.as_f64() }
}

/// The middle one, or the mean of the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The chance that so lopsided a count of wins comes from a fair coin; ties are left out.
fn sign_test(advantages: &[f64]) -> f64 {
    let wins = advantages.iter().filter(|a| **a > 1.0).count();
    let losses = advantages.iter().filter(|a| **a < 1.0).count();
    let n = wins + losses;
    let mut choose = 1.0_f64;
    let mut tail = 0.0;
    for k in 0..=wins.min(losses) {
        if k > 0 {
            choose *= (n - k + 1) as f64 / k as f64;
        }
        tail += choose;
    }
    (2.0 * tail / 2.0_f64.powi(i32::try_from(n).unwrap_or(i32::MAX))).min(1.0)
}

/// Which of the lines differ for real: with many of them one is lopsided by luck, so the bar is Holm's, the strictest for the
/// most lopsided.
fn found(lucks: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..lucks.len()).collect();
    order.sort_by(|a, b| lucks[*a].total_cmp(&lucks[*b]));
    let mut found = vec![false; lucks.len()];
    for (rank, at) in order.into_iter().enumerate() {
        if lucks[at] >= LUCK_MAX / (lucks.len() - rank) as f64 {
            break;
        }
        found[at] = true;
    }
    found
}

/// One number of one peer against the first peer's, over the rounds.
struct Line {
    scenario: String,
    unit: String,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Line {
    fn advantages(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.theirs).map(|(o, t)| advantage(&self.unit, *o, *t)).collect()
    }

    fn luck(&self) -> f64 {
        sign_test(&self.advantages())
    }

    fn verdict(&self, found: bool) -> &'static str {
        match (found, median(&self.advantages()) > 1.0) {
            (false, _) => "no difference shown",
            (true, true) => "better",
            (true, false) => "worse",
        }
    }

    fn row(&self, ours: &Peer, theirs: &Peer, found: bool) -> Value {
        let advantages = self.advantages();
        json!({"summary": true, "scenario": self.scenario, "unit": self.unit, "peer": ours.name, "against": theirs.name,
            "against_version": theirs.version, "rounds": advantages.len(), "median": median(&self.ours),
            "against_median": median(&self.theirs), "advantage": median(&advantages), "advantages": advantages,
            "sign_test_p": sign_test(&advantages), "verdict": self.verdict(found)})
    }
}

/// What to run.
pub(crate) struct Plan {
    pub(crate) scenarios: Vec<String>,
    /// The first one is compared with each of the others.
    pub(crate) peers: Vec<Peer>,
    pub(crate) rounds: usize,
    pub(crate) size: Size,
    pub(crate) json: bool,
}

/// Runs the plan. Rows go to `say` as they come (with `json`), the table at the end (without).
///
/// # Errors
/// When the first peer fails; another one that fails is said and left out of that round.
pub(crate) async fn run(plan: &Plan, say: &mut dyn FnMut(String)) -> Result<()> {
    ensure!(plan.peers.len() > 1, "nothing to compare with: name a peer or a revision");
    for name in &plan.scenarios {
        ensure!(
            scenario::SCENARIOS.contains(&name.as_str()),
            "{name} is not compared: {}",
            scenario::SCENARIOS.join(", ")
        );
    }
    if 2.0_f64.powi(1 - plan.rounds as i32) >= LUCK_MAX {
        eprintln!(
            "{} rounds are too few to show any difference: the table has the numbers, not a verdict",
            plan.rounds
        );
    }
    scenario::need_tools()?;
    let mut table = vec![];
    for name in &plan.scenarios {
        let mut lines: BTreeMap<(usize, String), Line> = BTreeMap::new();
        for round in 0..plan.rounds {
            let mut of_round: Vec<Vec<Value>> = vec![vec![]; plan.peers.len()];
            for turn in 0..plan.peers.len() {
                let at = (turn + round) % plan.peers.len();
                eprintln!("{name}, round {} of {}: {}", round + 1, plan.rounds, plan.peers[at].name);
                match scenario::run(name, &plan.peers[at], plan.size).await {
                    Ok(rows) => {
                        for row in rows.iter().filter(|_| plan.json) {
                            say(row.to_string());
                        }
                        of_round[at] = rows;
                    }
                    Err(error) if at > 0 => eprintln!("{error:#}"),
                    Err(error) => return Err(error),
                }
            }
            for ours in &of_round[0] {
                let (Some(word), Some(unit), Some(value)) =
                    (ours["scenario"].as_str(), ours["unit"].as_str(), value_of(ours))
                else {
                    continue;
                };
                if !COMPARED.contains(&word) {
                    continue;
                }
                for (at, rows) in of_round.iter().enumerate().skip(1) {
                    let theirs = rows.iter().find(|r| r["scenario"] == ours["scenario"]);
                    let Some(theirs) = theirs.and_then(value_of) else { continue };
                    let line = lines.entry((at, word.to_owned())).or_insert_with(|| Line {
                        scenario: word.to_owned(),
                        unit: unit.to_owned(),
                        ours: vec![],
                        theirs: vec![],
                    });
                    line.ours.push(value);
                    line.theirs.push(theirs);
                }
            }
        }
        table.extend(lines.into_iter().map(|((at, _), line)| (at, line)));
    }
    ensure!(!table.is_empty(), "nothing could be compared: every other peer failed");
    let found = found(&table.iter().map(|(_, line)| line.luck()).collect::<Vec<_>>());
    for ((at, line), found) in table.iter().zip(&found).filter(|_| plan.json) {
        say(line.row(&plan.peers[0], &plan.peers[*at], *found).to_string());
    }
    if !plan.json {
        say(format!(
            "{:<18} {:<14} {:>12} {:>12} {:<8} {:>10} {:>15} {:>7}  verdict",
            "scenario", "against", plan.peers[0].name, "theirs", "unit", "advantage", "least – most", "luck"
        ));
        for ((at, line), found) in table.iter().zip(&found) {
            let advantages = line.advantages();
            let least = advantages.iter().copied().fold(f64::INFINITY, f64::min);
            let most = advantages.iter().copied().fold(0.0, f64::max);
            say(format!(
                "{:<18} {:<14} {:>12.4} {:>12.4} {:<8} {:>9.2}x {:>15} {:>7.3}  {}",
                line.scenario,
                plan.peers[*at].name,
                median(&line.ours),
                median(&line.theirs),
                line.unit,
                median(&advantages),
                format!("{least:.2} – {most:.2}"),
                sign_test(&advantages),
                line.verdict(*found)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ours: &[f64], theirs: &[f64]) -> Line {
        Line { scenario: "noop".into(), unit: "jobs/s".into(), ours: ours.to_vec(), theirs: theirs.to_vec() }
    }

    #[test]
    fn a_fifth_less_in_every_round_is_found_and_noise_is_not() {
        let theirs = [100.0, 101.0, 99.0, 102.0, 98.0, 100.0, 103.0];
        let verdict = |line: &Line| line.verdict(found(&[line.luck()])[0]);
        assert_eq!(verdict(&line(&theirs.map(|v| v * 0.8), &theirs)), "worse");
        assert_eq!(verdict(&line(&theirs.map(|v| v * 1.25), &theirs)), "better");
        let noise = [101.0, 100.0, 100.0, 101.0, 99.0, 99.0, 104.0];
        assert_eq!(verdict(&line(&noise, &theirs)), "no difference shown");
        assert_eq!(verdict(&line(&theirs, &theirs)), "no difference shown");
    }

    #[test]
    fn among_many_lines_one_lopsided_by_luck_is_not_found() {
        assert_eq!(found(&[0.039, 0.6, 0.8, 1.0, 0.4, 1.0, 0.9]), [false; 7]);
        assert!(found(&[0.003, 0.6, 0.8, 1.0, 0.4, 1.0, 0.9])[0]);
        assert_eq!(found(&[0.003, 0.004]), [true; 2]);
    }

    #[test]
    fn what_never_came_is_worse_than_whatever_came() {
        assert!(advantage("s", f64::INFINITY, 30.0) < 1.0);
        assert!(advantage("s", 30.0, f64::INFINITY) > 1.0);
        assert!((advantage("s", f64::INFINITY, f64::INFINITY) - 1.0).abs() < 1e-9);
        assert_eq!(value_of(&json!({"value": null})), Some(f64::INFINITY));
        assert_eq!(value_of(&json!({})), None);
    }

    #[test]
    fn less_time_is_better() {
        assert!((advantage("ms", 1.0, 2.0) - 2.0).abs() < 1e-9);
        assert!((advantage("jobs/s", 1.0, 2.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_sign_test_is_the_exact_one() {
        // All of seven on one side: 2 / 2^7. Five of six: 2 * (1 + 6) / 2^6.
        assert!((sign_test(&[2.0; 7]) - 2.0 / 128.0).abs() < 1e-12);
        assert!((sign_test(&[2.0, 2.0, 2.0, 2.0, 2.0, 0.5]) - 14.0 / 64.0).abs() < 1e-12);
        assert!((sign_test(&[]) - 1.0).abs() < 1e-12);
        assert!((median(&[3.0, 1.0, 2.0, 10.0]) - 2.5).abs() < 1e-12);
    }
}
