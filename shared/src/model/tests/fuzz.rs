//! Seeded mutation of what models send: the reader of lines, the tolerant parser, the dialects and both wire formats
//! (the envelope's own is in `codec`). Nothing may panic, and what is read must not depend on how the bytes were cut.
//!
//! `MUSTER_FUZZ_SECONDS` is the time of each target (`tests/run.sh`, and so CI, gives the five of them a minute together,
//! `tests/soak.sh` takes ten minutes each); `MUSTER_FUZZ_SEED` repeats a
//! run. The corpus is kept in `tests/fixtures/fuzz/<target>` beside the real answers in `tests/fixtures/model`; an input
//! that panics is written there, so that it is tried first from then on.

use super::*;
use crate::model::dialect::LADDER;
use crate::model::sse::{self, Line, Lines};
use crate::model::tolerant;
use crate::model::wire::Wire;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Inputs grow no longer than this.
const BYTES_MAX: usize = 64 * 1024;
/// What the readers look for.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    ",",
    ":",
    "null",
    "<think>",
    "</think>",
    "```json\n",
    "```",
    "<tool_call>",
    "</tool_call>",
    "<function>",
    "</function>",
    "<function=",
    "<parameter=",
    "</parameter>",
    "<args>",
    "</args>",
    "TOOL:",
    "ARGS:",
    "data: ",
    "data:[DONE]\n",
    "event: ",
    ": ping\n",
    "\n",
    "\r\n",
    "\u{feff}",
    "\u{1f600}",
    "\"tool_calls\":[",
    "\"choices\":[{\"delta\":{",
    "\"finish_reason\":\"stop\"",
    "\"type\":\"content_block_delta\",\"index\":",
    "99999999999999999999",
    "\u{0}",
];

struct Fuzzer {
    target: &'static str,
    rng: StdRng,
    corpus: Vec<Vec<u8>>,
    /// What the inputs of the corpus came to: a new outcome is worth keeping.
    seen: HashSet<u64>,
}

impl Fuzzer {
    fn new(target: &'static str) -> Self {
        let seed = std::env::var("MUSTER_FUZZ_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or_else(|| rand::rng().random());
        println!("{target}: MUSTER_FUZZ_SEED={seed}");
        let mut corpus = vec![vec![]];
        for folder in [folder(target), folder("").with_file_name("model")] {
            let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
                .into_iter()
                .flatten()
                .filter_map(|f| Some(f.ok()?.path()))
                .collect();
            files.sort();
            for file in files.iter().filter(|f| f.is_file()) {
                let bytes = std::fs::read(file).unwrap();
                // A real answer is wrapped in its request: its texts are seeds as well.
                if let Ok(value) = serde_json::from_slice::<Value>(&bytes) {
                    texts(&value, &mut corpus);
                }
                corpus.push(bytes);
            }
        }
        assert!(corpus.len() > 10, "the corpus is not there");
        Self { target, rng: StdRng::seed_from_u64(seed), corpus, seen: HashSet::new() }
    }

    fn at(&mut self, length: usize) -> usize {
        if length == 0 { 0 } else { self.rng.random_range(0..=length) }
    }

    fn pick(&mut self) -> Vec<u8> {
        let at = self.rng.random_range(0..self.corpus.len());
        self.corpus[at].clone()
    }

    fn mutated(&mut self) -> Vec<u8> {
        let mut bytes = self.pick();
        for _ in 0..self.rng.random_range(1..=6_u32) {
            let (a, b) = (self.at(bytes.len()), self.at(bytes.len()));
            let (a, b) = (a.min(b), a.max(b));
            match self.rng.random_range(0..7_u32) {
                0 if !bytes.is_empty() => {
                    let at = a.min(bytes.len() - 1);
                    bytes[at] = self.rng.random();
                }
                1 => drop(bytes.drain(a..b)),
                2 => bytes.truncate(a),
                3 => {
                    let part = bytes[a..b].to_vec();
                    bytes.splice(a..a, part);
                }
                4 => {
                    let other = self.pick();
                    let (from, to) = (self.at(other.len()), self.at(other.len()));
                    bytes.splice(a..b, other[from.min(to)..from.max(to)].to_vec());
                }
                _ => {
                    let word = WORDS[self.rng.random_range(0..WORDS.len())];
                    bytes.splice(a..a, word.bytes());
                }
            }
            bytes.truncate(BYTES_MAX);
        }
        bytes
    }

    /// `read` says what an input came to, in few words.
    fn run(mut self, read: impl Fn(&[u8], &mut StdRng) -> String) {
        let seconds = std::env::var("MUSTER_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
        let end = Instant::now() + Duration::from_secs(seconds);
        let own = self.corpus.clone();
        let mut tried = 0_u64;
        while tried < own.len() as u64 || Instant::now() < end {
            let input = match own.get(usize::try_from(tried).unwrap()) {
                Some(seed) => seed.clone(),
                None => self.mutated(),
            };
            tried += 1;
            let seed = self.rng.random();
            let outcome = catch_unwind(AssertUnwindSafe(|| read(&input, &mut StdRng::seed_from_u64(seed))));
            let Ok(outcome) = outcome else {
                let name: String = Sha256::digest(&input).iter().map(|b| format!("{b:02x}")).collect();
                std::fs::create_dir_all(folder(self.target)).unwrap();
                let file = folder(self.target).join(format!("crash-{}", &name[..12]));
                std::fs::write(&file, &input).unwrap();
                panic!("{}: this input panics: {}", self.target, file.display());
            };
            let hash = Sha256::digest(outcome.as_bytes());
            let hash = u64::from_le_bytes(hash[..8].try_into().unwrap());
            if self.seen.len() < 20_000 && self.seen.insert(hash) {
                self.corpus.push(input);
            }
        }
        println!("{}: {tried} inputs, {} outcomes", self.target, self.seen.len());
    }
}

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fuzz").join(target)
}

fn texts(value: &Value, into: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text) if text.len() > 8 => into.push(text.clone().into_bytes()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::Array(items) => items.iter().for_each(|v| texts(v, into)),
        Value::Object(map) => {
            if map.contains_key("choices") {
                into.push(format!("data: {value}\n\n").into_bytes());
            }
            map.values().for_each(|v| texts(v, into));
        }
    }
}

