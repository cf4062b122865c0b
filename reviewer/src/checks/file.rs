//! Whether a file is there, and how large it is: known from the manifest, nothing is read.

use super::Found;
use crate::deliverable::Deliverable;

pub(super) fn exists(path: &str, deliverable: &Deliverable) -> Found {
    match deliverable.entry(path) {
        Some(entry) => Found::Holds(format!("{path} is there, {} bytes", entry.size_bytes)),
        None => Found::Fails(format!("{path} is not there")),
    }
}

pub(super) fn min_bytes(path: &str, min: u64, deliverable: &Deliverable) -> Found {
    match deliverable.entry(path) {
        Some(entry) => Found::of(entry.size_bytes >= min, format!("{path} holds {} bytes", entry.size_bytes)),
        None => Found::Fails(format!("{path} is not there")),
    }
}
