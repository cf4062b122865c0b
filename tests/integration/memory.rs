//! What finished goals teach later ones, over a whole fleet: prompts, people, tenants.

use anyhow::{Context as _, Result, ensure};
use harness::fleet::Fleet;
use harness::model::{Answer, Asked, Model};
use harness::script::{plan, ticket, verdict, work};
use serde_json::{Value, json};

const REASON: &str = "the figures carry no currency";
const TEXT: &str = "Summarise the quarterly revenue of the Antwerp branch for the board";

/// The first work of the fleet's first goal is sent back, all else is passed.
fn company(asked: &Asked) -> Option<Answer> {
    let is_first = asked.says(TEXT) && !asked.says("Again");
    match asked.schema() {
        "plan" => {
            let mut part = ticket("revenue", &[]);
            part["description"] = "summarise the quarterly revenue of one branch".into();
            Some(plan(&[part]))
        }
        "verdict" if is_first && !asked.says("in euro") => {
            let schema = &asked.body["response_format"]["json_schema"]["schema"];
            let n = schema["properties"]["items"]["maxItems"].as_u64().unwrap_or(1);
            let items: Vec<Value> = (1..=n)
                .map(|n| json!({"item": n, "evidence": "report:1-1", "reason": REASON, "pass": n != 1}))
                .collect();
            Some(Answer::json(&json!({"items": items, "verdict": "fail"})))
        }
        "verdict" => Some(verdict(asked, true)),
        // The redo names the currency.
        "" if asked.says("# Your ticket was tried before") && asked.turn() == 0 => Some(Answer::call(
            "write_file",
            json!({"path": "outputs/revenue.md", "content": "# revenue\n\n12 million, in euro.\n"}),
        )),
        "" if asked.tools().contains(&"finish") => Some(work(asked)),
        _ => None,
    }
}

/// Runs a goal to its end; the requests of its planner and of its workers.
async fn run(fleet: &Fleet, model: &Model, text: &str, tenant: &str) -> Result<(Vec<Asked>, Vec<Asked>)> {
    let before = model.asked().len();
    let goal = fleet.api().submit(&json!({"text": text, "tenant": tenant})).await?;
    let ended = fleet.api().reaches(&goal, &["done", "failed", "needs_human"]).await?;
    ensure!(ended["state"] == "done", "{ended}");
    let asked = model.asked().split_off(before);
    let plans = asked.iter().filter(|a| a.schema() == "plan").cloned().collect();
    let works = asked.into_iter().filter(|a| a.tools().contains(&"finish")).collect();
    Ok((plans, works))
}

fn told(asked: &[Asked]) -> bool {
    assert!(!asked.is_empty());
    asked.iter().any(|a| a.says(REASON) && a.says("# What earlier work of this kind taught"))
}

#[tokio::test]
async fn a_goal_of_the_same_kind_is_told_the_lesson_until_it_is_forgotten_and_no_other_tenant_is()
-> Result<()> {
    let model = Model::start(company).await?;
    let fleet = Fleet::plan().model(&model.url()).start().await?;
    let again = format!("Again: {TEXT}");

    let (plans, _) = run(&fleet, &model, TEXT, "acme").await?;
    assert!(!told(&plans), "there was nothing to learn from");
    let memory = async |args: &[&str]| {
        let ran = fleet.muster(&[&["memory"], args].concat()).await?;
        ensure!(ran.code == 0, "{ran:?}");
        ran.json()
    };
    let list = memory(&["list", "--tenant", "acme", "--json"]).await?;
    let kinds: Vec<&str> =
        list["lessons"].as_array().context("lessons")?.iter().filter_map(|l| l["kind"].as_str()).collect();
    assert_eq!(kinds.len(), 2, "{list}");
    assert!(kinds.contains(&"plan") && kinds.contains(&"summarizer"), "{list}");
    assert!(list.to_string().contains(REASON), "{list}");

    // Planner and actor of the next one are told, as data; the next tenant's are not.
    let (plans, works) = run(&fleet, &model, &again, "acme").await?;
    assert!(told(&plans) && told(&works));
    assert!(works[0].says("<data source=\"lesson\">"), "a lesson is data, whoever wrote it");
    let (plans, works) = run(&fleet, &model, &again, "globex").await?;
    assert!(!told(&plans) && !told(&works));
    let other = memory(&["list", "--tenant", "globex", "--json"]).await?;
    assert!(!other.to_string().contains(REASON), "{other}");
    let bound =
        fleet.muster(&["token", "create", "--name", "g", "--scope", "admin", "--tenant", "globex"]).await?;
    let foreign = fleet
        .muster_with(&["memory", "list", "--tenant", "acme"], &[("MUSTER_TOKEN", bound.stdout.trim())])
        .await?;
    assert!(foreign.code != 0 && !foreign.stdout.contains(REASON), "{foreign:?}");

    // A person's words replace the fleet's, and stay.
    let own = "Name the currency of every figure, two decimals";
    let lessons = memory(&["list", "--tenant", "acme", "--kind", "summarizer", "--json"]).await?;
    for lesson in lessons["lessons"].as_array().context("lessons")? {
        let id = lesson["id"].as_str().context("id")?;
        memory(&["edit", id, "--text", own, "--tenant", "acme", "--json"]).await?;
        let shown = fleet.muster(&["memory", "show", id, "--tenant", "acme"]).await?.stdout;
        assert!(shown.contains(own) && shown.contains("edited by admin"), "{shown}");
    }
    let (_, works) = run(&fleet, &model, &again, "acme").await?;
    assert!(works[0].says(own) && !told(&works));

    // Forgotten: no prompt has it, and its goal does not teach it again.
    memory(&["forget", "--all", "--tenant", "acme", "--json"]).await?;
    let (plans, works) = run(&fleet, &model, &again, "acme").await?;
    assert!(!told(&plans) && !told(&works) && !works[0].says(own));
    model.verify()?;
    fleet.no_panics()
}
