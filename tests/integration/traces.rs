//! Traces, as a real receiver gets them: one trace a goal over every hop, whoever takes part and whoever dies.

use harness::collector::{Collector, Span};
use harness::fleet::{Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::scale::scale;
use harness::script::{company, slow, ticket, verdict};
use harness::wait;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const UNSAMPLED: &str = "5bf92f3577b34da6a3ce929d0e0e4737";

/// Submits as a program does that keeps traces itself.
async fn submit(fleet: &Fleet, traceparent: &str, body: &Value) -> String {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{}/v1/goals", fleet.api().base())).bearer_auth(harness::fleet::TOKEN);
    let answer = request.header("traceparent", traceparent).json(body).send().await.unwrap();
    let answer: Value = answer.error_for_status().unwrap().json().await.unwrap();
    answer["goal"].as_str().unwrap().to_owned()
}

/// The judge rejects the first thing that it sees of `a`; everything else passes at once.
fn strict_once() -> impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static {
    let (rejected, others) = (AtomicBool::new(false), company(vec![ticket("a", &[])]));
    move |asked| match asked.schema() {
        "verdict" => Some(verdict(asked, rejected.swap(true, Ordering::SeqCst))),
        _ => others(asked),
    }
}

struct Trace(Vec<Span>);

impl Trace {
    fn named(&self, name: &str) -> Vec<&Span> {
        self.0.iter().filter(|span| span.name == name).collect()
    }

    /// The spans of that name about this ticket, by their number.
    fn of(&self, name: &str, ticket: &str) -> Vec<&Span> {
        let mut found = self.named(name);
        found.retain(|span| span.attributes.get("ticket").is_some_and(|id| id == ticket));
        found.sort_by_key(|span| span.attributes["epoch"].parse::<u64>().unwrap());
        found
    }

    fn parent(&self, span: &Span) -> &Span {
        self.0.iter().find(|other| other.id == span.parent).unwrap_or_else(|| panic!("no parent: {span:?}"))
    }
}

#[tokio::test]
async fn q52_one_trace_a_goal_over_submit_retry_review_and_a_killed_worker() {
    assert_eq!(shared::config::Config::default().telemetry.otlp_url, "", "off by default");
    let collector = Collector::start().await.unwrap();
    let model = Model::start(strict_once()).await.unwrap();
    let plan = Fleet::plan().model(&model.url()).env("TELEMETRY__OTLP_URL", &collector.url());
    let is_sent = |name: &str, count: usize| {
        let spans = collector.spans()?;
        Ok((spans.iter().filter(|span| span.name == name).count() >= count).then_some(()))
    };
    let mut fleet = plan.lease(|lease| lease.lease_ms = 2_000).start().await.unwrap();
    let api = fleet.api();

    // A caller that does not sample: nothing of its goal is sent.
    let quiet = json!({"text": "unsampled", "plan": {"goal": {"text": "unsampled"}, "tickets": [slow("q", &[], 0.0)]}});
    let quiet = submit(&fleet, &format!("00-{UNSAMPLED}-{CALLER}-00"), &quiet).await;
    api.reaches(&quiet, &["done"]).await.unwrap();

    // A goal that a model plans, whose work is rejected once and done again.
    let goal = submit(&fleet, &format!("00-{TRACE}-{CALLER}-01"), &json!({"text": "write a part"})).await;
    api.reaches(&goal, &["done"]).await.unwrap();
    let work = api.ticket(&goal, "a").await.unwrap();
    assert_eq!((work.attempts, work.reviews), (2, 2));

    // Both attempts have left the worker, which will not be able to send them any more.
    wait::until("the attempts are sent", scale().patience(), async || is_sent("attempt", 2)).await.unwrap();

    // A goal whose worker dies in the middle; its caller keeps no trace.
    let lost = api.submit_plan("a worker dies", &json!([slow("long", &[], 3.0)])).await.unwrap();
    let is_claimed = |e: &shared::store::LogEvent| e.event == "claimed";
    api.event(&lost, "the claim", is_claimed).await.unwrap();
    fleet.program(Role::Worker, 0).kill();
    fleet.add(Role::Worker).unwrap();
    api.reaches(&lost, &["done"]).await.unwrap();
    let long = api.ticket(&lost, "long").await.unwrap();
    assert_eq!(long.attempts, 2);
    // A drain sends what is left.
    for role in [Role::Manager, Role::Worker, Role::Reviewer] {
        for program in fleet.all(role) {
            program.terminate();
        }
    }
    let spans = wait::until("the last spans come", scale().patience(), async || {
        let spans = collector.spans()?;
        let count = |name: &str| spans.iter().filter(|span| span.name == name).count();
        for (name, least) in [("attempt", 3), ("review", 3), ("manage", 4), ("lease_lost", 1)] {
            anyhow::ensure!(count(name) >= least, "{} spans {name}", count(name));
        }
        Ok(Some(spans))
    })
    .await
    .unwrap();

    assert!(spans.iter().all(|span| span.trace != UNSAMPLED), "the sampled flag is kept");
    let trace = Trace(spans.iter().filter(|span| span.trace == TRACE).cloned().collect());
    one_trace_with_a_rejection(&trace, &goal, &work.task_id);
    let id = &spans.iter().find(|s| s.attributes.get("ticket") == Some(&long.task_id)).unwrap().trace;
    the_loss_is_seen(&Trace(spans.iter().filter(|span| span.trace == *id).cloned().collect()), &long.task_id);
    fleet.no_panics().unwrap();
    model.verify().unwrap();
}

fn one_trace_with_a_rejection(trace: &Trace, goal: &str, ticket: &str) {
    let submit = trace.named("submit");
    assert_eq!(submit.len(), 1);
    let submit = submit[0];
    assert_eq!((submit.parent.as_str(), submit.kind, submit.service.as_str()), (CALLER, 4, "muster-manager"));
    assert_eq!(submit.attributes["goal"], goal);

    let (attempts, reviews) = (trace.of("attempt", ticket), trace.of("review", ticket));
    assert_eq!((attempts.len(), reviews.len()), (2, 2));
    for span in attempts.iter().chain(&reviews).chain(&trace.named("manage")) {
        assert_eq!(span.parent, submit.id, "{span:?}");
    }
    assert!(attempts.iter().all(|span| span.kind == 5 && span.service == "muster-worker"));
    assert_eq!((&attempts[0].links, &attempts[1].links), (&vec![], &vec![attempts[0].id.clone()]));
    for (review, attempt) in reviews.iter().zip(&attempts) {
        assert_eq!((&review.links, review.service.as_str()), (&vec![attempt.id.clone()], "muster-reviewer"));
    }
    let outcomes: Vec<&str> = reviews.iter().map(|span| span.attributes["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["item_failed", "passed"]);

    // Each model call below the step, the review or the manager's step that made it.
    let chats = trace.named("chat test-model");
    let mut callers = std::collections::BTreeMap::<&str, usize>::new();
    for chat in &chats {
        *callers.entry(trace.parent(chat).name.as_str()).or_default() += 1;
        let has = |name: &str| chat.attributes.get(name).map(String::as_str).unwrap_or_default();
        assert_eq!((chat.kind, has("gen_ai.operation.name")), (3, "chat"));
        assert_eq!((has("gen_ai.provider.name"), has("gen_ai.request.model")), ("openai", "test-model"));
        assert_eq!(has("server.address"), "127.0.0.1");
        assert!(
            !has("gen_ai.response.model").is_empty() && !has("gen_ai.response.finish_reasons").is_empty()
        );
        for direction in ["input", "output"] {
            assert!(has(&format!("gen_ai.usage.{direction}_tokens")).parse::<u64>().unwrap() > 0, "{chat:?}");
        }
    }
    assert_eq!(callers["review"], 2, "{callers:?}");
    assert!(callers["step"] >= 4 && callers["manage"] >= 1, "{callers:?}");
    let tools = trace.named("execute_tool write_file");
    assert_eq!(tools.len(), 2);
    for tool in tools {
        assert_eq!(tool.attributes["gen_ai.tool.name"], "write_file");
        assert!(!tool.attributes["gen_ai.tool.call.id"].is_empty());
        assert_eq!(trace.parent(trace.parent(tool)).name, "attempt");
    }
    // No prompt and no answer leaves in a trace.
    assert!(!format!("{:?}", trace.0).contains("A text about a"));
}

fn the_loss_is_seen(trace: &Trace, ticket: &str) {
    let submit = trace.named("submit")[0];
    assert_eq!(submit.parent, "", "the trace begins here");
    let (attempts, lost) = (trace.of("attempt", ticket), trace.of("lease_lost", ticket));
    // The first attempt's span died with its worker.
    assert_eq!((attempts.len(), lost.len()), (1, 1), "{:?}", trace.0);
    let (second, lost) = (attempts[0], lost[0]);
    assert_eq!((second.attributes["attempt"].as_str(), lost.attributes["attempt"].as_str()), ("2", "1"));
    assert_eq!((&second.parent, &lost.parent), (&submit.id, &submit.id));
    assert!(lost.is_error && !lost.attributes["consumer"].is_empty());
    assert_eq!(second.links, lost.links, "both are linked to what was lost");
    assert!(trace.0.iter().all(|span| span.id != second.links[0]));
}
