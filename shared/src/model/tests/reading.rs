//! What models really send: calls in every shape.

use super::fake::{Ending, fixture, whole};
use super::*;

fn deltas(calls: &[Value], finish: Option<&str>) -> Answer {
    let mut events: Vec<Value> = calls.iter().map(|c| chunk(json!({"tool_calls": [c]}), None)).collect();
    events.push(chunk(json!({}), finish));
    Answer::sse(&events)
}

fn with_arguments(arguments: Value) -> Answer {
    let function = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    whole(
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "one", "type": "function", "function": function("plan", arguments)},
            {"id": "two", "type": "function", "function": function("search", json!("{\"q\":\"x\"}"))}]}),
        "tool_calls",
    )
}

#[tokio::test]
async fn a6_calls_with_equal_or_missing_indexes_and_ids_stay_apart() {
    let whole = |index: Option<u32>, id: Value, q: &str| {
        let mut call = json!({"id": id, "type": "function",
            "function": {"name": "search", "arguments": format!("{{\"q\":\"{q}\"}}")}});
        if let Some(index) = index {
            call["index"] = index.into();
        }
        call
    };
    let fake = Fake::start(vec![
        deltas(&[whole(Some(0), json!("a1"), "x"), whole(Some(0), json!("b2"), "y")], Some("tool_calls")),
        deltas(&[whole(None, json!("a1"), "x"), whole(None, json!("b2"), "y")], Some("tool_calls")),
        deltas(&[whole(Some(0), json!(""), "x"), whole(Some(1), json!(null), "y")], Some("tool_calls")),
        deltas(&[whole(None, json!(null), "x"), whole(None, json!(null), "y")], Some("stop")),
        // One call in pieces, the id repeated on each.
        deltas(
            &[
                json!({"index": 0, "id": "a1", "function": {"name": "search", "arguments": "{\"q\":"}}),
                json!({"index": 0, "id": "a1", "function": {"name": "search", "arguments": "\"x\"}"}}),
            ],
            Some("tool_calls"),
        ),
    ])
    .await;
    let model = Model::new(&config(&fake)).unwrap();
    let expected = [["a1", "b2"], ["a1", "b2"], ["call_0_0", "call_0_1"], ["call_0_0", "call_0_1"]];
    for ids in expected {
        let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
        let calls =
            vec![call(ids[0], "search", json!({"q": "x"})), call(ids[1], "search", json!({"q": "y"}))];
        assert_eq!((reply.calls, reply.finish), (calls, Finish::ToolCalls));
    }
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!(reply.calls, vec![call("a1", "search", json!({"q": "x"}))]);
}

#[tokio::test]
async fn a6_a_real_stream_of_call_deltas() {
    let fake =
        Fake::start(vec![fixture(include_str!("../../../../tests/fixtures/model/tools-stream.json"))]).await;
    let reply = chat(&fake, &hello()).await.unwrap();
    assert_eq!(reply.calls[0].args, args(json!({"city": "Paris"})));
    assert_eq!((reply.calls.len(), reply.repairs, reply.usage.estimated), (1, 0, false));
}

