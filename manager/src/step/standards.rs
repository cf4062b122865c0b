//! Standards in a goal's step: new tickets are held to what was promoted, a goal that is done leaves its reasons.

use super::{Step, Stop};
use crate::planner::apply::ticket_id;
use shared::lesson::kind_of;
use shared::standard::{self, Standard, Tallied};
use shared::store::LogEvent;
use shared::ticket::patch::PatchOp;
use shared::ticket::{Ticket, TicketSpec, Verdict};
use std::collections::BTreeMap;

impl Step<'_> {
    /// Adds the promoted standards to the checklists of tickets that are to be.
    pub(super) async fn hold(&self, specs: &mut [TicketSpec]) -> Result<(), Stop> {
        let mut of: BTreeMap<String, Vec<Tallied>> = BTreeMap::new();
        for spec in specs {
            let kind = kind_of(&spec.role).to_owned();
            if !of.contains_key(&kind) {
                let store = &self.manager.store;
                let known = self.patiently(|| store.standards(&self.goal.tenant, &kind)).await?;
                of.insert(kind.clone(), known);
            }
            standard::hold(spec, &of[&kind], self.manager.config.limits.checks_max);
        }
        Ok(())
    }

    /// The same for those that a patch adds.
    pub(super) async fn hold_added(&self, ops: &[PatchOp]) -> Result<Vec<PatchOp>, Stop> {
        let mut ops = ops.to_vec();
        for op in &mut ops {
            if let PatchOp::Add { ticket } = op {
                self.hold(std::slice::from_mut(&mut ticket.spec)).await?;
            }
        }
        Ok(ops)
    }

    /// Keeps for what work was sent back; how many standards are proposed by it.
    pub(super) async fn notice(
        &self,
        tickets: &[Ticket],
        events: &[LogEvent],
        now_ms: u64,
    ) -> Result<u64, Stop> {
        let (store, limits) = (&self.manager.store, &self.manager.config.standards);
        let mut proposed = 0;
        for ticket in tickets.iter().filter(|t| t.call.is_none()) {
            let kind = kind_of(&ticket.role);
            for reason in reasons(events, &ticket.task_id) {
                let known = self.patiently(|| store.standards(&self.goal.tenant, kind)).await?;
                let new = Standard::of_reason(&reason, limits.chars_max);
                let standard = match standard::same(&known, &new.reason) {
                    Some(known) => known.standard.clone(),
                    None => Standard {
                        id: ticket_id(kind, &format!("standard:{}", new.reason)),
                        kind: kind.to_owned(),
                        goal: self.goal.id.clone(),
                        key: ticket.key.clone(),
                        noticed_at_ms: now_ms,
                        ..new
                    },
                };
                let (tenant, id) = (&self.goal.tenant, &ticket.task_id);
                if self.patiently(|| store.notice_standard(tenant, &standard, id, limits)).await? {
                    tracing::info!(
                        goal = self.goal.id,
                        kind,
                        standard = standard.id,
                        "a standard is proposed"
                    );
                    proposed += 1;
                }
            }
        }
        Ok(proposed)
    }
}

/// For what a model sent the ticket back, each reason once.
fn reasons(events: &[LogEvent], ticket: &str) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for event in events.iter().filter(|e| e.ticket == ticket) {
        // A verdict stands in the event that it caused, whatever that is called.
        let Ok(verdict) = serde_json::from_str::<Verdict>(&event.detail) else { continue };
        for item in verdict.items.into_iter().filter(standard::teaches) {
            if !all.contains(&item.reason) {
                all.push(item.reason);
            }
        }
    }
    all
}
