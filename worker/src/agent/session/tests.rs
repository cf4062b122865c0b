use super::*;
use shared::model::{BadArgs, Usage};
use shared::ticket::Check;

fn ticket(outputs: &[&str]) -> Ticket {
    Ticket { outputs: outputs.iter().map(ToString::to_string).collect(), ..Ticket::default() }
}

fn session(outputs: &[&str], steps_max: u32) -> Session {
    let bundles = ["files".to_owned()];
    let tools = shared::tool::of_bundles(&shared::tool::builtin(), &bundles);
    Session::new("system".into(), "task".into(), tools, steps_max, &ticket(outputs))
}

fn call(id: &str, name: &str, args: &str) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), args: Ok(serde_json::from_str(args).unwrap()) }
}

fn reply(text: &str, calls: Vec<ToolCall>) -> Reply {
    Reply {
        text: text.into(),
        reasoning: String::new(),
        finish: if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls },
        calls,
        usage: Usage::default(),
        requests: 1,
        repairs: 0,
        model: "m".into(),
        duration_ms: 1,
        records: vec![],
    }
}

fn acts(session: &mut Session, reply: &Reply) -> Vec<Act> {
    match session.reply(reply).unwrap() {
        Turn::Calls(acts) => acts.into_iter().map(|todo| todo.act).collect(),
        Turn::Text => panic!("a text turn"),
    }
}

/// Every call of every assistant turn is followed by exactly one answer, in order.
fn assert_paired(messages: &[Message]) {
    let mut open: Vec<String> = vec![];
    for message in messages {
        match message {
            Message::Tool { call_id, .. } => assert_eq!(open.remove(0), *call_id),
            Message::Assistant { calls, .. } => {
                assert!(open.is_empty(), "unanswered: {open:?}");
                open = calls.iter().map(|c| c.id.clone()).collect();
            }
            Message::System(_) | Message::User(_) | Message::Image(_) => {
                assert!(open.is_empty(), "unanswered: {open:?}");
            }
        }
    }
}

fn fault(end: End) -> String {
    let End::Failed { class: FailClass::Fault, detail, .. } = end else { panic!("{end:?}") };
    detail
}

fn report_of(end: End) -> Report {
    let End::Report(report) = end else { panic!("{end:?}") };
    *report
}

#[test]
fn a10_every_call_of_a_turn_gets_one_answer_and_bad_ones_do_not_stop_the_others() {
    let mut s = session(&[], 10);
    let bad = ToolCall {
        id: "b".into(),
        name: "read_file".into(),
        args: Err(BadArgs { raw: "[1,2]".into(), problem: "must be an object".into(), truncated: false }),
    };
    let calls = vec![call("a", "list_files", "{}"), bad, call("c", "nothing", "{}")];
    let turn = reply("", calls.clone());
    let acts = acts(&mut s, &turn);
    assert!(matches!(&acts[0], Act::Tool { name, .. } if name == "list_files"));
    assert_eq!(acts[1], Act::Answer("Not run: must be an object".into()));
    assert!(matches!(&acts[2], Act::Answer(text) if text.contains("read_file") && text.contains("finish")));
    for call in calls {
        s.answer(call.id, "x".into());
    }
    assert_paired(&s.messages);
}

#[test]
fn b1_a_loop_ends_as_not_retryable_with_its_trace() {
    let mut s = session(&[], 50);
    let again = reply("", vec![call("a", "list_files", "{}")]);
    for n in 1..=3 {
        let acts = acts(&mut s, &again);
        assert_eq!(matches!(acts[0], Act::Answer(_)), n == 3, "nudged at three, not run");
        s.ran("list_files");
        s.answer("a".into(), "x".into());
    }
    let End::Failed { class: FailClass::NotRetryable, detail, .. } = s.reply(&again).unwrap_err() else {
        panic!("not stopped")
    };
    assert!(detail.starts_with("loop:") && detail.contains("list_files ×3"), "{detail}");
}

#[test]
fn b1_tools_that_are_not_there_end_the_attempt_at_three() {
    let mut s = session(&[], 50);
    for n in 0..2 {
        let acts = acts(&mut s, &reply("", vec![call("a", &format!("t{n}"), "{}")]));
        assert!(matches!(acts[0], Act::Answer(_)));
        s.answer("a".into(), "x".into());
    }
    let end = s.reply(&reply("", vec![call("a", "t9", "{}")])).unwrap_err();
    assert!(fault(end).contains("t9"));
}

