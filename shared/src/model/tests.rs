//! The client against a real HTTP server that checks every request it gets. Names begin with the ids of CASES.

mod anthropic;
mod chain;
mod conformance;
mod fake;
mod faults;
mod fuzz;
mod images;
mod ladder;
mod probe;
mod reading;
mod shapes;
mod structured;

use super::*;
use fake::{Answer, Fake, chunk, config, said};
use serde_json::json;

pub(super) fn tools() -> Vec<ToolDecl> {
    let decl = |name: &str, schema: Value| ToolDecl {
        name: name.into(),
        bundle: "test".into(),
        description: format!("does {name}"),
        schema: schema.into(),
        effect: crate::tool::Effect::Reads,
        sandboxed: false,
        requires_confirmation: false,
    };
    vec![
        decl(
            "search",
            json!({"type": "object", "properties": {"q": {"type": "string"}, "limit": {"type": "integer"}}}),
        ),
        decl("get_weather", json!({"type": "object", "properties": {"city": {"type": "string"}}})),
        decl("plan", json!({"type": "object", "properties": {"todos": {"type": "array"}}})),
    ]
}

/// Asks once, with the tools above.
pub(super) async fn chat(fake: &Fake, messages: &[Message]) -> Result<Reply, ModelError> {
    let model = Model::new(&config(fake))?;
    chat_with(&model, messages, &tools()).await
}

pub(super) async fn chat_with(
    model: &Model,
    messages: &[Message],
    tools: &[ToolDecl],
) -> Result<Reply, ModelError> {
    let stop = CancellationToken::new();
    model.chat(&ask(messages, tools, &stop)).await
}

pub(super) fn ask<'a>(
    messages: &'a [Message],
    tools: &'a [ToolDecl],
    stop: &'a CancellationToken,
) -> Ask<'a> {
    Ask {
        role: "worker",
        tier: Tier::Standard,
        messages,
        tools,
        output_tokens_max: 256,
        stop,
        on_bytes: &|| {},
        on_wait: &ignore_wait,
    }
}

pub(super) fn hello() -> Vec<Message> {
    vec![Message::System("be brief".into()), Message::User("hello".into())]
}

pub(super) fn args(value: Value) -> Result<Map<String, Value>, BadArgs> {
    Ok(value.as_object().cloned().unwrap_or_default())
}

pub(super) fn call(id: &str, name: &str, value: Value) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), args: args(value) }
}

#[tokio::test]
async fn a_plain_answer_is_streamed_and_recorded() {
    let fake = Fake::start(vec![Answer::sse(&[
        chunk(json!({"role": "assistant", "content": null}), None),
        chunk(json!({"content": "Hi"}), None),
        chunk(json!({"content": " there"}), None),
        chunk(json!({}), Some("stop")),
        json!({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 10}}}),
    ])])
    .await;
    let mut config = config(&fake);
    config.input_microusd_per_mtok = 1_000_000;
    config.output_microusd_per_mtok = 2_000_000;
    let moved = std::sync::atomic::AtomicU32::new(0);
    let stop = CancellationToken::new();
    let count = || {
        moved.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let reply = Model::new(&config)
        .unwrap()
        .chat(&Ask { on_bytes: &count, ..ask(&hello(), &tools(), &stop) })
        .await
        .unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.finish, reply.requests, reply.repairs),
        ("Hi there", Finish::Stop, 1, 0)
    );
    assert_eq!(
        reply.usage,
        Usage { input_tokens: 20, output_tokens: 3, cached_tokens: 10, estimated: false }
    );
    assert_eq!(moved.load(std::sync::atomic::Ordering::Relaxed), 5);
    let record = &reply.records[0];
    assert_eq!((record.tokens(), record.microusd, record.finish.as_str()), (23, 26, "stop"));
    assert_eq!((record.prompt_hash.len(), record.dialect.as_str()), (64, "native"));
    let request = &fake.requests()[0];
    let sent: Vec<&str> = request["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(sent, ["get_weather", "plan", "search"]);
    assert_eq!((&request["max_tokens"], &request["temperature"]), (&json!(256), &json!(0.2)));
}

#[tokio::test]
async fn b7_equal_prompts_are_equal_bytes() {
    let fake = Fake::start(vec![said("a"), said("b")]).await;
    let model = Model::new(&config(&fake)).unwrap();
    let mut reversed = tools();
    reversed.reverse();
    let first = chat_with(&model, &hello(), &tools()).await.unwrap();
    let second = chat_with(&model, &hello(), &reversed).await.unwrap();
    assert_eq!(first.records[0].prompt_hash, second.records[0].prompt_hash);
    assert_eq!(fake.requests()[0], fake.requests()[1]);
}

#[tokio::test]
async fn an_unanswered_call_in_the_history_is_refused_before_it_is_sent() {
    let fake = Fake::start(vec![]).await;
    let turn = |calls| Message::Assistant { text: String::new(), reasoning: String::new(), calls };
    let mut messages = hello();
    messages.push(turn(vec![call("a", "search", json!({})), call("b", "search", json!({}))]));
    messages.push(Message::Tool { call_id: "b".into(), content: "x".into() });
    let error = chat(&fake, &messages).await.unwrap_err();
    assert_eq!((error.class, error.detail.contains("`b`")), (ErrorClass::Ours, true));
    assert_eq!(fake.requests().len(), 0);
}
