//! What finished work teaches later work of its kind: one lesson as plain data, and which of many fit a task. No I/O.
//!
//! A kind is a ticket's role, or [`PLAN`] for the planner. Which lessons fit is decided by BM25 over the words that they
//! and the task have in common: code, so that the same task is always told the same (I6).

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The planner's kind.
pub const PLAN: &str = "plan";
/// The kind of tickets without a role, or with a name that is no word.
pub const OTHER: &str = "other";
/// Version of what the store keeps.
pub const VERSION: u32 = 1;

/// Shorter words say nothing about a task.
const WORD_CHARS_MIN: usize = 4;
/// Words that a lesson and a task must have in common.
const COMMON_MIN: usize = 2;
/// BM25's own constants, at the values that are usual for short texts.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// One lesson of a tenant; the store keeps it as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lesson {
    /// Readers take N and N−1.
    pub v: u32,
    /// 32 hex digits, the same for the same ticket of the same goal.
    pub id: String,
    /// A role, or [`PLAN`].
    pub kind: String,
    /// What was asked.
    pub about: String,
    /// What came of it, and what to do otherwise.
    pub text: String,
    /// Where it was learnt.
    pub goal: String,
    /// Key of the ticket; empty for a plan's.
    pub key: String,
    /// Redis clock.
    pub learnt_at_ms: u64,
    /// The person who wrote the text; empty: it was made from the goal's records.
    pub edited_by: String,
}

/// The kind of a ticket's lessons.
#[must_use]
pub fn kind_of(role: &str) -> &str {
    if crate::ticket::limits::is_word(role) { role } else { OTHER }
}

/// The lessons that fit the task, best first, at most `most` of them.
#[must_use]
pub fn fitting<'a>(lessons: &'a [Lesson], task: &str, most: usize) -> Vec<&'a Lesson> {
    let asked: BTreeSet<String> = words(task).into_iter().collect();
    let documents: Vec<Vec<String>> =
        lessons.iter().map(|l| words(&format!("{} {}", l.about, l.text))).collect();
    let total: usize = documents.iter().map(Vec::len).sum();
    let mean = total as f64 / documents.len().max(1) as f64;
    let mut holders: BTreeMap<&str, usize> = BTreeMap::new();
    for document in &documents {
        let distinct: BTreeSet<&str> = document.iter().map(String::as_str).collect();
        distinct.into_iter().for_each(|word| *holders.entry(word).or_default() += 1);
    }
    let mut scored: Vec<(f64, &Lesson)> = vec![];
    for (lesson, document) in lessons.iter().zip(&documents) {
        let (mut score, mut common) = (0.0, 0);
        for word in &asked {
            let times = document.iter().filter(|w| *w == word).count() as f64;
            if times == 0.0 {
                continue;
            }
            common += 1;
            let n = holders.get(word.as_str()).copied().unwrap_or(0) as f64;
            let rarity = (1.0 + (documents.len() as f64 - n + 0.5) / (n + 0.5)).ln();
            let length = 1.0 - B + B * document.len() as f64 / mean.max(1.0);
            score += rarity * times * (K1 + 1.0) / (times + K1 * length);
        }
        if common >= COMMON_MIN {
            scored.push((score, lesson));
        }
    }
    // Of equals the newest.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| b.1.learnt_at_ms.cmp(&a.1.learnt_at_ms)));
    scored.into_iter().take(most).map(|(_, lesson)| lesson).collect()
}

/// As a prompt shows it: what was asked, then what came of it.
#[must_use]
pub fn shown(lesson: &Lesson) -> String {
    format!("Asked: {}\n{}", lesson.about, lesson.text)
}

/// Words in small letters; where a script has no blanks between words each letter is one.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = vec![];
    let mut word = String::new();
    let mut end = |word: &mut String| {
        if word.chars().count() >= WORD_CHARS_MIN {
            words.push(std::mem::take(word));
        }
        word.clear();
    };
    for c in text.chars() {
        if ('\u{2e80}'..='\u{9fff}').contains(&c) || ('\u{ac00}'..='\u{d7ff}').contains(&c) {
            end(&mut word);
            word.push(c);
            // One letter is a word there.
            word.extend(std::iter::repeat_n(' ', WORD_CHARS_MIN - 1));
            end(&mut word);
        } else if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        } else {
            end(&mut word);
        }
    }
    end(&mut word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(id: &str, about: &str, text: &str) -> Lesson {
        Lesson { v: VERSION, id: id.into(), about: about.into(), text: text.into(), ..Lesson::default() }
    }

    #[test]
    fn the_lesson_about_the_same_thing_comes_first_and_strangers_do_not_come() {
        let lessons = [
            lesson("a", "Translate the menu of the canteen", "Accepted at once."),
            lesson("b", "Chart the monthly revenue of the offices", "Sent back: the axis has no unit"),
            lesson("c", "Sum up the revenue of the shops", "Sent back: the total was wrong"),
        ];
        let found = fitting(&lessons, "Draw a chart of the revenue of our offices for each month", 2);
        assert_eq!(found.iter().map(|l| l.id.as_str()).collect::<Vec<_>>(), ["b"]);
        assert!(fitting(&lessons, "Write a poem", 3).is_empty());
        assert!(fitting(&[], "Write a poem", 3).is_empty());
    }

    #[test]
    fn texts_without_blanks_are_found_too() {
        let lessons = [lesson("a", "比较三家供应商的价格", "退回"), lesson("b", "翻译菜单", "通过")];
        let found = fitting(&lessons, "比较两家供应商", 1);
        assert_eq!(found[0].id, "a");
    }

    #[test]
    fn what_the_store_keeps_reads_back_and_older_bytes_do_too() {
        let kept = r#"{"v":1,"id":"0a","kind":"plan","about":"a","text":"t","goal":"g","key":"","learnt_at_ms":7,"edited_by":""}"#;
        let lesson =
            Lesson { kind: PLAN.into(), goal: "g".into(), learnt_at_ms: 7, ..lesson("0a", "a", "t") };
        assert_eq!(serde_json::to_string(&lesson).unwrap(), kept);
        assert_eq!(serde_json::from_str::<Lesson>(kept).unwrap(), lesson);
        assert_eq!(serde_json::from_str::<Lesson>("{\"id\":\"0a\",\"newer\":1}").unwrap().id, "0a");
        assert_eq!((kind_of("data_analyst"), kind_of(""), kind_of("a b")), ("data_analyst", OTHER, OTHER));
    }
}
