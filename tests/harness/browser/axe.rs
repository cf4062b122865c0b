//! axe-core over the open page: what keeps people with other eyes, hands and ears out. `tests/run.sh` fetches it.

use super::target;
use anyhow::{Context, Result};
use fantoccini::Client;
use serde_json::Value;

/// Everything of impact `serious` and `critical`, one line each with the element.
pub(super) async fn check(client: &Client) -> Result<Vec<String>> {
    if client.execute("return typeof window.axe", vec![]).await? == "undefined" {
        let path = target()?.join("tools/axe.min.js");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{} is not there: tests/run.sh fetches it", path.display()))?;
        client.execute(&text, vec![]).await?;
    }
    let run = "const [done] = arguments; \
        axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations), (e) => done(String(e)))";
    let violations = client.execute_async(run, vec![]).await?;
    let list = violations.as_array().with_context(|| format!("axe did not end: {violations}"))?;
    let serious = list.iter().filter(|v| v["impact"] == "serious" || v["impact"] == "critical");
    let lines = serious.flat_map(|v| {
        let nodes = v["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        nodes.iter().map(move |n| format!("{}: {} {}", v["id"], n["html"], first(n)))
    });
    Ok(lines.collect())
}

/// Why, in axe's words.
fn first(node: &Value) -> String {
    node["failureSummary"].as_str().unwrap_or_default().replace('\n', " ")
}
