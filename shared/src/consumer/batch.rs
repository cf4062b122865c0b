//! Group writes: outcomes that become ready while a write is under way go together in the next one.
//!
//! No outcome waits for others to come: the first starts a call at once, what arrives meanwhile is the next batch.
//! A failed call fails every outcome in it; each is then repeated by its own owner with its own pair. When the script broke
//! (one ticket's hash is not what it should be), each outcome is written alone, so that only that ticket's fails.

use crate::store::{Completion, Decision, Result, Store, StoreError, Written};
use tokio::sync::{mpsc, oneshot};

/// Outcomes of one call; the script's limit.
const BATCH_MAX: usize = 64;
/// Outcomes that wait for a call.
const QUEUE_MAX: usize = 1_024;

/// An outcome that a script takes in batches.
pub(super) trait Batched: Clone + Send + Sync + 'static {
    /// One answer for each, in order.
    fn send(store: &Store, batch: &[Self]) -> impl Future<Output = Result<Vec<Written>>> + Send;
}

impl Batched for Completion {
    fn send(store: &Store, batch: &[Self]) -> impl Future<Output = Result<Vec<Written>>> + Send {
        store.complete(batch)
    }
}

impl Batched for Decision {
    fn send(store: &Store, batch: &[Self]) -> impl Future<Output = Result<Vec<Written>>> + Send {
        store.decide(batch)
    }
}

type Waiting<T> = (T, oneshot::Sender<Result<Written>>);

/// Hands outcomes to a task that writes them in batches. The task ends with the last handle.
pub(super) struct Batcher<T> {
    to: mpsc::Sender<Waiting<T>>,
}

impl<T: Batched> Batcher<T> {
    pub(super) fn start(store: Store) -> Self {
        let (to, from) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(write(store, from));
        Self { to }
    }

    /// Writes one outcome. Cancelled, it may still be written: the caller repeats it with the same pair.
    pub(super) async fn write(&self, outcome: T) -> Result<Written> {
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Unavailable("the writer of outcomes is gone".into());
        self.to.send((outcome, answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

async fn write<T: Batched>(store: Store, mut from: mpsc::Receiver<Waiting<T>>) {
    let mut waiting = Vec::with_capacity(BATCH_MAX);
    while from.recv_many(&mut waiting, BATCH_MAX).await > 0 {
        let (batch, answers): (Vec<T>, Vec<_>) = waiting.drain(..).unzip();
        let written = T::send(&store, &batch).await;
        let alone = batch.len() > 1 && matches!(written, Err(StoreError::Broken(_)));
        for (i, answer) in answers.into_iter().enumerate() {
            let one = match (&written, batch.get(i)) {
                (Err(_), Some(outcome)) if alone => {
                    first(T::send(&store, std::slice::from_ref(outcome)).await)
                }
                (Err(error), _) => Err(error.clone()),
                (Ok(words), _) => Ok(words.get(i).copied().unwrap_or(Written::Fenced)),
            };
            // Whoever does not listen any more has given the outcome up.
            let _ = answer.send(one);
        }
    }
}

/// The one answer. None would be a broken script: the sweeper decides then.
fn first(written: Result<Vec<Written>>) -> Result<Written> {
    Ok(written?.first().copied().unwrap_or(Written::Fenced))
}
