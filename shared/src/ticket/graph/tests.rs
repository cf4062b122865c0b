//! Behaviour of the plan's graph and validator.

use super::*;
use crate::ticket::limits::Limits;
use crate::ticket::{Check, DirectCall, ReviewPolicy};
use crate::tool;
use proptest::prelude::*;
use serde_json::json;
use std::time::{Duration, Instant};

fn spec(key: &str, needs: &[&str]) -> TicketSpec {
    TicketSpec {
        needs: needs.iter().map(|n| (*n).into()).collect(),
        role: "general_assistant".into(),
        outputs: vec![format!("outputs/{key}.md")],
        ..TicketSpec::new(key, "do it", "a file")
    }
}

fn check(specs: &[TicketSpec]) -> Vec<Problem> {
    check_with(specs, &Limits::default())
}

fn check_with(specs: &[TicketSpec], limits: &Limits) -> Vec<Problem> {
    let tools = tool::builtin();
    let roles = ["general_assistant".to_owned(), "data_analyst".to_owned()];
    problems(specs, &Known { roles: &roles, tools: &tools, existing: &BTreeSet::new() }, limits)
}

/// Asserts that exactly this is reported, by field and a part of the text.
#[track_caller]
fn only(specs: &[TicketSpec], field: &str, part: &str) {
    let found = check(specs);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].field, field, "{found:#?}");
    assert!(found[0].to_string().contains(part), "{found:#?}");
    assert!(!found[0].hint.is_empty(), "{found:#?}");
}

#[test]
fn c9_a_cycle_is_refused_and_named() {
    only(&[spec("a", &["b"]), spec("b", &["a"])], "needs", "a needs b needs a");
    only(&[spec("a", &["a"])], "needs", "a needs a");
    let tail =
        [spec("a", &[]), spec("b", &["a", "d"]), spec("c", &["b"]), spec("d", &["c"]), spec("e", &["d"])];
    only(&tail, "needs", "b needs d needs c needs b");
}

#[test]
fn c9_a_dangling_need_is_refused_with_the_one_meant() {
    only(&[spec("measure", &[]), spec("b", &["t99"])], "needs", "there is no ticket `t99`");
    only(&[spec("measure", &[]), spec("b", &["mesure"])], "needs", "did you mean `measure`?");
}

#[test]
fn c9_double_ids_are_refused() {
    only(&[spec("t1", &[]), spec("t1", &[])], "id", "2 tickets have this id");
    only(&[spec("a b", &[])], "id", "is not a word");
    only(&[spec("", &[])], "id", "is not a word");
    only(&[spec("a", &[]), spec("b", &["a", "a"])], "needs", "twice");
}

