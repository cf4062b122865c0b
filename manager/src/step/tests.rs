use super::*;
use crate::planner;
use crate::testing::{Bench, FakeModel};
use serde_json::{Value, json};
use shared::goal::GoalState;
use shared::store::{Completion, PersonDecision, Written};
use shared::ticket::{Report, ReviewPolicy};

fn plan(tickets: &Value) -> Value {
    json!({"goal": {"text": "Report on the words"}, "tickets": tickets})
}

fn direct(id: &str, needs: &[&str]) -> Value {
    json!({"id": id, "needs": needs, "description": "d", "expected_output": "e", "tool": "code_interpreter",
           "args": {"code": "1"}, "review": "none"})
}

fn agent(id: &str, needs: &[&str]) -> Value {
    json!({"id": id, "needs": needs, "description": "do it", "expected_output": "it", "role": "general_assistant",
           "outputs": [format!("outputs/{id}.md")], "checks": [{"kind": "file_exists", "path": format!("outputs/{id}.md")}]})
}

/// A worker that succeeds, until nothing is ready. Review policy none: complete publishes.
async fn work(bench: &Bench) -> usize {
    let mut n = 0;
    while let Some(claim) = bench.take().await {
        let root = bench.goal(&claim.ticket.goal).await.root;
        let report = Report { status: "done".into(), summary: "ok".into(), ..Report::default() };
        let done = Completion {
            held: claim.held,
            report,
            overlay_ref: String::new(),
            actor: "a".into(),
            roots: Some((root.clone(), root)),
        };
        let written = bench.store.complete(&[done]).await.unwrap();
        assert_eq!(written, [Written::Ok]);
        n += 1;
    }
    n
}

/// A worker that fails until the ticket escalates.
async fn fail(bench: &Bench) {
    for _ in 0..bench.config.caps.faults {
        if !bench.fail_once().await {
            return;
        }
    }
}

#[tokio::test]
async fn a_given_plan_runs_to_done_without_a_model() {
    let bench = Bench::new().await;
    let manager = bench.manager(None);
    let id = bench
        .submit(
            Some(plan(&json!([direct("a", &[]), direct("b", &[]), direct("c", &["a", "b"])]))),
            ReviewPolicy::Code,
        )
        .await;
    manager.settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.state, goal.sealed, goal.tickets), (GoalState::Running, true, 3));
    assert_eq!(work(&bench).await, 3);
    manager.settle().await;
    assert_eq!(bench.goal(&id).await.state, GoalState::Done);
    assert_eq!(bench.store.audit().await.unwrap(), []);
}

#[tokio::test]
async fn a_goal_that_needs_planning_without_a_model_goes_to_a_person_with_the_way_out() {
    let bench = Bench::new().await;
    let id = bench.submit(None, ReviewPolicy::Judged).await;
    bench.manager(None).settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.state, goal.cause.as_str()), (GoalState::NeedsHuman, "no_model"));
    assert!(goal.cause_detail.contains("model.url") && goal.due_at_ms > 0, "{}", goal.cause_detail);
    assert_eq!(bench.store.open_decisions(10).await.unwrap().len(), 1);

    // Answered once a model is there, it is planned.
    let fake = FakeModel::new([json!({"tickets": [agent("only", &[])]}).to_string()]).await;
    let answer = PersonDecision::Answer {
        text: "now there is one".into(),
        budget_tokens: None,
        budget_microusd: None,
    };
    bench.store.answer(&id, 0, "r1", "me", &answer).await.unwrap();
    bench.manager(Some(fake.model.clone())).settle().await;
    assert_eq!(bench.goal(&id).await.state, GoalState::Running);
    assert!(fake.words(0).contains("now there is one"));
}

