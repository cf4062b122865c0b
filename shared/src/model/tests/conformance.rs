//! What every wire format and every dialect must do alike, streamed and in one piece, through real HTTP.
//!
//! The answers are written here by hand and not by the client's own writers, so that both are checked.

use super::fake::{Ending, fixture};
use super::*;
use crate::model::dialect::{Dialect, LADDER};

/// One of the ways an answer can come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) wire: Wire,
    pub(super) dialect: Dialect,
    pub(super) streamed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire {
    Openai,
    Anthropic,
}

/// A call as the model would make it: the name, and its arguments as JSON text.
type Said<'a> = (&'a str, &'a str);

impl Way {
    fn all() -> Vec<Self> {
        let mut ways = vec![];
        for wire in [Wire::Openai, Wire::Anthropic] {
            for dialect in LADDER {
                ways.extend([true, false].map(|streamed| Self { wire, dialect, streamed }));
            }
        }
        ways
    }

    /// The text of an answer in the dialect; empty for native calls.
    fn text(self, words: &str, calls: &[Said<'_>]) -> String {
        match self.dialect {
            Dialect::Native => words.to_owned(),
            Dialect::Json if calls.is_empty() => json!({ "answer": words }).to_string(),
            Dialect::Json => {
                let items: Vec<String> =
                    calls.iter().map(|(n, a)| format!("{{\"name\": \"{n}\", \"arguments\": {a}}}")).collect();
                format!("{{\"tool_calls\": [{}]}}", items.join(", "))
            }
            Dialect::Xml => {
                let blocks: Vec<String> = calls
                    .iter()
                    .map(|(n, a)| {
                        format!("<tool_call>\n<function>{n}</function>\n<args>{a}</args>\n</tool_call>")
                    })
                    .collect();
                format!("{words}{}", blocks.join("\n"))
            }
            Dialect::Text => {
                let lines: Vec<String> =
                    calls.iter().map(|(n, a)| format!("TOOL: {n}\nARGS: {a}\n")).collect();
                format!("{words}{}", lines.join("\n"))
            }
        }
    }

    /// A complete answer.
    fn says(self, words: &str, calls: &[Said<'_>]) -> Answer {
        let native = if self.dialect == Dialect::Native { calls } else { &[] };
        let finish = if native.is_empty() { "stop" } else { "tool_calls" };
        self.wire.answer(&self.text(words, calls), native, finish, self.streamed)
    }

    /// The same, cut off in the arguments of its last call by the token limit.
    fn cut(self, name: &str, args: &str) -> Answer {
        let half = &args[..args.len() / 2];
        if self.dialect == Dialect::Native {
            return self.wire.answer("", &[(name, half)], "length", self.streamed);
        }
        let text = self.text("", &[(name, args)]);
        let end = text.find(half).unwrap() + half.len();
        self.wire.answer(&text[..end], &[], "length", self.streamed)
    }

    fn model(self, fake: &Fake) -> Model {
        let mut config = config(fake);
        config.dialect = match self.dialect {
            Dialect::Native => config::Dialect::Native,
            Dialect::Json => config::Dialect::Json,
            Dialect::Xml => config::Dialect::Xml,
            Dialect::Text => config::Dialect::Text,
        };
        config.wire = match self.wire {
            Wire::Openai => config::Wire::Openai,
            Wire::Anthropic => config::Wire::Anthropic,
        };
        Model::new(&config).unwrap()
    }

    /// One answer read by the client.
    async fn read(self, answer: Answer) -> Reply {
        let fake = Fake::start(vec![answer]).await;
        let reply = chat_with(&self.model(&fake), &hello(), &tools()).await.unwrap();
        assert_eq!(reply.records[0].dialect, self.dialect.speech().word(), "{self:?}");
        assert!(!reply.usage.estimated && reply.usage.input_tokens > 0, "{self:?}");
        reply
    }
}

impl Wire {
    fn answer(self, text: &str, calls: &[Said<'_>], finish: &str, streamed: bool) -> Answer {
        match (self, streamed) {
            (Self::Openai, false) => fake::whole(
                json!({"role": "assistant", "content": text, "tool_calls": calls.iter().enumerate()
                    .map(|(i, (name, args))| openai_call(i, name, args)).collect::<Vec<_>>()}),
                finish,
            ),
            (Self::Openai, true) => {
                let mut events = vec![chunk(json!({"role": "assistant", "content": null}), None)];
                events.extend(pieces(text).map(|t| chunk(json!({"content": t}), None)));
                for (i, (name, args)) in calls.iter().enumerate() {
                    let call = openai_call(i, name, "");
                    events.push(chunk(json!({"tool_calls": [call]}), None));
                    events.extend(pieces(args).map(|part| {
                        chunk(json!({"tool_calls": [{"index": i, "function": {"arguments": part}}]}), None)
                    }));
                }
                events.push(chunk(json!({}), Some(finish)));
                events.push(json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}));
                Answer::sse(&events)
            }
            (Self::Anthropic, false) => {
                let mut content =
                    if text.is_empty() { vec![] } else { vec![json!({"type": "text", "text": text})] };
                content.extend(calls.iter().enumerate().map(|(i, (name, args))| {
                    // A server that has the whole answer sends values, and an empty one where it was cut.
                    let input: Value = serde_json::from_str(args).unwrap_or_else(|_| json!({}));
                    json!({"type": "tool_use", "id": format!("toolu_{i}"), "name": name, "input": input})
                }));
                Answer::Json(
                    200,
                    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
                        "stop_reason": stop_reason(finish), "stop_sequence": null,
                        "usage": {"input_tokens": 4, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 5,
                            "output_tokens": 5}}),
                )
            }
            (Self::Anthropic, true) => {
                let mut events = vec![
                    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                        "model": "m", "content": [], "stop_reason": null, "usage": {"input_tokens": 4,
                        "cache_creation_input_tokens": 1, "cache_read_input_tokens": 5, "output_tokens": 1}}}),
                    json!({"type": "ping"}),
                ];
                let mut index = 0;
                let mut block = |start: Value, deltas: Vec<Value>| {
                    events
                        .push(json!({"type": "content_block_start", "index": index, "content_block": start}));
                    events.extend(
                        deltas
                            .into_iter()
                            .map(|d| json!({"type": "content_block_delta", "index": index, "delta": d})),
                    );
                    events.push(json!({"type": "content_block_stop", "index": index}));
                    index += 1;
                };
                if !text.is_empty() {
                    let deltas = pieces(text).map(|t| json!({"type": "text_delta", "text": t})).collect();
                    block(json!({"type": "text", "text": ""}), deltas);
                }
                for (i, (name, args)) in calls.iter().enumerate() {
                    let deltas = pieces(args)
                        .map(|p| json!({"type": "input_json_delta", "partial_json": p}))
                        .collect();
                    let start =
                        json!({"type": "tool_use", "id": format!("toolu_{i}"), "name": name, "input": {}});
                    block(start, deltas);
                }
                events.push(json!({"type": "message_delta", "usage": {"output_tokens": 5},
                    "delta": {"stop_reason": stop_reason(finish), "stop_sequence": null}}));
                events.push(json!({"type": "message_stop"}));
                fake::messages(&events)
            }
        }
    }
}

