//! The rehearsal model, asked by the fleet's own client through real HTTP.

use super::*;
use serde_json::{Value, json};
use shared::config;
use shared::model::{Ask, ErrorClass, Finish, Message, Model, ModelError, Reply};
use shared::ticket::Tier;
use shared::tool::{ToolDecl, builtin};

struct Stage {
    url: String,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<std::io::Result<Tally>>,
}

impl Stage {
    async fn set(script: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(Script::parse(script).unwrap(), listener, stop.clone()));
        Self { url, stop, task }
    }

    fn model(&self, calls: u32) -> Model {
        Model::new(&config::Model {
            url: self.url.clone(),
            standard: "rehearsal".into(),
            calls_per_answer_max: calls,
            idle_timeout_ms: 500,
            ..config::Model::default()
        })
        .unwrap()
    }

    async fn end(self) -> Tally {
        self.stop.cancel();
        self.task.await.unwrap().unwrap()
    }

    async fn post(&self, body: &Value) -> (u16, String) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = client.post(format!("{}/chat/completions", self.url)).json(body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

async fn chat(model: &Model, messages: &[Message], tools: &[ToolDecl]) -> Result<Reply, ModelError> {
    let stop = CancellationToken::new();
    let ask = Ask {
        role: "worker",
        tier: Tier::Standard,
        messages,
        tools,
        output_tokens_max: 100,
        stop: &stop,
        on_bytes: &|| {},
        on_wait: &shared::model::ignore_wait,
    };
    model.chat(&ask).await
}

fn worker(task: &str) -> Vec<Message> {
    vec![Message::System("You are one worker of a fleet.".into()), Message::User(task.into())]
}

#[tokio::test]
async fn a_conversation_is_played_turn_by_turn_with_what_the_tools_said() {
    let stage = Stage::set(
        r##"
        [[rules]]
        name = "again"
        role = "worker"
        contains = ["# Your ticket: count", "was tried before"]
        turns = [{ text = "better now" }]

        [[rules]]
        name = "count"
        role = "worker"
        contains = ["# Your ticket: count"]
        captures = { fact = "FACT: (.+)" }
        turns = [
          { text = "I count.", calls = [{ tool = "code_interpreter", args = { code = "print('FACT: 7 rows')" } }] },
          { calls = [{ tool = "finish", args = { status = "done", summary = "There are {{fact}}." } }] },
        ]
        "##,
    )
    .await;
    let model = stage.model(1);
    let mut messages = worker("# Your ticket: count\n");
    let first = chat(&model, &messages, &builtin()).await.unwrap();
    assert_eq!(
        (first.text.as_str(), first.finish, first.calls[0].name.as_str()),
        ("I count.", Finish::ToolCalls, "code_interpreter")
    );
    assert!(first.usage.input_tokens > 0 && first.usage.output_tokens > 0 && !first.usage.estimated);
    let id = first.calls[0].id.clone();
    messages.push(Message::Assistant { text: first.text, reasoning: String::new(), calls: first.calls });
    messages.push(Message::Tool { call_id: id, content: "output:\nFACT: 7 rows\n".into() });
    let second = chat(&model, &messages, &builtin()).await.unwrap();
    assert_eq!(second.calls[0].args.as_ref().unwrap()["summary"], "There are 7 rows.");
    let again = chat(&model, &worker("# Your ticket: count\nIt was tried before."), &[]).await.unwrap();
    assert_eq!(again.text, "better now");
    let tally = stage.end().await;
    assert_eq!((tally.requests, tally.answered, tally.refused, tally.missed), (3, 3, 0, 0));
    assert_eq!(tally.rules, [("again".to_owned(), 1), ("count".to_owned(), 2)].into());
}

#[tokio::test]
async fn a_verdict_has_as_many_items_as_are_asked_for() {
    let stage = Stage::set(
        r##"
        [[rules]]
        name = "judge"
        role = "reviewer"
        turns = [{ verdict = { pass = true, evidence = "a.md:1-1", reason = "there" } }]
        "##,
    )
    .await;
    let messages = [Message::System("You are a reviewer in a fleet".into()), Message::User("judge".into())];
    let schema = json!({"type": "object", "properties": {"items": {"type": "array", "maxItems": 3}}});
    let stop = CancellationToken::new();
    let ask = Ask {
        role: "reviewer",
        tier: Tier::Standard,
        messages: &messages,
        tools: &[],
        output_tokens_max: 0,
        stop: &stop,
        on_bytes: &|| {},
        on_wait: &shared::model::ignore_wait,
    };
    let (items, _) = stage
        .model(1)
        .structured(&ask, "verdict", &schema, |v| v["items"].as_array().map(Vec::len).ok_or_else(Vec::new))
        .await
        .unwrap();
    assert_eq!(items, 3);
    assert_eq!(stage.end().await.missed, 0);
}

#[tokio::test]
async fn asked_for_more_than_the_script_holds_it_says_so_and_counts() {
    let stage = Stage::set(
        r##"
        [[rules]]
        name = "once"
        times = 1
        turns = [{ text = "yes" }]
        "##,
    )
    .await;
    let model = stage.model(1);
    assert_eq!(chat(&model, &worker("a"), &[]).await.unwrap().text, "yes");
    let error = chat(&model, &worker("a"), &[]).await.unwrap_err();
    assert!(error.detail.contains("rule `once` fits, but has been used 1 times"), "{}", error.detail);
    let tally = stage.end().await;
    assert_eq!((tally.requests, tally.answered, tally.missed), (2, 1, 1));
    assert!(tally.problems[0].contains("turn 0 of a worker"), "{tally:?}");
}

#[tokio::test]
async fn a_script_that_calls_a_tool_which_is_not_offered_is_a_miss() {
    let stage = Stage::set("[[rules]]\nname = \"x\"\nturns = [{ calls = [{ tool = \"rm\" }] }]").await;
    let error = chat(&stage.model(1), &worker("a"), &builtin()).await.unwrap_err();
    assert!(error.detail.contains("`rm`"), "{}", error.detail);
    assert_eq!(stage.end().await.missed, 1);
}

#[tokio::test]
async fn faults_come_as_real_ones_do() {
    let stage = Stage::set(
        r##"
        [[rules]]
        name = "limit"
        contains = ["limit"]
        times = 1
        turns = [{ fault = { kind = "status", status = 429, message = "slow down", retry_after_s = 90 } }]
        [[rules]]
        name = "stall"
        contains = ["stall"]
        turns = [{ fault = { kind = "stall" } }]
        [[rules]]
        name = "cut"
        contains = ["cut"]
        turns = [{ fault = { kind = "cut" } }]
        [[rules]]
        name = "garbage"
        contains = ["garbage"]
        turns = [{ fault = { kind = "garbage", body = "<html>" } }]
        [[rules]]
        name = "long"
        turns = [{ text = "half a sen", finish = "length" }]
        "##,
    )
    .await;
    let model = stage.model(1);
    let class =
        async |words: &str| chat(&model, &worker(words), &[]).await.map(|r| r.finish).map_err(|e| e.class);
    assert_eq!(class("limit").await, Err(ErrorClass::Quota { retry_after_ms: Some(90_000) }));
    assert_eq!(class("limit").await, Ok(Finish::Length));
    assert_eq!(class("stall").await, Err(ErrorClass::Network));
    assert_eq!(class("cut").await, Err(ErrorClass::Network));
    assert_eq!(class("garbage").await, Err(ErrorClass::Reply));
    assert_eq!(stage.end().await.answered, 5);
}

#[tokio::test]
async fn a_wrong_request_is_refused_with_its_reason() {
    let stage = Stage::set("[[rules]]\nname = \"any\"\nturns = [{ text = \"a\" }, { text = \"b\" }]").await;
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "x", "arguments": "{}"}});
    let user = json!({"role": "user", "content": "hi"});
    let tool = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    let turn = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    let request = |messages: Value| json!({"model": "m", "max_tokens": 5, "messages": messages});
    let schema = json!({"type": "json_object"});
    let wrong = [
        (json!({"messages": [user], "max_tokens": 5}), "`model`"),
        (json!({"model": "m", "messages": [user]}), "`max_tokens`"),
        (request(json!([])), "`messages`"),
        (request(json!([user, {"role": "robot", "content": "x"}])), "unknown role"),
        (request(json!([user, turn(json!([call("a"), call("b")])), tool("b")])), "next open call is `a`"),
        (request(json!([user, turn(json!([call("a")])), user])), "before the call `a` was answered"),
        (request(json!([user, turn(json!([call("a")]))])), "never answered"),
        (request(json!([user, turn(json!([call("a"), call("a")])), tool("a"), tool("a")])), "second time"),
        (request(json!([user, tool("a")])), "no call is open"),
        (
            request(json!([user, turn(json!([{"id": "a", "function": {"name": "x", "arguments": "{"}}]))])),
            "no JSON object",
        ),
        (request(json!([user, {"role": "assistant", "content": "a"}])), "nothing to answer"),
        (
            json!({"model": "m", "max_tokens": 5, "messages": [user], "response_format": schema}),
            "the word JSON",
        ),
    ];
    for (body, reason) in &wrong {
        let (status, answer) = stage.post(body).await;
        assert_eq!(status, 400, "{body}");
        assert!(answer.contains(reason), "{reason}: {answer}");
    }
    // Right ones, streamed and not.
    let (status, answer) = stage.post(&request(json!([user, turn(json!([call("a")])), tool("a")]))).await;
    assert_eq!((status, answer.contains("\"content\":\"b\"")), (200, true), "{answer}");
    let mut streamed = request(json!([user]));
    streamed["stream"] = true.into();
    let (status, answer) = stage.post(&streamed).await;
    assert_eq!((status, answer.ends_with("data: [DONE]\n\n"), answer.contains("usage")), (200, true, false));
    let tally = stage.end().await;
    assert_eq!((tally.refused, tally.answered), (wrong.len() as u64, 2));
}

#[test]
fn a_wrong_script_is_refused_by_line_or_rule() {
    let problem = |text: &str| Script::parse(text).unwrap_err().to_string();
    assert!(problem("[[rules]]\nname = \"a\"\nwhenever = 1\nturns = []").contains("whenever"));
    assert!(problem("rules = []").contains("1 to 1000 rules"));
    let both = "[[rules]]\nname = \"a\"\nturns = [{ text = \"x\", json = 1 }]";
    assert!(problem(both).contains("rule a: turn 0: it must have exactly one of"));
    let capture = "[[rules]]\nname = \"a\"\ncaptures = { f = \"x\" }\nturns = [{ text = \"x\" }]";
    assert!(problem(capture).contains("no group"));
    let finish = "[[rules]]\nname = \"a\"\nturns = [{ text = \"x\", finish = \"bored\" }]";
    assert!(problem(finish).contains("bored"));
}
