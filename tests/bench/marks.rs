//! The mark file: one line `TAG VALUE UNIX_NS` a handled ticket, in a single write.

use anyhow::Result;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::time::UNIX_EPOCH;

/// An open mark file, shared by all handlers of a process.
pub(crate) struct Marks(File);

impl Marks {
    pub(crate) fn open() -> Result<Self> {
        let path = std::env::var("PEER_MARKS").unwrap_or_else(|_| "/dev/null".into());
        Ok(Self(OpenOptions::new().append(true).create(true).open(path)?))
    }

    pub(crate) fn put(&self, tag: &str, value: &str) {
        let line = format!("{tag} {value} {}\n", now_ns());
        // A mark that cannot be written shows as a missing one.
        let _ = (&self.0).write_all(line.as_bytes());
    }
}

pub(crate) fn now_ns() -> u128 {
    UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos())
}
