//! The API as an OpenAPI document: `GET /v1/openapi.json`, without a token. A row of the table an operation; the bodies
//! are in `schemas.json`. A test holds the table against the router, a fuzzer the document against the server.

use super::auth::Scope;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// What an operation takes beside its path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    /// Bytes as they are.
    Bytes,
    /// JSON of this schema; it may be left out.
    Perhaps(&'static str),
    /// JSON of this schema.
    Json(&'static str),
}

/// What it answers with when it is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    /// JSON of this schema.
    Json(&'static str),
    /// The same, with 201.
    Made(&'static str),
    /// The same with 201, or with 200 when it was there already.
    MadeOnce(&'static str),
    /// JSON of this schema, or server-sent events.
    Stream(&'static str),
    /// A file's bytes, with its own type.
    File,
}

struct Operation {
    method: &'static str,
    path: &'static str,
    needs: Scope,
    summary: &'static str,
    takes: Takes,
    gives: Gives,
}

const fn op(
    method: &'static str,
    path: &'static str,
    needs: Scope,
    summary: &'static str,
    takes: Takes,
    gives: Gives,
) -> Operation {
    Operation { method, path, needs, summary, takes, gives }
}

use Gives::{File, Made, MadeOnce, Stream};
use Scope::{Admin, Decide, Read, Submit};
use Takes::{Bytes, Json, Nothing, Perhaps};

const ACK: Gives = Gives::Json("Ack");
const WORDS: Takes = Perhaps("Words");

const OPERATIONS: &[Operation] = &[
    op("get", "/v1/goals", Read, "The goals, newest first", Nothing, Gives::Json("GoalList")),
    op("post", "/v1/goals", Submit, "Submit a goal", Json("SubmitGoal"), MadeOnce("GoalSubmitted")),
    op("post", "/v1/plans", Submit, "The plan that would run", Json("SubmitGoal"), Gives::Json("PlanReply")),
    op("put", "/v1/uploads", Submit, "Upload a file", Bytes, Made("Uploaded")),
    op("get", "/v1/goals/{goal}", Read, "One goal", Nothing, Gives::Json("Goal")),
    op("get", "/v1/goals/{goal}/tickets", Read, "Its tickets", Nothing, Gives::Json("TicketList")),
    op(
        "get",
        "/v1/goals/{goal}/attempts",
        Read,
        "What was tried at all of them",
        Nothing,
        Gives::Json("GoalAttempts"),
    ),
    op("get", "/v1/goals/{goal}/events", Read, "Its log, a page or a stream", Nothing, Stream("EventList")),
    op("get", "/v1/goals/{goal}/calls/{call}", Read, "A model call", Nothing, Gives::Json("CallShown")),
    op("get", "/v1/goals/{goal}/files", Read, "Its accepted files", Nothing, Gives::Json("FileList")),
    op("get", "/v1/goals/{goal}/files/{path}", Read, "One of them", Nothing, File),
    op(
        "get",
        "/v1/goals/{goal}/audit",
        Read,
        "Whether the store's rules hold for it",
        Nothing,
        Gives::Json("Audit"),
    ),
    op("post", "/v1/goals/{goal}/cancel", Submit, "Stop it", WORDS, ACK),
    op("post", "/v1/goals/{goal}/pause", Submit, "No new claims", WORDS, ACK),
    op("post", "/v1/goals/{goal}/resume", Submit, "Claims again", WORDS, ACK),
    op("post", "/v1/goals/{goal}/reopen", Submit, "Do a finished one again", WORDS, ACK),
    op("post", "/v1/goals/{goal}/note", Submit, "A word to its manager", Json("Words"), ACK),
    op("post", "/v1/goals/{goal}/answer", Decide, "Answer what it asks", Json("Words"), ACK),
    op("get", "/v1/tickets/{ticket}", Read, "One ticket", Nothing, Gives::Json("Ticket")),
    op("get", "/v1/tickets/{ticket}/attempts", Read, "Its attempts", Nothing, Gives::Json("AttemptList")),
    op(
        "get",
        "/v1/tickets/{ticket}/attempts/{place}/steps",
        Read,
        "An attempt's steps",
        Nothing,
        Gives::Json("StepList"),
    ),
    op(
        "get",
        "/v1/tickets/{ticket}/attempts/{place}/files",
        Read,
        "What it changed",
        Nothing,
        Gives::Json("ChangedFiles"),
    ),
    op(
        "get",
        "/v1/tickets/{ticket}/attempts/{place}/files/{path}",
        Read,
        "A file as it left it",
        Nothing,
        File,
    ),
    op("post", "/v1/tickets/{ticket}/cancel", Decide, "Stop it", WORDS, ACK),
    op("post", "/v1/tickets/{ticket}/retry", Decide, "Try it again", WORDS, ACK),
    op("post", "/v1/tickets/{ticket}/reopen", Decide, "Do a finished one again", WORDS, ACK),
    op("post", "/v1/tickets/{ticket}/answer", Decide, "Decide what it waits for", Json("AnswerTicket"), ACK),
    op("post", "/v1/tickets/{ticket}/deliver", Decide, "Deliver files yourself", Json("DeliverFiles"), ACK),
    op("get", "/v1/inbox", Read, "What waits for a person", Nothing, Gives::Json("Inbox")),
    op("get", "/v1/fleet", Read, "Who works here", Nothing, Gives::Json("Fleet")),
    op("post", "/v1/fleet/pause", Admin, "No new claims anywhere", WORDS, ACK),
    op("post", "/v1/fleet/resume", Admin, "Claims again", WORDS, ACK),
    op("post", "/v1/fleet/{consumer}/{order}", Admin, "Cordon, drain or activate a consumer", WORDS, ACK),
    op("post", "/v1/endpoints/{endpoint}/lift", Admin, "End an endpoint's cool-down", WORDS, ACK),
    op("get", "/v1/tenants", Read, "What tenants spend and may", Nothing, Gives::Json("TenantList")),
    op(
        "post",
        "/v1/tenants/{tenant}/budget",
        Admin,
        "Set a tenant's budget",
        Json("TenantBudget"),
        Gives::Json("Raised"),
    ),
    op(
        "get",
        "/v1/standards",
        Read,
        "Checklist items that reviews suggest",
        Nothing,
        Gives::Json("StandardList"),
    ),
    op(
        "get",
        "/v1/standards/{standard}",
        Read,
        "One of them with its tally",
        Nothing,
        Gives::Json("Standard"),
    ),
    op(
        "post",
        "/v1/standards/{standard}",
        Decide,
        "Promote or drop it",
        Json("DecideStandard"),
        Gives::Json("Standard"),
    ),
    op("get", "/v1/memory", Read, "What finished goals taught", Nothing, Gives::Json("LessonList")),
    op("delete", "/v1/memory", Decide, "Forget all of it", Nothing, Gives::Json("Forgotten")),
    op("get", "/v1/memory/{lesson}", Read, "One lesson", Nothing, Gives::Json("Lesson")),
    op(
        "post",
        "/v1/memory/{lesson}",
        Decide,
        "Other words in its place",
        Json("EditLesson"),
        Gives::Json("Lesson"),
    ),
    op("delete", "/v1/memory/{lesson}", Decide, "Forget it", Nothing, Gives::Json("Forgotten")),
    op(
        "get",
        "/v1/reviewers",
        Read,
        "How reviewers do on known deliverables",
        Nothing,
        Gives::Json("ReviewerList"),
    ),
    op("get", "/v1/reviewers/{reviewer}", Read, "One of them", Nothing, Gives::Json("ReviewerShown")),
    op("post", "/v1/reviewers/{reviewer}/lift", Admin, "End its suspension", WORDS, ACK),
    op(
        "post",
        "/v1/reviewers/{reviewer}/probe",
        Admin,
        "Show it more known deliverables",
        Json("OrderProbes"),
        ACK,
    ),
    op("get", "/v1/stats", Read, "How much waits and runs", Nothing, Gives::Json("Stats")),
    op("get", "/v1/audit", Admin, "Whether the store's rules hold", Nothing, Gives::Json("Audit")),
    op(
        "get",
        "/v1/dead-letters",
        Admin,
        "Messages that could not be read",
        Nothing,
        Gives::Json("DeadLetters"),
    ),
    op(
        "post",
        "/v1/dead-letters/requeue",
        Admin,
        "Queue their tickets again",
        Perhaps("Requeue"),
        Gives::Json("Requeued"),
    ),
    op("get", "/v1/tokens", Admin, "Tokens, without their secrets", Nothing, Gives::Json("TokenList")),
    op("post", "/v1/tokens", Admin, "Make a token", Json("NewToken"), Made("TokenMade")),
    op("delete", "/v1/tokens/{token}", Admin, "Take a token back", Nothing, ACK),
];

/// Refusals: status, name, when. All have the body `Error`.
const REFUSALS: [(&str, &str, &str); 8] = [
    ("400", "Bad", "A field is wrong."),
    ("401", "Unauthorized", "No token, or none that is valid."),
    ("403", "Forbidden", "The token lacks the scope, or is bound to another tenant."),
    ("404", "NotFound", "There is nothing of this name, or it is another tenant's."),
    ("409", "Conflict", "Not possible as it stands now."),
    ("413", "TooLarge", "Larger than the limit that the message names."),
    ("503", "Unavailable", "Come back later: too much waits, or what the manager stands on does not answer."),
    ("504", "Timeout", "It took too long."),
];

const ABOUT: &str = "The HTTP API of a manager. A body is JSON of at most `manager.request_bytes_max`; an unknown field is \
    refused by its name. Writes may be repeated: submit with an `idempotency_key`, decide with a `request_id`. Lists have \
    pages (`next_offset`, `after`). Refusals have one shape. Answers may grow: ignore what you do not know.";

static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// `GET /v1/openapi.json`
pub(super) async fn show() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

fn document() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described(operation);
    }
    paths.insert("/v1/openapi.json".into(), json!({"get": {"operationId": "get_openapi", "summary": "This document",
        "security": [], "responses": {"200": {"description": "Done.", "content": json_of(&json!({"type": "object"}))}}}}));
    let refusals: Map<String, Value> = REFUSALS
        .iter()
        .map(|(_, name, when)| {
            ((*name).to_owned(), json!({"description": when, "content": json_of(&schema("Error"))}))
        })
        .collect();
    // Checked by a test; a document without its bodies would be none.
    let schemas: Value = serde_json::from_str(include_str!("schemas.json")).unwrap_or_default();
    json!({"openapi": "3.1.0",
        "info": {"title": "Muster", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT},
        "security": [{"token": []}], "paths": paths,
        "components": {"schemas": schemas, "responses": refusals, "securitySchemes": {"token": {"type": "http",
            "scheme": "bearer", "description": "manager.admin_token of the configuration, or one of `muster token create`"}}}})
}

fn described(of: &Operation) -> Value {
    let mut parameters: Vec<Value> = names(of.path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": in_path(name)}))
        .collect();
    parameters.extend(query(of.path, of.method).iter().map(
        |(name, schema, what)| json!({"name": name, "in": "query", "description": what, "schema": schema}),
    ));
    if (of.method, of.path) == ("post", "/v1/goals") {
        parameters.push(json!({"name": "traceparent", "in": "header", "schema": {"type": "string"},
            "description": "W3C trace that the goal belongs to; kept with its sampled flag. A malformed one counts as none."}));
    }
    let body = match of.takes {
        Nothing => Value::Null,
        Bytes => json!({"required": true, "content": {"application/octet-stream": {}}}),
        Perhaps(name) => json!({"required": false, "content": json_of(&schema(name))}),
        Json(name) => json!({"required": true, "content": json_of(&schema(name))}),
    };
    let mut described = json!({"operationId": id(of), "summary": of.summary, "responses": responses(of, !parameters.is_empty()),
        "description": format!("Needs a token with the scope `{}`.", of.needs.as_str()), "parameters": parameters});
    if !body.is_null() {
        described["requestBody"] = body;
    }
    described
}

fn responses(of: &Operation, has_parameters: bool) -> Value {
    let done = |content: Value| json!({"description": "Done.", "content": content});
    let mut responses = match of.gives {
        Gives::Json(name) => json!({"200": done(json_of(&schema(name)))}),
        Made(name) => json!({"201": done(json_of(&schema(name)))}),
        MadeOnce(name) => json!({"201": done(json_of(&schema(name))), "200": done(json_of(&schema(name)))}),
        Stream(name) => {
            let mut content = json_of(&schema(name));
            content["text/event-stream"] = json!({"schema": {"type": "string"}});
            json!({"200": done(content)})
        }
        File => json!({"200": done(json!({"*/*": {}}))}),
    };
    let writes = of.takes != Nothing;
    for (status, name, _) in REFUSALS {
        let may = match status {
            "400" => has_parameters || writes,
            "404" => of.path.contains('{'),
            "409" => of.method == "post",
            "413" => writes,
            _ => true,
        };
        if may {
            responses[status] = json!({"$ref": format!("#/components/responses/{name}")});
        }
    }
    responses
}

/// `post_goals_goal_cancel`
fn id(of: &Operation) -> String {
    let words = of.path.trim_start_matches("/v1/").split(['/', '{', '}', '-']).filter(|w| !w.is_empty());
    words.fold(of.method.to_owned(), |id, word| format!("{id}_{word}"))
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn in_path(name: &str) -> Value {
    match name {
        "goal" | "ticket" => json!({"type": "string", "pattern": "^[0-9a-f]{32}$"}),
        "place" => json!({"type": "integer", "minimum": 1}),
        "order" => json!({"type": "string", "enum": ["cordon", "drain", "activate"]}),
        "tenant" => json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}),
        _ => json!({"type": "string", "minLength": 1}),
    }
}

fn query(path: &str, method: &str) -> Vec<(&'static str, Value, &'static str)> {
    let count = |max: u64| json!({"type": "integer", "minimum": 1, "maximum": max});
    let position = json!({"type": "string", "pattern": "^[0-9]{1,20}(-[0-9]{1,20})?$"});
    let states: Vec<&str> = shared::goal::GoalState::ALL.iter().map(|s| s.as_str()).collect();
    match (method, path) {
        ("get", "/v1/goals") => vec![
            ("state", json!({"type": "string", "enum": states}), "only those in this state"),
            ("q", json!({"type": "string"}), "words of the text, or the beginning of the id"),
            ("offset", json!({"type": "integer", "minimum": 0}), "where the page begins"),
            ("limit", count(200), "goals of a page"),
        ],
        ("get", "/v1/goals/{goal}/events") => vec![
            ("after", position, "the id of an event; 0 is the beginning"),
            ("limit", count(500), "events of a page"),
        ],
        ("get", "/v1/goals/{goal}/calls/{call}") => {
            vec![("after", position, "the id of an event before the call's")]
        }
        (_, "/v1/standards") | (_, "/v1/standards/{standard}") => {
            let mut asked = vec![("tenant", json!({"type": "string"}), "whose; empty: the token's own")];
            if path == "/v1/standards" {
                let states = shared::standard::State::ALL.map(|state| state.as_str());
                asked.push(("kind", json!({"type": "string"}), "only those of this role"));
                asked.push(("state", json!({"type": "string", "enum": states}), "only those in this state"));
            }
            asked
        }
        (_, "/v1/memory") | (_, "/v1/memory/{lesson}") => {
            let mut asked = vec![("tenant", json!({"type": "string"}), "whose; empty: the token's own")];
            if method == "get" && path == "/v1/memory" {
                asked.push(("kind", json!({"type": "string"}), "only those of this role, or of plans"));
            }
            asked
        }
        _ => vec![],
    }
}

fn json_of(schema: &Value) -> Value {
    json!({"application/json": {"schema": schema}})
}

fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[cfg(test)]
#[path = "openapi/tests.rs"]
mod tests;
