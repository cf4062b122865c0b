//! What only Anthropic's messages have: signed thinking, forced calls, its errors and its counts.

use super::fake::messages;
use super::*;

fn anthropic(fake: &Fake) -> Model {
    let config = config::Model { wire: config::Wire::Anthropic, ..config(fake) };
    Model::new(&config).unwrap()
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"type": "message", "role": "assistant", "content": [], "model": "m",
        "usage": {"input_tokens": 20, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000,
        "output_tokens": 1}}})
}

fn begins(index: u32, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u32, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn ends(reason: &str, output_tokens: u64) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": output_tokens}}),
        json!({"type": "message_stop"}),
    ]
}

#[tokio::test]
async fn a15_thinking_stands_apart_and_goes_back_signed_as_it_came() {
    let [last, stop] = ends("tool_use", 42);
    let hidden = json!({"type": "redacted_thinking", "data": "c2VjcmV0"});
    let fake = Fake::start(vec![
        messages(&[
            start(),
            begins(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "I should "})),
            delta(0, json!({"type": "thinking_delta", "thinking": "search."})),
            delta(0, json!({"type": "signature_delta", "signature": "EqQBCgIYAhIM"})),
            begins(1, hidden.clone()),
            begins(2, json!({"type": "text", "text": ""})),
            delta(2, json!({"type": "text_delta", "text": "I look."})),
            begins(3, json!({"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}})),
            delta(3, json!({"type": "input_json_delta", "partial_json": "{\"q\":"})),
            delta(3, json!({"type": "input_json_delta", "partial_json": " \"x\"}"})),
            last,
            stop,
        ]),
        Answer::Json(
            200,
            json!({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "done"}],
                "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 2}}),
        ),
    ])
    .await;
    let model = anthropic(&fake);
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("I look.", Finish::ToolCalls));
    assert_eq!(reply.calls, vec![call("toolu_1", "search", json!({"q": "x"}))]);
    let usage = Usage { input_tokens: 1_120, output_tokens: 42, cached_tokens: 1_000, estimated: false };
    assert_eq!(reply.usage, usage, "the cached parts of the prompt are parts of the prompt");
    let mut turns = hello();
    turns.push(Message::Assistant { text: reply.text, reasoning: reply.reasoning, calls: reply.calls });
    turns.push(Message::Tool { call_id: "toolu_1".into(), content: "4 hits".into() });
    assert_eq!(chat_with(&model, &turns, &tools()).await.unwrap().text, "done");
    let sent = &fake.requests()[1];
    let thought = json!({"type": "thinking", "thinking": "I should search.", "signature": "EqQBCgIYAhIM"});
    assert_eq!(sent["messages"][1]["content"][0], thought);
    assert_eq!(sent["messages"][1]["content"][1], hidden);
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "4 hits",
        "cache_control": {"type": "ephemeral"}});
    assert_eq!(sent["messages"][2], json!({"role": "user", "content": [result]}));
    assert_eq!(sent["system"][0]["text"], "be brief");
}

#[tokio::test]
async fn a17_a_structured_answer_is_a_forced_call_or_words() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    let [last, stop] = ends("tool_use", 3);
    let fake = Fake::start(vec![
        messages(&[
            start(),
            begins(0, json!({"type": "tool_use", "id": "toolu_1", "name": "count", "input": {}})),
            delta(0, json!({"type": "input_json_delta", "partial_json": "{\"n\": 7}"})),
            last,
            stop,
        ]),
        Answer::Json(
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error",
                "message": "Thinking may not be enabled when tool_choice forces tool use."}}),
        ),
        Answer::Json(
            200,
            json!({"type": "message", "content": [{"type": "text", "text": "Here: {\"n\": 8}"}],
                "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 2}}),
        ),
    ])
    .await;
    let model = anthropic(&fake);
    let (stop, messages) = (CancellationToken::new(), hello());
    let take = |v: &Value| v["n"].as_u64().ok_or_else(|| vec!["no n".to_owned()]);
    for (n, requests) in [(7, 1), (8, 2)] {
        let (got, records) =
            model.structured(&ask(&messages, &[], &stop), "count", &schema, take).await.unwrap();
        assert_eq!((got, records.len()), (n, requests));
    }
    let sent = fake.requests();
    assert_eq!(sent[0]["tool_choice"], json!({"type": "tool", "name": "count"}));
    assert_eq!(sent[0]["tools"][0]["input_schema"], schema);
    assert!(
        sent[2].get("tools").is_none() && sent[2]["messages"].to_string().contains("additionalProperties")
    );
}