/// OpenAI's word in Anthropic's.
fn stop_reason(finish: &str) -> &str {
    match finish {
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        _ => "end_turn",
    }
}

fn openai_call(index: usize, name: &str, args: &str) -> Value {
    json!({"index": index, "id": format!("id-{index}"), "type": "function",
        "function": {"name": name, "arguments": args}})
}

/// Parts of three characters.
fn pieces(text: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(3).map(|c| c.iter().collect()).collect::<Vec<String>>().into_iter()
}

fn made(reply: &Reply) -> Vec<(&str, Value)> {
    reply.calls.iter().map(|c| (c.name.as_str(), json!(c.args.as_ref().unwrap()))).collect()
}

#[tokio::test]
async fn a_single_call() {
    for way in Way::all() {
        let reply = way.read(way.says("", &[("search", "{\"q\": \"rust\", \"limit\": 3}")])).await;
        assert_eq!(made(&reply), [("search", json!({"q": "rust", "limit": 3}))], "{way:?}");
        let rest = (reply.text.as_str(), reply.finish, reply.requests, reply.repairs);
        assert_eq!(rest, ("", Finish::ToolCalls, 1, 0), "{way:?}");
    }
}

#[tokio::test]
async fn a_call_without_arguments() {
    for way in Way::all() {
        let reply = way.read(way.says("", &[("plan", "{}")])).await;
        assert_eq!((made(&reply), reply.repairs), (vec![("plan", json!({}))], 0), "{way:?}");
    }
}

#[tokio::test]
async fn a10_two_calls_in_order_with_ids_of_their_own() {
    for way in Way::all() {
        let calls = [("search", "{\"q\": \"x\"}"), ("search", "{\"q\": \"y\"}")];
        let reply = way.read(way.says("", &calls)).await;
        assert_eq!(made(&reply), [("search", json!({"q": "x"})), ("search", json!({"q": "y"}))], "{way:?}");
        assert!(!reply.calls[0].id.is_empty() && reply.calls[0].id != reply.calls[1].id, "{way:?}");
    }
}

