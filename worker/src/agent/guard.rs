//! Guards against loops, as pure code (B1): what a call means in the light of those before it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The same call in a row: at this many it is not run and the model is told; one more ends the attempt.
const SAME_NUDGE: usize = 3;
/// A pattern of two (A-B-A-B-A-B) or three calls, three times over, ends the attempt.
const PATTERN_REPEATS: usize = 3;
const PATTERN_MAX: usize = 3;
/// Calls of tools that are not there.
const UNKNOWN_MAX: u32 = 3;
/// A run of digits this long in an argument of a reading tool is a time or a serial number, no new question.
const SERIAL_DIGITS: usize = 8;

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Run,
    /// Not run; the model is told to do something else.
    Nudge,
    Stop(Loop),
}

/// Which loop it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    SameCall,
    Pattern,
    UnknownTool,
}

impl Loop {
    /// The cause, for the manager.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::SameCall => "loop: the same call four times in a row",
            Self::Pattern => "loop: the same few calls over and over",
            Self::UnknownTool => "loop: tools that are not there were called again and again",
        }
    }
}

/// The calls of one attempt so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Guard {
    recent: Vec<String>,
    unknown: u32,
}

impl Guard {
    /// A call of a tool that is there. `reads`: it only looks, so arguments that differ in a time stamp alone
    /// ask the same thing.
    pub(crate) fn call(&mut self, name: &str, args: &Map<String, Value>, reads: bool) -> Verdict {
        self.recent.push(key(name, args, reads));
        let window = PATTERN_MAX * PATTERN_REPEATS;
        if self.recent.len() > window {
            self.recent.remove(0);
        }
        let same = self.repeats(1);
        if same > SAME_NUDGE {
            return Verdict::Stop(Loop::SameCall);
        }
        if same == SAME_NUDGE {
            return Verdict::Nudge;
        }
        if (2..=PATTERN_MAX).any(|period| self.repeats(period) >= PATTERN_REPEATS) {
            return Verdict::Stop(Loop::Pattern);
        }
        Verdict::Run
    }

    /// A call of a tool that is not there.
    pub(crate) fn unknown(&mut self) -> Verdict {
        self.unknown += 1;
        if self.unknown >= UNKNOWN_MAX { Verdict::Stop(Loop::UnknownTool) } else { Verdict::Nudge }
    }

    /// How often the last `period` calls stand at the end, one after the other.
    fn repeats(&self, period: usize) -> usize {
        let calls = &self.recent;
        if calls.len() < period {
            return 0;
        }
        let last = &calls[calls.len() - period..];
        calls.rchunks_exact(period).take_while(|chunk| *chunk == last).count()
    }
}

/// Name and arguments in one canonical form: keys are sorted by the map itself.
fn key(name: &str, args: &Map<String, Value>, reads: bool) -> String {
    let text = serde_json::to_string(args).unwrap_or_default();
    format!("{name} {}", if reads { without_serials(&text) } else { text })
}

fn without_serials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut digits = String::new();
    for c in text.chars().chain(['\0']) {
        // Dates and times are runs of digits with these between them.
        if c.is_ascii_digit() || (!digits.is_empty() && matches!(c, '-' | ':' | '.' | 'T' | 'Z' | '+')) {
            digits.push(c);
            continue;
        }
        if digits.bytes().filter(u8::is_ascii_digit).count() >= SERIAL_DIGITS {
            out.push('#');
        } else {
            out.push_str(&digits);
        }
        digits.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(json: &str) -> Map<String, Value> {
        serde_json::from_str(json).unwrap()
    }

    fn feed(calls: &[&str]) -> Vec<Verdict> {
        let mut guard = Guard::default();
        calls.iter().map(|c| guard.call("search", &args(&format!("{{\"q\":\"{c}\"}}")), true)).collect()
    }

    #[test]
    fn b1_the_same_call_is_nudged_at_three_and_stopped_at_four() {
        use Verdict::{Nudge, Run, Stop};
        assert_eq!(feed(&["rust"; 4]), [Run, Run, Nudge, Stop(Loop::SameCall)]);
        assert_eq!(feed(&["rust", "rust", "go", "rust", "rust"]), [Run; 5]);
    }

    #[test]
    fn b1_alternation_is_caught_at_six_and_a_pattern_of_three_at_nine() {
        let verdicts = feed(&["a", "b", "a", "b", "a", "b"]);
        assert!(verdicts[..5].iter().all(|v| *v == Verdict::Run));
        assert_eq!(verdicts[5], Verdict::Stop(Loop::Pattern));
        let verdicts = feed(&["a", "b", "c", "a", "b", "c", "a", "b", "c"]);
        assert!(verdicts[..8].iter().all(|v| *v == Verdict::Run));
        assert_eq!(verdicts[8], Verdict::Stop(Loop::Pattern));
    }

    #[test]
    fn b1_keys_in_another_order_and_time_stamps_do_not_hide_it() {
        let mut guard = Guard::default();
        assert_eq!(guard.call("s", &args(r#"{"a":1,"b":2}"#), false), Verdict::Run);
        assert_eq!(guard.call("s", &args(r#"{"b":2,"a":1}"#), false), Verdict::Run);
        assert_eq!(guard.call("s", &args(r#"{"a":1,"b":2}"#), false), Verdict::Nudge);
        let mut guard = Guard::default();
        let at = |t: &str| args(&format!("{{\"q\":\"rust\",\"t\":{t}}}"));
        assert_eq!(guard.call("s", &at("1735689600"), true), Verdict::Run);
        assert_eq!(guard.call("s", &at("\"2026-01-01T10:00:01Z\""), true), Verdict::Run);
        let mut guard = Guard::default();
        for (t, verdict) in
            [("1735689600", Verdict::Run), ("1735689601", Verdict::Run), ("1735689602", Verdict::Nudge)]
        {
            assert_eq!(guard.call("s", &at(t), true), verdict);
        }
        let mut guard = Guard::default();
        for t in ["1735689600", "1735689601", "1735689602", "1735689603"] {
            assert_eq!(guard.call("write_file", &at(t), false), Verdict::Run, "what is written differs");
        }
    }

    #[test]
    fn b1_tools_that_are_not_there_stop_at_three() {
        let mut guard = Guard::default();
        assert_eq!(guard.unknown(), Verdict::Nudge);
        assert_eq!(guard.unknown(), Verdict::Nudge);
        assert_eq!(guard.unknown(), Verdict::Stop(Loop::UnknownTool));
    }
}
