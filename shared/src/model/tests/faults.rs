//! Servers that fail: what is sent again, what is not, and what the caller hears.

use super::fake::{Ending, fixture, whole};
use super::*;
use std::time::{Duration, Instant};

fn lines(text: &str, ending: Ending) -> Answer {
    Answer::Stream(text.into(), ending)
}

#[tokio::test]
async fn a1_an_answer_without_a_choice_is_asked_again() {
    let empty = || {
        Answer::Json(
            200,
            json!({"id": "", "object": "", "created": 0, "model": "", "choices": [],
            "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}),
        )
    };
    let fake = Fake::start(vec![empty(), said("ok")]).await;
    let reply = chat(&fake, &hello()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.requests, reply.records.len()), ("ok", 2, 2));
    assert_eq!((reply.records[0].error.as_str(), reply.records[1].error.as_str()), ("reply", ""));
    let fake = Fake::start(vec![empty(), empty(), said("")]).await;
    let error = chat(&fake, &hello()).await.unwrap_err();
    assert_eq!((error.class, error.detail.as_str()), (ErrorClass::Reply, "the answer is empty"));
    assert_eq!(error.records.len(), 3);
}

#[tokio::test]
async fn a3_comments_are_ignored_and_an_error_inside_a_stream_is_the_servers() {
    for choices in [json!([{"index": 0, "delta": {}, "finish_reason": "error"}]), json!([])] {
        let partial = chunk(
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "search", "arguments": "{}"}}]}),
            None,
        );
        let error = json!({"id": "g", "object": "chat.completion.chunk", "choices": choices,
            "error": {"code": 502, "message": "Provider disconnected"}});
        let text = format!(
            ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\ndata: {partial}\n\ndata: {error}\n\ndata: [DONE]\n\n"
        );
        let fake = Fake::start(vec![lines(&text, Ending::Close), said("ok")]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.calls.len(), reply.requests), ("ok", 0, 2));
        assert_eq!(reply.records[0].error, "overload");
        assert!(reply.records[0].detail.contains("Provider disconnected"));
    }
}

#[tokio::test]
async fn a4_a_stream_without_its_end() {
    let text = chunk(json!({"content": "all of it"}), None);
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
    for ending in [Ending::Close, Ending::Break] {
        let fake = Fake::start(vec![lines(&format!("data: {text}\n\ndata: {usage}\n\n"), ending)]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.finish, reply.repairs), ("all of it", Finish::Stop, 1));
    }
    // A tool call is taken only when it is complete; an empty finish reason in its middle ends nothing.
    let part = |arguments: &str, finish: Value| {
        json!({"choices": [{"index": 0, "finish_reason": finish, "delta": {"tool_calls": [{"index": 0, "id": "a",
            "function": {"name": "search", "arguments": arguments}}]}}]})
    };
    let begun = part("{\"q\":", json!(""));
    let ended = part("\"x\"}", Value::Null);
    let fake = Fake::start(vec![
        lines(&format!("data: {begun}\n\ndata: {ended}\n\n"), Ending::Close),
        lines(&format!("data: {begun}\n\n"), Ending::Close),
    ])
    .await;
    let model = Model::new(&config(&fake)).unwrap();
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!(reply.calls, vec![call("a", "search", json!({"q": "x"}))]);
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert!(reply.calls[0].args.as_ref().is_err_and(|b| b.truncated));
    // Nothing at all is a transport error; a connection broken in the middle is one too.
    let fake = Fake::start(vec![
        lines("", Ending::Close),
        lines(&format!("data: {text}\n\n"), Ending::Break),
        said("ok"),
    ])
    .await;
    let reply = chat(&fake, &hello()).await.unwrap();
    let errors: Vec<&str> = reply.records.iter().map(|r| r.error.as_str()).collect();
    assert_eq!((reply.text.as_str(), errors), ("ok", vec!["network", "network", ""]));
}

#[tokio::test]
async fn a5_a_silent_stream_ends_at_the_idle_timeout_and_is_asked_again() {
    let text = chunk(json!({"content": "half"}), None);
    let fake = Fake::start(vec![
        lines(&format!("data: {text}\n\n"), Ending::Stall),
        // Bytes that never become a line are silence too.
        lines("data: {\"choices\":", Ending::Stall),
        said("ok"),
    ])
    .await;
    let begun = Instant::now();
    let mut impatient = config(&fake);
    impatient.idle_timeout_ms = 300;
    let reply = chat_with(&Model::new(&impatient).unwrap(), &hello(), &tools()).await.unwrap();
    let details: Vec<&str> = reply.records.iter().map(|r| r.detail.as_str()).collect();
    assert_eq!(
        details,
        [
            "the server fell silent in the middle of its answer",
            "the server fell silent before its first line",
            ""
        ]
    );
    assert!(reply.records[0].estimated && reply.records[0].tokens() > 0, "it was paid for");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a16_tools_refused_are_asked_in_the_prompt_once_and_for_all() {
    let refused = Answer::error(400, "m:latest does not support tools", "api_error");
    let hermes = "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q\": \"x\"}}\n</tool_call>";
    let fake = Fake::start(vec![refused, said(hermes), said("found")]).await;
    let model = Model::new(&config(&fake)).unwrap();
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!(reply.calls, vec![call("call_0_0", "search", json!({"q": "x"}))]);
    let mut messages = hello();
    messages.push(Message::Assistant { text: reply.text, reasoning: String::new(), calls: reply.calls });
    messages.push(Message::Tool { call_id: "call_0_0".into(), content: "42 hits".into() });
    let reply = chat_with(&model, &messages, &tools()).await.unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.requests, reply.records[0].dialect.as_str()),
        ("found", 1, "json")
    );
    let last = &fake.requests()[2];
    assert!(last.get("tools").is_none());
    assert!(last["messages"][0]["content"].as_str().unwrap().contains("\"name\":\"get_weather\""));
    assert_eq!(last["response_format"], json!({"type": "json_object"}));
    assert_eq!(last["messages"][3]["content"], r#"{"tool_results":[{"name":"search","result":"42 hits"}]}"#);
}

