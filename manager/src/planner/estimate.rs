//! What a plan would take: calls, tokens, money, time. Pure; for `--dry-run`, before anything is spent.
//!
//! Assumptions, once and without rejections: an agent's ticket takes [`CALLS_PER_TICKET`] calls that grow as it
//! works, a judged review one call; a direct call costs no tokens and [`DIRECT_S`] seconds.

use crate::api::types::Estimate;
use shared::config;
use shared::ticket::graph::Graph;
use shared::ticket::{ReviewPolicy, TicketSpec};

/// Model calls of an agent for one ticket.
const CALLS_PER_TICKET: u64 = 6;
/// Prompt of a call, in tokens: what every call carries, growth included.
const INPUT_PER_CALL: u64 = 4_000;
const OUTPUT_PER_CALL: u64 = 500;
/// Seconds of one call.
const CALL_S: u64 = 10;
/// Prompt and answer of a judged review.
const REVIEW_INPUT: u64 = 6_000;
const REVIEW_OUTPUT: u64 = 600;
/// Seconds of a direct tool call.
const DIRECT_S: u64 = 2;

/// The estimate of a sound plan; of one with a cycle, only what does not depend on its order.
pub(crate) fn estimate(specs: &[TicketSpec], prices: &config::Model) -> Estimate {
    let direct = specs.iter().filter(|s| s.call.is_some()).count();
    let agents = (specs.len() - direct) as u64;
    let judged = specs.iter().filter(|s| s.review == ReviewPolicy::Judged).count() as u64;
    let input_tokens = agents * CALLS_PER_TICKET * INPUT_PER_CALL + judged * REVIEW_INPUT;
    let output_tokens = agents * CALLS_PER_TICKET * OUTPUT_PER_CALL + judged * REVIEW_OUTPUT;
    let price = u128::from(input_tokens) * u128::from(prices.input_microusd_per_mtok)
        + u128::from(output_tokens) * u128::from(prices.output_microusd_per_mtok);
    let graph = Graph::of(specs);
    Estimate {
        tickets: specs.len(),
        direct,
        critical_path: graph.critical_path(|_| 1).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
        width: graph.layers().ok().and_then(|l| l.iter().map(Vec::len).max()).unwrap_or(0),
        model_calls: agents * CALLS_PER_TICKET + judged,
        input_tokens,
        output_tokens,
        microusd: u64::try_from(price.div_ceil(1_000_000)).unwrap_or(u64::MAX),
        seconds: graph.critical_path(seconds).unwrap_or(0),
    }
}

fn seconds(spec: &TicketSpec) -> u64 {
    let work = if spec.call.is_some() { DIRECT_S } else { CALLS_PER_TICKET * CALL_S };
    work + if spec.review == ReviewPolicy::Judged { CALL_S } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use shared::ticket::DirectCall;

    #[test]
    fn a_plan_of_direct_calls_costs_no_tokens() {
        let mut a = TicketSpec::new("a", "x", "y");
        a.call = Some(DirectCall { tool: "code_interpreter".into(), args: json!({"code": "1"}) });
        a.review = ReviewPolicy::Code;
        let mut b = a.clone();
        b.key = "b".into();
        let mut c = a.clone();
        c.key = "c".into();
        c.needs = vec!["a".into(), "b".into()];
        let found = estimate(&[a, b, c], &config::Model::default());
        assert_eq!((found.direct, found.model_calls, found.microusd), (3, 0, 0));
        assert_eq!((found.critical_path, found.width, found.seconds), (2, 2, 2 * DIRECT_S));
    }

    #[test]
    fn agents_and_judges_are_counted_at_the_configured_price() {
        let prices = config::Model {
            input_microusd_per_mtok: 1_000_000,
            output_microusd_per_mtok: 2_000_000,
            ..config::Model::default()
        };
        let found = estimate(&[TicketSpec::new("a", "x", "y")], &prices);
        assert_eq!(found.model_calls, CALLS_PER_TICKET + 1);
        assert_eq!(found.microusd, found.input_tokens + 2 * found.output_tokens);
    }
}