#[tokio::test]
async fn a9_bad_arguments_are_told_and_the_other_call_still_runs() {
    for way in Way::all() {
        let reply = way.read(way.says("", &[("search", "[1, 2]"), ("search", "{\"q\": \"y\"}")])).await;
        let bad = reply.calls[0].args.as_ref().unwrap_err();
        assert!(!bad.truncated && bad.problem.contains("one JSON object"), "{way:?} {bad:?}");
        assert_eq!(reply.calls[1].args, args(json!({"q": "y"})), "{way:?}");
    }
}

#[tokio::test]
async fn a12_nothing_of_an_answer_cut_by_its_length_is_run_or_told() {
    for way in Way::all() {
        let reply = way.read(way.cut("search", "{\"q\": \"a very long question\"}")).await;
        assert_eq!((reply.finish, reply.text.as_str()), (Finish::Length, ""), "{way:?}");
        let all_cut = reply.calls.iter().all(|c| c.args.as_ref().is_err_and(|b| b.truncated));
        assert!(all_cut, "{way:?} {:?}", reply.calls);
    }
}

#[tokio::test]
async fn text_only() {
    let words = "Use {braces}, <b>tags</b> and\n\"quotes\": 42.";
    for way in Way::all() {
        let reply = way.read(way.says(words, &[])).await;
        let got = (reply.text.as_str(), reply.calls.len(), reply.finish, reply.repairs);
        assert_eq!(got, (words, 0, Finish::Stop, 0), "{way:?}");
    }
}

#[tokio::test]
async fn an_unknown_tool_is_the_callers_to_answer() {
    for way in Way::all() {
        let reply = way.read(way.says("", &[("serach", "{\"q\": \"x\"}")])).await;
        assert_eq!(made(&reply), [("serach", json!({"q": "x"}))], "{way:?}");
    }
}

#[tokio::test]
async fn any_character_in_the_arguments() {
    let text = "gr\u{f6}\u{df}e \u{6771}\u{4eac} \u{1f600} \"q\" \\ </args></tool_call> <tool_call>{ }]\nTOOL: x\nARGS: {}";
    let value = json!({ "q": text });
    for way in Way::all() {
        let reply = way.read(way.says("", &[("search", &value.to_string())])).await;
        assert_eq!((made(&reply), reply.repairs), (vec![("search", value.clone())], 0), "{way:?}");
    }
}

#[tokio::test]
async fn results_travel_back_and_the_prompt_only_grows() {
    for way in Way::all() {
        let calls = [("search", "{\"q\": \"x\"}"), ("get_weather", "{\"city\": \"Ulm\"}")];
        let fake = Fake::start(vec![way.says("", &calls), way.says("done", &[])]).await;
        let model = way.model(&fake);
        let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
        let ids: Vec<String> = reply.calls.iter().map(|c| c.id.clone()).collect();
        let mut messages = hello();
        messages.push(Message::Assistant { text: reply.text, reasoning: String::new(), calls: reply.calls });
        messages.push(Message::Tool { call_id: ids[0].clone(), content: "4 hits: \u{fc}".into() });
        messages.push(Message::Tool { call_id: ids[1].clone(), content: "{\"rain\": true}".into() });
        let mut reversed = tools();
        reversed.reverse();
        let reply = chat_with(&model, &messages, &reversed).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.calls.len()), ("done", 0), "{way:?}");
        // B7: what was sent stays byte-equal, tools in whatever order, and the new turns follow it.
        let sent = fake.requests();
        assert_eq!(sent[0]["tools"], sent[1]["tools"], "{way:?}");
        assert_eq!(sent[0]["system"], sent[1]["system"], "{way:?}");
        let turns = |at: usize| {
            let mut turns = sent[at]["messages"].as_array().unwrap().clone();
            // The mark of what is to be cached moves on; it is no part of the prompt.
            let blocks = turns.iter_mut().filter_map(|t| t["content"].as_array_mut()).flatten();
            blocks.filter_map(Value::as_object_mut).for_each(|b| drop(b.remove("cache_control")));
            turns
        };
        assert_eq!(turns(0)[..], turns(1)[..turns(0).len()], "{way:?}");
        let new = json!(turns(1)[turns(0).len()..]).to_string();
        let at = |word: &str| new.find(word).unwrap_or_else(|| panic!("{way:?}: no {word} in {new}"));
        assert!(at("search") < at("4 hits: \u{fc}") && at("4 hits: \u{fc}") < at("rain"), "{way:?} {new}");
        match way.dialect {
            Dialect::Native => assert!(sent[1]["tools"].is_array(), "{way:?}"),
            Dialect::Json => {
                let last: Value =
                    serde_json::from_str(said_last(&sent[1])).unwrap_or_else(|e| panic!("{way:?}: {e}"));
                assert_eq!(last["tool_results"][1]["result"], "{\"rain\": true}", "{way:?}");
            }
            Dialect::Xml => assert_eq!(
                said_last(&sent[1]),
                "<tool_result><function>search</function>\n4 hits: \u{fc}\n</tool_result>\n\
                 <tool_result><function>get_weather</function>\n{\"rain\": true}\n</tool_result>",
                "{way:?}"
            ),
            Dialect::Text => assert_eq!(
                said_last(&sent[1]),
                "RESULT of search:\n4 hits: \u{fc}\n\nRESULT of get_weather:\n{\"rain\": true}",
                "{way:?}"
            ),
        }
        if way.dialect != Dialect::Native {
            let system =
                sent[0]["system"][0]["text"].as_str().or(sent[0]["messages"][0]["content"].as_str()).unwrap();
            let place = |name: &str| system.find(&format!("\"name\":\"{name}\"")).unwrap();
            assert!(system.starts_with("be brief") && sent[0].get("tools").is_none(), "{way:?}");
            assert!(place("get_weather") < place("plan") && place("plan") < place("search"), "{way:?}");
        }
    }
}

