use super::*;

fn goal(text: &str) -> Goal {
    Goal {
        goal: text.into(),
        input: vec![],
        constraint: vec![],
        review: None,
        budget_tokens: None,
        budget_dollars: None,
        deadline_s: None,
        route: false,
        approve_plan: false,
        in_flight_max: None,
        tenant: None,
        language: None,
        idempotency_key: None,
    }
}

fn written(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

const DIRECT: &str = r#"
[goal]
text = "count"
inputs = ["in/a.csv"]
[[tickets]]
id = "one"
description = "count"
expected_output = "data/n.txt"
tool = "code_interpreter"
args = { code = "print(1)" }
outputs = ["data/n.txt"]
review = "code"
"#;

#[test]
fn a_plan_of_direct_calls_asks_no_model_and_takes_its_inputs_from_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), "in/a.csv", "x\n1\n");
    let plan = written(dir.path(), "plan.toml", DIRECT);
    let ready = ready(&goal(plan.to_str().unwrap()), &Config::default()).unwrap();
    assert_eq!(ready.asks_model, None);
    assert_eq!(ready.files, vec![("data/a.csv".to_owned(), dir.path().join("in/a.csv"), 4)]);
    let plan = ready.body.plan.unwrap();
    assert_eq!(plan["tickets"][0]["id"], "one");
    assert_eq!(plan["goal"].get("inputs"), None);
}

#[test]
fn a_plan_file_names_no_inputs_outside_of_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), "secret.txt", "s3cret");
    written(dir.path(), "plans/in/a.csv", "x\n1\n");
    std::os::unix::fs::symlink(dir.path(), dir.path().join("plans/up")).unwrap();
    std::os::unix::fs::symlink("in/a.csv", dir.path().join("plans/within.csv")).unwrap();
    let run = |input: &str, given: Vec<PathBuf>| {
        let plan = written(dir.path(), "plans/plan.toml", &DIRECT.replace("in/a.csv", input));
        ready(&Goal { input: given, ..goal(plan.to_str().unwrap()) }, &Config::default())
    };
    for outside in ["/etc/passwd", "../..", "../secret.txt", "up/secret.txt", "up"] {
        let e = run(outside, vec![]).unwrap_err();
        assert_eq!(e.exit().code(), 64);
        assert!(e.to_string().contains("goal.inputs") && e.to_string().contains(outside), "{e}");
        assert!(e.hint().contains("--input /"), "{}", e.hint());
    }
    let e = run("gone.csv", vec![]).unwrap_err();
    assert!(e.to_string().contains("goal.inputs: gone.csv"), "{e}");
    assert!(run("within.csv", vec![]).is_ok());
    // Whoever types it wants it.
    let given = run("in/a.csv", vec![dir.path().join("secret.txt")]).unwrap();
    assert_eq!(given.files.len(), 2);
}

#[test]
fn words_ask_a_model_and_have_a_key_of_their_own() {
    let a = ready(&goal("write a poem"), &Config::default()).unwrap();
    let b = ready(&goal("write a poem"), &Config::default()).unwrap();
    assert!(a.asks_model.is_some() && a.body.plan.is_none());
    assert_ne!(a.body.idempotency_key, b.body.idempotency_key);
}

#[test]
fn an_empty_goal_names_its_field() {
    let e = ready(&goal("  "), &Config::default()).unwrap_err();
    assert_eq!(e.exit().code(), 64);
    assert!(e.to_string().contains("goal.text"), "{e}");
}

#[test]
fn a_file_that_is_not_there_is_no_goal() {
    let e = ready(&goal("plan.toml"), &Config::default()).unwrap_err();
    assert_eq!(e.to_string(), "there is no plan file plan.toml");
    assert!(ready(&goal("explain what Cargo.toml"), &Config::default()).is_ok());
}

#[test]
fn c9_an_unsound_plan_is_refused_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let cycle =
        DIRECT.replace("id = \"one\"", "id = \"one\"\nneeds = [\"one\"]").replace("in/a.csv", "a.csv");
    written(dir.path(), "a.csv", "");
    let plan = written(dir.path(), "cycle.toml", &cycle);
    let e = ready(&goal(plan.to_str().unwrap()), &Config::default()).unwrap_err();
    assert!(e.to_string().contains("wait for each other"), "{e}");
    let plan = written(dir.path(), "typo.toml", &DIRECT.replace("expected_output", "expectd_output"));
    let e = ready(&goal(plan.to_str().unwrap()), &Config::default()).unwrap_err();
    assert!(e.to_string().contains("typo.toml") && e.to_string().contains("expectd_output"), "{e}");
    assert_eq!(e.hint(), "did you mean `expected_output`?");
}

#[test]
fn an_input_over_the_limit_names_size_and_limit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("big.bin");
    std::fs::File::create(&file).unwrap().set_len(100 << 20).unwrap();
    let e = ready(&Goal { input: vec![file], ..goal("look at it") }, &Config::default()).unwrap_err();
    assert!(e.to_string().contains("100.0 MiB, at most 64.0 MiB"), "{e}");
    assert!(e.hint().contains("limits.input_bytes_max"));
}

#[test]
fn a_folder_is_taken_whole_but_for_links_and_tool_folders() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("src");
    written(&root, "a.txt", "a");
    written(&root, "b/c.txt", "cc");
    written(&root, ".git/config", "no");
    std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
    let ready = ready(&Goal { input: vec![root], ..goal("look") }, &Config::default()).unwrap();
    let places: Vec<&str> = ready.files.iter().map(|(p, ..)| p.as_str()).collect();
    assert_eq!(places, ["data/src/a.txt", "data/src/b/c.txt"]);
}

#[test]
fn two_inputs_may_not_share_a_place() {
    let dir = tempfile::tempdir().unwrap();
    let one = written(dir.path(), "x/a.txt", "1");
    let two = written(dir.path(), "y/a.txt", "2");
    let e = ready(&Goal { input: vec![one, two], ..goal("look") }, &Config::default()).unwrap_err();
    assert!(e.to_string().contains("data/a.txt"), "{e}");
}

#[tokio::test]
async fn a_lost_answer_is_asked_again_with_the_same_key() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (keys_to, mut keys) = tokio::sync::mpsc::channel(2);
    tokio::spawn(async move {
        for n in 0..2 {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut heard = String::new();
            let key = loop {
                let mut buffer = [0; 4096];
                let read = socket.read(&mut buffer).await.unwrap();
                heard.push_str(&String::from_utf8_lossy(&buffer[..read]));
                let body = heard.split("\r\n\r\n").nth(1).unwrap_or_default();
                if let Ok(body) = serde_json::from_str::<serde_json::Value>(body) {
                    break text(&body, "idempotency_key").to_owned();
                }
            };
            keys_to.send(key).await.unwrap();
            // The first answer is lost: the connection closes without one.
            if n == 1 {
                let body = r#"{"goal":"g1","state":"planning","duplicate":true}"#;
                let reply = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                socket.write_all(reply.as_bytes()).await.unwrap();
            }
        }
    });
    let ready = ready(&goal("write a poem"), &Config::default()).unwrap();
    let answer = submit(&Client::new(&url, None).unwrap(), ready).await.unwrap();
    assert_eq!(text(&answer, "goal"), "g1");
    let (first, second) = (keys.recv().await.unwrap(), keys.recv().await.unwrap());
    assert!(!first.is_empty());
    assert_eq!(first, second);
}