#[tokio::test]
async fn a3_a19_a23_its_errors_are_classed() {
    let error =
        |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
    let cases = [
        (
            Answer::Json(
                400,
                error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            ),
            "context",
        ),
        (Answer::Json(401, error("authentication_error", "invalid x-api-key")), "auth"),
        (Answer::Json(413, error("request_too_large", "Request exceeds the maximum size")), "context"),
        (Answer::Header(429, "retry-after", "90".into(), error("rate_limit_error", "slow down")), "quota"),
    ];
    for (answer, class) in cases {
        let fake = Fake::start(vec![answer]).await;
        let error = chat_with(&anthropic(&fake), &hello(), &tools()).await.unwrap_err();
        assert_eq!(error.class.as_str(), class);
    }
    // An overload in the middle of a stream, and one before it: asked again.
    let fake = Fake::start(vec![
        messages(&[start(), error("overloaded_error", "Overloaded")]),
        Answer::Json(529, error("overloaded_error", "Overloaded")),
        messages(&{
            let [last, stop] = ends("end_turn", 1);
            [
                start(),
                begins(0, json!({"type": "text", "text": ""})),
                delta(0, json!({"type": "text_delta", "text": "ok"})),
                last,
                stop,
            ]
        }),
    ])
    .await;
    let reply = chat_with(&anthropic(&fake), &hello(), &tools()).await.unwrap();
    let errors: Vec<&str> = reply.records.iter().map(|r| r.error.as_str()).collect();
    assert_eq!((reply.text.as_str(), errors), ("ok", vec!["overload", "overload", ""]));
}

#[tokio::test]
async fn neighbouring_turns_of_one_role_are_one_turn() {
    let fake = Fake::start(vec![messages(&{
        let [last, stop] = ends("end_turn", 1);
        [start(), begins(0, json!({"type": "text", "text": "ok"})), last, stop]
    })])
    .await;
    let mut turns = hello();
    turns.push(Message::User("and more".into()));
    turns.push(Message::Assistant {
        text: String::new(),
        reasoning: "of another provider".into(),
        calls: vec![call("functions.search:3", "search", json!({}))],
    });
    turns.push(Message::Tool { call_id: "functions.search:3".into(), content: "r".into() });
    turns.push(Message::User("go on".into()));
    assert_eq!(chat_with(&anthropic(&fake), &turns, &tools()).await.unwrap().text, "ok");
    let roles: Vec<Value> =
        fake.requests()[0]["messages"].as_array().unwrap().iter().map(|m| m["role"].clone()).collect();
    assert_eq!(json!(roles), json!(["user", "assistant", "user"]));
}

#[tokio::test]
async fn b7_a_server_that_refuses_cache_marks_gets_none_from_then_on() {
    let says = |text: &str| {
        let mut events = vec![start(), begins(0, json!({"type": "text", "text": ""}))];
        events.push(delta(0, json!({"type": "text_delta", "text": text})));
        events.extend(ends("end_turn", 1));
        messages(&events)
    };
    let refused = Answer::Json(
        400,
        json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": "system.0.cache_control: Extra inputs are not permitted"}}),
    );
    let fake = Fake::start(vec![refused, says("one"), says("two")]).await;
    let model = anthropic(&fake);
    for word in ["one", "two"] {
        assert_eq!(chat_with(&model, &hello(), &tools()).await.unwrap().text, word);
    }
    let marks: Vec<bool> = fake.requests().iter().map(|r| r.to_string().contains("cache_control")).collect();
    assert_eq!(marks, [true, false, false]);
}
