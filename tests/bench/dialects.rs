//! The dialect experiment: 40 prompts, of which 15 are orders, 15 questions that a FAQ answers and 10 small talk, in
//! each dialect against a given model. A decision is right when the first tool that is called is the right one; for
//! small talk, when none is.
//!
//! `muster-bench dialects URL MODEL` (key in `PEER_KEY`); one JSON line a dialect.

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use shared::config::{self, Dialect};
use shared::model::{Ask, Message, Model, ignore_wait};
use shared::ticket::Tier;
use shared::tool::{Effect, ToolDecl};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

const SYSTEM: &str = "You are the assistant of a small shop for tea and cups. You have tools for orders and for questions about \
    the shop. Use a tool when it helps with the customer's wish. When the customer only chats, answer in words.";

const ORDERS: [&str; 15] = [
    "I would like to order two packs of green tea.",
    "Please send me one teapot, the red one.",
    "Can I get three blue cups?",
    "Order 5 bags of Earl Grey for me.",
    "I want to buy a gift box with black tea.",
    "Put one tea strainer on my order, please.",
    "Four small cups and a pot, please.",
    "I need 10 packs of jasmine tea.",
    "Get me a set of six glasses.",
    "One kilo of rooibos, please order it.",
    "I'd take the large kettle.",
    "Please order a second white cup for me.",
    "Send 2 tins of matcha to my address.",
    "I want one of the bamboo whisks.",
    "Let me have 3 packs of the mint tea.",
];

const QUESTIONS: [&str; 15] = [
    "What are your opening hours?",
    "How long does delivery take?",
    "Do you ship to Austria?",
    "Can I return a cup that I do not like?",
    "Which ways of payment do you take?",
    "Is your green tea organic?",
    "How much is shipping?",
    "Are the cups safe for the dishwasher?",
    "Where is your shop?",
    "Do you give discounts to schools?",
    "How should I store matcha?",
    "Do you have gift cards?",
    "Is there caffeine in rooibos?",
    "How do I reach your support?",
    "What is your privacy policy?",
];

const TALK: [&str; 10] = [
    "Hello!",
    "How are you today?",
    "Thank you very much, that was kind.",
    "Nice weather, isn't it?",
    "Good morning.",
    "You are funny.",
    "Bye, see you soon!",
    "I had a long day.",
    "Happy new year!",
    "What is your name?",
];

fn tools() -> Vec<ToolDecl> {
    let tool = |name: &str, description: &str, schema: Value| ToolDecl {
        name: name.into(),
        bundle: "shop".into(),
        description: description.into(),
        schema: schema.into(),
        effect: Effect::Reads,
        sandboxed: false,
        requires_confirmation: false,
    };
    vec![
        tool(
            "create_order",
            "Orders an article for the customer.",
            json!({"type": "object", "properties": {"article": {"type": "string"}, "quantity": {"type": "integer"}},
                "required": ["article"]}),
        ),
        tool(
            "search_faq",
            "Looks up an answer about the shop: hours, delivery, returns, payment, the goods.",
            json!({"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}),
        ),
    ]
}

async fn decide(model: &Model, prompt: &str) -> Result<Option<String>> {
    let messages = [Message::System(SYSTEM.into()), Message::User(prompt.into())];
    let tools = tools();
    let ask = Ask {
        role: "bench",
        tier: Tier::Standard,
        messages: &messages,
        tools: &tools,
        output_tokens_max: 160,
        stop: &CancellationToken::new(),
        on_bytes: &|| {},
        on_wait: &ignore_wait,
    };
    let reply = model.chat(&ask).await.map_err(|e| anyhow!("{e}"))?;
    Ok(reply.calls.first().map(|call| call.name.clone()))
}

/// Runs all prompts in each dialect; one row a dialect.
pub(crate) async fn run(url: &str, name: &str) -> Result<()> {
    let key = std::env::var("PEER_KEY").unwrap_or_default();
    for (dialect, word) in
        [(Dialect::Native, "native"), (Dialect::Json, "json"), (Dialect::Xml, "xml"), (Dialect::Text, "text")]
    {
        let config = config::Model {
            url: url.into(),
            standard: name.into(),
            api_key: key.clone().into(),
            dialect,
            temperature: 0.0,
            ..config::Model::default()
        };
        let model = Model::new(&config)?;
        let begun = Instant::now();
        let (mut right, mut failed) = ([0_u32; 3], 0_u32);
        let classes: [(&[&str], Option<&str>); 3] =
            [(&ORDERS, Some("create_order")), (&QUESTIONS, Some("search_faq")), (&TALK, None)];
        for (class, (prompts, wanted)) in classes.iter().enumerate() {
            for prompt in *prompts {
                match decide(&model, prompt).await {
                    Ok(called) => right[class] += u32::from(called.as_deref() == *wanted),
                    Err(error) => {
                        eprintln!("{word}: {prompt}: {error}");
                        failed += 1;
                    }
                }
            }
        }
        let all = ORDERS.len() + QUESTIONS.len() + TALK.len();
        let share = |n: u32, of: usize| f64::from(n) / of as f64;
        let row = json!({"peer": "muster", "version": env!("CARGO_PKG_VERSION"), "scenario": "dialects", "model": name,
            "dialect": word, "value": share(right.iter().sum(), all), "unit": "of the tool decisions right",
            "order": share(right[0], ORDERS.len()), "faq": share(right[1], QUESTIONS.len()),
            "talk": share(right[2], TALK.len()), "failed": failed, "prompts": all,
            "secs": begun.elapsed().as_secs_f64()});
        println!("{row}");
    }
    Ok(())
}
