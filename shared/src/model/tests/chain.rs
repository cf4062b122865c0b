//! Chains of models: who answers when another is out, and what never goes on to the next.

use super::*;
use fake::Ending;

fn broken_stream() -> Answer {
    Answer::Stream(format!("data: {}\n\n", chunk(json!({"content": "H"}), None)), Ending::Break)
}

/// `first`, and `second` behind it under another key.
fn chained(first: &Fake, second: &Fake) -> config::Model {
    let behind = crate::config::Fallback {
        model: "m".into(),
        url: second.url.clone(),
        api_key: "sk-secret-key-of-tests".into(),
        ..Default::default()
    };
    config::Model { fallback: vec![behind], ..config(first) }
}

fn config(fake: &Fake) -> config::Model {
    fake::config(fake)
}

#[tokio::test]
async fn d10_a_model_that_is_out_is_answered_for_by_the_next_and_the_record_says_why() {
    let cases: Vec<(&str, Vec<Answer>)> = vec![
        ("auth", vec![Answer::error(401, "wrong key", "auth")]),
        ("auth", vec![Answer::error(402, "the account is empty", "billing")]),
        ("network", vec![broken_stream(), broken_stream()]),
        ("overload", vec![Answer::error(503, "busy", "x"), Answer::error(529, "busy", "x")]),
        (
            "quota",
            vec![Answer::Header(429, "retry-after", "60".into(), json!({"error": {"message": "later"}}))],
        ),
    ];
    for streamed in [true, false] {
        for (class, answers) in &cases {
            let again = answers.iter().map(|a| match a {
                Answer::Json(status, value) => Answer::Json(*status, value.clone()),
                Answer::Header(status, name, value, body) => {
                    Answer::Header(*status, name, value.clone(), body.clone())
                }
                Answer::Stream(..) => broken_stream(),
            });
            let sent = answers.len();
            let first = Fake::start(again.collect()).await;
            let answer = match streamed {
                true => {
                    Answer::sse(&[chunk(json!({"content": "here"}), None), chunk(json!({}), Some("stop"))])
                }
                false => said("here"),
            };
            let second = Fake::start(vec![answer]).await;
            let reply = chat_with(&Model::new(&chained(&first, &second)).unwrap(), &hello(), &tools()).await;
            let reply = reply.unwrap();
            assert_eq!((reply.text.as_str(), reply.records.len()), ("here", sent + 1), "{class}");
            assert_eq!(reply.requests as usize, sent + 1);
            let (last, before) = reply.records.split_last().unwrap();
            assert!(before.iter().all(|r| r.error == *class && r.instead_of.is_empty()), "{before:?}");
            assert_eq!(last.endpoint, "127.0.0.1");
            assert!(last.instead_of.starts_with(&format!("m at 127.0.0.1 ({class}: ")), "{last:?}");
            assert_eq!((first.requests().len(), second.requests().len()), (sent, 1));
        }
    }
}

#[tokio::test]
async fn a19_what_is_our_fault_or_too_long_never_goes_on_to_the_next() {
    for (status, message, class) in [
        (400, "This model's maximum context length is 4096 tokens", ErrorClass::Context),
        (400, "messages: must not be empty", ErrorClass::Ours),
        (404, "no such model", ErrorClass::Ours),
    ] {
        let first = Fake::start(vec![Answer::error(status, message, "x")]).await;
        let second = Fake::start(vec![]).await;
        let model = Model::new(&chained(&first, &second)).unwrap();
        let error = chat_with(&model, &hello(), &[]).await.unwrap_err();
        assert_eq!((error.class, error.records.len()), (class, 1), "{message}");
    }
}

#[tokio::test]
async fn d10_a_refused_key_is_not_tried_at_each_call_and_a_chain_that_is_out_says_so() {
    let first = Fake::start(vec![Answer::error(401, "wrong key", "auth")]).await;
    let mut second = Fake::start(vec![said("one"), said("two")]).await;
    let config = config::Model { breaker_open_ms: 60_000, ..chained(&first, &second) };
    let model = Model::new(&config).unwrap();
    for word in ["one", "two"] {
        let reply = chat_with(&model, &hello(), &[]).await.unwrap();
        assert_eq!(reply.text, word);
        let why = if word == "one" { "auth" } else { "it refused a moment ago" };
        assert!(reply.records.last().unwrap().instead_of.contains(why), "{reply:?}");
    }
    second.stop().await;
    let error = chat_with(&model, &hello(), &[]).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Network, "{error}");
    assert!(error.records.iter().all(|r| !r.instead_of.is_empty()), "{error:?}");
}

#[tokio::test]
async fn a_structured_answer_has_the_chain_of_its_tier() {
    let (first, second, third) = (
        Fake::start(vec![Answer::error(403, "no", "auth")]).await,
        Fake::start(vec![]).await,
        Fake::start(vec![said(r#"{"n": 3}"#)]).await,
    );
    let behind =
        |tier, fake: &Fake| crate::config::Fallback { tier, ..chained(fake, fake).fallback.remove(0) };
    let fallback = vec![behind(Some(Tier::Strong), &second), behind(None, &third)];
    let model = Model::new(&config::Model { fallback, ..config(&first) }).unwrap();
    assert_eq!((model.links(Tier::Strong).len(), model.links(Tier::Standard).len()), (3, 2));
    let stop = CancellationToken::new();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let messages = hello();
    let asked = ask(&messages, &[], &stop);
    let (n, records) = model.structured(&asked, "n", &schema, |v| Ok(v["n"].as_i64())).await.unwrap();
    assert_eq!((n, records.len()), (Some(3), 2));
    let off = config::Model { use_fallback: false, ..chained(&first, &second) };
    assert_eq!(Model::new(&off).unwrap().links(Tier::Standard).len(), 1);
}

#[test]
fn a_key_goes_to_no_server_that_it_was_not_given_for() {
    use secrecy::ExposeSecret;
    let fallback =
        |url: &str| crate::config::Fallback { model: "n".into(), url: url.into(), ..Default::default() };
    let config = config::Model {
        url: "http://a/v1".into(),
        api_key: "key-of-a".into(),
        standard: "m".into(),
        fallback: vec![fallback(""), fallback("http://b/v1")],
        ..Default::default()
    };
    let behind = config.behind();
    let of = |n: usize| (behind[n].1.url.as_str(), behind[n].1.api_key.expose_secret());
    assert_eq!((of(0), of(1)), (("http://a/v1", "key-of-a"), ("http://b/v1", "")));
    assert_eq!(behind[1].1.name(Tier::Strong), "n");
}

#[test]
fn cached_input_has_its_own_price_and_a_model_its_own_prices() {
    let own = crate::config::ModelPrice {
        model: "big".into(),
        input_microusd_per_mtok: 3_000_000,
        cached_input_microusd_per_mtok: 300_000,
        output_microusd_per_mtok: 15_000_000,
    };
    let config =
        config::Model { input_microusd_per_mtok: 1_000_000, prices: vec![own], ..Default::default() };
    assert_eq!(config.price("small").microusd(1_000, 400, 50), 1_000, "cached as other input");
    assert_eq!(config.price("big").microusd(1_000, 400, 100), 600 * 3 + 120 + 1_500);
    assert_eq!(config.price("big").microusd(10, 99, 0), 3, "more cached than sent is all of it, rounded up");
}
