//! A person's answer about one exact call, as the ticket carries it.

use serde_json::Value;
use shared::store::Permit;
use shared::ticket::Ticket;
use shared::tool;

/// A permit that was answered and not used yet.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) permit: Permit,
    pub(super) approved: bool,
}

impl Answered {
    /// The ticket's, if it holds: answered, unused, of this revision, and its digest that of its call (I7).
    pub(super) fn of(ticket: &Ticket) -> Option<Self> {
        let permit: Permit = serde_json::from_value(ticket.permit.clone()).ok()?;
        let approved = match permit.state.as_str() {
            "approved" => true,
            "denied" => false,
            _ => return None,
        };
        let is_sound = permit.revision == ticket.revision
            && tool::digest(&permit.tool, &permit.args) == permit.digest
            && permit.args.is_object();
        if !is_sound {
            tracing::warn!(
                tool = permit.tool,
                digest = permit.digest,
                "a permit does not hold, it is not used"
            );
            return None;
        }
        Some(Self { permit, approved })
    }

    /// Whether it speaks of the call with this digest: as it was asked for, or as a person edited it.
    pub(super) fn is_for(&self, digest: &str) -> bool {
        self.permit.digest == digest || self.permit.asked_digest == digest
    }
}

/// The question.
pub(super) fn asked(ticket: &Ticket, name: &str, args: &Value) -> Permit {
    Permit {
        digest: tool::digest(name, args),
        tool: name.into(),
        args: args.clone(),
        revision: ticket.revision,
        state: "asked".into(),
        ..Permit::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ticket(state: &str, revision: u32, change: impl Fn(&mut Value)) -> Ticket {
        let before = Ticket { revision: 3, ..Ticket::default() };
        let mut permit = serde_json::to_value(asked(&before, "pay", &json!({"to": "x"}))).unwrap();
        permit["state"] = state.into();
        change(&mut permit);
        Ticket { revision, permit, ..Ticket::default() }
    }

    #[test]
    fn i7_d7_only_an_answered_permit_of_this_revision_and_this_very_call_holds() {
        assert!(Answered::of(&ticket("approved", 3, |_| {})).unwrap().approved);
        assert!(!Answered::of(&ticket("denied", 3, |_| {})).unwrap().approved);
        for state in ["asked", "used", "", "APPROVED"] {
            assert!(Answered::of(&ticket(state, 3, |_| {})).is_none(), "{state}");
        }
        assert!(Answered::of(&ticket("approved", 4, |_| {})).is_none(), "the ticket changed meanwhile");
        let edited = |args: Value| Answered::of(&ticket("approved", 3, |p| p["args"] = args.clone()));
        for args in [json!({"to": "y"}), json!(null), json!([]), json!("NaN")] {
            assert!(edited(args.clone()).is_none(), "{args}: another call than the digest's");
        }
        assert!(Answered::of(&Ticket::default()).is_none());
    }
}
