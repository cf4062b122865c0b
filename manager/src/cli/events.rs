//! Follows a goal's event log over SSE, across restarts of the manager, from where it left off.

use super::client::{Client, segment};
use super::error::CliError;
use futures::StreamExt;
use shared::store::LogEvent;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Without a manager for this long, following ends.
pub(crate) const OUTAGE_MAX: Duration = Duration::from_secs(60);
/// Pause before connecting again.
const RECONNECT: Duration = Duration::from_millis(500);
/// A stream that is silent for this long (not even a comment) is opened again.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Longest line that is kept; longer ones are cut off, and the event is skipped.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// What following brings.
#[derive(Debug)]
pub(crate) enum Happening {
    Event(Box<LogEvent>),
    /// The goal is over and every event was seen.
    End,
    /// No way on.
    Lost(CliError),
}

/// Follows until the end, the loss, or until nobody listens. Cancel it by dropping the receiver.
pub(crate) async fn follow(client: Client, goal: String, mut after: String, to: mpsc::Sender<Happening>) {
    let mut lost_since: Option<Instant> = None;
    loop {
        let path = format!("/v1/goals/{}/events?after={}", segment(&goal), segment(&after));
        match client.open(&path, "text/event-stream").await {
            Ok(reply) => {
                lost_since = None;
                match read_stream(reply, &mut after, &to).await {
                    Read::Ended => {
                        let _ = to.send(Happening::End).await;
                        return;
                    }
                    Read::Unheard => return,
                    Read::Broken => {}
                }
            }
            Err(e) if e.is_passing() => {
                let since = *lost_since.get_or_insert_with(Instant::now);
                if since.elapsed() > OUTAGE_MAX {
                    let _ = to.send(Happening::Lost(e)).await;
                    return;
                }
            }
            Err(e) => {
                let _ = to.send(Happening::Lost(e)).await;
                return;
            }
        }
        if to.is_closed() {
            return;
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

enum Read {
    Ended,
    Broken,
    Unheard,
}

async fn read_stream(reply: reqwest::Response, after: &mut String, to: &mpsc::Sender<Happening>) -> Read {
    let mut parser = Parser::default();
    let mut bytes = reply.bytes_stream();
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(SILENCE_MAX, bytes.next()) => next,
            () = to.closed() => return Read::Unheard,
        };
        let Ok(Some(Ok(chunk))) = next else { return Read::Broken };
        for message in parser.push(&chunk) {
            if message.event == "end" {
                // A manager that leaves says so; the goal goes on, so do we.
                let leaving = serde_json::from_str::<super::types::StreamEnd>(&message.data)
                    .is_ok_and(|end| end.state == "shutdown");
                return if leaving { Read::Broken } else { Read::Ended };
            }
            let Ok(event) = serde_json::from_str::<LogEvent>(&message.data) else { continue };
            *after = if message.id.is_empty() { event.id.clone() } else { message.id };
            if to.send(Happening::Event(Box::new(event))).await.is_err() {
                return Read::Unheard;
            }
        }
    }
}

/// One message of an event stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    id: String,
    event: String,
    data: String,
}

/// Cuts a byte stream into messages.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    message: Message,
}

impl Parser {
    fn push(&mut self, chunk: &[u8]) -> Vec<Message> {
        let mut whole = Vec::new();
        for &byte in chunk {
            if byte != b'\n' {
                if self.line.len() < LINE_BYTES_MAX {
                    self.line.push(byte);
                }
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim_end_matches('\r').to_owned();
            self.line.clear();
            if line.is_empty() {
                let message = std::mem::take(&mut self.message);
                if !message.data.is_empty() || message.event == "end" {
                    whole.push(message);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => self.message.id = value.to_owned(),
                "event" => self.message.event = value.to_owned(),
                "data" => {
                    if !self.message.data.is_empty() {
                        self.message.data.push('\n');
                    }
                    self.message.data.push_str(value);
                }
                // Comments (empty field) keep the connection alive; the rest is not ours.
                _ => {}
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_wherever_the_chunks_end() {
        let stream = b": hello\n\nid: 1-0\ndata: {\"a\":1}\n\nid: 2-0\r\nevent: end\r\ndata: {}\r\n\r\n";
        for cut in 1..stream.len() {
            let mut parser = Parser::default();
            let mut got = parser.push(&stream[..cut]);
            got.extend(parser.push(&stream[cut..]));
            assert_eq!(
                got,
                vec![
                    Message { id: "1-0".into(), event: String::new(), data: "{\"a\":1}".into() },
                    Message { id: "2-0".into(), event: "end".into(), data: "{}".into() },
                ]
            );
        }
    }

    #[tokio::test]
    async fn c3_following_goes_on_where_a_broken_stream_ended() {
        use axum::extract::Query;
        use std::collections::HashMap;
        let event = |id: &str| format!("id: {id}\ndata: {{\"id\":\"{id}\",\"at_ms\":1,\"event\":\"e\"}}\n\n");
        let app = axum::Router::new().route(
            "/v1/goals/g/events",
            axum::routing::get(move |Query(query): Query<HashMap<String, String>>| async move {
                // A manager that leaves after two events, then one that knows the rest.
                match query["after"].as_str() {
                    "0" => event("1-0") + &event("2-0") + "event: end\ndata: {\"state\":\"shutdown\"}\n\n",
                    "2-0" => event("3-0") + "event: end\ndata: {\"state\":\"done\"}\n\n",
                    other => panic!("asked for events after {other}"),
                }
            }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let (to, mut happenings) = mpsc::channel(8);
        tokio::spawn(follow(Client::new(&url, None).unwrap(), "g".into(), "0".into(), to));
        let mut seen = vec![];
        while let Some(happening) = happenings.recv().await {
            match happening {
                Happening::Event(event) => seen.push(event.id),
                Happening::End => break,
                Happening::Lost(e) => panic!("{e}"),
            }
        }
        assert_eq!(seen, ["1-0", "2-0", "3-0"]);
    }
}
