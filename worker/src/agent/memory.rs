//! The step log as another worker reads it: after each finished step what came to the conversation, the state of the
//! loop and the files, fenced by the lease. Whoever claims the ticket next goes on from there, not from zero.
//!
//! A rejection, a failure or an edit gives the ticket another life: its next attempt begins anew, with the comment.

use super::End;
use super::session::{Session, State, Todo};
use super::steps::StepLog;
use crate::tools::ToolBox;
use serde::{Deserialize, Serialize};
use shared::blob::Blobs;
use shared::consumer::Job;
use shared::model::Message;
use shared::store::{Store, Written};
use shared::ticket::{FailClass, Ticket};

/// Version of an entry that is written; others are not read, the attempt begins anew then.
const VERSION: u32 = 1;
/// Bytes of an entry in a blob.
const ENTRY_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// First letter of an entry that stands in a blob.
const IN_BLOB: char = '@';
/// A ticket whose step cannot be kept waits this long.
const OURS_DELAY_MS: u64 = 5_000;

/// One entry. An unfinished step (`todos`) is followed by an entry of the same `from` once it is finished.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    v: u32,
    /// Place of the first message below, system prompt and task not counted.
    from: usize,
    messages: Vec<Message>,
    state: State,
    /// The files of the attempt so far.
    overlay: String,
    /// Calls of the last turn that are not answered yet.
    todos: Vec<Todo>,
    /// The step's line of the log that reviewers and people read.
    line: String,
}

/// What an earlier owner left.
#[derive(Debug, Default)]
struct Left {
    messages: Vec<Message>,
    state: State,
    overlay: String,
    todos: Vec<Todo>,
    lines: Vec<String>,
}

/// The step log of one attempt.
pub(crate) struct Memory<'a> {
    store: &'a Store,
    blobs: &'a Blobs,
    job: &'a Job,
    life: String,
    inline_bytes_max: usize,
    left: Option<Left>,
    /// Messages that are kept already, system prompt and task not counted.
    kept: usize,
    overlay: String,
    /// The log is full: the attempt goes on, and would begin anew elsewhere.
    full: bool,
}

/// What the ticket is as long as its steps may be gone on from.
fn life(ticket: &Ticket) -> String {
    let counters = &ticket.counters;
    format!(
        "{}.{}.{}.{}.{}",
        ticket.revision, ticket.generation, counters.faults, counters.conflicts, ticket.reviews
    )
}

/// Entries in order; a later one takes the place of what an earlier one said from the same message on.
fn joined(entries: Vec<Entry>) -> Option<Left> {
    let mut left = Left::default();
    let mut last_from = None;
    for entry in entries {
        if entry.v != VERSION || entry.from > left.messages.len() {
            return None;
        }
        if last_from == Some(entry.from) && entry.messages.len() < left.messages.len() - entry.from {
            continue;
        }
        left.messages.truncate(entry.from);
        left.messages.extend(entry.messages);
        (left.state, left.overlay, left.todos) = (entry.state, entry.overlay, entry.todos);
        if !entry.line.is_empty() {
            left.lines.push(entry.line);
        }
        last_from = Some(entry.from);
    }
    last_from.map(|_| left)
}

impl<'a> Memory<'a> {
    /// Reads what an earlier owner left of this life. What cannot be read is as if it were not there.
    pub(crate) async fn open(
        store: &'a Store,
        blobs: &'a Blobs,
        job: &'a Job,
        inline_bytes_max: usize,
    ) -> Self {
        let ticket = &job.claim.ticket;
        let mut memory = Self {
            store,
            blobs,
            job,
            life: life(ticket),
            inline_bytes_max,
            left: None,
            kept: 0,
            overlay: ticket.overlay_ref.clone(),
            full: false,
        };
        if ticket.attempts > 1 {
            memory.left = memory.read().await;
        }
        memory
    }

    async fn read(&self) -> Option<Left> {
        let ticket = &self.job.claim.ticket;
        let texts = match self.store.steps(&ticket.task_id, &self.life).await {
            Ok(texts) => texts,
            Err(error) => {
                tracing::warn!(%error, "the step log is not read, the attempt begins anew");
                return None;
            }
        };
        let mut entries = vec![];
        for text in texts {
            let text = match text.strip_prefix(IN_BLOB) {
                None => text,
                Some(reference) => {
                    let bytes = self.blobs.get(&ticket.goal, reference, ENTRY_BYTES_MAX).await.ok()?;
                    String::from_utf8(bytes.to_vec()).ok()?
                }
            };
            entries.push(serde_json::from_str::<Entry>(&text).ok()?);
        }
        joined(entries)
    }

    /// The files to go on with.
    pub(crate) fn overlay(&self) -> &str {
        self.left.as_ref().map_or(&self.overlay, |left| &left.overlay)
    }

    /// Brings session and log to where the earlier owner stopped; what it had still to do in its last turn.
    pub(crate) fn restore(&mut self, session: &mut Session, log: &mut StepLog) -> Vec<Todo> {
        let Some(left) = self.left.take() else { return vec![] };
        tracing::info!(step = left.state.step, unanswered = left.todos.len(), "goes on from an earlier step");
        for line in &left.lines {
            log.resume(line);
        }
        self.overlay = left.overlay;
        // An unfinished turn is written again from its start: its answers come to it.
        let turn = left.messages.iter().rposition(|m| matches!(m, Message::Assistant { .. }));
        self.kept = if left.todos.is_empty() { left.messages.len() } else { turn.unwrap_or(0) };
        session.restore(left.messages, left.state);
        left.todos
    }

