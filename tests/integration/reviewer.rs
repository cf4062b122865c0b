//! The reviewer as a process: code checks, the judge, and whose fault it is when there is no verdict.

use anyhow::{Context as _, Result};
use harness::desk::{Desk, Planned, completion, expect};
use harness::fleet::{Fleet, Plan};
use harness::model::{Answer, Model};
use harness::{scale, wait};
use serde_json::{Value, json};
use shared::blob::Blobs;
use shared::config;
use shared::store::{Completion, Written};
use shared::ticket::{Check, Report, ReviewPolicy, Status, Ticket, TicketSpec};
use shared::workspace::{Change, Entry, Manifest, Overlay};

const GOAL_ITEM: &str = "Still within the original goal and constraints";

/// A reviewer alone; the test is manager and worker.
pub(crate) struct Bench {
    pub(crate) desk: Desk,
    pub(crate) fleet: Fleet,
    blobs: Blobs,
    planned: Planned,
}

impl Bench {
    async fn start(plan: Plan, specs: &[TicketSpec]) -> Result<Self> {
        Self::managed(plan.managers(0), specs).await
    }

    /// As [`Bench::start`], with the managers of the plan, for whoever speaks to them.
    pub(crate) async fn managed(plan: Plan, specs: &[TicketSpec]) -> Result<Self> {
        let desk = Desk::start().await?;
        let planned = desk.plan(specs).await?;
        let fleet = plan.workers(0).through(&desk.redis.url()).start().await?;
        let blobs = Blobs::open(&config::Blobs { folder: fleet.blobs(), ..Default::default() })?;
        Ok(Self { desk, fleet, blobs, planned })
    }

    /// Works on the next ticket: hands in these files.
    pub(crate) async fn hand_in(&self, files: &[(&str, &str)]) -> Result<()> {
        let claim = self.desk.one().await?;
        let mut overlay = Overlay::new(&claim.ticket.base_root);
        for (path, text) in files {
            let hash = self.blobs.put(&self.planned.goal, text.as_bytes().to_vec()).await?;
            let entry = Entry { hash, size_bytes: text.len() as u64, ..Entry::default() };
            overlay.files.insert((*path).into(), Change { entry: Some(entry), base_hash: None });
        }
        let report = Report {
            status: "done".into(),
            summary: "wrote it".into(),
            tool_calls: [("write_file".to_owned(), 1)].into(),
            ..Report::default()
        };
        let overlay_ref = overlay.save(&self.blobs, &self.planned.goal).await?;
        let done = Completion { report, overlay_ref, ..completion(&claim.held) };
        expect(self.desk.store.complete(&[done]).await?, vec![Written::Ok])
    }

    /// The ticket, once it has one of these states.
    pub(crate) async fn when(&self, key: &str, states: &[Status]) -> Result<Ticket> {
        wait::until(&format!("{key} is one of {states:?}"), scale::scale().patience(), async || {
            let ticket = self.desk.ticket(self.planned.id(key)).await?;
            Ok(states.contains(&ticket.status).then_some(ticket))
        })
        .await
    }

    async fn root(&self) -> Result<Manifest> {
        let goal = self.desk.store.goal(&self.planned.goal).await?.context("the goal")?;
        Ok(Manifest::load(&self.blobs, &self.planned.goal, &goal.root).await?)
    }
}

pub(crate) fn report_ticket(review: ReviewPolicy) -> TicketSpec {
    TicketSpec {
        outputs: vec!["outputs/report.md".into()],
        checklist: vec![
            Check::Regex { path: "outputs/report.md".into(), pattern: "^# ".into() },
            Check::Judged { text: "The total is named".into() },
        ],
        review,
        ..TicketSpec::new("report", "Write the report", "a report")
    }
}

pub(crate) fn verdict(passes: &[bool], evidence: &str) -> Value {
    let items: Vec<Value> = passes
        .iter()
        .enumerate()
        .map(|(i, pass)| json!({"item": i + 1, "evidence": evidence, "reason": "as seen", "pass": pass}))
        .collect();
    json!({"items": items, "verdict": if passes.contains(&false) { "fail" } else { "pass" }})
}