#[tokio::test]
async fn a19_a_prompt_over_the_context_is_its_own_class_and_not_sent_again() {
    for answer in [
        fixture(include_str!("../../../../tests/fixtures/model/context-overflow.json")),
        Answer::error(
            400,
            "This model's maximum context length is 4096 tokens. However, you requested 0 output tokens",
            "BadRequestError",
        ),
        Answer::Json(400, json!({"error": {"message": "too long", "code": "context_length_exceeded"}})),
        Answer::Json(413, json!({"detail": "too large"})),
    ] {
        let fake = Fake::start(vec![answer]).await;
        assert_eq!(chat(&fake, &hello()).await.unwrap_err().class, ErrorClass::Context);
    }
}

#[tokio::test]
async fn a23_a_hint_is_obeyed_in_place_or_handed_to_the_caller() {
    let quota = |header: &str, text: &str| {
        Answer::Header(429, "retry-after", header.into(), json!({"error": {"message": text}}))
    };
    let fake = Fake::start(vec![quota("0.3", "slow down"), said("ok")]).await;
    let begun = Instant::now();
    assert_eq!(chat(&fake, &hello()).await.unwrap().requests, 2);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let late = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(90);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&late).unwrap();
    for (answer, at_least) in [
        (quota("70", ""), 70_000),
        (quota(&date, ""), 80_000),
        (Answer::error(429, "Rate limit reached, please retry after 40s", "tokens"), 40_000),
        (Answer::error(429, "Please try again in 1m30.5s.", "requests"), 90_500),
    ] {
        let fake = Fake::start(vec![answer]).await;
        let error = chat(&fake, &hello()).await.unwrap_err();
        let ErrorClass::Quota { retry_after_ms: Some(ms) } = error.class else { panic!("{error:?}") };
        assert!((at_least..at_least + 11_000).contains(&ms), "{ms}");
    }
}

#[tokio::test]
async fn a23_an_exhausted_account_is_for_a_person_and_not_waited_for() {
    let ended = "You exceeded your current quota, please check your plan and billing details.";
    for answer in [
        Answer::error(429, ended, "insufficient_quota"),
        Answer::Json(429, json!({"error": {"message": ended, "code": "insufficient_quota"}})),
        Answer::error(429, ended, "requests"),
        Answer::Header(
            429,
            "retry-after",
            "5".into(),
            json!({"error": {"message": "no", "type": "insufficient_quota"}}),
        ),
        Answer::error(200, "no", "insufficient_quota"),
        Answer::error(400, "Your credit balance is too low to access the API.", "invalid_request_error"),
        Answer::error(402, "Payment Required", "unknown_error"),
    ] {
        let fake = Fake::start(vec![answer]).await;
        let error = chat(&fake, &hello()).await.unwrap_err();
        assert_eq!((error.class, error.records.len()), (ErrorClass::Auth, 1), "{error}");
        assert!(error.detail.starts_with("the account is exhausted: HTTP "), "{error}");
    }
    // The same words of a minute's limit, which say how long it lasts.
    let fake =
        Fake::start(vec![Answer::error(429, &format!("{ended} Please retry in 40s."), "tokens")]).await;
    let error = chat(&fake, &hello()).await.unwrap_err();
    assert_eq!(error.class.as_str(), "quota", "{error}");
}

#[tokio::test]
async fn a25_one_owner_of_retries_within_requests_and_time() {
    let down = || Answer::error(503, "overloaded", "server_error");
    let fake = Fake::start(vec![down(), down(), down()]).await;
    let error = chat(&fake, &hello()).await.unwrap_err();
    assert_eq!((error.class, error.records.len()), (ErrorClass::Overload, 3));
    // No time left: not even the second one.
    let fake = Fake::start(vec![Answer::Header(429, "retry-after", "5".into(), json!({}))]).await;
    let mut short = config(&fake);
    short.call_timeout_ms = 4_000;
    let error = chat_with(&Model::new(&short).unwrap(), &hello(), &[]).await.unwrap_err();
    assert_eq!((error.class.as_str(), error.records.len()), ("quota", 1));
}