#[test]
fn c9_ten_thousand_tickets_are_answered_at_once_with_the_limit() {
    let specs: Vec<TicketSpec> = (0..10_000).map(|i| spec(&format!("t{i}"), &[])).collect();
    let start = Instant::now();
    only(&specs, "tickets", "10000 tickets, at most 1000 are allowed");
    assert!(start.elapsed() < Duration::from_secs(1));
    // Allowed, they are checked in time too, a chain of them as well.
    let chain: Vec<TicketSpec> = (0..10_000)
        .map(|i: usize| {
            spec(
                &format!("t{i}"),
                &i.checked_sub(1).map(|p| format!("t{p}")).iter().map(String::as_str).collect::<Vec<_>>(),
            )
        })
        .collect();
    assert!(check_with(&chain, &Limits { tickets_max: 10_000, ..Limits::default() }).is_empty());
    assert_eq!(Graph::of(&chain).critical_path(|_| 1), Ok(10_000));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn c9_every_problem_is_told_at_once_and_not_without_end() {
    let mut bad = spec("bad", &["nobody"]);
    bad.role = "data_analist".into();
    bad.tools = vec!["code_interpreter".into(), "wab".into()];
    bad.checklist = vec![
        Check::Regex { path: "outputs/x".into(), pattern: "(".into() },
        Check::JsonSchema { path: "../x".into(), schema: json!({"type": 5}) },
    ];
    let found = check(&[bad]);
    let text: Vec<String> = found.iter().map(ToString::to_string).collect();
    for part in [
        "there is no ticket `nobody`",
        "did you mean `data_analyst`?",
        "is a tool of the bundle `code`",
        "there is no bundle `wab`",
        "checks[0].pattern",
        "checks[1].path",
        "checks[1].schema",
    ] {
        assert!(text.iter().any(|t| t.contains(part)), "{part}: {text:#?}");
    }
    let many: Vec<TicketSpec> = (0..500).map(|i| spec(&format!("t{i}"), &["x", "y"])).collect();
    assert_eq!(check(&many).len(), PROBLEMS_MAX);
}

#[test]
fn c5_two_tickets_deliver_one_path_only_one_after_the_other() {
    let writes = |key: &str, needs: &[&str], outputs: &[&str]| TicketSpec {
        outputs: outputs.iter().map(|o| (*o).into()).collect(),
        ..spec(key, needs)
    };
    only(&[writes("a", &[], &["x"]), writes("b", &[], &["x"])], "outputs", "`x` is an output of `a` too");
    assert!(check(&[writes("a", &[], &["x"]), writes("b", &["a"], &["x"])]).is_empty());
    // Through others, in whatever order they stand there.
    assert!(
        check(&[writes("c", &["b"], &["x"]), writes("b", &["a"], &["y"]), writes("a", &[], &["x"])])
            .is_empty()
    );
    // Both behind one, but not behind each other.
    only(
        &[writes("a", &[], &["x"]), writes("b", &["a"], &["x"]), writes("c", &["a"], &["x"])],
        "outputs",
        "neither needs the other",
    );
    // A file and something below it cannot both be there, whatever the needs.
    only(&[writes("a", &[], &["x"]), writes("b", &["a"], &["x/y/z"])], "outputs", "`x/y/z` lies below `x`");
    only(&[writes("a", &[], &["x/y", "x"])], "outputs", "lies below");
    assert!(check(&[writes("a", &[], &["x/y"]), writes("b", &[], &["x/z", "xy"])]).is_empty());
    let many: Vec<TicketSpec> = (0..1_000).map(|i| writes(&format!("t{i}"), &[], &["x"])).collect();
    assert_eq!(check(&many).len(), PROBLEMS_MAX);
}

#[test]
fn a_ticket_needs_a_deliverable_somebody_and_something_to_check() {
    let plain = |f: &dyn Fn(&mut TicketSpec)| {
        let mut s = spec("a", &[]);
        f(&mut s);
        [s]
    };
    assert!(check(&plain(&|_| {})).is_empty());
    only(
        &plain(&|s| {
            (
                s.expected_output = String::new(),
                s.outputs = vec![],
                s.checklist = vec![Check::Judged { text: "good".into() }],
            )
                .2
        }),
        "expected_output",
        "no deliverable",
    );
    only(&plain(&|s| s.outputs = vec![]), "checks", "neither checks nor outputs");
    assert!(check(&plain(&|s| (s.outputs = vec![], s.review = ReviewPolicy::None).1)).is_empty());
    only(&plain(&|s| s.role = String::new()), "role", "nobody does it");
    only(&plain(&|s| s.description = " ".into()), "description", "is empty");
    only(&plain(&|s| s.description = "x".repeat(40_000)), "description", "40000 bytes");
    only(&plain(&|s| s.outputs = vec!["../x".into()]), "outputs", "leaves the workspace");
    only(&plain(&|s| s.outputs = vec!["temp/x".into()]), "outputs", "temp/");
    only(&plain(&|s| s.priority = 3), "priority", "0 urgent");
    only(&plain(&|s| s.depth = 6), "depth", "at most 5");
    let judged = Check::Judged { text: "good".into() };
    only(
        &plain(&|s| (s.review = ReviewPolicy::Code, s.checklist = vec![judged.clone()]).1),
        "review",
        "needs a model",
    );
    only(
        &plain(&|s| (s.review = ReviewPolicy::None, s.checklist = vec![judged.clone()]).1),
        "review",
        "nobody reviews",
    );
    only(&plain(&|s| s.checklist = vec![judged.clone(); 51]), "checks", "51 checks, at most 50");
}

#[test]
fn direct_calls_are_held_against_the_tools_schema() {
    let with = |tool: &str, args| {
        let mut s = spec("a", &[]);
        s.role = String::new();
        s.call = Some(DirectCall { tool: tool.into(), args });
        [s]
    };
    assert!(check(&with("code_interpreter", json!({"code": "print(1)"}))).is_empty());
    only(&with("code_interpretor", json!({"code": "1"})), "tool", "did you mean `code_interpreter`?");
    only(&with("code_interpreter", json!({"cod": "1", "code": "1"})), "args", "cod");
    only(&with("code_interpreter", json!({"code": 5})), "args.code", "5");
    only(&with("code_interpreter", json!(null)), "args", "null");
    only(&with("finish", json!({})), "tool", "there is no tool `finish`");
}

#[test]
fn new_tickets_may_need_the_goals_existing_ones() {
    let existing = BTreeSet::from(["old".to_owned()]);
    let roles = ["general_assistant".to_owned()];
    let tools = tool::builtin();
    let known = Known { roles: &roles, tools: &tools, existing: &existing };
    assert!(problems(&[spec("new", &["old"])], &known, &Limits::default()).is_empty());
    let found = problems(&[spec("old", &[])], &known, &Limits::default());
    assert!(found[0].problem.contains("already"));
}

#[test]
fn the_integrating_ticket_waits_for_every_mandatory_sink() {
    let mut specs =
        vec![spec("a", &[]), spec("b", &["a"]), spec("c", &[]), spec("extra", &["c"]), spec("end", &["b"])];
    specs[3].mandatory = false;
    assert_eq!(integrating(&specs), None);
    specs[4].integrates = true;
    assert_eq!(integrating(&specs), Some(Integration { at: 4, missing: vec!["c".into()], after: vec![] }));
    only(&specs, "needs", "does not wait for c");
    assert_eq!(link_integrating(&mut specs), 1);
    assert_eq!(specs[4].needs, ["b", "c"]);
    assert!(check(&specs).is_empty());
    specs.push(spec("late", &["end"]));
    only(&specs, "integrates", "late come after it");
    specs[5].integrates = true;
    only(&specs, "integrates", "a second ticket");
}

#[test]
fn layers_ready_set_and_critical_path_agree() {
    let specs =
        [spec("a", &[]), spec("b", &["a"]), spec("c", &["a"]), spec("d", &["b", "c"]), spec("e", &[])];
    let graph = Graph::of(&specs);
    assert_eq!(graph.layers(), Ok(vec![vec![0, 4], vec![1, 2], vec![3]]));
    assert_eq!(graph.ready(&BTreeSet::from(["a"])), [1, 2, 4]);
    assert_eq!(graph.sinks(), [3, 4]);
    assert_eq!(graph.critical_path(|s| if s.key == "e" { 10 } else { 1 }), Ok(10));
}

/// A random DAG: each ticket needs some of those before it.
fn dag() -> impl Strategy<Value = Vec<TicketSpec>> {
    prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 1..40).prop_map(|rows| {
        rows.iter()
            .enumerate()
            .map(|(i, row)| {
                let needs: BTreeSet<usize> = row.iter().filter(|_| i > 0).map(|x| x.index(i)).collect();
                let needs: Vec<String> = needs.iter().map(|n| format!("t{n}")).collect();
                spec(&format!("t{i}"), &needs.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn c9_random_dags_are_accepted_and_any_back_edge_is_found(specs in dag(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        prop_assert_eq!(check(&specs), vec![]);
        let order = Graph::of(&specs).order().unwrap();
        let place: HashMap<&str, usize> = order.iter().enumerate().map(|(at, &i)| (specs[i].key.as_str(), at)).collect();
        for s in &specs {
            for n in &s.needs {
                prop_assert!(place[n.as_str()] < place[s.key.as_str()]);
            }
        }
        // A need of something that already waits for the ticket, directly or through others.
        let (from, to) = (from.index(specs.len()), to.index(specs.len()));
        let mut waits = vec![false; specs.len()];
        Graph::of(&specs).mark_needs(to, &mut waits);
        let mut broken = specs.clone();
        let key = broken[to].key.clone();
        if !broken[from].needs.contains(&key) {
            broken[from].needs.push(key);
        }
        match Graph::of(&broken).layers() {
            Ok(_) => prop_assert!(!waits[from]),
            Err(cycle) => {
                prop_assert!(waits[from]);
                for (i, k) in cycle.keys.iter().enumerate() {
                    let next = &cycle.keys[(i + 1) % cycle.keys.len()];
                    prop_assert!(broken.iter().find(|s| s.key == *k).unwrap().needs.contains(next));
                }
            }
        }
    }

    #[test]
    fn linking_reaches_every_mandatory_ticket(specs in dag(), optional in prop::collection::vec(any::<bool>(), 40)) {
        let mut specs = specs;
        for (s, o) in specs.iter_mut().zip(optional) {
            s.mandatory = !o;
        }
        let mut end = spec("end", &[]);
        end.integrates = true;
        specs.push(end);
        link_integrating(&mut specs);
        let mut reached = vec![false; specs.len()];
        Graph::of(&specs).mark_needs(specs.len() - 1, &mut reached);
        prop_assert!(specs.iter().zip(reached).all(|(s, r)| r || !s.mandatory));
        let linked = specs.clone();
        prop_assert_eq!(link_integrating(&mut specs), 0);
        prop_assert_eq!(linked, specs);
    }
}
