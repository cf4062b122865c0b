//! A live copy of the newest goals' workspaces, for people on the manager's own machine (`manager.live_folder`).
//! Drawn, never read back (I1).

use shared::blob::Blobs;
use shared::store::Store;
use shared::workspace;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How old the copy may be.
const LOOK: Duration = Duration::from_secs(2);
/// Goals that are kept up to date, newest first.
const GOALS_MAX: usize = 50;

/// Keeps `folder/<goal>` up to date until `stop`. What fails is tried again at the next look.
pub(crate) async fn run(store: Store, blobs: Blobs, folder: PathBuf, stop: CancellationToken) {
    let mut seen: HashMap<String, u64> = HashMap::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return,
        }
        let goals = match store.goals(None, 0, GOALS_MAX).await {
            Ok(goals) => goals,
            Err(error) => {
                tracing::debug!(%error, "live copies wait for the store");
                continue;
            }
        };
        seen.retain(|id, _| goals.iter().any(|g| g.id == *id));
        for goal in goals {
            let Ok(tickets) = store.all_tickets(&goal.id).await else { continue };
            // Tickets move without their goal's hash being touched.
            let version =
                tickets.iter().map(|t| t.updated_at_ms).chain([goal.updated_at_ms]).max().unwrap_or(0);
            if seen.get(&goal.id) == Some(&version) {
                continue;
            }
            match workspace::pull(&blobs, &goal, &tickets, &folder.join(&goal.id)).await {
                Ok(_) => {
                    seen.insert(goal.id, version);
                }
                Err(error) => tracing::warn!(%error, goal = goal.id, "live copy not up to date"),
            }
        }
    }
}