#[tokio::test]
async fn a7_calls_left_in_the_text() {
    let search = json!({"q": "rust"});
    let cases = [
        "<tool_call>\n<function=search>\n<parameter=q>\nrust\n</parameter>\n</function>\n</tool_call>",
        "<function=search><parameter=q>rust</parameter></function>",
        "<tool_call>{\"name\":\"search\",\"arguments\":{\"q\":\"rust\"}}</tool_call>",
        "<tool_call>\n{\"name\":\"search\",\"arguments\":{\"q\":\"rust\"}}",
        "<tool_call>{\"name\":\"search\",\"arguments\":{\"q\":\"rust\"}</tool_call>",
        "```json\n{\"name\": \"search\", \"arguments\": {\"q\": \"rust\"}}\n```",
        "{\"name\": \"search\", \"parameters\": {\"q\": \"rust\"}}",
        "<think>hm</think>{\"name\": \"search\", \"arguments\": {\"q\": \"rust\"}}",
    ];
    for text in cases {
        let fake = Fake::start(vec![said(text)]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!(reply.calls, vec![call("call_0_0", "search", search.clone())], "{text}");
        assert_eq!((reply.text.as_str(), reply.finish), ("", Finish::ToolCalls), "{text}");
        assert!(reply.repairs > 0, "{text}");
    }
    let fake = Fake::start(vec![said(
        "I look.\n<tool_call>\n<function=search>\n<parameter=q>\n7\n</parameter>\n<parameter=limit>\n7\n</parameter>\n\
         </function>\n</tool_call>\n<tool_call>{\"name\":\"get_weather\",\"arguments\":{}}</tool_call>",
    )])
    .await;
    let reply = chat(&fake, &hello()).await.unwrap();
    assert_eq!(reply.text, "I look.");
    assert_eq!(
        reply.calls,
        vec![
            call("call_0_0", "search", json!({"q": "7", "limit": 7})),
            call("call_0_1", "get_weather", json!({}))
        ]
    );
}

#[tokio::test]
async fn a7_real_answers_with_the_call_as_json() {
    let paris = json!({"city": "Paris"});
    let cases = [
        (include_str!("../../../../tests/fixtures/model/call-as-fenced-json.json"), vec![paris.clone()]),
        (
            include_str!("../../../../tests/fixtures/model/two-calls-in-one-fence.json"),
            vec![paris, json!({"city": "Tokyo"})],
        ),
        (
            include_str!("../../../../tests/fixtures/model/call-in-doubled-braces.json"),
            vec![json!({"city": "New York"})],
        ),
    ];
    for (text, expected) in cases {
        let fake = Fake::start(vec![fixture(text)]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        let got: Vec<_> = reply.calls.iter().map(|c| (c.name.as_str(), c.args.clone())).collect();
        let expected: Vec<_> = expected.into_iter().map(|v| ("get_weather", args(v))).collect();
        assert_eq!(got, expected);
    }
}

#[tokio::test]
async fn a7_json_that_is_no_call_of_a_known_tool_stays_text() {
    for text in [
        "{\"name\": \"Ada\", \"arguments\": {\"q\": 1}}",
        "{\"name\": \"search\", \"age\": 3}",
        "The call would be {\"name\":\"search\",\"arguments\":{}} as I said.",
        "```json\n{\"name\":\"search\",\"arguments\":{}}\n``` is how one calls it.",
    ] {
        let fake = Fake::start(vec![said(text)]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.calls.len(), reply.repairs), (text, 0, 0));
    }
}

#[tokio::test]
async fn a7_incomplete_markup_is_asked_again_and_never_delivered() {
    for broken in [
        "<tool_call>{\"name\":\"search\",\"arguments\":{\"q\":\"ru",
        "<tool_call>\n<function=search>\n<parameter=q>\nru",
        "<tool_call>{\"name\":\"serach\",\"arguments\":{}}</tool_call>",
    ] {
        let fake = Fake::start(vec![said(broken), said("done")]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.requests, reply.repairs), ("done", 2, 1), "{broken}");
        let asked = fake.requests()[1]["messages"][3]["content"].as_str().unwrap().to_owned();
        assert!(asked.contains("get_weather, plan, search"), "{asked}");
        let fake = Fake::start(vec![said(broken), said(broken), said(broken)]).await;
        let error = chat(&fake, &hello()).await.unwrap_err();
        assert_eq!((error.class, error.records.len()), (ErrorClass::Reply, 3));
    }
}