/// The lines of a stream that arrives in pieces.
fn lines(bytes: &[u8], mut piece: impl FnMut(usize) -> usize) -> Option<Vec<String>> {
    let (mut reader, mut all, mut rest) = (Lines::new(BYTES_MAX + 1), vec![], bytes);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece(rest.len()).clamp(1, rest.len()));
        all.extend(reader.push(now).ok()?);
        rest = later;
    }
    all.extend(reader.rest());
    Some(all)
}

#[test]
fn fuzz_lines_do_not_depend_on_how_the_bytes_were_cut() {
    Fuzzer::new("lines").run(|bytes, rng| {
        let whole = lines(bytes, |left| left);
        let cut = lines(bytes, |left| rng.random_range(1..=left.min(64)));
        assert_eq!(whole, cut);
        let kind = |line: &String| match sse::kind(line) {
            Line::Data(_) => 'd',
            Line::Done => 'D',
            Line::Blank => 'b',
            Line::Other => 'o',
            Line::Loose(_) => 'l',
        };
        whole.map(|all| all.iter().map(kind).take(40).collect()).unwrap_or_default()
    });
}

#[test]
fn fuzz_the_tolerant_parser() {
    Fuzzer::new("tolerant").run(|bytes, _| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            // What is valid stays what it is.
            assert_eq!(tolerant::json(&text).unwrap(), (value, false));
        }
        let found = tolerant::candidates(&text);
        let parts = tolerant::balanced(&text).len();
        format!(
            "{} {parts} {:?}",
            found.len(),
            tolerant::json(&text).map(|(_, repaired)| repaired).map_err(|e| e.truncated)
        )
    });
}

#[test]
fn fuzz_the_dialects() {
    let tools = crate::tool::builtin();
    Fuzzer::new("dialects").run(|bytes, _| {
        let text = String::from_utf8_lossy(bytes);
        let readings: Vec<String> = LADDER
            .iter()
            .map(|dialect| match dialect.speech().read(&text, &tools) {
                dialect::content::Reading::Text => "t".into(),
                dialect::content::Reading::Answer(_) => "a".into(),
                dialect::content::Reading::Calls { calls, stray, .. } => {
                    let count = calls.len().min(9);
                    let (read, _) = arguments::read(calls, true, None, &tools, &[]);
                    let ids: HashSet<&str> = read.iter().map(|c| c.id.as_str()).collect();
                    assert_eq!(ids.len(), read.len(), "ids are unique");
                    format!("c{count}{stray}")
                }
                dialect::content::Reading::Unreadable { truncated, .. } => format!("u{truncated}"),
            })
            .collect();
        readings.join(" ")
    });
}

#[test]
fn fuzz_both_wire_formats() {
    Fuzzer::new("wires").run(|bytes, _| {
        let all = lines(bytes, |left| left).unwrap_or_default();
        let mut outcomes = vec![];
        for wire in [Wire::Openai, Wire::Anthropic] {
            let mut assembly = wire.assembly(Some("plan"));
            let mut faults = 0;
            for line in &all {
                let data = match sse::kind(line) {
                    Line::Data(data) | Line::Loose(data) => data,
                    Line::Done | Line::Blank | Line::Other => continue,
                };
                if let Ok((value, _)) = tolerant::json(data) {
                    faults += usize::from(assembly.take(&value).is_err());
                }
            }
            let ends =
                (assembly.has_begun(), assembly.has_ended(), assembly.has_usage(), assembly.is_closed());
            let draft = assembly.into_draft();
            outcomes.push(format!(
                "{ends:?} {:?} {} {}",
                draft.finish,
                draft.calls.len().min(9),
                faults.min(3)
            ));
        }
        outcomes.join(" ")
    });
}
