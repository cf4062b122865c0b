//! Standards in a goal's step: new tickets are held to what was promoted, a goal that is done leaves its reasons.

use super::{Step, Stop};
use crate::learn;
use crate::planner::apply::ticket_id;
use shared::lesson::kind_of;
use shared::standard::{self, Standard, Tallied};
use shared::store::LogEvent;
use shared::ticket::patch::PatchOp;
use shared::ticket::{Ticket, TicketSpec};
use std::collections::BTreeMap;

impl Step<'_> {
    /// Adds the promoted standards to the checklists of tickets that are to be.
    pub(super) async fn hold(&self, specs: Vec<&mut TicketSpec>) -> Result<(), Stop> {
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
        let added = ops
            .iter_mut()
            .filter_map(|op| if let PatchOp::Add { ticket } = op { Some(&mut ticket.spec) } else { None });
        self.hold(added.collect()).await?;
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
        let reasons = learn::reasons(events, |item| standard::teaches(item).then(|| item.reason.clone()));
        let mut proposed = 0;
        for ticket in tickets.iter().filter(|t| t.call.is_none()) {
            let kind = kind_of(&ticket.role);
            for reason in reasons.get(&ticket.task_id).into_iter().flatten() {
                let known = self.patiently(|| store.standards(&self.goal.tenant, kind)).await?;
                let new = Standard::of_reason(reason, limits.chars_max);
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
