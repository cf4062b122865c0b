//! A plan that is looked at again while it runs: what wakes the manager, what one answer changes, and what the log says.

use harness::fleet::Fleet;
use harness::model::{Answer, Asked, Model};
use harness::script::{key_of, plan, ticket, verdict, work};
use serde_json::{Value, json};
use shared::store::LogEvent;
use shared::ticket::Status;

const TEXT: &str = "Report on agents of 2025";
const CONSTRAINT: &str = "≤300 words";
const NEEDLESS: &str = "the report that search1 found answers it all";

fn found_it_all(asked: &Asked) -> Answer {
    match asked.turn() {
        0 => Answer::call("write_file", json!({"path": "outputs/search1.md", "content": "# All of it\n"})),
        _ => Answer::call(
            "finish",
            json!({"status": "done", "summary": "the first source holds the full report",
                "plan_change": "the full report is there: search2 to search5 are needless"}),
        ),
    }
}

fn closed(events: &[LogEvent], word: &str) -> Vec<(String, String)> {
    events.iter().filter(|e| e.event == word).map(|e| (e.key.clone(), e.detail.clone())).collect()
}

#[tokio::test]
async fn the_first_search_found_the_full_report_and_the_other_four_are_cancelled_by_one_patch() {
    let searches: Vec<String> = (1..=5).map(|n| format!("search{n}")).collect();
    let mut tickets: Vec<Value> = searches.iter().map(|key| ticket(key, &[])).collect();
    let needs: Vec<&str> = searches.iter().map(String::as_str).collect();
    tickets.push(ticket("whole", &needs));
    let model = Model::start(move |asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&tickets)),
        "verdict" => Some(verdict(asked, true)),
        "replan" => {
            let needless: Vec<Value> =
                (2..=5).map(|n| json!({"id": format!("search{n}"), "reason": NEEDLESS})).collect();
            Some(Answer::json(&json!({"reason": NEEDLESS, "cancel": needless, "next": "go_on"})))
        }
        "" => match key_of(asked).as_str() {
            "search1" => Some(found_it_all(asked)),
            // Under way for as long as nobody stops them.
            key if key.starts_with("search") => Some(Answer::Stall),
            _ => Some(work(asked)),
        },
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": TEXT, "constraints": [CONSTRAINT]})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();

    let events = api.events(&goal).await.unwrap();
    let mut cancelled = closed(&events, "cancelled");
    cancelled.sort();
    let want: Vec<(String, String)> =
        searches[1..].iter().map(|k| (k.clone(), NEEDLESS.to_owned())).collect();
    assert_eq!(cancelled, want, "the log says which and why");
    let looked = closed(&events, "replanned");
    assert_eq!(looked, [(String::new(), format!("report: {NEEDLESS}"))], "one look, one patch");
    for key in ["search1", "whole"] {
        assert_eq!(api.ticket(&goal, key).await.unwrap().status, Status::Done);
    }
    assert_eq!(api.files(&goal).await.unwrap().len(), 2);

    // One structured question, from goal, plan and reports; what an agent and its model said is not in it.
    let asked = model.asked();
    let replans: Vec<&Asked> = asked.iter().filter(|a| a.schema() == "replan").collect();
    assert_eq!(replans.len(), 1);
    for part in [
        TEXT,
        CONSTRAINT,
        "search2 to search5 are needless",
        "the first source holds the full report",
        "## whole",
    ] {
        assert!(replans[0].says(part), "{part}");
    }
    assert!(!replans[0].says("# All of it") && replans[0].turn() == 0);
    // The last ticket reads what is there, and of nothing that is not.
    let last: Vec<&Asked> = asked.iter().filter(|a| key_of(a) == "whole").collect();
    assert!(last.iter().all(|a| a.says("report of search1") && !a.says("report of search2")));
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn an_obstacle_and_a_persons_note_change_the_plan_under_way() {
    let tickets = vec![ticket("facts", &[]), ticket("whole", &["facts"])];
    let model = Model::start(move |asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&tickets)),
        "verdict" => Some(verdict(asked, true)),
        // The obstacle brings another source, the note another description.
        "replan" if asked.says("the archive is closed") && !asked.says("for children") => Some(Answer::json(
            &json!({"reason": "another source", "add": [ticket("library", &[])], "next": "go_on"}),
        )),
        "replan" if asked.says("for children") => Some(Answer::json(&json!({"reason": "other readers",
            "modify": [{"id": "whole", "description": "write it for children"}],
            "skip": [{"id": "facts", "reason": "the archive stays closed"}], "next": "go_on"}))),
        "" if key_of(asked) == "facts" && asked.turn() == 0 => Some(Answer::call(
            "update_progress",
            json!({"status": "obstacle", "message": "the archive is closed"}),
        )),
        // Not before the person has spoken and been heard.
        "" if key_of(asked) == "facts" && asked.turn() == 1 => Some(Answer::Stall),
        "" if key_of(asked) == "library" => Some(work(asked)),
        "" if key_of(asked) == "whole" => asked.says("write it for children").then(|| work(asked)),
        _ => None,
    })
    .await
    .unwrap();
    let fleet =
        Fleet::plan().model(&model.url()).env("MODEL__IDLE_TIMEOUT_MS", "60000").start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": TEXT})).await.unwrap();
    api.event(&goal, "the obstacle was answered", |e| e.event == "added" && e.key == "library")
        .await
        .unwrap();
    api.post(&format!("/v1/goals/{goal}/note"), &json!({"text": "make it for children"})).await.unwrap();
    let modified = |e: &LogEvent| e.event == "modified" && e.key == "whole";
    api.event(&goal, "the note was answered", modified).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let tickets = api.tickets(&goal).await.unwrap();
    let library = tickets.iter().find(|t| t.key == "library").unwrap();
    let whole = tickets.iter().find(|t| t.key == "whole").unwrap();
    assert_eq!(
        whole.needs,
        std::slice::from_ref(&library.task_id),
        "the last ticket waits for what was added alone"
    );
    assert_eq!((library.depth, api.ticket(&goal, "facts").await.unwrap().status), (1, Status::Skipped));
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a_finished_goal_goes_on_with_a_follow_up_on_its_files_and_conclusions() {
    let tickets = vec![ticket("facts", &[]), ticket("whole", &["facts"])];
    let more = "add a table of costs";
    let model = Model::start(move |asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&tickets)),
        "verdict" => Some(verdict(asked, true)),
        "replan" if asked.says(more) => {
            let mut costs = ticket("costs", &["facts"]);
            costs["description"] = json!("write the table of costs");
            Some(Answer::json(&json!({"reason": more, "add": [costs], "next": "go_on"})))
        }
        "" => Some(work(asked)),
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": TEXT, "constraints": [CONSTRAINT]})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let before = api.files(&goal).await.unwrap();
    let ran = fleet.muster(&["reopen", &goal, "--note", more]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    let added = |e: &LogEvent| e.event == "added" && e.key == "costs";
    api.event(&goal, "the follow-up is planned", added).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(api.ticket(&goal, "costs").await.unwrap().status, Status::Done);
    // What was there stays, and the new ticket sees it, with goal and constraints as they were.
    let after = api.files(&goal).await.unwrap();
    assert!(before.iter().all(|file| after.contains(file)) && after.len() == before.len() + 1, "{after:?}");
    let asked = model.asked();
    let costs: Vec<&Asked> = asked.iter().filter(|a| key_of(a) == "costs").collect();
    assert!(costs.iter().all(|a| a.says(TEXT) && a.says(CONSTRAINT) && a.says("outputs/whole.md")));
    // What puts the deliverable together is done again, with the table; what it is made of is not.
    let times = |key: &str| asked.iter().filter(|a| key_of(a) == key && a.turn() == 0).count();
    assert_eq!((times("facts"), times("costs"), times("whole")), (1, 1, 2));
    assert!(asked.iter().rfind(|a| key_of(a) == "whole").unwrap().says("report of costs"));
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}
