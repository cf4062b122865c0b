//! What can go wrong in a command, and the exit code that each of it ends in.

use shared::goal::GoalState;

/// How a command ends. The numbers are an interface: scripts test them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done,
    /// Failed, or the answer is no.
    Failed,
    /// A person has to decide something first.
    NeedsPerson,
    /// Cancelled by somebody.
    Cancelled,
    /// Wrong arguments, wrong input or wrong configuration.
    Usage,
    /// No manager answers.
    Unreachable,
    /// Stopped by a signal.
    Interrupted,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::NeedsPerson => 3,
            Self::Cancelled => 4,
            Self::Usage => 64,
            Self::Unreachable => 69,
            Self::Interrupted => 130,
        }
    }

    /// The end that a goal's state stands for; `None` while it goes on.
    pub(crate) fn of_goal(state: GoalState) -> Option<Self> {
        match state {
            GoalState::Planning | GoalState::Running => None,
            GoalState::NeedsHuman => Some(Self::NeedsPerson),
            GoalState::Done => Some(Self::Done),
            GoalState::Failed => Some(Self::Failed),
            GoalState::Cancelled => Some(Self::Cancelled),
        }
    }
}

/// Text for `--help`.
pub(crate) const EXIT_CODES: &str = "Exit codes:\n  0 done   1 failed   3 needs a person   4 cancelled   \
     64 usage or configuration   69 unreachable   130 interrupted";

/// Ends a command. Each variant carries the way out as a hint, empty if there is none to give.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("{message}")]
    Usage { message: String, hint: String },
    #[error("no manager answers{}: {detail}", .url.as_deref().map(|u| format!(" at {u}")).unwrap_or_default())]
    Unreachable {
        url: Option<String>,
        detail: String,
        hint: String,
        /// Not even a connection: nobody is there, rather than an answer lost.
        nobody: bool,
    },
    /// The manager said no; `field` names what of the request it is about.
    #[error("{message}{}", .field.as_deref().map(|f| format!(" (field {f})")).unwrap_or_default())]
    Refused { status: u16, code: String, message: String, field: Option<String>, hint: String },
    #[error("{message}")]
    Failed { message: String, hint: String },
    #[error("interrupted")]
    Interrupted { hint: String },
    /// Whoever read our output has gone: that is their right, and no error.
    #[error("the reader of the output is gone")]
    BrokenPipe,
}

impl CliError {
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: hint.into() }
    }

    pub(crate) fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), hint: hint.into() }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage { .. } => Exit::Usage,
            Self::Unreachable { .. } => Exit::Unreachable,
            Self::Refused { status, .. } => match status {
                400 | 401 | 403 | 404 | 411 | 413 | 415 | 422 => Exit::Usage,
                429 | 502 | 503 | 504 => Exit::Unreachable,
                _ => Exit::Failed,
            },
            Self::Failed { .. } => Exit::Failed,
            Self::Interrupted { .. } => Exit::Interrupted,
            Self::BrokenPipe => Exit::Done,
        }
    }

    pub(crate) fn hint(&self) -> &str {
        match self {
            Self::Usage { hint, .. }
            | Self::Unreachable { hint, .. }
            | Self::Refused { hint, .. }
            | Self::Failed { hint, .. }
            | Self::Interrupted { hint } => hint,
            Self::BrokenPipe => "",
        }
    }

    /// Whether the same request, with the same idempotency key, is worth another try.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => matches!(status, 502..=504),
            Self::Usage { .. } | Self::Failed { .. } | Self::Interrupted { .. } | Self::BrokenPipe => false,
        }
    }

    /// The error as `--json` shows it (on stderr).
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let (code, field) = match self {
            Self::Usage { .. } => ("usage", None),
            Self::Unreachable { .. } => ("unreachable", None),
            Self::Refused { code, field, .. } => (code.as_str(), field.as_deref()),
            Self::Failed { .. } => ("failed", None),
            Self::Interrupted { .. } => ("interrupted", None),
            Self::BrokenPipe => ("broken_pipe", None),
        };
        serde_json::json!({"error": {
            "code": code, "message": self.to_string(), "field": field, "hint": self.hint(), "exit": self.exit().code(),
        }})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_states_end_in_the_documented_codes() {
        let codes: Vec<Option<u8>> =
            GoalState::ALL.into_iter().map(|s| Exit::of_goal(s).map(Exit::code)).collect();
        assert_eq!(codes, vec![None, None, Some(3), Some(0), Some(1), Some(4)]);
    }

    #[test]
    fn refusals_are_sorted_by_whose_fault_it_is() {
        let code = |status| {
            CliError::Refused {
                status,
                code: String::new(),
                message: String::new(),
                field: None,
                hint: String::new(),
            }
            .exit()
            .code()
        };
        assert_eq!(
            [400, 401, 404, 413, 422, 409, 500, 503, 429].map(code),
            [64, 64, 64, 64, 64, 1, 1, 69, 69]
        );
    }

    #[test]
    fn a_gone_reader_is_success() {
        assert_eq!(CliError::BrokenPipe.exit().code(), 0);
    }

    #[test]
    fn a_refusal_names_its_field() {
        let e = CliError::Refused {
            status: 422,
            code: "bad_plan".into(),
            message: "tickets must not need each other".into(),
            field: Some("tickets[1].needs".into()),
            hint: String::new(),
        };
        assert_eq!(e.to_string(), "tickets must not need each other (field tickets[1].needs)");
    }
}