#[test]
fn b2_work_that_no_tool_did_is_refused_before_review() {
    let mut s = session(&["outputs/a.md"], 10);
    assert!(matches!(s.reply(&reply("Here is the table: 1 | 2", vec![])).unwrap(), Turn::Text));
    s.text_turn(&["outputs/a.md".into()], vec![]).unwrap();
    assert!(matches!(s.messages.last(), Some(Message::User(text)) if text.contains("no tool call")));
    let done = serde_json::from_str(r#"{"status":"done","summary":"all done"}"#).unwrap();
    let turn = reply("", vec![call("f", "finish", r#"{"status":"done","summary":"all done"}"#)]);
    assert!(matches!(&acts(&mut s, &turn)[0], Act::Finish(args) if *args == done));
    let end = s.finish(&done, &["outputs/a.md".into()], vec![]).unwrap_err();
    assert!(fault(end).contains("no tool was run"));
}

#[test]
fn b2_text_after_a_made_up_observation_is_dropped() {
    let mut s = session(&[], 10);
    s.reply(&reply("Action: read_file\nObservation: 3 files\nFinal Answer: done", vec![])).unwrap();
    s.text_turn(&[], vec![]).unwrap();
    let Message::Assistant { text, .. } = &s.messages[2] else { panic!() };
    assert_eq!(text, "Action: read_file\n");
    assert!(matches!(s.messages.last(), Some(Message::User(text)) if text.contains("no tool gave")));
    assert_eq!(without_invented("Action: read_file … Observation: 3 files"), ("Action: read_file … ", true));
    assert_eq!(without_invented("A text on Observation: fine"), ("A text on Observation: fine", false));
}

#[test]
fn a_text_turn_is_the_report_once_the_tools_have_run() {
    let mut s = session(&["outputs/a.md"], 10);
    acts(&mut s, &reply("", vec![call("a", "write_file", r#"{"path":"outputs/a.md","content":"x"}"#)]));
    s.ran("write_file");
    s.answer("a".into(), "written".into());
    s.reply(&reply("Written outputs/a.md.", vec![])).unwrap();
    let report = report_of(s.text_turn(&[], vec!["outputs/a.md".into()]).unwrap_err());
    assert_eq!((report.status.as_str(), report.summary.as_str()), ("done", "Written outputs/a.md."));
    assert_eq!(report.tool_calls["write_file"], 1);
    assert_eq!(report.outputs, ["outputs/a.md"]);
}

#[test]
fn a_ticket_of_words_gets_one_nudge_to_finish_then_its_text_counts() {
    let mut s = session(&[], 10);
    s.reply(&reply("The answer is 4.", vec![])).unwrap();
    s.text_turn(&[], vec![]).unwrap();
    s.reply(&reply("The answer is 4.", vec![])).unwrap();
    assert_eq!(report_of(s.text_turn(&[], vec![]).unwrap_err()).summary, "The answer is 4.");
}

#[test]
fn missing_outputs_are_told_once_then_the_report_is_partial() {
    let mut s = session(&["outputs/a.md"], 10);
    s.ran("list_files");
    let args = serde_json::from_str(r#"{"status":"done","summary":"s","conclusions":["fact"]}"#).unwrap();
    let missing = ["outputs/a.md".to_owned()];
    let said = s.finish(&args, &missing, vec![]).unwrap();
    assert!(said.contains("outputs/a.md"), "{said}");
    let report = report_of(s.finish(&args, &missing, vec![]).unwrap_err());
    assert_eq!(report.status, "partial");
    assert_eq!(report.conclusions, ["fact"]);
}

#[test]
fn a_finish_that_says_failed_is_a_fault_with_its_reason() {
    let mut s = session(&["outputs/a.md"], 10);
    let args = serde_json::from_str(r#"{"status":"failed","summary":"the input is empty"}"#).unwrap();
    assert!(fault(s.finish(&args, &[], vec![]).unwrap_err()).contains("the input is empty"));
}

#[test]
fn d3_a_wrap_up_nudge_then_a_partial_report_at_the_limit() {
    let mut s = session(&[], 5);
    for n in 1..=5 {
        s.begin_step().unwrap();
        let nudged = s.messages.iter().any(|m| matches!(m, Message::User(t) if t.contains("steps left")));
        assert_eq!(nudged, n >= 3, "step {n}");
        acts(&mut s, &reply("working", vec![call("a", "read_file", &format!("{{\"path\":\"f{n}\"}}"))]));
        s.ran("read_file");
        s.answer("a".into(), "x".into());
    }
    let report = report_of(s.begin_step().unwrap_err());
    assert_eq!(report.status, "partial");
    assert!(report.summary.contains("5 steps") && report.summary.contains("working"));
}

#[test]
fn a12_a_cut_call_is_not_run_and_three_of_them_end_the_attempt() {
    let mut s = session(&[], 50);
    let cut = ToolCall {
        id: "w".into(),
        name: "write_file".into(),
        args: Err(BadArgs { raw: "{\"path\":\"a.md\",\"con".into(), problem: "cut".into(), truncated: true }),
    };
    let turn = reply("", vec![cut]);
    for _ in 0..2 {
        let acts = acts(&mut s, &turn);
        assert!(matches!(&acts[0], Act::Answer(text) if text.contains("append_file")));
        s.answer("w".into(), "x".into());
    }
    assert!(fault(s.reply(&turn).unwrap_err()).starts_with("output_truncated"));
}

#[test]
fn i8_whose_fault_a_model_error_is_decides_the_class() {
    let error = |class| ModelError { class, detail: "d".into(), records: vec![] };
    let class = |class| match session(&[], 5).model_failed(&error(class)).unwrap_err() {
        End::Failed { class, delay_ms, .. } => (Some(class), delay_ms),
        End::Stopped => (None, None),
        End::Report(_) | End::Parked(_) => panic!(),
    };
    let (quota, delay) = class(ErrorClass::Quota { retry_after_ms: Some(7_000) });
    assert_eq!(quota, Some(FailClass::Wait));
    assert!(delay.is_some_and(|ms| (7_000..=9_000).contains(&ms)), "{delay:?}");
    assert_eq!(class(ErrorClass::Quota { retry_after_ms: None }), (Some(FailClass::Wait), None));
    assert_eq!(class(ErrorClass::Overload), (Some(FailClass::Wait), None));
    assert_eq!(class(ErrorClass::Network), (Some(FailClass::Wait), None));
    assert_eq!(class(ErrorClass::Auth), (Some(FailClass::NotRetryable), None));
    assert_eq!(class(ErrorClass::Ours), (Some(FailClass::NotRetryable), None));
    assert_eq!(class(ErrorClass::Reply), (Some(FailClass::Fault), None));
    assert_eq!(class(ErrorClass::Context), (Some(FailClass::Fault), None), "nothing to compact");
    assert_eq!(class(ErrorClass::Cancelled), (None, None));
}

#[test]
fn a19_b4_a_context_that_overflows_is_compacted_once_between_two_turns() {
    let mut s = session(&[], 50);
    for n in 0..6 {
        acts(&mut s, &reply("", vec![call("a", "read_file", &format!("{{\"path\":\"f{n}\"}}"))]));
        s.answer("a".into(), "x".repeat(10_000));
    }
    let error = ModelError { class: ErrorClass::Context, detail: "too long".into(), records: vec![] };
    s.begin_step().unwrap();
    s.model_failed(&error).unwrap();
    assert_eq!(s.step(), 0, "the step is not counted twice");
    assert_paired(&s.messages);
    assert!(fault(s.model_failed(&error).unwrap_err()).starts_with("context"));
}

#[test]
fn tickets_that_are_checked_by_code_need_tools() {
    assert!(!needs_tools(&ticket(&[])));
    assert!(needs_tools(&ticket(&["a"])));
    let judged = Ticket { checklist: vec![Check::Judged { text: "good".into() }], ..Ticket::default() };
    assert!(!needs_tools(&judged));
    let checked = Ticket { checklist: vec![Check::FileExists { path: "a".into() }], ..Ticket::default() };
    assert!(needs_tools(&checked));
}
