//! The dashboard in a real browser, by keyboard alone, on large and small screens, light and dark: a goal from the log-in
//! to its download, and a deliverable that would like to run something.

use harness::browser::{Browser, ENTER, Look};
use harness::fleet::{Fleet, Role, TOKEN};
use harness::model::{Answer, Asked, Model};
use harness::script::{key_of, plan, verdict};
use harness::service::Service;
use serde_json::{Value, json};
use tokio::sync::watch;

const TEXT: &str = "Write down what Ada ordered, then refund it";
/// Everything in it would set `pwned`, if it could.
const EVIL: &str = "# What Ada ordered\n\nTwo books, says the list of [orders](../data/orders.csv).\n\n\
    <script>window.pwned = 1</script> <img src=x onerror=\"window.pwned = 1\">\n\n\
    [a link](javascript:window.pwned=1) ![a drawing](evil.svg) ![a pixel](http://elsewhere.example/pixel.png)\n\n\
    <svg onload=\"window.pwned = 1\"></svg> <iframe srcdoc=\"<script>parent.pwned = 1</script>\"></iframe>\n";
const SVG: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"80\" height=\"40\" onload=\"parent.pwned = 1\">\
    <script>parent.pwned = 1; window.pwned = 1</script><rect width=\"80\" height=\"40\" fill=\"teal\"/></svg>";

fn tickets() -> Vec<Value> {
    vec![
        json!({"id": "draft", "needs": [], "description": "write down the order", "expected_output": "outputs/draft.md",
            "role": "summarizer", "outputs": ["outputs/draft.md"],
            "checks": [{"kind": "file_exists", "path": "outputs/draft.md"}, {"kind": "judged", "text": "it says who ordered"}]}),
        json!({"id": "settle", "needs": ["draft"], "description": "refund the order", "expected_output": "outputs/settle.md",
            "role": "general_assistant", "tools": ["orders", "files"], "outputs": ["outputs/settle.md"],
            "checks": [{"kind": "file_exists", "path": "outputs/settle.md"}]}),
    ]
}

fn write(path: &str, content: &str) -> (String, Value) {
    ("write_file".into(), json!({"path": path, "content": content}))
}

fn finish(summary: &str, outputs: &[&str]) -> Answer {
    Answer::call("finish", json!({"status": "done", "summary": summary, "outputs": outputs}))
}

/// The first draft names nobody and is held until `go`; the second is the evil one. The refund asks a person.
fn company(asked: &Asked, go: &watch::Receiver<bool>) -> Option<Answer> {
    let again = asked.says("nobody is named");
    Some(match (asked.schema(), key_of(asked).as_str(), asked.turn()) {
        ("plan", ..) => plan(&tickets()),
        ("verdict", ..) if asked.says("now with a name") || asked.says("refunded") => verdict(asked, true),
        ("verdict", ..) => Answer::json(&json!({"verdict": "fail", "items": [
            {"item": 1, "evidence": "outputs/draft.md:3-3", "reason": "nobody is named <script>window.pwned = 1</script>", "pass": false}]})),
        (_, "draft", 0) if again => Answer::Calls(vec![
            write("data/orders.csv", "who,what,count\nAda,books,2\n"),
            write("outputs/evil.svg", SVG),
            write("outputs/draft.md", EVIL),
        ]),
        (_, "draft", 0) => {
            let draft = write("outputs/draft.md", "# An order\n\nSomebody ordered two books.\n");
            Answer::When(go.clone(), Box::new(Answer::Calls(vec![draft])))
        }
        (_, "draft", _) if again => finish("now with a name", &["outputs/draft.md"]),
        (_, "draft", _) => finish("written <script>window.pwned = 1</script>", &["outputs/draft.md"]),
        (_, "settle", 0) => Answer::Calls(vec![
            write("outputs/settle.md", "Refunded.\n"),
            ("refund".into(), json!({"order": "A1", "amount": 20})),
        ]),
        (_, "settle", _) => finish("refunded", &["outputs/settle.md"]),
        _ => return None,
    })
}