#[tokio::test]
async fn a9_arguments_of_every_shape() {
    let cases = [
        (json!(""), Some(json!({}))),
        (json!(null), Some(json!({}))),
        (json!({"q": "x"}), Some(json!({"q": "x"}))),
        (json!("{\"todos\":\"[{\\\"t\\\":1}]\"}"), Some(json!({"todos": [{"t": 1}]}))),
        (json!("{\"q\":\"[1]\"}"), Some(json!({"q": "[1]"}))),
        (json!("\"{\\\"q\\\":1}\""), Some(json!({"q": 1}))),
        (json!("{\"q\":\"two\nlines\",}"), Some(json!({"q": "two\nlines"}))),
        (json!("[1,2]"), None),
        (json!("\"abc\""), None),
        (json!("{q: 1}"), None),
    ];
    for (arguments, expected) in cases {
        let fake = Fake::start(vec![with_arguments(arguments.clone())]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!(reply.calls[1], call("two", "search", json!({"q": "x"})));
        match (&reply.calls[0].args, expected) {
            (got @ Ok(_), Some(expected)) => assert_eq!(*got, args(expected), "{arguments}"),
            (Err(bad), None) => {
                assert!(!bad.truncated && bad.problem.contains("Nothing was executed"), "{bad:?}")
            }
            (got, expected) => panic!("{arguments}: {got:?}, expected {expected:?}"),
        }
        // The turn goes back into the history and the next request is still valid.
        let mut messages = hello();
        messages.push(Message::Assistant { text: reply.text, reasoning: String::new(), calls: reply.calls });
        messages.push(Message::Tool { call_id: "one".into(), content: "a".into() });
        messages.push(Message::Tool { call_id: "two".into(), content: "b".into() });
        let fake = Fake::start(vec![said("ok")]).await;
        assert_eq!(chat(&fake, &messages).await.unwrap().text, "ok");
    }
}

#[tokio::test]
async fn a9_cut_arguments_are_a_truncation_and_the_other_calls_still_run() {
    let fake = Fake::start(vec![with_arguments(json!("{\"city\": \"San Fra"))]).await;
    let reply = chat(&fake, &hello()).await.unwrap();
    let bad = reply.calls[0].args.clone().unwrap_err();
    assert_eq!((bad.truncated, bad.raw.as_str()), (true, "{\"city\": \"San Fra"));
    assert!(bad.problem.contains("in several parts"));
    assert!(reply.calls[1].args.is_ok());
}

#[tokio::test]
async fn a10_double_and_reused_ids_become_unique() {
    let twice = || {
        let one = |q: &str| {
            json!({"id": "call_1", "type": "function",
            "function": {"name": "search", "arguments": format!("{{\"q\":\"{q}\"}}")}})
        };
        whole(json!({"role": "assistant", "content": "", "tool_calls": [one("x"), one("y")]}), "tool_calls")
    };
    let fake = Fake::start(vec![twice(), twice(), said("done")]).await;
    let model = Model::new(&config(&fake)).unwrap();
    let mut messages = hello();
    let mut seen = vec![];
    for _ in 0..2 {
        let reply = chat_with(&model, &messages, &tools()).await.unwrap();
        let ids: Vec<String> = reply.calls.iter().map(|c| c.id.clone()).collect();
        messages.push(Message::Assistant { text: reply.text, reasoning: String::new(), calls: reply.calls });
        messages.extend(ids.iter().map(|id| Message::Tool { call_id: id.clone(), content: "r".into() }));
        seen.extend(ids);
    }
    assert_eq!(seen, ["call_1", "call_0_1", "call_1_0", "call_1_1"]);
    assert_eq!(chat_with(&model, &messages, &tools()).await.unwrap().text, "done");
}

#[tokio::test]
async fn a12_a_reply_cut_by_length_runs_nothing() {
    let cut = |finish: &str| {
        whole(
            json!({"role": "assistant", "content": "", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{\"q\":\"x\"}"}},
                {"id": "b", "type": "function", "function": {"name": "plan", "arguments": "{\"todos\":[\"# Tit"}}]}),
            finish,
        )
    };
    let real = fixture(include_str!("../../../../tests/fixtures/model/tools-cut.json"));
    let fake = Fake::start(vec![cut("length"), cut("tool_calls"), real]).await;
    let model = Model::new(&config(&fake)).unwrap();
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!(reply.finish, Finish::Length);
    assert!(reply.calls.iter().all(|c| c.args.as_ref().is_err_and(|b| b.truncated)));
    // A router rewrote the reason: only what is incomplete is known to be cut.
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    let cut: Vec<bool> = reply.calls.iter().map(|c| c.args.as_ref().is_err_and(|b| b.truncated)).collect();
    assert_eq!((reply.finish, cut), (Finish::ToolCalls, vec![false, true]));
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!(reply.finish, Finish::Length);
    assert!(reply.calls[0].args.as_ref().is_err_and(|b| b.truncated));
}

#[tokio::test]
async fn a13_reasoning_is_set_apart_and_text_stays_as_it_is() {
    let fake = Fake::start(vec![
        said("<THINK>\nhm\n</THINK>\n\nThe answer."),
        said("{\"text\":\"use <think>x</think> tags\"}"),
        said("<think>cut off"),
        said("done"),
    ])
    .await;
    let model = Model::new(&config(&fake)).unwrap();
    let reply = chat_with(&model, &hello(), &[]).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("The answer.", "hm"));
    let reply = chat_with(&model, &hello(), &[]).await.unwrap();
    assert_eq!(reply.text, "{\"text\":\"use <think>x</think> tags\"}");
    let reply = chat_with(&model, &hello(), &[]).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.requests), ("done", 2));
}

#[tokio::test]
async fn lone_surrogates_become_replacement_characters() {
    let events = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\ud83d b \\ud83d\\ude00\"},\
                  \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let fake = Fake::start(vec![Answer::Stream(events.into(), Ending::Close)]).await;
    assert_eq!(chat(&fake, &hello()).await.unwrap().text, "a\u{fffd} b \u{1f600}");
}