#[tokio::test]
async fn i9_i10_a_models_plan_is_asked_again_with_the_reasons_and_every_call_is_booked() {
    let bench = Bench::new().await;
    let cycle = json!({"tickets": [agent("a", &["b"]), agent("b", &["a"])]}).to_string();
    let sound =
        json!({"tickets": [agent("a", &[]), agent("b", &[]), agent("c", &["a", "b"])], "next": ["a", "b"]})
            .to_string();
    let fake = FakeModel::new([cycle, sound]).await;
    let id = bench.submit(None, ReviewPolicy::Judged).await;
    bench.manager(Some(fake.model.clone())).settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.state, goal.tickets, fake.asked()), (GoalState::Running, 3, 2));
    assert!(fake.words(0).contains("Report on the words") && fake.words(0).contains("at most 300 words"));
    assert!(fake.words(1).contains("wait for each other"), "{}", fake.words(1));
    assert_eq!(goal.spent_tokens, 240);
    let tickets = bench.store.all_tickets(&id).await.unwrap();
    assert!(tickets.iter().any(|t| t.key == "c" && t.integrates && t.review == ReviewPolicy::Judged));
}

#[tokio::test]
async fn a_model_that_talks_garbage_or_is_down_ends_with_a_person_who_reads_why() {
    let bench = Bench::new().await;
    let fake = FakeModel::new(["no".to_owned(), "still no".into(), "{}".into(), "more".into()]).await;
    let id = bench.submit(None, ReviewPolicy::Judged).await;
    bench.manager(Some(fake.model.clone())).settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.state, goal.cause.as_str(), fake.asked()), (GoalState::NeedsHuman, "model_unusable", 3));
    assert_eq!(goal.spent_tokens, 360);

    let config = shared::config::Model {
        probe: false,
        url: "http://127.0.0.1:9/v1".into(),
        standard: "m".into(),
        call_timeout_ms: 2_000,
        calls_per_answer_max: 1,
        ..shared::config::Model::default()
    };
    let id = bench.submit(None, ReviewPolicy::Judged).await;
    bench.manager(Some(Model::new(&config).unwrap())).settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!(
        (goal.state, goal.cause.as_str()),
        (GoalState::NeedsHuman, "model_unreachable"),
        "{}",
        goal.cause_detail
    );
}

#[tokio::test]
async fn a_manager_that_dies_after_storing_the_plan_does_not_pay_for_it_twice() {
    let bench = Bench::new().await;
    let fake = FakeModel::new([json!({"tickets": [agent("a", &[])]}).to_string()]).await;
    let id = bench.submit(None, ReviewPolicy::Judged).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let taken = manager.claim().await.unwrap();
    {
        // Everything up to the seal, then it is gone.
        let GoalClaim { held, goal, .. } = taken;
        let mut step = Step {
            manager: &manager,
            held,
            goal,
            cut: CancellationToken::new(),
            pulse: Pulse::new(),
            patches: 0,
            plan_version: 0,
        };
        let stored = step.ask_for_plan().await.unwrap();
        step.store_plan(&stored).await.unwrap();
        let page = planner::apply::with_ids(&id, &id, &stored.tickets);
        bench.store.submit_tickets(&step.held, &page).await.unwrap();
    }
    lapse(&bench, &id).await;
    manager.settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.sealed, goal.tickets, fake.asked(), goal.losses), (true, 1, 1, 0));
}

/// Lets the goal's lease lapse: renewed with no time left, then swept.
async fn lapse(bench: &Bench, goal: &str) {
    let lease = &bench.config.lease;
    let held = bench.goal(goal).await;
    let held = Held { id: format!("g:{goal}"), epoch: held.epoch, lease_id: held.lease_id };
    bench.store.renew("x", &[], 0, 1_000, 1_000, &[(held, 0)]).await.unwrap();
    bench.store.sweep(lease).await.unwrap();
    // The first sweep of all may be an outage's.
    bench.store.sweep(lease).await.unwrap();
}

