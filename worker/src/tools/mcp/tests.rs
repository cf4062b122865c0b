//! A real server program in the real sandbox, and a real server on HTTP.

use super::*;
use crate::tools::ToolBox;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use shared::blob::Blobs;
use shared::config::{self, Config};
use shared::tool::mcp::McpServer;
use shared::workspace::Attempt;
use std::sync::{Arc, Mutex as StdMutex};

const SERVER: &str = include_str!("server.py");

fn program(change: impl Fn(&mut McpServer)) -> McpServer {
    let command = ["python3", "-I", "-c", SERVER];
    let mut server: McpServer = serde_json::from_value(
        json!({"name": "t", "bundle": "things", "command": command, "reads": ["echo"]}),
    )
    .unwrap();
    change(&mut server);
    server
}

struct Fixture {
    _folder: tempfile::TempDir,
    tools: ToolBox,
}

async fn open(server: McpServer) -> Result<Fixture, String> {
    let folder = tempfile::tempdir().unwrap();
    let blobs = config::Blobs { folder: folder.path().join("blobs"), ..Default::default() };
    let blobs = Blobs::open(&blobs).unwrap();
    let scratch = folder.path().join("scratch");
    let attempt = Attempt::open(&blobs, "g1", "", "", &scratch, &Default::default(), "t").await.unwrap();
    let mut config = Config::default();
    config.tools.mcp = vec![server];
    let catalogue = Arc::new(Catalogue::new(&config).unwrap());
    let mut tools = ToolBox::new(attempt, Some(Sandbox::probe().unwrap()), &config.worker, catalogue);
    tools.connect(&["things".into(), "files".into()]).await?;
    Ok(Fixture { _folder: folder, tools })
}

