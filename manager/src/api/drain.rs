//! Reading on after a refusal. A client that is still writing hears "broken pipe" instead of the answer when the
//! connection is closed under it, so a body that was refused for its size is read a bounded while and thrown away.

use axum::body::{Body, Bytes};
use futures::{Stream, StreamExt as _};
use std::time::Duration;

/// What is thrown away at most: a client that sends more than this has its connection closed.
const BYTES_MAX: usize = 256 * 1024 * 1024;
const TIME_MAX: Duration = Duration::from_secs(10);

/// The rest of a body.
pub(super) async fn rest<E>(mut parts: impl Stream<Item = Result<Bytes, E>> + Unpin) {
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(part)) = parts.next().await {
            seen += part.len();
            if seen > BYTES_MAX {
                break;
            }
        }
    };
    // Too slow: then the connection is closed, as before.
    let _ = tokio::time::timeout(TIME_MAX, reading).await;
}

/// A whole body of which nothing was read.
pub(super) async fn whole(body: Body) {
    rest(body.into_data_stream()).await;
}
