//! What models do in the middle of work, through the whole fleet and real HTTP: the same company twice, once with all
//! answers streamed, once with all of them in one piece.
//!
//! Five tickets in a row, each with a trouble of its own, and a sixth that puts them together and is judged.

use harness::fleet::Fleet;
use harness::model::{Answer, Asked, Model, Shape};
use harness::script::{key_of, output_of, verdict, work};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TEXT: &str = "Five parts for readers";
const CONSTRAINT: &str = "for non-technical readers, ≤300 words";
/// A prompt with messages of more bytes does not fit this server.
const WINDOW_BYTES: usize = 45_000;
const STEPS_MAX: u32 = 7;

/// Counts of what the script has seen.
#[derive(Default)]
struct Seen {
    overflows: AtomicUsize,
    verdicts: AtomicUsize,
}

fn tickets() -> Value {
    let ticket = |id: &str, needs: &[&str], more: Value| {
        let mut ticket = json!({"id": id, "needs": needs, "description": format!("write the part {id}"),
            "expected_output": output_of(id), "role": "summarizer", "outputs": [output_of(id)], "review": "none"});
        for (name, value) in more.as_object().into_iter().flatten() {
            ticket[name] = value.clone();
        }
        ticket
    };
    let judged = json!({"review": "judged", "integrates": true,
        "checks": [{"kind": "judged", "text": "it is for non-technical readers"}]});
    json!([
        ticket("invents", &[], json!({})),
        ticket("cut", &["invents"], json!({})),
        ticket("fills", &["cut"], json!({})),
        ticket("floods", &["fills"], json!({"tools": ["code", "files"]})),
        ticket("dawdles", &["floods"], json!({})),
        ticket("whole", &["dawdles"], judged),
    ])
}

fn write(key: &str, content: &str) -> Answer {
    Answer::call("write_file", json!({"path": output_of(key), "content": content}))
}

/// B2: a report of work that no tool did, twice; once it was sent back it works.
fn invents(asked: &Asked) -> Answer {
    if asked.says("no tool was run") {
        return work(asked);
    }
    Answer::Text("Action: read_file\nObservation: 3 files of the fairy\nFinal Answer: done".into())
}