    /// Keeps a finished step. A store that does not answer costs the resume, not the attempt.
    ///
    /// # Errors
    /// [`End::Stopped`] when the ticket is another's.
    pub(crate) async fn keep(
        &mut self,
        session: &Session,
        toolbox: &mut ToolBox,
        line: &str,
    ) -> Result<(), End> {
        match self.write(session, toolbox, &[], line).await {
            Ok(()) => {
                self.kept = session.messages.len() - 2;
                Ok(())
            }
            Err(Some(end)) => Err(end),
            Err(None) => Ok(()),
        }
    }

    /// Keeps an unfinished turn before something that cannot be taken back.
    ///
    /// # Errors
    /// The ticket is another's, or nothing can be kept just now.
    pub(crate) async fn must_keep(
        &mut self,
        session: &Session,
        toolbox: &mut ToolBox,
        todos: &[Todo],
    ) -> Result<(), End> {
        self.write(session, toolbox, todos, "").await.map_err(|end| {
            end.unwrap_or_else(|| End::Failed {
                class: FailClass::Wait,
                detail: "the step before a call that needs it cannot be kept".into(),
                delay_ms: Some(OURS_DELAY_MS),
            })
        })
    }

    /// `Err(None)`: not kept, for a reason that is nobody's end.
    async fn write(
        &mut self,
        session: &Session,
        toolbox: &mut ToolBox,
        todos: &[Todo],
        line: &str,
    ) -> Result<(), Option<End>> {
        if self.full {
            return Err(None);
        }
        if toolbox.is_touched() {
            match toolbox.attempt_mut().seal().await {
                Ok(overlay) => self.overlay = overlay,
                Err(error) => {
                    tracing::warn!(%error, "the files of a step are not kept");
                    return Err(None);
                }
            }
            toolbox.sealed();
        }
        let entry = Entry {
            v: VERSION,
            from: self.kept,
            messages: session.messages[2 + self.kept..].to_vec(),
            state: session.state().clone(),
            overlay: self.overlay.clone(),
            todos: todos.to_vec(),
            line: line.into(),
        };
        let mut text = serde_json::to_string(&entry).map_err(|_| None)?;
        let goal = &self.job.claim.ticket.goal;
        if text.len() > self.inline_bytes_max {
            let reference = self.blobs.put(goal, text).await.map_err(|error| {
                tracing::warn!(%error, "a step is not kept");
                None
            })?;
            text = format!("{IN_BLOB}{reference}");
        }
        match self.store.append_step(&self.job.claim.held, &self.life, &text).await {
            Ok((Written::Fenced | Written::Gone, _)) => Err(Some(End::Stopped)),
            Ok((_, true)) => Ok(()),
            Ok((_, false)) => {
                self.full = true;
                Err(None)
            }
            Err(error) => {
                tracing::warn!(%error, "a step is not kept");
                Err(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(from: usize, messages: &[&str], todos: usize) -> Entry {
        let todo = Todo {
            id: "c".into(),
            name: "pay".into(),
            args: "{}".into(),
            act: super::super::session::Act::Answer("x".into()),
        };
        Entry {
            v: VERSION,
            from,
            messages: messages.iter().map(|m| Message::User((*m).into())).collect(),
            state: State::default(),
            overlay: format!("o{from}"),
            todos: vec![todo; todos],
            line: String::new(),
        }
    }

    fn texts(left: &Left) -> Vec<&str> {
        left.messages.iter().map(|m| if let Message::User(text) = m { text } else { "" }).collect()
    }

    #[test]
    fn a_finished_turn_takes_the_place_of_the_unfinished_one_and_a_repeat_changes_nothing() {
        let left = joined(vec![entry(0, &["a", "b"], 0), entry(2, &["c"], 1)]).unwrap();
        assert_eq!((texts(&left), left.todos.len()), (vec!["a", "b", "c"], 1));
        let log = || vec![entry(0, &["a", "b"], 0), entry(2, &["c"], 1), entry(2, &["c", "d"], 0)];
        let left = joined(log()).unwrap();
        assert_eq!((texts(&left), left.todos.len()), (vec!["a", "b", "c", "d"], 0));
        let mut again = log();
        again.push(entry(2, &["c", "d"], 0));
        assert_eq!(texts(&joined(again).unwrap()), ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_log_with_a_hole_or_of_another_version_is_not_used() {
        assert!(joined(vec![]).is_none());
        assert!(joined(vec![entry(1, &["b"], 0)]).is_none());
        assert!(joined(vec![Entry { v: 2, ..entry(0, &["a"], 0) }]).is_none());
    }

    /// Golden bytes of version 1: a change here is a new version, not an edit.
    #[test]
    fn golden_bytes_of_version_1() {
        let want = concat!(
            r#"{"v":1,"from":0,"messages":[{"user":"a"}],"state":{"guard":{"recent":[],"unknown":0},"step":0,"#,
            r#""truncated":0,"told":{"no_tools":false,"missing":false,"finish":false},"tool_calls":{},"#,
            r#""last_text":"","effects":{}},"overlay":"o0","todos":[{"id":"c","name":"pay","args":"{}","#,
            r#""act":{"answer":"x"}}],"line":""}"#
        );
        let entry = entry(0, &["a"], 1);
        assert_eq!(serde_json::to_string(&entry).unwrap(), want);
        assert_eq!(serde_json::from_str::<Entry>(want).unwrap(), entry);
    }
}