#[tokio::test]
async fn i3_a_fenced_managers_step_changes_nothing() {
    let bench = Bench::new().await;
    let manager = bench.manager(None);
    let id = bench.submit(Some(plan(&json!([direct("a", &[])]))), ReviewPolicy::Code).await;
    let zombie = manager.claim().await.unwrap();
    lapse(&bench, &id).await;
    let heir = manager.claim().await.unwrap();
    assert!(heir.held.epoch > zombie.held.epoch);
    manager.step(zombie, CancellationToken::new(), Pulse::new()).await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.sealed, goal.tickets, goal.lease_id.as_str()), (false, 0, heir.held.lease_id.as_str()));
    manager.step(heir, CancellationToken::new(), Pulse::new()).await;
    assert!(bench.goal(&id).await.sealed);
}

#[tokio::test]
async fn c3_what_comes_in_during_a_step_is_not_lost() {
    let bench = Bench::new().await;
    let manager = bench.manager(None);
    let id = bench.submit(Some(plan(&json!([direct("a", &[])]))), ReviewPolicy::Code).await;
    let taken = manager.claim().await.unwrap();
    bench.store.note(&id, "me", "while you work").await.unwrap();
    assert!(manager.claim().await.is_none(), "one manager at a time");
    manager.step(taken, CancellationToken::new(), Pulse::new()).await;
    let next = manager.claim().await.unwrap();
    assert_eq!(next.events.iter().filter(|e| e.detail == "while you work").count(), 1);
    manager.step(next, CancellationToken::new(), Pulse::new()).await;
    assert!(manager.claim().await.is_none());
}

#[tokio::test]
async fn a_direct_call_that_keeps_failing_goes_to_a_person_by_rule() {
    let bench = Bench::new().await;
    let fake = FakeModel::new([]).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(Some(plan(&json!([direct("a", &[])]))), ReviewPolicy::Code).await;
    manager.settle().await;
    fail(&bench).await;
    manager.settle().await;
    let ticket = bench.store.all_tickets(&id).await.unwrap().remove(0);
    assert_eq!((ticket.status, fake.asked()), (Status::NeedsHuman, 0));
    assert!(
        ticket.cause_detail.contains("direct tool call") && ticket.due_at_ms > 0,
        "{}",
        ticket.cause_detail
    );
    // The person gives it up: the goal asks what now, and a retry brings it to its end.
    let fails = PersonDecision::Fail { reason: "no".into() };
    bench.store.answer(&ticket.task_id, 0, "r1", "me", &fails).await.unwrap();
    bench.store.sweep(&bench.config.lease).await.unwrap();
    manager.settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!(
        (goal.state, goal.cause.as_str()),
        (GoalState::NeedsHuman, "ticket_failed"),
        "{}",
        goal.cause_detail
    );
    let again = PersonDecision::Reopen { note: "try".into() };
    bench.store.answer(&ticket.task_id, 0, "r2", "me", &again).await.unwrap();
    assert_eq!(work(&bench).await, 1);
    manager.settle().await;
    assert_eq!(bench.goal(&id).await.state, GoalState::Done);
}

#[tokio::test]
async fn i11_a_manager_that_always_rewrites_ends_after_two_edits_and_nine_attempts() {
    let bench = Bench::new().await;
    let rewrite = |n: u32| {
        json!({"action": "rewrite", "reason": "unclear", "description": format!("do it, version {n}")})
            .to_string()
    };
    let fake = FakeModel::new((1..=5).map(rewrite)).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(Some(plan(&json!([agent("a", &[])]))), ReviewPolicy::Judged).await;
    manager.settle().await;
    for _ in 0..4 {
        fail(&bench).await;
        manager.settle().await;
    }
    let ticket = bench.store.all_tickets(&id).await.unwrap().remove(0);
    assert_eq!(
        (ticket.status, ticket.attempts, ticket.counters.interventions, fake.asked()),
        (Status::NeedsHuman, 9, 2, 2)
    );
    assert_eq!(ticket.description, "do it, version 2");
    assert!(ticket.cause_detail.contains("2 times"), "{}", ticket.cause_detail);
    assert!(fake.words(0).contains("at most 300 words"), "constraints travel verbatim");
    let open = bench.store.open_decisions(10).await.unwrap();
    assert_eq!((open.len(), open[0].key.as_str()), (1, "a"));
    assert!(open[0].expires_at_ms > 0 && open[0].detail.contains("the manager"), "{:?}", open[0]);
}

