//! Structured answers: the ladder, local validation, problems quoted back.

use super::fake::{Ending, fixture};
use super::*;

fn schema() -> Value {
    json!({"type": "object", "properties": {"verdict": {"enum": ["pass", "fail"]}}, "required": ["verdict"],
        "additionalProperties": false})
}

async fn verdict(model: &Model) -> Result<(String, Vec<CallRecord>), ModelError> {
    let stop = CancellationToken::new();
    let messages = hello();
    model
        .structured(&ask(&messages, &[], &stop), "verdict", &schema(), |v| {
            v["verdict"].as_str().map(str::to_owned).ok_or_else(|| vec!["no verdict".to_owned()])
        })
        .await
}

#[tokio::test]
async fn a13_a22_json_is_found_wherever_it_stands() {
    for text in [
        "{\"verdict\":\"pass\"}",
        "<think>maybe {\"verdict\":\"fail\"}</think>{\"verdict\":\"pass\"}",
        "<THINK>\n\n</THINK>\n```json\n{\"verdict\":\"pass\"}\n```",
        "draft {\"verdict\":\"fail\"}</think>{\"verdict\":\"pass\"}",
        "Sure! ```json {\"verdict\":\"pass\"} ``` Let me know",
        "Here [as asked: {\"verdict\":\"pass\"} and so on",
        "{\"draft\":true}{\"verdict\":\"pass\"}",
        "{\"verdict\":\"pass\",}",
        "{{\"verdict\":\"pass\"}}",
    ] {
        let fake = Fake::start(vec![said(text)]).await;
        let (value, records) = verdict(&Model::new(&config(&fake)).unwrap()).await.unwrap();
        assert_eq!((value.as_str(), records.len()), ("pass", 1), "{text}");
    }
}

#[tokio::test]
async fn a22_problems_are_quoted_back_three_requests_in_all() {
    let fake = Fake::start(vec![
        said("I would say it passes."),
        said("{\"verdict\":\"maybe\"}"),
        said("{\"verdict\":\"pass\"}"),
    ])
    .await;
    let (value, records) = verdict(&Model::new(&config(&fake)).unwrap()).await.unwrap();
    assert_eq!(value, "pass");
    let errors: Vec<&str> = records.iter().map(|r| r.error.as_str()).collect();
    assert_eq!(errors, ["reply", "reply", ""]);
    let sent = fake.requests();
    assert_eq!(sent[0]["response_format"]["json_schema"]["strict"], true);
    // Only the last wrong answer goes along, with what was wrong.
    let messages = sent[2]["messages"].as_array().unwrap();
    assert_eq!((messages.len(), messages[2]["content"].as_str()), (4, Some("{\"verdict\":\"maybe\"}")));
    assert!(messages[3]["content"].as_str().unwrap().contains("at /verdict: "), "{}", messages[3]);

    let wrong = || said("{\"verdict\":\"maybe\"}");
    let fake = Fake::start(vec![wrong(), wrong(), wrong()]).await;
    let error = verdict(&Model::new(&config(&fake)).unwrap()).await.unwrap_err();
    assert_eq!((error.class, error.records.len()), (ErrorClass::Reply, 3));
    assert!(error.detail.contains("at /verdict"), "{}", error.detail);
}

#[tokio::test]
async fn a22_the_callers_check_counts_as_much_as_the_schema() {
    let fake = Fake::start(vec![said("{\"verdict\":\"pass\"}"), said("{\"verdict\":\"fail\"}")]).await;
    let stop = CancellationToken::new();
    let messages = hello();
    let (value, _) = Model::new(&config(&fake))
        .unwrap()
        .structured(&ask(&messages, &[], &stop), "verdict", &schema(), |v| {
            if v["verdict"] == "fail" { Ok(1) } else { Err(vec!["look again".to_owned()]) }
        })
        .await
        .unwrap();
    assert_eq!(value, 1);
    assert!(fake.requests()[1]["messages"][3]["content"].as_str().unwrap().contains("- look again"));
}

#[tokio::test]
async fn a17_the_ladder_goes_down_once_and_remembers() {
    let refused = |message: &str| Answer::error(400, message, "invalid_request_error");
    let fake = Fake::start(vec![
        refused("This response_format type is unavailable now"),
        refused("response_format json_object is not supported"),
        said("Fine: {\"verdict\":\"pass\"}"),
        said("{\"verdict\":\"fail\"}"),
    ])
    .await;
    let model = Model::new(&config(&fake)).unwrap();
    let (value, records) = verdict(&model).await.unwrap();
    let dialects: Vec<&str> = records.iter().map(|r| r.dialect.as_str()).collect();
    assert_eq!((value.as_str(), dialects), ("pass", vec!["json_schema", "json_object", "plain"]));
    let (value, records) = verdict(&model).await.unwrap();
    assert_eq!((value.as_str(), records.len(), records[0].dialect.as_str()), ("fail", 1, "plain"));
    let sent = fake.requests();
    assert_eq!(sent[1]["response_format"], json!({"type": "json_object"}));
    let prompt = sent[1]["messages"][1]["content"].as_str().unwrap();
    assert!(prompt.contains("JSON") && prompt.contains("\"verdict\""), "{prompt}");
    assert!(sent[3].get("response_format").is_none());
}

#[tokio::test]
async fn a17_a_real_refusal_of_a_schema_steps_down() {
    let refusal = fixture(include_str!("../../../../tests/fixtures/model/json-schema-bad.json"));
    let fake = Fake::start(vec![refusal, said("{\"verdict\":\"pass\"}")]).await;
    let (_, records) = verdict(&Model::new(&config(&fake)).unwrap()).await.unwrap();
    assert_eq!(records[1].dialect, "json_object");
}

#[tokio::test]
async fn a12_a_cut_structured_answer_is_asked_again_shorter() {
    let cut = fixture(include_str!("../../../../tests/fixtures/model/json-schema-cut.json"));
    let fake = Fake::start(vec![cut, said("{\"verdict\":\"pass\"}")]).await;
    let (value, records) = verdict(&Model::new(&config(&fake)).unwrap()).await.unwrap();
    assert_eq!(
        (value.as_str(), records[0].finish.as_str(), records[0].error.as_str()),
        ("pass", "length", "reply")
    );
    assert!(fake.requests()[1]["messages"][3]["content"].as_str().unwrap().contains("much shorter"));
}

#[tokio::test]
async fn a_real_structured_stream_is_validated_here() {
    let text = include_str!("../../../../tests/fixtures/model/json-schema-stream.json");
    let fake = Fake::start(vec![fixture(text)]).await;
    let stop = CancellationToken::new();
    let messages = hello();
    let schema = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
    let (name, _) = Model::new(&config(&fake))
        .unwrap()
        .structured(&ask(&messages, &[], &stop), "city", &schema, |v| Ok(v["name"].clone()))
        .await
        .unwrap();
    assert_eq!(name, "Paris");
    assert_eq!(fake.requests()[0]["response_format"]["json_schema"]["strict"], false);
}

#[tokio::test]
async fn garbage_ends_with_its_class_and_within_its_requests() {
    let garbage = || Answer::Stream("<html>no model here</html>\n".into(), Ending::Close);
    let fake = Fake::start(vec![garbage(), garbage(), garbage()]).await;
    let error = verdict(&Model::new(&config(&fake)).unwrap()).await.unwrap_err();
    assert_eq!((error.class, error.records.len()), (ErrorClass::Reply, 3));
    assert!(error.detail.contains("<html>"), "{}", error.detail);
}
