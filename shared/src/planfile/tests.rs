//! Behaviour of reading, writing and refusing plan files.

use super::*;
use crate::tool;
use std::collections::BTreeSet;

const GIVEN: &str = r#"
[goal]
text = "Report on the measurements"
constraints = ["numbers only from the file"]
inputs = ["path/to/file.csv"]

[[tickets]]
id = "measure"
needs = []
description = "Read the file"
expected_output = "data/measure.csv with columns name, value"
tool = "code_interpreter"
args = { code = "print(1)" }
outputs = ["data/measure.csv"]
review = "code"
  [[tickets.checks]]
  kind = "csv_rows"
  path = "data/measure.csv"
  min = 3

[[tickets]]
id = "report"
needs = ["measure"]
description = "Write it up"
role = "data_analyst"
outputs = ["outputs/report.md"]
integrates = true
"#;

fn parse(text: &str) -> Result<PlanFile, PlanFileError> {
    PlanFile::parse("plan.toml", text, &Limits::default())
}

fn found(plan: &PlanFile) -> Vec<String> {
    let (tools, roles) = (tool::builtin(), ["data_analyst".to_owned()]);
    let known = Known { roles: &roles, tools: &tools, existing: &BTreeSet::new() };
    plan.problems(ReviewPolicy::Judged, &known, &Limits::default()).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let message = parse(text).unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn the_shape_of_the_readme_is_read() {
    let plan = parse(GIVEN).unwrap();
    assert_eq!(found(&plan), Vec::<String>::new());
    let specs = plan.specs(ReviewPolicy::Judged);
    assert_eq!(specs[0].call.as_ref().unwrap().args["code"], "print(1)");
    assert_eq!(
        specs[0].checklist,
        [Check::CsvRows { path: "data/measure.csv".into(), min: 3, columns: vec![] }]
    );
    assert_eq!((specs[0].review, specs[1].review), (ReviewPolicy::Code, ReviewPolicy::Judged));
    assert_eq!((specs[0].pool.as_str(), specs[0].priority, specs[0].mandatory), ("default", 1, true));
    assert!(specs[1].integrates && !specs[0].integrates);
    assert_eq!(plan.asks_model(ReviewPolicy::Judged), ["report"]);
}

#[test]
fn json_says_the_same_and_comes_back() {
    let plan = parse(GIVEN).unwrap();
    let json = plan.to_json();
    assert_eq!(PlanFile::from_json(json.clone()).unwrap(), plan);
    assert_eq!(parse(&json.to_string()).unwrap(), plan);
    let specs = plan.specs(ReviewPolicy::Judged);
    let again = PlanFile::of(plan.goal.clone(), &specs);
    assert_eq!(again.specs(ReviewPolicy::None), specs);
}

#[test]
fn a_direct_call_that_says_no_policy_is_checked_by_code() {
    let plan = parse(&GIVEN.replace("review = \"code\"", "")).unwrap();
    assert_eq!(plan.specs(ReviewPolicy::Judged)[0].review, ReviewPolicy::Code);
    let plan = parse(&GIVEN.replace("review = \"code\"", "").replace("[goal]", "[goal]\nreview = \"none\""))
        .unwrap();
    assert_eq!(plan.specs(ReviewPolicy::Judged)[0].review, ReviewPolicy::None);
}

#[test]
fn errors_name_file_line_field_and_what_was_meant() {
    refused("[goal", &["plan.toml, line 1"]);
    refused("", &["missing field `goal`", "begins with [goal]"]);
    refused(
        &GIVEN.replace("constraints", "constrains"),
        &["line 4", "goal.constrains", "did you mean `constraints`?"],
    );
    refused(
        &GIVEN.replace("csv_rows", "csv_row"),
        &["tickets[0].checks[0]", "line 1", "did you mean `csv_rows`?"],
    );
    refused(&GIVEN.replace("\"code\"", "\"cod\""), &["line 15", "tickets[0].review", "did you mean `code`?"]);
    refused(&GIVEN.replace("min = 3", "min = -3"), &["tickets[0].checks[0]", "-3"]);
    refused(&GIVEN.replace("min = 3", "min = 3\n  most = 4"), &["unknown field `most`"]);
    refused(&GIVEN.replace("needs = []", "needs = \"x\""), &["line 9", "tickets[0].needs"]);
    refused("{\"goal\": {\"text\": \"x\",\n \"txt\": 1}}", &["line 2", "goal.txt", "did you mean `text`?"]);
    refused("{\"goal\": {\"text\": \"x\"}} trailing", &["line 1", "trailing"]);
    let limits = Limits { plan_bytes_max: 10, ..Limits::default() };
    let message = PlanFile::parse("big.toml", GIVEN, &limits).unwrap_err().to_string();
    assert!(message.contains("big.toml") && message.contains("at most 10"), "{message}");
}

#[test]
fn c9_problems_of_goal_and_tickets_come_together() {
    let text = GIVEN
        .replace("Report on the measurements", " ")
        .replace("role = \"data_analyst\"", "role = \"data_analist\"\nargs = {}")
        .replace("code_interpreter", "code_interpretor")
        .replace("needs = [\"measure\"]", "needs = [\"mesure\"]")
        .replace("[goal]", "[goal]\nlanguage = \"fr\"");
    let found = found(&parse(&text).unwrap()).join("\n");
    for part in [
        "goal.text: the goal is empty",
        "goal.language: `fr`",
        "ticket report, args: arguments without a tool",
        "did you mean `data_analyst`?",
        "did you mean `code_interpreter`?",
        "did you mean `measure`?",
    ] {
        assert!(found.contains(part), "{part:?} is not in: {found}");
    }
}

#[test]
fn dates_of_toml_stay_text() {
    let plan = parse(
        &GIVEN
            .replace("role =", "input_context = { day = 2026-10-01, deep = [1979-05-27T07:32:00Z] }\nrole ="),
    )
    .unwrap();
    assert_eq!(plan.tickets[1].input_context["day"], "2026-10-01");
    assert_eq!(plan.tickets[1].input_context["deep"][0], "1979-05-27T07:32:00Z");
}

#[test]
fn c9_ten_thousand_tickets_are_refused_by_their_number() {
    let mut text = String::from("[goal]\ntext = \"x\"\n");
    for i in 0..10_000 {
        text.push_str(&format!(
            "[[tickets]]\nid = \"t{i}\"\ndescription = \"x\"\nrole = \"data_analyst\"\noutputs = [\"x\"]\n"
        ));
    }
    let found = found(&parse(&text).unwrap());
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("10000 tickets, at most 1000 are allowed"), "{found:?}");
}

#[test]
fn tickets_that_are_there_but_empty_are_refused_and_not_planned_by_a_model() {
    let refused = PlanFile::parse("p.toml", "tickets = []\n[goal]\ntext = \"t\"\n", &Limits::default())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("give at least one, or leave it out"), "{refused}");
}