/// The text of the request's last message.
fn said_last(request: &Value) -> &str {
    let content = &request["messages"].as_array().unwrap().last().unwrap()["content"];
    content.as_str().or_else(|| content[0]["text"].as_str()).unwrap()
}

#[tokio::test]
async fn a7_incomplete_markup_is_repaired_and_never_an_answer() {
    for way in Way::all() {
        // The same bytes as those that a length limit cut, but the server calls them complete.
        let broken = || match way.dialect {
            Dialect::Native => {
                let text = "<tool_call>{\"name\":\"search\",\"arguments\":{\"q\":\"ru";
                way.wire.answer(text, &[], "stop", way.streamed)
            }
            Dialect::Json | Dialect::Xml | Dialect::Text => {
                let text = way.text("", &[("search", "{\"q\": \"rust\"}")]);
                let end = text.find("ru").unwrap();
                way.wire.answer(&text[..end], &[], "stop", way.streamed)
            }
        };
        let fake = Fake::start(vec![broken(), way.says("", &[("search", "{\"q\": \"rust\"}")])]).await;
        let reply = chat_with(&way.model(&fake), &hello(), &tools()).await.unwrap();
        assert_eq!(made(&reply), [("search", json!({"q": "rust"}))], "{way:?}");
        assert_eq!((reply.requests, reply.repairs), (2, 1), "{way:?}");
        assert!(said_last(&fake.requests()[1]).contains("get_weather, plan, search"), "{way:?}");
        let fake = Fake::start(vec![broken(), broken(), broken()]).await;
        let error = chat_with(&way.model(&fake), &hello(), &tools()).await.unwrap_err();
        assert_eq!((error.class, error.records.len()), (ErrorClass::Reply, 3), "{way:?}");
    }
}

#[tokio::test]
async fn calls_in_the_neighbours_form_are_still_read() {
    for way in Way::all() {
        let text = "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q\": \"x\"}}\n</tool_call>";
        let reply = way.read(way.wire.answer(text, &[], "stop", way.streamed)).await;
        assert_eq!((made(&reply), reply.repairs), (vec![("search", json!({"q": "x"}))], 1), "{way:?}");
    }
}

