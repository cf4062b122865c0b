//! The fleet's slot moves from one master of a Cluster to another while goals run, key by key, and back.

use anyhow::Result;
use harness::fleet::Fleet;
use harness::oracle;
use harness::scale::scale;
use harness::topology::Cluster;
use harness::wait;
use serde_json::{Value, json};
use std::time::Duration;

/// Any key of the fleet: all of them are in one slot.
const KEY: &str = "muster:{s0}:ctl";

/// Who has the slot, as an index into the nodes.
async fn owner(cluster: &Cluster, slot: &str) -> Result<usize> {
    for (n, node) in cluster.nodes.iter().enumerate() {
        let page: Vec<String> = node.query(&["CLUSTER", "GETKEYSINSLOT", slot, "1"]).await?;
        if !page.is_empty() {
            return Ok(n);
        }
    }
    anyhow::bail!("nobody has a key of slot {slot}")
}

/// What `redis-cli --cluster reshard` does for one slot; some time passes in its middle, with part of the keys here and part
/// of them there.
async fn move_slot(cluster: &Cluster, slot: &str, from: usize, to: usize) -> Result<usize> {
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let source_id: String = source.query(&["CLUSTER", "MYID"]).await?;
    let target_id: String = target.query(&["CLUSTER", "MYID"]).await?;
    target.query::<String>(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &source_id]).await?;
    source.query::<String>(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &target_id]).await?;
    let mut moved = 0;
    loop {
        let page: Vec<String> = source.query(&["CLUSTER", "GETKEYSINSLOT", slot, "7"]).await?;
        if page.is_empty() {
            break;
        }
        let port = target.port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(page.iter().map(String::as_str));
        source.query::<String>(&words).await?;
        moved += page.len();
        if moved < 70 {
            wait::moment(Duration::from_millis(60)).await;
        }
    }
    // The new owner first, so that the slot is nobody's at no moment.
    for node in [target, source].into_iter().chain(cluster.nodes.iter()) {
        node.query::<String>(&["CLUSTER", "SETSLOT", slot, "NODE", &target_id]).await?;
    }
    Ok(moved)
}

fn tickets() -> Value {
    let ticket = |id: String, needs: Vec<String>, review: &str| {
        let path = format!("data/{id}.txt");
        json!({"id": id, "needs": needs, "description": "note", "tool": "write_file", "outputs": [path],
            "args": {"path": path, "content": "noted\n"}, "review": review})
    };
    let mut all: Vec<Value> = (0..8).map(|n| ticket(format!("a{n}"), vec![], "code")).collect();
    all.extend((0..8).map(|n| ticket(format!("b{n}"), vec![format!("a{n}")], "none")));
    json!(all)
}

#[tokio::test]
async fn q46_a_slot_that_moves_under_load_loses_no_ticket() {
    let mut cluster = Cluster::start().await.unwrap();
    let url = cluster.url();
    let first = cluster.nodes[0].query::<i64>(&["CLUSTER", "KEYSLOT", KEY]).await.unwrap();
    let slot = first.to_string();
    // The fleet keeps a server of its own that nobody uses; everything speaks to the cluster.
    let plan = Fleet::plan().workers(2).reviewers(2).managers(2).on(&url).lease(|l| l.outage_ms = 1_000);
    let mut fleet = plan.start().await.unwrap();
    let rounds = scale().pick(2, 20);
    let mut goals = vec![];
    for round in 0..rounds {
        for n in 0..3 {
            let text = format!("moving {round} {n}");
            let body = json!({"text": text, "idempotency_key": text, "plan": {"goal": {"text": text}, "tickets": tickets()}});
            let api = fleet.api_of(n % 2);
            let submitted =
                wait::until("it is taken", scale().patience(), async || api.submit(&body).await.map(Some));
            goals.push(submitted.await.unwrap());
        }
        let goal = goals.last().unwrap().clone();
        fleet.api().event(&goal, "work has begun", |e| e.event == "claimed").await.unwrap();
        let from = owner(&cluster, &slot).await.unwrap();
        let moved = move_slot(&cluster, &slot, from, (from + 1) % 3).await.unwrap();
        assert!(moved > 50, "{moved} keys moved under load");
        fleet.ready().await.unwrap();
    }
    for goal in &goals {
        fleet.api().reaches(goal, &["done"]).await.unwrap();
        let times = oracle::acceptances(&fleet.api().events(goal).await.unwrap());
        assert_eq!((times.len(), times.values().all(|n| *n == 1)), (16, true), "{times:?}");
    }
    fleet.oracle().await.unwrap();
    fleet.no_panics().unwrap();
    let logs = fleet.logs();
    for word in ["CROSSSLOT", "repaired"] {
        let line = logs.lines().find(|l| l.contains(word));
        assert!(line.is_none(), "{line:?}");
    }
    cluster.nodes.clear();
}