#[tokio::test]
async fn a_stop_ends_a_call_at_once() {
    let text = chunk(json!({"content": "half"}), None);
    let fake = Fake::start(vec![lines(&format!("data: {text}\n\n"), Ending::Stall)]).await;
    let mut slow = config(&fake);
    slow.idle_timeout_ms = 60_000;
    let model = Model::new(&slow).unwrap();
    let stop = CancellationToken::new();
    // The first part of the answer asks for the stop: no clock in this test.
    let on_bytes = || stop.cancel();
    let messages = hello();
    let error = model.chat(&Ask { on_bytes: &on_bytes, ..ask(&messages, &[], &stop) }).await.unwrap_err();
    assert_eq!((error.class, error.records.len()), (ErrorClass::Cancelled, 1));
    assert!(error.records[0].tokens() > 0, "what had arrived was paid for");
}

#[tokio::test]
async fn i12_a_key_that_the_server_quotes_reaches_no_record() {
    let fake = Fake::start(vec![Answer::error(
        401,
        "Incorrect API key provided: sk-secret-key-of-tests, not sk-proj-0123456789",
        "auth",
    )])
    .await;
    let error = chat(&fake, &hello()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Auth);
    let everything = format!("{error:?} {error} {:?}", error.records[0].to_value());
    assert!(!everything.contains("secret") && !everything.contains("0123456789"), "{everything}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_network_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = listener.local_addr().unwrap();
    drop(listener);
    let config = config::Model {
        url: format!("http://{gone}/v1"),
        standard: "m".into(),
        calls_per_answer_max: 2,
        ..config::Model::default()
    };
    let error = chat_with(&Model::new(&config).unwrap(), &hello(), &[]).await.unwrap_err();
    assert_eq!((error.class, error.records.len()), (ErrorClass::Network, 2));
    assert!(error.detail.contains("cannot connect"), "{}", error.detail);
}

#[tokio::test]
async fn what_a_server_refuses_is_left_out_from_then_on() {
    let fake = Fake::start(vec![
        Answer::error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "x"),
        Answer::error(400, "Unsupported value: 'temperature' does not support 0.2 with this model.", "x"),
        said("one"),
        said("two"),
    ])
    .await;
    let model = Model::new(&config(&fake)).unwrap();
    assert_eq!(chat_with(&model, &hello(), &[]).await.unwrap().requests, 3);
    assert_eq!(chat_with(&model, &hello(), &[]).await.unwrap().requests, 1);
    let last = fake.requests().pop().unwrap();
    assert_eq!(last["max_completion_tokens"], 256);
    assert!(last.get("max_tokens").is_none() && last.get("temperature").is_none());
}

#[tokio::test]
async fn a15_reasoning_goes_back_only_where_it_is_demanded() {
    let fake = Fake::start(vec![
        whole(
            json!({"role": "assistant", "content": "", "reasoning_content": "because", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}),
            "tool_calls",
        ),
        Answer::error(
            400,
            "The reasoning_content in the thinking mode must be passed back to the API.",
            "invalid_request_error",
        ),
        said("ok"),
    ])
    .await;
    let model = Model::new(&config(&fake)).unwrap();
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    let mut messages = hello();
    messages.push(Message::Assistant { text: reply.text, reasoning: reply.reasoning, calls: reply.calls });
    messages.push(Message::Tool { call_id: "a".into(), content: "r".into() });
    assert_eq!(chat_with(&model, &messages, &tools()).await.unwrap().text, "ok");
    let sent = fake.requests();
    assert!(sent[1]["messages"][2].get("reasoning_content").is_none());
    assert_eq!(sent[2]["messages"][2]["reasoning_content"], "because");
}

#[tokio::test]
async fn a4_a_server_that_keeps_the_connection_open_after_its_answer_is_not_waited_for() {
    let text = chunk(json!({"content": "all"}), Some("stop"));
    let fake = Fake::start(vec![lines(&format!("data: {text}\n\n"), Ending::Stall)]).await;
    let mut patient = config(&fake);
    patient.idle_timeout_ms = 60_000;
    let begun = Instant::now();
    let reply = chat_with(&Model::new(&patient).unwrap(), &hello(), &[]).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.usage.estimated), ("all", true));
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn an_answer_longer_than_the_limit_is_refused() {
    let long = chunk(json!({"content": "x".repeat(5_000)}), Some("stop"));
    let fake = Fake::start(vec![Answer::sse(&[long])]).await;
    let mut small = config(&fake);
    small.response_bytes_max = 2_000;
    small.calls_per_answer_max = 1;
    let error = chat_with(&Model::new(&small).unwrap(), &hello(), &[]).await.unwrap_err();
    assert!(error.class == ErrorClass::Reply && error.detail.contains("response_bytes_max"), "{error}");
}

#[tokio::test]
async fn an_event_may_spread_over_several_data_lines() {
    let event = "data: {\"choices\": [{\"index\": 0,\ndata: \"delta\": {\"content\": \"hi\"},\ndata: \"finish_reason\": \"stop\"}]}\n\n";
    let fake = Fake::start(vec![lines(event, Ending::Close)]).await;
    assert_eq!(chat(&fake, &hello()).await.unwrap().text, "hi");
}