#[tokio::test]
async fn a_split_ticket_is_done_by_its_parts() {
    let bench = Bench::new().await;
    let part = |id: &str, needs: &[&str], output: &str| {
        json!({"id": id, "needs": needs, "description": "d", "expected_output": "e",
        "role": "general_assistant", "outputs": [output], "checks": [{"kind": "file_exists", "path": output}]})
    };
    let split = json!({"action": "split", "reason": "too much",
        "tickets": [part("a1", &[], "outputs/half.md"), part("a2", &["a1"], "outputs/a.md")]});
    let fake = FakeModel::new([split.to_string()]).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id =
        bench.submit(Some(plan(&json!([agent("a", &[]), agent("b", &["a"])]))), ReviewPolicy::Judged).await;
    manager.settle().await;
    fail(&bench).await;
    manager.settle().await;
    let tickets = bench.store.all_tickets(&id).await.unwrap();
    let status = |key: &str| tickets.iter().find(|t| t.key == key).map(|t| t.status);
    assert_eq!(
        [status("a"), status("a1"), status("a2"), status("b")],
        [Some(Status::Superseded), Some(Status::Pending), Some(Status::Blocked), Some(Status::Blocked)]
    );
    assert_eq!(bench.store.audit().await.unwrap(), []);
}

#[tokio::test]
async fn when_the_model_cannot_decide_an_escalation_a_person_reads_why() {
    let bench = Bench::new().await;
    let manager = bench.manager(None);
    let id = bench.submit(Some(plan(&json!([agent("a", &[])]))), ReviewPolicy::Judged).await;
    manager.settle().await;
    fail(&bench).await;
    manager.settle().await;
    let ticket = bench.store.all_tickets(&id).await.unwrap().remove(0);
    assert_eq!(ticket.status, Status::NeedsHuman);
    assert!(
        ticket.cause_detail.contains("no_model") && ticket.cause_detail.contains("faults"),
        "{}",
        ticket.cause_detail
    );
}

#[tokio::test]
async fn d1_a_spent_budget_stops_the_next_call_before_it_is_sent() {
    let bench = Bench::new().await;
    let fake = FakeModel::new([json!({"tickets": [agent("a", &[])]}).to_string()]).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(None, ReviewPolicy::Judged).await;
    bench.store.book(&id, "", 10, 0, &json!({})).await.unwrap();
    let mut taken = manager.claim().await.unwrap();
    taken.goal.budget_tokens = 10;
    taken.goal.spent_tokens = 10;
    manager.step(taken, CancellationToken::new(), Pulse::new()).await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.state, goal.cause.as_str(), fake.asked()), (GoalState::NeedsHuman, "budget", 0));
}

