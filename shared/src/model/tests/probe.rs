//! The probe: what it finds of servers of several kinds, and that what was learnt holds from then on.

use super::fake::whole;
use super::*;

fn weather(cities: &[&str]) -> Answer {
    let calls: Vec<Value> = cities
        .iter()
        .enumerate()
        .map(|(i, city)| {
            json!({"id": format!("c{i}"), "type": "function",
                "function": {"name": "get_weather", "arguments": json!({"city": city}).to_string()}})
        })
        .collect();
    whole(json!({"role": "assistant", "content": "", "tool_calls": calls}), "tool_calls")
}

async fn probed(answers: Vec<Answer>) -> (Findings, Model, Fake) {
    let fake = Fake::start(answers).await;
    let model = Model::new(&config(&fake)).unwrap();
    let found = model.probe(Tier::Standard, None, &CancellationToken::new()).await.unwrap();
    (found, model, fake)
}

#[tokio::test]
async fn a_model_that_can_all_of_it() {
    let (found, ..) = probed(vec![
        said("pineapple"),
        weather(&["Paris", "Tokyo"]),
        said("Sunny in both."),
        said("{\"answer\": 5}"),
    ])
    .await;
    let expected = Findings {
        model: "m".into(),
        dialect: "native".into(),
        structured: "json_schema".into(),
        calls_tools: true,
        parallel_calls: true,
        takes_results: true,
        valid_json: true,
        obeys_system: true,
        names_usage: true,
        sees_images: true,
        requests: 4,
        ..Findings::default()
    };
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a16_a17_what_the_probe_was_refused_is_never_asked_again() {
    let refused = |what: &str| Answer::error(400, what, "invalid_request_error");
    let (found, model, fake) = probed(vec![
        said("Paris"),
        refused("m does not support tools"),
        said("{\"tool_calls\": [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]}"),
        said("{\"answer\": \"sunny\"}"),
        refused("This response_format type is unavailable now"),
        said("The answer is {\"answer\": 5}."),
        // After the probe:
        said("{\"answer\": \"hello\"}"),
    ])
    .await;
    assert_eq!((found.dialect.as_str(), found.structured.as_str()), ("json", "json_object"));
    assert!(found.calls_tools && found.takes_results && found.valid_json, "{found:?}");
    assert!(!found.obeys_system && !found.parallel_calls, "{found:?}");
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.requests), ("hello", 1));
    assert!(fake.requests().last().unwrap().get("tools").is_none());
}

#[tokio::test]
async fn tools_that_a_server_drops_without_a_word_are_asked_in_the_next_dialect() {
    let call = "{\"tool_calls\": [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]}";
    let (found, ..) = probed(vec![
        said("Paris"),
        said("I cannot know the weather."),
        said(call),
        said("{\"answer\": \"sunny\"}"),
        said("{\"answer\": 5}"),
    ])
    .await;
    assert_eq!((found.dialect.as_str(), found.calls_tools), ("json", true));
    // Nor does it there: then it is the model, and the server's own way stays.
    let no = || said("I cannot know the weather.");
    let (found, ..) = probed(vec![said("Paris"), no(), no(), said("five")]).await;
    assert_eq!((found.dialect.as_str(), found.calls_tools, found.valid_json), ("native", false, false));
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_used_is_an_error() {
    let fake = Fake::start(vec![Answer::error(401, "invalid key", "auth")]).await;
    let model = Model::new(&config(&fake)).unwrap();
    let error = model.probe(Tier::Standard, None, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Auth);
}

#[tokio::test]
async fn a_server_whose_answers_cannot_be_read_is_an_error_and_no_finding() {
    let page = || Answer::Json(200, json!({"welcome": "to the login page"}));
    let fake = Fake::start((0..9).map(|_| page()).collect()).await;
    let model = Model::new(&config(&fake)).unwrap();
    let error = model.probe(Tier::Standard, None, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Reply);
    assert!(error.detail.starts_with("no answer could be read: "), "{}", error.detail);
}

#[tokio::test]
async fn a20_a_prompt_that_was_cut_without_a_word_is_noticed_and_the_window_remembered() {
    let counted = |tokens: u64| {
        Answer::Json(
            200,
            json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "What can I do?"},
                "finish_reason": "stop"}], "usage": {"prompt_tokens": tokens, "completion_tokens": 5}}),
        )
    };
    let long = vec![Message::System("rules ".repeat(10_000)), Message::User("work".into())];
    let fake = Fake::start(vec![counted(2_050), counted(2_000)]).await;
    let model = Model::new(&config(&fake)).unwrap();
    let error = chat_with(&model, &long, &tools()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Context);
    assert!(error.detail.contains("2050 tokens of a prompt of 60004 bytes"), "{}", error.detail);
    // The same again is not even sent; a smaller one is, and its count is believed.
    let error = chat_with(&model, &long, &tools()).await.unwrap_err();
    assert_eq!((error.class, error.records.len()), (ErrorClass::Context, 0));
    let short = vec![Message::System("rules ".repeat(1_500)), Message::User("work".into())];
    assert_eq!(chat_with(&model, &short, &tools()).await.unwrap().text, "What can I do?");
    // The same server when the front is gone.
    let fake = Fake::start(vec![Answer::error(500, "no user query found in messages", "api_error")]).await;
    assert_eq!(chat(&fake, &hello()).await.unwrap_err().class, ErrorClass::Context);
}
