//! Standards over a whole fleet: what recurs is proposed, asked in shadow, promoted and dropped by a person.

use anyhow::{Context as _, Result, ensure};
use harness::fleet::Fleet;
use harness::model::{Answer, Asked, Model};
use harness::script::{plan, ticket, work};
use serde_json::{Value, json};

const OWN: &str = "Every figure has its currency";
const PROPOSED: &str = "Does not repeat what earlier work was sent back for: the figures carry no currency";

/// The checklist as the judge is shown it.
fn checklist(asked: &Asked) -> Vec<String> {
    let text = asked.messages().last().and_then(|m| m["content"].as_str()).unwrap_or_default();
    let list = text.rsplit_once("# Checklist\n").map(|(_, list)| list).unwrap_or_default();
    list.lines().filter_map(|line| line.split_once(". ")).map(|(_, item)| item.to_owned()).collect()
}

/// Goals `strict` are sent back until their figures have a currency, in other words each time; what is in shadow never holds.
fn company(asked: &Asked) -> Option<Answer> {
    match asked.schema() {
        "plan" => Some(plan(&[ticket("revenue", &[])])),
        "verdict" => {
            let in_euro = asked.says("in euro");
            let reason = if asked.says("strict one") {
                "the figures carry no currency"
            } else {
                "no currency is given for the figures"
            };
            let items = checklist(asked).into_iter().enumerate().map(|(n, item)| {
                let strict = item == OWN || item.contains("well written") && asked.says("strict");
                let pass = item != PROPOSED && (in_euro || !strict);
                json!({"item": n + 1, "evidence": "report:1-1", "reason": reason, "pass": pass})
            });
            let items: Vec<Value> = items.collect();
            let verdict = if items.iter().all(|i| i["pass"] == true) { "pass" } else { "fail" };
            Some(Answer::json(&json!({"items": items, "verdict": verdict})))
        }
        "" if asked.says("# Your ticket was tried before") && asked.turn() == 0 => Some(Answer::call(
            "write_file",
            json!({"path": "outputs/revenue.md", "content": "# revenue\n\n12 million, in euro.\n"}),
        )),
        "" if asked.tools().contains(&"finish") => Some(work(asked)),
        _ => None,
    }
}

/// Runs a goal to its end; how often its ticket was tried, and its requests.
async fn run(fleet: &Fleet, model: &Model, text: &str, tenant: &str) -> Result<(u64, Vec<Asked>)> {
    let before = model.asked().len();
    let goal = fleet.api().submit(&json!({"text": text, "tenant": tenant})).await?;
    let ended = fleet.api().reaches(&goal, &["done", "failed", "needs_human"]).await?;
    ensure!(ended["state"] == "done", "{ended}");
    let tries = fleet.api().ticket(&goal, "revenue").await?.attempts;
    Ok((tries.into(), model.asked().split_off(before)))
}

async fn only(fleet: &Fleet) -> Result<Value> {
    let list = fleet.muster(&["standards", "list", "--tenant", "acme", "--json"]).await?.json()?;
    ensure!(list["standards"].as_array().is_some_and(|all| all.len() == 1), "{list}");
    Ok(list["standards"][0].clone())
}

fn asked_for(asked: &[Asked], item: &str) -> bool {
    asked.iter().any(|a| a.says(item))
}

#[tokio::test]
async fn i11_a_reason_that_recurs_is_proposed_asked_in_shadow_and_holds_when_a_person_promotes_it()
-> Result<()> {
    let model = Model::start(company).await?;
    let fleet =
        Fleet::plan().model(&model.url()).env("STANDARDS__SEEN_MIN", "2").env("MEMORY__LEARN", "false");
    let fleet = fleet.start().await?;

    // Two tickets of a kind, sent back for the same in other words: one standard. A tenant's alone.
    let (tries, _) = run(&fleet, &model, "strict one", "acme").await?;
    assert_eq!((tries, &only(&fleet).await?["state"]), (2, &json!("noticed")));
    run(&fleet, &model, "strict two", "globex").await?;
    assert_eq!(only(&fleet).await?["seen"], 1, "what globex' reviews say is globex' own");
    run(&fleet, &model, "strict two", "acme").await?;
    let standard = only(&fleet).await?;
    let got = ["kind", "state", "seen", "asked", "text"].map(|name| standard[name].clone());
    assert_eq!(Value::from(got.to_vec()), json!(["summarizer", "shadow", 2, 0, PROPOSED]));

    // In shadow: its failure is counted and sends nothing back; workers do not hear of it.
    let (tries, asked) = run(&fleet, &model, "mild", "acme").await?;
    assert_eq!(tries, 1, "it decides nothing");
    let judges: Vec<Asked> = asked.iter().filter(|a| a.schema() == "verdict").cloned().collect();
    assert!(
        asked_for(&judges, PROPOSED) && asked.iter().all(|a| a.schema() == "verdict" || !a.says(PROPOSED))
    );
    run(&fleet, &model, "strict three", "acme").await?;
    let standard = only(&fleet).await?;
    let tally = ["seen", "asked", "failed", "flips"].map(|name| standard[name].clone());
    assert_eq!(Value::from(tally.to_vec()), json!([3, 3, 3, 2]), "one of three was sent back anyway");
    let (_, asked) = run(&fleet, &model, "mild", "globex").await?;
    assert!(!asked_for(&asked, PROPOSED));

    // Promoted, in a person's words: it stands in the checklist of agent and judge, and decides.
    let id = standard["id"].as_str().context("id")?.to_owned();
    let word = async |args: &[&str]| {
        let ran = fleet.muster(&[&["standards"], args, &["--tenant", "acme"]].concat()).await?;
        ensure!(ran.code == 0, "{ran:?}");
        Ok(ran.stdout)
    };
    let shown = word(&["promote", &id[..8], "--text", OWN]).await?;
    assert!(shown.contains("summarizer, promoted by admin") && shown.contains(OWN), "{shown}");
    let (tries, asked) = run(&fleet, &model, "mild", "acme").await?;
    assert_eq!(tries, 2, "sent back for what was promoted");
    let works: Vec<Asked> = asked.iter().filter(|a| a.tools().contains(&"finish")).cloned().collect();
    assert!(works[0].says(OWN), "I9: who works is told what is checked");
    assert!(!asked_for(&asked, PROPOSED));

    // Dropped: neither asked nor proposed again.
    word(&["drop", &id]).await?;
    let (tries, asked) = run(&fleet, &model, "strict four", "acme").await?;
    assert!(tries == 2 && !asked_for(&asked, OWN) && !asked_for(&asked, PROPOSED));
    assert_eq!(only(&fleet).await?["state"], "dropped");
    model.verify()?;
    fleet.no_panics()?;
    fleet.oracle().await
}