#[tokio::test]
async fn what_models_add_around_a_call() {
    let q = json!({"q": "x"});
    let cases = [
        (
            Dialect::Json,
            "```json\n{\"tool_calls\": [{\"name\": \"search\", \"arguments\": {\"q\": \"x\"}}]}\n```",
        ),
        (
            Dialect::Json,
            "Sure:\n{\"tool_calls\": [{\"name\": \"search\", \"arguments\": {\"q\": \"x\"}}]} so be it",
        ),
        (
            Dialect::Json,
            "{\"tool_calls\": {\"function\": \"search\", \"args\": {\"q\": \"x\"}}}\n{\"tool_results\": []}",
        ),
        (
            Dialect::Xml,
            "I look.\n<tool_call><function>search</function><args><q>x</q></args></tool_call>\n<tool_result>",
        ),
        (Dialect::Xml, "<tool_call><function>search</function><args>{\"q\": \"x\"}"),
        (Dialect::Text, "I look.\n\n**TOOL:** search\n**ARGS:** {\"q\": \"x\"}\nRESULT of search: 7"),
        (Dialect::Text, "```\nTOOL: search\nARGS: {\n  \"q\": \"x\"\n}\n```"),
        (Dialect::Text, "TOOL: search ARGS: {\"q\": \"x\"}"),
    ];
    for (dialect, text) in cases {
        let way = Way { wire: Wire::Openai, dialect, streamed: true };
        let reply = way.read(way.wire.answer(text, &[], "stop", true)).await;
        assert_eq!(made(&reply), [("search", q.clone())], "{text}");
        assert!(["", "Sure:", "I look."].contains(&reply.text.as_str()), "{text}: {}", reply.text);
    }
}

#[tokio::test]
async fn json_and_lines_that_are_no_call_stay_the_answer() {
    let cases = [
        (Dialect::Json, "{\"answer\": \"x\", \"unit\": \"m\"}"),
        (Dialect::Json, "Plain words."),
        (Dialect::Text, "TOOL: hammer\nis what you need."),
        (Dialect::Text, "The TOOL: line comes first, then ARGS: {}"),
        (Dialect::Xml, "<function>alone</function>"),
    ];
    for (dialect, text) in cases {
        let way = Way { wire: Wire::Openai, dialect, streamed: true };
        let reply = way.read(way.wire.answer(text, &[], "stop", true)).await;
        assert_eq!((reply.text.as_str(), reply.calls.len()), (text, 0), "{text}");
    }
}

/// Real answers, to a request with tools in the dialect.
#[tokio::test]
async fn real_answers() {
    macro_rules! real {
        ($name:literal) => {
            include_str!(concat!("../../../../tests/fixtures/model/", $name, ".json"))
        };
    }
    let paris = ("get_weather", json!({"city": "Paris"}));
    let tokyo = ("get_weather", json!({"city": "Tokyo"}));
    for (text, expected) in [
        (real!("tools-auto"), vec![paris.clone()]),
        (real!("tools-auto-stream"), vec![paris.clone()]),
        (real!("tools-stream"), vec![paris.clone()]),
        (real!("tools-parallel"), vec![paris.clone(), tokyo.clone()]),
        (real!("call-as-fenced-json"), vec![paris.clone()]),
        (real!("two-calls-in-one-fence"), vec![paris, tokyo]),
    ] {
        let fake = Fake::start(vec![fixture(text)]).await;
        let reply = chat(&fake, &hello()).await.unwrap();
        assert_eq!((made(&reply), reply.finish), (expected, Finish::ToolCalls));
    }
    // Answers in words are the same in every dialect; a JSON object that runs on is cut, not an answer.
    for dialect in LADDER {
        let way = Way { wire: Wire::Openai, dialect, streamed: true };
        for (text, words, finish) in [
            (real!("tools-not-needed"), "4", Finish::Stop),
            (real!("chat-stream"), "Paris", Finish::Stop),
            (real!("chat-length"), "Once upon a time", Finish::Length),
            (real!("json-object-runs-on"), "population", Finish::Length),
        ] {
            let fake = Fake::start(vec![fixture(text)]).await;
            let reply = chat_with(&way.model(&fake), &hello(), &tools()).await.unwrap();
            assert_eq!((reply.finish, reply.calls.len()), (finish, 0), "{way:?} {text}");
            assert!(reply.text.contains(words), "{way:?}: {}", reply.text);
        }
    }
}

#[tokio::test]
async fn a_broken_stream_is_asked_again_whole() {
    for way in Way::all().into_iter().filter(|w| w.streamed) {
        let Answer::Stream(text, _) = way.says("", &[("search", "{\"q\": \"rust\"}")]) else { panic!() };
        let half = text[..text.len() / 2].to_owned();
        let fake = Fake::start(vec![
            Answer::Stream(half, Ending::Break),
            way.says("", &[("search", "{\"q\": \"rust\"}")]),
        ])
        .await;
        let reply = chat_with(&way.model(&fake), &hello(), &tools()).await.unwrap();
        assert_eq!(made(&reply), [("search", json!({"q": "rust"}))], "{way:?}");
        assert_eq!((reply.records[0].error.as_str(), reply.requests), ("network", 2), "{way:?}");
    }
}
