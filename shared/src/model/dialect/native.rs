//! Native tools: declarations, calls and results travel in the wire format's own fields.

use super::content::{self, Reading};
use super::{Dressed, Speech};
use crate::model::Message;
use crate::tool::ToolDecl;
use std::borrow::Cow;

pub(super) struct Native;

impl Speech for Native {
    fn word(&self) -> &'static str {
        "native"
    }

    fn dress<'a>(&self, messages: &'a [Message], tools: &'a [ToolDecl]) -> Dressed<'a> {
        Dressed { messages: Cow::Borrowed(messages), tools, json_mode: false }
    }

    /// Only what a model left in its text (A7).
    fn read(&self, text: &str, tools: &[ToolDecl]) -> Reading {
        content::read(text, tools)
    }
}