#[tokio::test]
async fn a_cut_off_step_gives_the_goal_back_with_its_events() {
    let bench = Bench::new().await;
    let fake = FakeModel::new([]).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(None, ReviewPolicy::Judged).await;
    let cut = CancellationToken::new();
    cut.cancel();
    let taken = manager.claim().await.unwrap();
    manager.step(taken, cut, Pulse::new()).await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.state, goal.lease_id.as_str(), goal.stalls), (GoalState::Planning, "", 0));
    assert_eq!(manager.claim().await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn a_deadline_follows_the_goals_policy() {
    use shared::goal::DeadlinePolicy;
    let bench = Bench::new().await;
    let manager = bench.manager(None);
    let mut ends = vec![];
    for policy in [DeadlinePolicy::Deliver, DeadlinePolicy::Person] {
        let tickets = json!([direct("a", &[]), direct("b", &["a"])]);
        let id = bench
            .submit_with(Some(plan(&tickets)), ReviewPolicy::Code, |goal| {
                goal.deadline_policy = policy;
                goal.deadline_at_ms = 1;
            })
            .await;
        manager.settle().await;
        bench.store.sweep(&bench.config.lease).await.unwrap();
        assert_eq!(work(&bench).await, 0, "a deadline stops new claims");
        manager.settle().await;
        let goal = bench.goal(&id).await;
        ends.push((goal.state, goal.cause));
    }
    assert_eq!(ends[0], (GoalState::Done, String::new()));
    assert_eq!(ends[1], (GoalState::NeedsHuman, "deadline".into()));
}

/// An accepted report that says so: review policy none.
async fn report(bench: &Bench, key: &str, plan_change: &str) {
    let claim = bench.take().await.unwrap();
    assert_eq!(claim.ticket.key, key);
    let root = bench.goal(&claim.ticket.goal).await.root;
    let report = Report {
        status: "done".into(),
        summary: "all".into(),
        plan_change: plan_change.into(),
        ..Report::default()
    };
    let done = Completion {
        held: claim.held,
        report,
        overlay_ref: String::new(),
        actor: "a".into(),
        roots: Some((root.clone(), root)),
    };
    assert_eq!(bench.store.complete(&[done]).await.unwrap(), [Written::Ok]);
}

async fn status_of(bench: &Bench, goal: &str, key: &str) -> Status {
    bench.store.all_tickets(goal).await.unwrap().iter().find(|t| t.key == key).unwrap().status
}

/// Two searches and the report over them, nothing reviewed.
fn searches() -> Value {
    let mut tickets = [agent("s1", &[]), agent("s2", &[]), agent("last", &["s1", "s2"])];
    for ticket in &mut tickets {
        ticket["review"] = "none".into();
        ticket["checks"] = json!([]);
    }
    tickets[2]["integrates"] = true.into();
    plan(&json!(tickets))
}

#[tokio::test]
async fn a_report_that_answers_everything_cancels_what_became_needless() {
    let bench = Bench::new().await;
    let answer = json!({"reason": "s1 has it all", "cancel": [{"id": "s2", "reason": "s1 found the full report"}], "next": "go_on"});
    let fake = FakeModel::new([answer.to_string()]).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(Some(searches()), ReviewPolicy::None).await;
    manager.settle().await;
    report(&bench, "s1", "the full report is here: s2 is needless").await;
    manager.settle().await;
    assert_eq!((fake.asked(), status_of(&bench, &id, "s2").await), (1, Status::Cancelled));
    assert!(fake.words(0).contains("s2 is needless") && fake.words(0).contains("at most 300 words"));
    bench.store.sweep(&bench.config.lease).await.unwrap();
    // The last one waits for the first alone now, and the goal has lost nothing that it needs.
    report(&bench, "last", "").await;
    manager.settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!(
        (goal.state, goal.replans, goal.open_mandatory),
        (GoalState::Done, 1, 0),
        "{}",
        goal.cause_detail
    );
    assert_eq!(bench.store.audit().await.unwrap(), []);
}

#[tokio::test]
async fn d2_i11_a_model_that_always_adds_tickets_ends_at_the_cap() {
    let mut bench = Bench::new().await;
    bench.config.limits.replans_max = 3;
    let more = |n: usize| {
        let mut tickets = [agent(&format!("m{n}a"), &[]), agent(&format!("m{n}b"), &[])];
        tickets.iter_mut().for_each(|t| t["needs"] = json!([]));
        json!({"reason": "more", "add": tickets, "next": "go_on"}).to_string()
    };
    let fake = FakeModel::new((0..9).map(more)).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(Some(searches()), ReviewPolicy::None).await;
    manager.settle().await;
    for n in 0..6 {
        bench.store.note(&id, "me", &format!("more, please: {n}")).await.unwrap();
        manager.settle().await;
    }
    let goal = bench.goal(&id).await;
    assert_eq!((fake.asked(), goal.replans, goal.tickets), (3, 3, 9));
    assert_eq!(goal.state, GoalState::Running, "a goal whose plan stands goes on");
    assert_eq!(bench.store.audit().await.unwrap(), []);
}

#[tokio::test]
async fn a_change_that_a_moving_ticket_overtakes_is_read_again_and_not_asked_again() {
    let bench = Bench::new().await;
    let answer = json!({"reason": "r", "cancel": [{"id": "s2", "reason": "needless"}], "next": "go_on"});
    let fake = FakeModel::new([answer.to_string()]).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(Some(searches()), ReviewPolicy::None).await;
    manager.settle().await;
    report(&bench, "s1", "s2 is needless").await;
    let GoalClaim { held, goal, events, .. } = manager.claim().await.unwrap();
    let plan_version = goal.plan_version;
    let (cut, pulse) = (CancellationToken::new(), Pulse::new());
    let mut step = Step { manager: &manager, held, goal, cut, pulse, patches: 0, plan_version };
    // As read before a worker took s2.
    let old = step.tickets().await.unwrap();
    bench.take().await.unwrap();
    assert!(matches!(step.replan(old, &events, false).await, Ok(Looked::At { changed: true, .. })));
    assert_eq!((fake.asked(), status_of(&bench, &id, "s2").await), (1, Status::Cancelled));
}

#[tokio::test]
async fn a_stall_ends_with_a_person_when_the_plan_stands() {
    let mut bench = Bench::new().await;
    bench.config.caps.goal_dry = 2;
    let fake = FakeModel::new([json!({"reason": "it should work", "next": "go_on"}).to_string()]).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(Some(searches()), ReviewPolicy::None).await;
    manager.settle().await;
    for _ in 0..2 {
        assert!(bench.fail_once().await);
    }
    manager.settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.state, goal.cause.as_str(), fake.asked()), (GoalState::NeedsHuman, "stalled", 1));
    assert!(fake.words(0).contains("2 attempts in a row"), "{}", fake.words(0));
    assert_eq!(bench.store.audit().await.unwrap(), []);
}

