//! Images of the workspace: content parts in both wire formats, words where a model takes none.

use super::fake::messages;
use super::*;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand more";

fn seen(images: config::Images, wire: config::Wire, fake: &Fake) -> Model {
    Model::new(&config::Model { images, wire, ..config(fake) }).unwrap()
}

fn conversation() -> Vec<Message> {
    let image = |path: &str| Message::Image(Image::of(path, PNG).unwrap());
    let turn = |id: &str| Message::Assistant {
        text: String::new(),
        reasoning: String::new(),
        calls: vec![call(id, "search", json!({"q": "x"}))],
    };
    let mut messages = hello();
    messages.extend([image("a.png"), turn("c1")]);
    messages.push(Message::Tool { call_id: "c1".into(), content: "`b.png` is an image".into() });
    messages.extend([image("b.png"), image("c.png")]);
    messages
}

fn of_anthropic(text: &str) -> Answer {
    messages(&[
        json!({"type": "message_start", "message": {"type": "message", "role": "assistant", "content": [], "model": "m",
            "usage": {"input_tokens": 9, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ])
}

#[tokio::test]
async fn images_are_parts_of_the_users_turn_in_both_wire_formats() {
    let fake = Fake::start(vec![said("seen")]).await;
    let model = seen(config::Images::Auto, config::Wire::Openai, &fake);
    chat_with(&model, &conversation(), &tools()).await.unwrap();
    let sent = fake.requests()[0]["messages"].as_array().unwrap().clone();
    let kinds = |n: usize| {
        let parts = sent[n]["content"].as_array().unwrap();
        parts.iter().map(|p| p["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The words beside it and the image are one message; a message without images stays text.
    assert!(sent[0]["content"].is_string());
    assert_eq!((sent.len(), kinds(1)), (5, vec!["text".into(), "text".into(), "image_url".into()]));
    assert_eq!(kinds(4), ["text", "image_url", "text", "image_url"]);
    let url = sent[4]["content"][1]["image_url"]["url"].as_str().unwrap();
    assert!(url.starts_with("data:image/png;base64,iVBORw0KGgp"), "{url}");
    assert_eq!(sent[4]["content"][0]["text"], "[image `b.png`]");

    let fake = Fake::start(vec![of_anthropic("seen")]).await;
    let model = seen(config::Images::Auto, config::Wire::Anthropic, &fake);
    chat_with(&model, &conversation(), &tools()).await.unwrap();
    let turns = fake.requests()[0]["messages"].as_array().unwrap().clone();
    let blocks: Vec<&str> =
        turns[2]["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
    assert_eq!((turns.len(), blocks), (3, vec!["tool_result", "text", "image", "text", "image"]));
    assert_eq!(turns[2]["content"][2]["source"]["media_type"], "image/png");
}

#[tokio::test]
async fn a_server_that_refuses_images_gets_words_from_then_on() {
    for (wire, refusal, answers) in [
        (config::Wire::Openai, "image_url is not supported by this model", [said("1"), said("2")]),
        (config::Wire::Anthropic, "this model has no vision", [of_anthropic("1"), of_anthropic("2")]),
    ] {
        let mut script = vec![Answer::error(400, refusal, "invalid_request_error")];
        script.extend(answers);
        let fake = Fake::start(script).await;
        let model = seen(config::Images::Auto, wire, &fake);
        for word in ["1", "2"] {
            assert_eq!(chat_with(&model, &conversation(), &tools()).await.unwrap().text, word);
        }
        let sent: Vec<String> = fake.requests().iter().map(Value::to_string).collect();
        assert!(sent[0].contains("iVBORw0KGgp"), "{wire:?}");
        for request in &sent[1..] {
            assert!(!request.contains("iVBORw0KGgp"), "{wire:?}");
            assert!(request.contains("[image `c.png`, image/png, 16 bytes: this model takes no images]"));
        }
    }
}

#[tokio::test]
async fn configured_no_means_words_and_yes_means_a_refusal_is_an_error() {
    let fake = Fake::start(vec![said("ok")]).await;
    let model = seen(config::Images::No, config::Wire::Openai, &fake);
    chat_with(&model, &conversation(), &tools()).await.unwrap();
    let sent = fake.requests()[0].to_string();
    assert!(sent.contains("takes no images") && !sent.contains("iVBORw0KGgp"), "{sent}");

    let fake = Fake::start(vec![Answer::error(400, "no images here", "x")]).await;
    let model = seen(config::Images::Yes, config::Wire::Openai, &fake);
    assert_eq!(chat_with(&model, &conversation(), &[]).await.unwrap_err().class, ErrorClass::Ours);
}

#[tokio::test]
async fn a_prompted_dialect_shows_images_behind_the_results() {
    let fake = Fake::start(vec![said("TOOL: search\nARGS: {\"q\": \"y\"}")]).await;
    let config = config::Model { dialect: config::Dialect::Text, ..config(&fake) };
    let reply = chat_with(&Model::new(&config).unwrap(), &conversation(), &tools()).await.unwrap();
    assert_eq!(reply.calls.len(), 1);
    let sent = fake.requests()[0]["messages"].as_array().unwrap().clone();
    let last = sent.last().unwrap()["content"].as_array().unwrap().clone();
    assert!(last[0]["text"].as_str().unwrap().contains("`b.png` is an image"), "{last:?}");
    assert_eq!(last.len(), 5);
}

#[tokio::test]
async fn the_probe_finds_out_who_sees() {
    let script = |last: Answer| {
        vec![said("pineapple"), said("It is sunny."), said("It is sunny."), said("{\"answer\": 5}"), last]
    };
    for (last, sees) in [
        (said("Red."), true),
        (said("I cannot see a square."), false),
        (Answer::error(400, "image input is not supported", "x"), false),
        (
            Answer::error(
                500,
                "image input is not supported - hint: you may need to provide the mmproj",
                "x",
            ),
            false,
        ),
        (Answer::error(422, "content must be a string", "x"), false),
    ] {
        let retried = matches!(&last, Answer::Json(400 | 500, _));
        let mut answers = script(last);
        if retried {
            // In words it is asked once more.
            answers.push(said("Blue?"));
        }
        let fake = Fake::start(answers).await;
        let model = seen(config::Images::Auto, config::Wire::Openai, &fake);
        let found = model.probe(Tier::Standard, None, &CancellationToken::new()).await.unwrap();
        assert_eq!(found.sees_images, sees);
    }
}

#[tokio::test]
async fn an_image_is_reckoned_as_an_image_and_not_as_its_base64() {
    let huge = Image::of("big.png", &[PNG, &vec![7; 900_000]].concat()).unwrap();
    let messages = [Message::User("look".into()), Message::Image(huge)];
    assert!(super::super::image::weight(1_300_000, &messages) < 110_000);
    // A server that names no usage: the estimate is that of a picture.
    let fake = Fake::start(vec![Answer::sse(&[
        chunk(json!({"content": "hm"}), None),
        chunk(json!({}), Some("stop")),
    ])])
    .await;
    let reply = chat_with(&Model::new(&config(&fake)).unwrap(), &messages, &[]).await.unwrap();
    assert!(reply.usage.estimated && reply.usage.input_tokens < 5_000, "{:?}", reply.usage);
}
