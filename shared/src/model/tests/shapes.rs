//! The cases of the other files in the shape that they do not have there: what is whole streamed, what is streamed whole.
//! Nothing about an answer may depend on how it came.

use super::fake::{Ending, streamed, whole};
use super::*;

fn calls(arguments: &[Value], finish: &str) -> Answer {
    let calls: Vec<Value> = arguments
        .iter()
        .enumerate()
        .map(|(n, a)| {
            json!({"id": format!("id{n}"), "type": "function", "function": {"name": "plan", "arguments": a}})
        })
        .collect();
    whole(json!({"role": "assistant", "content": "", "tool_calls": calls}), finish)
}

/// The same reply to the same answer, whole and streamed.
async fn both(answer: impl Fn() -> Answer, messages: &[Message]) -> Reply {
    let mut replies = vec![];
    for sent in [answer(), streamed(answer())] {
        let fake = Fake::start(vec![sent]).await;
        replies.push(chat(&fake, messages).await.unwrap());
    }
    let [whole, streamed] = <[Reply; 2]>::try_from(replies).unwrap();
    assert_eq!(
        (&whole.text, &whole.reasoning, &whole.calls),
        (&streamed.text, &streamed.reasoning, &streamed.calls)
    );
    assert_eq!(
        (whole.finish, whole.usage, whole.repairs),
        (streamed.finish, streamed.usage, streamed.repairs)
    );
    streamed
}

#[tokio::test]
async fn a1_a_stream_without_a_choice_is_asked_again() {
    let empty = json!({"id": "", "object": "", "created": 0, "model": "", "choices": [],
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]});
    let fake = Fake::start(vec![Answer::sse(&[empty.clone(), empty]), streamed(said("ok"))]).await;
    let reply = chat(&fake, &hello()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.requests, reply.records[0].error.as_str()), ("ok", 2, "reply"));
}

#[tokio::test]
async fn a3_an_error_inside_a_whole_200_is_the_servers() {
    for choices in [
        json!([{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "error"}]),
        json!([]),
    ] {
        let body = json!({"id": "g", "choices": choices, "error": {"code": 502, "message": "Provider disconnected"}});
        let fake = Fake::start(vec![Answer::Json(200, body), said("ok")]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.records[0].error.as_str()), ("ok", "overload"));
    }
}

#[tokio::test]
async fn a4_a_whole_answer_without_a_finish_reason_is_taken() {
    for finish in [json!(""), Value::Null] {
        let body = |message: Value| {
            Answer::Json(200, json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}))
        };
        let called = json!({"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function",
            "function": {"name": "search", "arguments": "{\"q\":\"x\"}"}}]});
        let fake =
            Fake::start(vec![body(json!({"role": "assistant", "content": "all of it"})), body(called)]).await;
        let model = Model::new(&config(&fake)).unwrap();
        assert_eq!(chat_with(&model, &hello(), &tools()).await.unwrap().text, "all of it");
        let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
        assert_eq!(reply.calls, vec![call("a", "search", json!({"q": "x"}))]);
    }
}

#[tokio::test]
async fn a5_a_whole_answer_that_stalls_in_its_middle_is_asked_again() {
    let begun = r#"{"choices": [{"index": 0, "message": {"role": "assistant", "#;
    let fake = Fake::start(vec![Answer::Stream(begun.into(), Ending::Stall), said("ok")]).await;
    let config = config::Model { idle_timeout_ms: 300, ..config(&fake) };
    let reply = chat_with(&Model::new(&config).unwrap(), &hello(), &tools()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.records[0].error.as_str()), ("ok", "network"));
}

#[tokio::test]
async fn a6_a10_whole_calls_without_ids_or_with_equal_ones_stay_apart() {
    for ids in [[json!("c"), json!("c")], [json!(""), Value::Null], [Value::Null, Value::Null]] {
        let made = || {
            let calls: Vec<Value> = ids
                .iter()
                .zip(["x", "y"])
                .map(|(id, q)| {
                    json!({"id": id, "type": "function",
                        "function": {"name": "search", "arguments": json!({"q": q}).to_string()}})
                })
                .collect();
            whole(json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
        };
        let reply = both(made, &hello()).await;
        let asked: Vec<Value> = reply.calls.iter().map(|c| json!(c.args.as_ref().unwrap())).collect();
        assert_eq!(asked, [json!({"q": "x"}), json!({"q": "y"})], "{ids:?}");
        assert_ne!(reply.calls[0].id, reply.calls[1].id);
    }
}

#[tokio::test]
async fn a7_calls_left_in_the_text_are_read_from_a_stream_too() {
    for text in [
        "<tool_call>\n<function=search>\n<parameter=q>\nrust\n</parameter>\n</function>\n</tool_call>",
        r#"<tool_call>{"name":"search","arguments":{"q":"rust"}}</tool_call>"#,
        r#"<tool_call>{"name":"search","arguments":{"q":"rust"}}"#,
    ] {
        let reply = both(|| said(text), &hello()).await;
        assert_eq!((reply.calls.len(), reply.text.trim()), (1, ""), "{text}");
        assert_eq!(reply.calls[0].args, args(json!({"q": "rust"})), "{text}");
    }
}

#[tokio::test]
async fn a9_arguments_of_every_shape_are_the_same_streamed_and_whole() {
    for first in [
        json!(""),
        Value::Null,
        json!({"todos": []}),
        json!("[1,2]"),
        json!("\"abc\""),
        json!("{\"todos\":\"[{\\\"t\\\":1}]\"}"),
        json!("{\"city\": \"San Fra"),
    ] {
        let reply = both(|| calls(&[first.clone(), json!("{\"todos\":[]}")], "tool_calls"), &hello()).await;
        assert_eq!(reply.calls[1].args, args(json!({"todos": []})), "{first}");
    }
}

#[tokio::test]
async fn a12_a_cut_reply_runs_nothing_streamed_or_whole() {
    for finish in ["length", "tool_calls"] {
        let cut = || calls(&[json!("{\"todos\":[\"# Tit")], finish);
        let reply = both(cut, &hello()).await;
        assert!(reply.calls[0].args.as_ref().is_err_and(|bad| bad.truncated), "{finish}");
    }
    let reply =
        both(|| calls(&[json!("{\"todos\":[]}"), json!("{\"todos\":[\"#")], "length"), &hello()).await;
    assert!(reply.calls.iter().all(|c| c.args.is_err()), "nothing of a reply that the limit cut is run");
}

#[tokio::test]
async fn a13_reasoning_is_set_apart_streamed_and_whole() {
    for (text, answer, reasoning) in [
        (
            "<think>maybe {\"draft\":true}</think>{\"verdict\":\"pass\"}",
            "{\"verdict\":\"pass\"}",
            "maybe {\"draft\":true}",
        ),
        ("{\"text\":\"use <think>x</think> tags\"}", "{\"text\":\"use <think>x</think> tags\"}", ""),
        ("plain", "plain", ""),
    ] {
        let reply = both(|| said(text), &hello()).await;
        assert_eq!((reply.text.trim(), reply.reasoning.trim()), (answer, reasoning), "{text}");
    }
    for answers in
        [[said("<think>cut off"), said("ok")], [streamed(said("<think>cut off")), streamed(said("ok"))]]
    {
        let fake = Fake::start(answers.into()).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.requests), ("ok", 2), "a thought alone is no answer");
    }
}