#[tokio::test]
async fn i5_a_pass_publishes_and_its_call_is_booked() -> Result<()> {
    let model = Model::start(|asked| {
        let sound = asked.schema() == "verdict"
            && ["1. The total is named", &format!("2. {GOAL_ITEM}"), "test goal", "2| Total: 3"]
                .iter()
                .all(|part| asked.says(part));
        sound.then(|| Answer::json(&verdict(&[true, true], "outputs/report.md:1-2")))
    })
    .await?;
    let bench =
        Bench::start(Fleet::plan().model(&model.url()), &[report_ticket(ReviewPolicy::Judged)]).await?;
    bench.hand_in(&[("outputs/report.md", "# Report\nTotal: 3\n")]).await?;
    let ticket = bench.when("report", &[Status::Done, Status::Rejected, Status::Escalated]).await?;
    assert_eq!(ticket.status, Status::Done, "{}", ticket.review_comment);
    assert!(bench.root().await?.files.contains_key("outputs/report.md"));
    let goal = bench.desk.store.goal(&bench.planned.goal).await?.context("the goal")?;
    assert!(goal.spent_tokens > 0 && ticket.spent_tokens > 0, "I10: the judge's call is booked");
    assert_eq!(model.asked().len(), 1);
    model.verify()?;
    bench.fleet.no_panics()
}

#[tokio::test]
async fn i6_what_code_rejects_is_never_shown_to_a_model() -> Result<()> {
    let model = Model::start(|_| None).await?;
    let bench =
        Bench::start(Fleet::plan().model(&model.url()), &[report_ticket(ReviewPolicy::Judged)]).await?;
    bench.hand_in(&[("outputs/other.md", "x")]).await?;
    let ticket = bench.when("report", &[Status::Done, Status::Rejected, Status::Escalated]).await?;
    assert_eq!(ticket.status, Status::Rejected);
    assert!(ticket.review_comment.contains("outputs/report.md is not there"), "{}", ticket.review_comment);
    assert_eq!((ticket.counters.faults, model.asked().len()), (1, 0));
    assert!(bench.root().await?.files.is_empty(), "I5: nothing of it is in the workspace");
    Ok(())
}

#[tokio::test]
async fn d8_a_pass_without_evidence_rejects_with_the_reason() -> Result<()> {
    let model =
        Model::start(|_| Some(Answer::json(&verdict(&[true, true], "outputs/report.md:1-99")))).await?;
    let bench =
        Bench::start(Fleet::plan().model(&model.url()), &[report_ticket(ReviewPolicy::Judged)]).await?;
    bench.hand_in(&[("outputs/report.md", "# Report\n")]).await?;
    let ticket = bench.when("report", &[Status::Done, Status::Rejected, Status::Escalated]).await?;
    assert_eq!(ticket.status, Status::Rejected);
    assert!(ticket.review_comment.contains("has 1 lines"), "{}", ticket.review_comment);
    Ok(())
}

#[tokio::test]
async fn c4_vague_rejections_are_the_reviewers_fault_and_end_at_its_cap() -> Result<()> {
    let vague = json!({"items": [{"item": 1, "evidence": "report:1", "reason": "improve it", "pass": true},
        {"item": 2, "evidence": "report:1", "reason": "improve it", "pass": true}], "verdict": "fail"});
    let model = Model::start(move |_| Some(Answer::json(&vague))).await?;
    let bench =
        Bench::start(Fleet::plan().model(&model.url()), &[report_ticket(ReviewPolicy::Judged)]).await?;
    bench.hand_in(&[("outputs/report.md", "# Report\n")]).await?;
    let ticket = bench.when("report", &[Status::Done, Status::Rejected, Status::Escalated]).await?;
    assert_eq!((ticket.status, ticket.cause.as_str()), (Status::Escalated, "review_faults"));
    // I8: the work has paid nothing for it.
    assert_eq!((ticket.counters.review_faults, ticket.counters.faults, ticket.attempts), (3, 0, 1));
    assert_eq!(model.asked().len(), 9, "three answers for each of three reviews");
    Ok(())
}

#[tokio::test]
async fn i7_without_a_model_judged_work_escalates_with_a_cause_that_names_it() -> Result<()> {
    let by_code = TicketSpec { checklist: vec![], ..report_ticket(ReviewPolicy::Code) };
    let judged = TicketSpec { key: "judged".into(), ..report_ticket(ReviewPolicy::Judged) };
    let bench = Bench::start(Fleet::plan(), &[by_code, judged]).await?;
    for _ in 0..2 {
        bench.hand_in(&[("outputs/report.md", "# Report\n")]).await?;
    }
    bench.when("report", &[Status::Done]).await?;
    let ticket = bench.when("judged", &[Status::Done, Status::Rejected, Status::Escalated]).await?;
    assert_eq!(ticket.status, Status::Escalated);
    assert!(ticket.cause_detail.contains("no model is configured"), "{}", ticket.cause_detail);
    assert_eq!(ticket.counters.faults, 0);
    Ok(())
}