#[tokio::test]
async fn a_question_of_the_planner_waits_for_a_person_while_its_tickets_run() {
    let bench = Bench::new().await;
    let question = json!({"reason": "unclear", "next": "ask_person", "question": "Which year is meant?"});
    let answered =
        json!({"reason": "2025", "next": "go_on", "modify": [{"id": "s2", "description": "look at 2025"}]});
    let fake = FakeModel::new([question.to_string(), answered.to_string()]).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(Some(searches()), ReviewPolicy::None).await;
    manager.settle().await;
    bench.store.note(&id, "me", "only the last year").await.unwrap();
    manager.settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!((goal.state, goal.cause.as_str()), (GoalState::NeedsHuman, "planner_asks"));
    assert!(goal.cause_detail.contains("Which year"), "{}", goal.cause_detail);
    report(&bench, "s1", "").await;
    let answer = PersonDecision::Answer { text: "2025".into(), budget_tokens: None, budget_microusd: None };
    bench.store.answer(&id, 0, "r1", "me", &answer).await.unwrap();
    manager.settle().await;
    let tickets = bench.store.all_tickets(&id).await.unwrap();
    assert_eq!(tickets.iter().find(|t| t.key == "s2").unwrap().description, "look at 2025");
    assert!(fake.words(1).contains("2025") && fake.asked() == 2);
}

#[tokio::test]
async fn without_a_usable_answer_the_plan_stands_and_the_log_says_so() {
    let bench = Bench::new().await;
    let fake = FakeModel::new((0..3).map(|_| "no".to_owned())).await;
    let manager = bench.manager(Some(fake.model.clone()));
    let id = bench.submit(Some(searches()), ReviewPolicy::None).await;
    manager.settle().await;
    report(&bench, "s1", "s2 is needless").await;
    manager.settle().await;
    let goal = bench.goal(&id).await;
    assert_eq!(
        (goal.state, goal.replans, status_of(&bench, &id, "s2").await),
        (GoalState::Running, 1, Status::Pending)
    );
    let log = bench.store.events(&id, "0", 100).await.unwrap();
    assert!(log.iter().any(|e| e.event == "replanned" && e.detail.contains("nobody could say")), "{log:?}");
}