async fn call(fixture: &mut Fixture, name: &str, args: Value) -> String {
    match fixture.tools.call(name, &args).await {
        Ok(result) => result.text,
        Err(ToolError::Tell(text)) => format!("told: {text}"),
        Err(other) => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_program_gives_its_tools_and_sees_neither_our_environment_nor_our_network() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let own = |server: &mut McpServer| {
        server.env.insert("OWN".into(), "1".into());
    };
    let mut fixture = open(program(own)).await.unwrap();
    let names: Vec<String> =
        fixture.tools.declarations(&["files".into()]).into_iter().map(|t| t.name).collect();
    for name in ["t_echo", "t_count", "t_ask", "read_file"] {
        assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
    }
    assert_eq!(fixture.tools.decl("t_write").unwrap().description, "does write");
    let said = call(&mut fixture, "t_echo", json!({"text": "hallo"})).await;
    assert_eq!(said, "<data source=\"answer of t_echo\">\nhallo\n</data>");

    let said = call(&mut fixture, "t_env", json!({})).await;
    let inside: Vec<(String, String)> = serde_json::from_str(said.lines().nth(1).unwrap()).unwrap();
    let mut names: Vec<&str> = inside.iter().map(|(name, _)| name.as_str()).collect();
    // What the sandbox's own shell adds, and Python.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"].contains(name));
    let made = [
        "HOME",
        "LANG",
        "MALLOC_ARENA_MAX",
        "MPLBACKEND",
        "MPLCONFIGDIR",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "OWN",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONIOENCODING",
        "TMPDIR",
        "USER",
    ];
    assert_eq!(names, made, "made for it, nothing of ours (I12)");
    let said = call(&mut fixture, "t_reach", json!({"host": "127.0.0.1", "port": port})).await;
    assert!(said.contains("not reached"), "{said}");
    // It works in the attempt's folder: what it writes is part of the work.
    let said = call(&mut fixture, "t_write", json!({"path": "data/x.txt"})).await;
    assert!(said.contains("/workspace") && said.contains("[new or changed files: data/x.txt]"), "{said}");
}

#[tokio::test]
async fn arguments_are_checked_results_are_capped_and_failures_are_told() {
    let mut fixture = open(program(|s| s.result_bytes_max = 200_000)).await.unwrap();
    let said = call(&mut fixture, "t_echo", json!({"txt": 1})).await;
    assert!(said.starts_with("told: arguments of `t_echo` are wrong") && said.contains("text"), "{said}");
    let said = call(&mut fixture, "t_fail", json!({})).await;
    assert!(said.contains("<\\/data> it is broken") && said.matches("</data>").count() == 1, "{said}");
    assert!(fixture.tools.call("t_fail", &json!({})).await.unwrap().failed);
    // Long texts go to a file; what is longer than allowed is not even read.
    let said = call(&mut fixture, "t_long", json!({"bytes": 100_000})).await;
    assert!(said.len() < 20_000 && said.contains("the whole is in temp/t_long-1.txt"), "{said}");
    let said = call(&mut fixture, "t_long", json!({"bytes": 10_000_000})).await;
    assert!(said.contains("longer than 200000 bytes") && said.contains("started anew"), "{said}");
    // A server that asks for a model's or a person's words gets none, and its answer still comes.
    let said = call(&mut fixture, "t_ask", json!({})).await;
    assert!(said.contains("told: not offered"), "{said}");
    assert!(call(&mut fixture, "t_none", json!({})).await.contains("there is no tool"));
}

#[tokio::test]
async fn a_server_that_dies_is_started_anew_a_few_times_and_the_model_is_told() {
    let mut fixture = open(program(|_| {})).await.unwrap();
    assert!(call(&mut fixture, "t_count", json!({})).await.contains("\n1\n"));
    assert!(call(&mut fixture, "t_count", json!({})).await.contains("\n2\n"));
    for _ in 0..RESTARTS_MAX {
        let said = call(&mut fixture, "t_die", json!({})).await;
        assert!(
            said.contains("ended with code 3 and said: starting") && said.contains("no more of this"),
            "{said}"
        );
        let said = call(&mut fixture, "t_count", json!({})).await;
        assert!(said.starts_with("[its server was started anew") && said.contains("\n1\n"), "{said}");
    }
    call(&mut fixture, "t_die", json!({})).await;
    let said = call(&mut fixture, "t_count", json!({})).await;
    assert!(said.contains("it died 4 times"), "{said}");
    assert!(call(&mut fixture, "list_files", json!({})).await.contains("no files"), "the rest goes on");
}

#[tokio::test]
async fn i7_a_gate_that_the_server_does_not_have_and_a_missing_sandbox_stop_the_attempt() {
    let why = open(program(|s| s.confirm = vec!["erase".into()])).await.err().unwrap();
    assert!(why.contains("no tool `erase`"), "{why}");
    let fixture = open(program(|s| s.confirm = vec!["*".into()])).await.unwrap();
    assert!(fixture.tools.decl("t_echo").unwrap().requires_confirmation);
    let why = open(program(|s| s.command = vec!["/nonexistent".into()])).await.err().unwrap();
    assert!(why.contains("MCP server `t`") && why.contains("ended with code"), "{why}");
}

/// A server on HTTP: sessions, streams, and what it was told.
#[derive(Clone, Default)]
struct Elsewhere(Arc<StdMutex<Vec<(String, String, String)>>>);

async fn answer(State(server): State<Elsewhere>, headers: HeaderMap, body: String) -> Response {
    let header = |name: &str| headers.get(name).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    let message: Value = serde_json::from_str(&body).unwrap();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let sessions = {
        let mut log = server.0.lock().unwrap();
        log.push((method.clone(), header("mcp-session-id"), header("mcp-protocol-version")));
        log.iter().filter(|(method, ..)| method == "initialize").count()
    };
    assert_eq!(header("authorization"), format!("Bearer {}", env!("CARGO_MANIFEST_DIR")));
    let result = match method.as_str() {
        "initialize" => json!({"protocolVersion": "2025-03-26", "capabilities": {}}),
        "tools/list" => json!({"tools": [{"name": "pay"}, {"name": "look"}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": header("authorization")}]}),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    // The first session is forgotten at the second call of a tool.
    let calls = server.0.lock().unwrap().iter().filter(|(method, ..)| method == "tools/call").count();
    if method == "tools/call" && calls == 2 {
        return StatusCode::NOT_FOUND.into_response();
    }
    let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    let session = ("mcp-session-id", format!("s{sessions}"));
    if method == "tools/call" {
        let stream =
            format!(": hi\n\nevent: message\ndata: {{\"method\":\"notifications/x\"}}\n\ndata: {text}\n\n");
        return ([session, (header::CONTENT_TYPE.as_str(), "text/event-stream".into())], stream)
            .into_response();
    }
    ([session, (header::CONTENT_TYPE.as_str(), "application/json".into())], text).into_response()
}

#[tokio::test]
async fn i12_a_server_on_http_has_its_session_and_its_token_which_no_model_sees() {
    let server = Elsewhere::default();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().route("/mcp", post(answer)).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    // Any variable that is set stands for a token here.
    let declared = json!({"name": "t", "bundle": "things", "url": url, "token_env": "CARGO_MANIFEST_DIR", "reads": ["look"]});
    let mut fixture = open(serde_json::from_value(declared).unwrap()).await.unwrap();
    assert_eq!(fixture.tools.decl("t_pay").unwrap().effect, Effect::World, "nobody said that it only reads");
    let said = call(&mut fixture, "t_look", json!({})).await;
    assert!(said.contains("Bearer [redacted]") && !said.contains(env!("CARGO_MANIFEST_DIR")), "{said}");
    // What changes the world and was not answered is in doubt; what reads is told.
    let said = fixture.tools.call("t_pay", &json!({})).await;
    assert!(
        matches!(&said, Err(ToolError::Unknown(text)) if text.contains("forgotten the session")),
        "{said:?}"
    );
    let said = call(&mut fixture, "t_look", json!({})).await;
    assert!(said.starts_with("[its server was started anew"), "{said}");
    let log = server.0.lock().unwrap().clone();
    let of = |method: &str| {
        log.iter().filter(|l| l.0 == method).map(|l| (l.1.as_str(), l.2.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(of("initialize"), [("", ""), ("", "")]);
    assert_eq!(of("notifications/initialized")[0], ("s1", "2025-03-26"));
    assert_eq!(of("tools/call").last(), Some(&("s2", "2025-03-26")));
}