#[tokio::test]
async fn a15_streamed_reasoning_is_kept_and_sent_back_where_it_is_demanded() {
    let thinking = || {
        whole(
            json!({"role": "assistant", "content": "", "reasoning_content": "let me see", "tool_calls": [{"id": "a",
                "type": "function", "function": {"name": "search", "arguments": "{}"}}]}),
            "tool_calls",
        )
    };
    let reply = both(thinking, &hello()).await;
    assert_eq!(reply.reasoning, "let me see");
    let demand = Answer::error(
        400,
        "The reasoning_content in the thinking mode must be passed back to the API.",
        "invalid_request_error",
    );
    let fake = Fake::start(vec![streamed(thinking()), demand, streamed(said("done"))]).await;
    let model = Model::new(&config(&fake)).unwrap();
    let first = chat_with(&model, &hello(), &tools()).await.unwrap();
    let mut messages = hello();
    let (id, reasoning) = (first.calls[0].id.clone(), first.reasoning);
    messages.push(Message::Assistant { text: first.text, reasoning, calls: first.calls });
    messages.push(Message::Tool { call_id: id, content: "r".into() });
    assert_eq!(chat_with(&model, &messages, &tools()).await.unwrap().text, "done");
    let sent = fake.requests();
    assert_eq!(sent[2]["messages"][2]["reasoning_content"], "let me see");
}

#[tokio::test]
async fn a16_a17_a19_a23_a25_what_follows_a_refusal_may_be_streamed() {
    let refused = |status, words: &str| Answer::error(status, words, "x");
    let quota =
        Answer::Header(429, "retry-after-ms", "10".into(), json!({"error": {"message": "slow down"}}));
    for first in [refused(400, "m does not support tools"), quota, refused(503, "busy")] {
        let fake = Fake::start(vec![first, streamed(said("ok"))]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.requests), ("ok", 2));
    }
    let fake = Fake::start(vec![refused(413, "too large")]).await;
    assert_eq!(chat(&fake, &hello()).await.unwrap_err().class, ErrorClass::Context);
    let fake = Fake::start(vec![
        refused(400, "This response_format type is unavailable now"),
        streamed(said("Sure! ```json\n{\"n\": 3,}\n``` Let me know")),
    ])
    .await;
    let (stop, messages) = (CancellationToken::new(), hello());
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let model = Model::new(&config(&fake)).unwrap();
    let asked = ask(&messages, &[], &stop);
    let (n, records) = model.structured(&asked, "n", &schema, |v| Ok(v["n"].as_i64())).await.unwrap();
    assert_eq!((n, records.len()), (Some(3), 2));
}

#[tokio::test]
async fn a20_a_stream_that_counts_too_few_tokens_is_noticed() {
    let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"},
        "finish_reason": "stop"}], "usage": {"prompt_tokens": 2_050, "completion_tokens": 3}});
    let long = vec![Message::System("s".repeat(30_000)), Message::User("u".repeat(30_000))];
    for answer in [Answer::Json(200, body.clone()), streamed(Answer::Json(200, body))] {
        let fake = Fake::start(vec![answer]).await;
        let error = chat(&fake, &long).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Context, "{error}");
        assert!(error.detail.contains("2050 tokens"), "{error}");
    }
}

#[tokio::test]
async fn a22_json_wherever_it_stands_in_a_stream() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    for text in [
        "Sure! ```json {\"n\":1} ``` bye",
        "{\"draft\":true}{\"n\":1}",
        "{\"n\":1,}",
        "<think>{\"n\":2}</think>{\"n\":1}",
    ] {
        for answer in [said(text), streamed(said(text))] {
            let fake = Fake::start(vec![answer]).await;
            let (stop, messages) = (CancellationToken::new(), hello());
            let model = Model::new(&config(&fake)).unwrap();
            let asked = ask(&messages, &[], &stop);
            let (n, _) = model.structured(&asked, "n", &schema, |v| Ok(v["n"].as_i64())).await.unwrap();
            assert_eq!(n, Some(1), "{text}");
        }
    }
}