/// A12 and A10: a call that the limit cut, then two calls with one id, one of them with arguments that are none (A9).
fn cut(asked: &Asked) -> Answer {
    let call = |args: &str| json!({"id": "call_1", "type": "function", "function": {"name": "write_file", "arguments": args}});
    let message = |calls: &[Value], finish: &str| Answer::Message {
        message: json!({"role": "assistant", "content": null, "tool_calls": calls}),
        finish: finish.into(),
    };
    match asked.turn() {
        0 => message(&[call(r#"{"path": "outputs/cut.md", "content": "HALF"#)], "length"),
        1 => {
            let whole = json!({"path": output_of("cut"), "content": "whole"}).to_string();
            message(&[call("[1, 2]"), call(&whole)], "tool_calls")
        }
        _ => work(asked),
    }
}

/// A19 and B4: a conversation that outgrows the server's window.
fn fills(asked: &Asked, seen: &Seen) -> Answer {
    if asked.body["messages"].to_string().len() > WINDOW_BYTES {
        seen.overflows.fetch_add(1, Ordering::SeqCst);
        return Answer::error(
            400,
            "This model's maximum context length is 4096 tokens. However, you requested 0 output tokens",
        );
    }
    match asked.turn() {
        0 => write("fills", &"word ".repeat(2_800)),
        n @ 1..=3 => Answer::call("read_file", json!({"path": output_of("fills"), "offset_bytes": n})),
        _ => work(asked),
    }
}

/// C8: a tool that says too much, and a report that no hash should hold.
fn floods(asked: &Asked) -> Answer {
    match asked.turn() {
        0 => write("floods", "short"),
        1 => Answer::call("code_interpreter", json!({"code": "print('head ' + 'x' * 300_000 + ' tail')"})),
        _ => Answer::call(
            "finish",
            json!({"status": "done", "summary": "much ".repeat(790),
            "conclusions": vec!["a fact ".repeat(100); 20]}),
        ),
    }
}

/// D3: never comes to an end.
fn dawdles(asked: &Asked) -> Answer {
    write("dawdles", &format!("version {}", asked.turn()))
}

fn script(seen: &Seen, asked: &Asked) -> Option<Answer> {
    if asked.schema() == "verdict" {
        // B5: what ignores the constraint is sent back.
        return Some(verdict(asked, seen.verdicts.fetch_add(1, Ordering::SeqCst) > 0));
    }
    Some(match key_of(asked).as_str() {
        "invents" => invents(asked),
        "cut" => cut(asked),
        "fills" => fills(asked, seen),
        "floods" => floods(asked),
        "dawdles" => dawdles(asked),
        "whole" => work(asked),
        _ => return None,
    })
}

async fn company(shape: Shape) {
    let seen = Arc::new(Seen::default());
    let model = {
        let seen = Arc::clone(&seen);
        Model::shaped(shape, move |asked: &Asked| script(&seen, asked)).await.unwrap()
    };
    let fleet = Fleet::plan()
        .workers(1)
        .model(&model.url())
        .env("WORKER__STEPS_MAX", &STEPS_MAX.to_string())
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let plan = json!({"goal": {"text": TEXT, "constraints": [CONSTRAINT]}, "tickets": tickets()});
    let goal = api.submit(&json!({"plan": plan})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();

    let asked = model.asked();
    let of = |key: &str| asked.iter().filter(|a| key_of(a) == key).collect::<Vec<_>>();
    // B5: five hand-offs deep the constraint stands in every prompt, word for word.
    assert!(asked.iter().all(|a| a.says(TEXT) && a.says(CONSTRAINT)));
    // B2: refused by code, before any review; nothing after the made-up observation was ever read again.
    let invents = api.ticket(&goal, "invents").await.unwrap();
    assert_eq!((invents.counters.faults, invents.attempts), (1, 2));
    assert!(asked.iter().all(|a| !a.says("of the fairy")));
    // A12: nothing of the cut call was run, and the model was told how to go on.
    assert_eq!(api.file(&goal, &output_of("cut")).await.unwrap(), "whole");
    assert!(of("cut")[1].last_result().contains("append_file"), "{}", of("cut")[1].last_result());
    assert_eq!(api.ticket(&goal, "cut").await.unwrap().counters.faults, 0);
    // A9, A10: one answer a call, under ids of their own; the bad one is told and the other one runs.
    let answers: Vec<&Value> = of("cut")[2].messages().iter().filter(|m| m["role"] == "tool").collect();
    let of_turn = &answers[answers.len() - 2..];
    assert_ne!(of_turn[0]["tool_call_id"], of_turn[1]["tool_call_id"]);
    assert!(of_turn[0]["content"].as_str().unwrap().contains("Not run"), "{of_turn:?}");
    // A19, B4: it did not fit once, was made shorter once, and was never sent again as it was.
    assert_eq!(seen.overflows.load(Ordering::SeqCst), 1);
    assert!(of("fills").last().unwrap().says("bytes left out"));
    assert_eq!(api.ticket(&goal, "fills").await.unwrap().counters.faults, 0);
    // C8: the flood stands in a file, head and tail in the prompt; the hash holds a report that fits.
    let heard = of("floods").last().unwrap().last_result();
    assert!(
        heard.len() < 20_000 && heard.starts_with("head ") && heard.contains(" tail"),
        "{} bytes: {}",
        heard.len(),
        heard.chars().take(300).collect::<String>()
    );
    assert!(heard.contains("temp/code_interpreter-1.txt"));
    let floods = api.ticket(&goal, "floods").await.unwrap();
    assert!(floods.result.to_string().len() <= 8_192, "{} bytes", floods.result.to_string().len());
    // D3: warned near the end, then what there is, marked as partial.
    let steps = of("dawdles");
    assert_eq!(steps.len(), STEPS_MAX as usize);
    assert!(steps.last().unwrap().says("steps left") && !steps[2].says("steps left"));
    let dawdles = api.ticket(&goal, "dawdles").await.unwrap();
    assert_eq!((&dawdles.result["status"], dawdles.counters.faults), (&json!("partial"), 0));
    // B5: the reviewer sends it back, and the second one passes.
    assert_eq!(api.ticket(&goal, "whole").await.unwrap().counters.faults, 1);
    assert_eq!(seen.verdicts.load(Ordering::SeqCst), 2);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a9_a10_a12_a19_b2_b4_b5_c8_d3_a_company_in_trouble_delivers_with_streams() {
    company(Shape::Streamed).await;
}

#[tokio::test]
async fn a9_a10_a12_a19_b2_b4_b5_c8_d3_a_company_in_trouble_delivers_with_whole_answers() {
    company(Shape::Whole).await;
}