#[tokio::test]
async fn a_goal_from_the_log_in_to_its_download_by_keyboard_and_nothing_of_it_runs() {
    let service = Service::start().await.unwrap();
    let (go, gate) = watch::channel(false);
    let model = Model::start(move |asked| company(asked, &gate)).await.unwrap();
    // Whoever looks at pictures of a waiting model takes a while.
    let fleet = Fleet::plan().model(&model.url()).file(&service.tools()).workers(0).reviewers(0);
    let fleet = fleet.env("MODEL__IDLE_TIMEOUT_MS", "90000").env("MODEL__CALL_TIMEOUT_MS", "90000");
    let mut fleet = fleet.start().await.unwrap();
    let api = fleet.api();
    let browser = Browser::start(api.base()).await.unwrap();

    // Logs in: a wrong token first.
    browser.open("/goals").await.unwrap();
    browser.at(|path| path.starts_with("/login")).await.unwrap();
    browser.inspect("login").await.unwrap();
    browser.press(&format!("wrong{ENTER}")).await.unwrap();
    browser.see("[role=alert]").await.unwrap();
    // The refusal itself is all that the console has to say.
    let said = browser.complaints().await.unwrap();
    assert!(said.len() == 1 && said[0].contains("401"), "{said:?}");
    browser.tab_to("#token").await.unwrap();
    browser.press(&format!("{TOKEN}{ENTER}")).await.unwrap();
    browser.at(|path| path == "/goals").await.unwrap();

    // Hands a goal in.
    browser.tab_to("nav a[href='/submit']").await.unwrap();
    browser.press(ENTER).await.unwrap();
    browser.at(|path| path == "/submit").await.unwrap();
    browser.inspect("submit").await.unwrap();
    browser.tab_to("#text").await.unwrap();
    browser.press(TEXT).await.unwrap();
    browser.tab_to("main form button").await.unwrap();
    browser.press(ENTER).await.unwrap();
    let page = browser.at(|path| path.starts_with("/goals/")).await.unwrap();
    let goal = page.trim_start_matches("/goals/").to_owned();

    // Watches its drawing: the page is never loaded again.
    browser.script("window.same = 1").await.unwrap();
    let drawn = |key: &str, state: &str| {
        format!(
            "return window.same === 1 && document.querySelector('a.node[data-key={key}]')?.dataset.state === '{state}'"
        )
    };
    browser.holds("the plan is drawn", &drawn("draft", "pending")).await.unwrap();
    fleet.add(Role::Worker).unwrap();
    browser.holds("somebody works on the draft", &drawn("draft", "running")).await.unwrap();
    let who = "return document.querySelector('a.node[data-key=draft]').textContent.startsWith('draft running, worker')";
    browser.holds("it says who", who).await.unwrap();
    browser.inspect("goal").await.unwrap();
    go.send_replace(true);
    browser.holds("it waits for a review", &drawn("draft", "reviewing")).await.unwrap();
    fleet.add(Role::Reviewer).unwrap();
    browser.holds("the refund waits for a person", &drawn("settle", "awaiting_approval")).await.unwrap();
    browser.holds("the draft is done", &drawn("draft", "done")).await.unwrap();

    // Opens the ticket and the verdict that rejected it, then the place that the verdict names.
    browser.tab_to("a.node[data-key=draft]").await.unwrap();
    browser.press(ENTER).await.unwrap();
    let ticket = browser.at(|path| path.starts_with("/tickets/")).await.unwrap();
    browser.inspect("ticket").await.unwrap();
    let fails = "return [...document.querySelectorAll('ul.verdict > li[data-state=failed]')].some((e) => e.innerText.includes('nobody is named <script>'))";
    browser.holds("the verdict is there as it was said", fails).await.unwrap();
    browser.tab_to("a[href*='attempts/1/files/outputs/draft.md?lines=3-3']").await.unwrap();
    browser.press(ENTER).await.unwrap();
    browser.at(|path| path.ends_with("#L3")).await.unwrap();
    let marked = "return document.querySelector('li.marked').innerText === 'Somebody ordered two books.'";
    browser.holds("the line is marked", marked).await.unwrap();
    browser.inspect("evidence").await.unwrap();
    browser.open(&format!("{ticket}/attempts/2")).await.unwrap();
    browser.see("pre.difference").await.unwrap();
    browser
        .script("for (const d of document.querySelectorAll('ol.steps details')) d.open = true")
        .await
        .unwrap();
    browser.inspect("attempt").await.unwrap();

    // Approves in the inbox.
    browser.tab_to("nav a[href='/inbox']").await.unwrap();
    browser.press(ENTER).await.unwrap();
    browser.at(|path| path == "/inbox").await.unwrap();
    browser.inspect("inbox").await.unwrap();
    browser.tab_to("button[value=approve]").await.unwrap();
    browser.press(ENTER).await.unwrap();
    browser
        .holds("nothing waits any more", "return document.body.innerText.includes('Nothing waits')")
        .await
        .unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(service.done().len(), 1);

    // What it took: its timeline, and a report that needs nothing else and runs nothing either.
    browser.open(&format!("{page}/timeline")).await.unwrap();
    let bars =
        "return ['work', 'review', 'wait'].every((c) => document.querySelector(`td rect.${c}`) !== null)";
    browser.holds("attempts, reviews and waits are drawn", bars).await.unwrap();
    browser.inspect("timeline").await.unwrap();
    let file = fleet.folder().join("report.html");
    let ran = fleet.muster(&["report", &goal, &file.to_string_lossy()]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(!report.contains("<script") && !report.contains(TOKEN), "{report}");
    browser.open_file(&file).await.unwrap();
    for words in ["nobody is named <script>", "Two books, says the list", "Ada\tbooks", "The whole goal"] {
        let said = format!("return document.body.innerText.includes('{words}')");
        browser.holds(words, &said).await.unwrap();
    }
    assert_eq!(browser.script("return typeof window.pwned").await.unwrap(), "undefined");
    browser.inspect("report").await.unwrap();
    let ran = fleet.muster(&["open", &format!("{goal}/draft")]).await.unwrap();
    assert!(ran.stdout.trim().ends_with(&ticket), "{ran:?}");

    // The deliverable: drawn, it runs nothing and asks nobody; downloaded, it is what was delivered.
    browser.open(&page).await.unwrap();
    browser.inspect("goal-done").await.unwrap();
    browser.tab_to(&format!("a[href='{page}/files/outputs/draft.md']")).await.unwrap();
    browser.press(ENTER).await.unwrap();
    browser.at(|path| path.ends_with("/files/outputs/draft.md")).await.unwrap();
    let picture = "const p = document.querySelector('.document img'); return p !== null && p.complete && p.naturalWidth === 80";
    browser.holds("its own picture is drawn", picture).await.unwrap();
    browser.inspect("document").await.unwrap();
    let outside = "return performance.getEntriesByType('resource').filter((r) => !r.name.startsWith(location.origin)).length \
        + document.querySelectorAll('.document :is(script, iframe, svg, [onerror], [onload], a[href^=\"javascript\" i])').length";
    assert_eq!(browser.script(outside).await.unwrap(), 0);
    assert_eq!(browser.script("return typeof window.pwned").await.unwrap(), "undefined");
    browser.tab_to("main a[download]").await.unwrap();
    browser.press(ENTER).await.unwrap();
    assert_eq!(browser.downloaded("draft.md").await.unwrap(), EVIL.as_bytes());
    // The drawing by itself is a download as well, never a page.
    browser.open(&format!("{page}/files/outputs/evil.svg")).await.unwrap();
    browser.tab_to("main a[download]").await.unwrap();
    browser.press(ENTER).await.unwrap();
    assert_eq!(browser.downloaded("evil.svg").await.unwrap(), SVG.as_bytes());
    assert_eq!(browser.script("return typeof window.pwned").await.unwrap(), "undefined");

    // The rest of the pages, and the same goal on a phone, by finger.
    for (path, name) in [("/goals", "goals"), ("/fleet", "fleet"), ("/goals/nothing", "refusal")] {
        browser.open(path).await.unwrap();
        browser.inspect(name).await.unwrap();
    }
    browser.look(Look::Phone).await.unwrap();
    browser.click("a.brand, p a[href='/goals']").await.unwrap();
    browser.click(&format!("a[href='{page}']")).await.unwrap();
    browser.click("ul.tickets li[data-key=settle] a").await.unwrap();
    browser.at(|path| path.starts_with("/tickets/")).await.unwrap();
    let mut said = browser.complaints().await.unwrap();
    // The one page that is not there.
    said.retain(|line| !line.contains("/goals/nothing"));
    assert_eq!(said, Vec::<String>::new());

    // A token that was taken back is out at the next page, and one that may only read steers nothing.
    let reader = api.post("/v1/tokens", &json!({"name": "reader", "scopes": ["read"]})).await.unwrap();
    browser.open("/goals").await.unwrap();
    browser.click("form[action='/logout'] button").await.unwrap();
    browser.write("#token", &format!("{}{ENTER}", reader["token"].as_str().unwrap())).await.unwrap();
    browser.at(|path| path == "/goals").await.unwrap();
    browser.open(&page).await.unwrap();
    browser.click(".acts summary").await.unwrap();
    browser.click(".acts form button").await.unwrap();
    browser.holds("it is refused", "return document.title.startsWith('Not allowed')").await.unwrap();
    let id = reader["id"].as_str().unwrap().to_owned();
    api.delete(&format!("/v1/tokens/{id}")).await.unwrap();
    browser.open(&page).await.unwrap();
    browser.at(|path| path.starts_with("/login")).await.unwrap();
    let token = reader["token"].as_str().unwrap();
    assert!(!fleet.logs().contains(TOKEN) && !fleet.logs().contains(token), "a token stands in a log");
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}
