//! Knowledge: folders with a SKILL.md, of which a ticket gets those whose description fits it.
//!
//! The text goes into the prompt, the files beside it into `temp/knowledge/`. The choice is words in common, weighed by how few
//! skills have them: the same ticket gets the same ones on every machine.

use shared::prompt;
use shared::role::front_matter::{self, Front};
use shared::ticket::Ticket;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const SKILL: &str = "SKILL.md";
/// Folders that are looked at.
const SKILLS_MAX: usize = 200;
/// Skills of one ticket.
const CHOSEN_MAX: usize = 3;
/// Words that a ticket and a description must have in common.
const WORDS_MIN: usize = 2;
/// Characters of one skill in the prompt.
const TEXT_CHARS_MAX: usize = 8_000;
const SKILL_BYTES_MAX: u64 = 256 * 1024;
/// Files beside one SKILL.md, and bytes of each.
const FILES_MAX: usize = 20;
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Too common to say anything.
const COMMON: &[&str] = &[
    "and", "are", "for", "from", "has", "how", "into", "not", "one", "that", "the", "this", "use", "when",
    "with", "you",
];

/// One piece of knowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skill {
    pub(crate) name: String,
    description: String,
    text: String,
    folder: PathBuf,
}

/// The skills of a folder (empty: none) that fit the ticket, best first.
pub(crate) fn chosen(folder: &Path, ticket: &Ticket) -> Vec<Skill> {
    if folder.as_os_str().is_empty() {
        return vec![];
    }
    choose(
        read(folder),
        &format!("{} {} {}", ticket.description, ticket.expected_output, ticket.input_context),
    )
}

fn read(folder: &Path) -> Vec<Skill> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(%error, folder = %folder.display(), "the folder of knowledge cannot be read");
            return vec![];
        }
    };
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.join(SKILL).is_file()).collect();
    folders.sort();
    folders.truncate(SKILLS_MAX);
    folders.into_iter().filter_map(skill).collect()
}

fn skill(folder: PathBuf) -> Option<Skill> {
    let file = folder.join(SKILL);
    if std::fs::metadata(&file).ok()?.len() > SKILL_BYTES_MAX {
        tracing::warn!(file = %file.display(), bytes_max = SKILL_BYTES_MAX, "a skill is too large and left out");
        return None;
    }
    let text = std::fs::read_to_string(&file).ok()?;
    let own = folder.file_name()?.to_string_lossy().into_owned();
    match front_matter::split(&text) {
        Ok(Some((front, body))) => {
            let front = Front::read(&front);
            let name = front.text("name").unwrap_or(own);
            let description = front.text("description").unwrap_or_default();
            Some(Skill { name, description, text: body.trim().into(), folder })
        }
        Ok(None) | Err(_) => {
            tracing::warn!(file = %file.display(), "a skill without front matter is left out");
            None
        }
    }
}

fn choose(skills: Vec<Skill>, ticket: &str) -> Vec<Skill> {
    let wanted = words(ticket);
    let of: Vec<BTreeSet<String>> =
        skills.iter().map(|s| words(&format!("{} {}", s.name, s.description))).collect();
    let mut known_by: BTreeMap<&str, usize> = BTreeMap::new();
    for word in of.iter().flatten() {
        *known_by.entry(word).or_default() += 1;
    }
    // Hundredths, so that the order is one of whole numbers.
    let weight = |word: &String| 1_000 / known_by.get(word.as_str()).copied().unwrap_or(1).max(1);
    let mut scored: Vec<(usize, Skill)> = skills
        .into_iter()
        .zip(&of)
        .filter_map(|(skill, own)| {
            let common: Vec<&String> = own.intersection(&wanted).collect();
            (common.len() >= WORDS_MIN).then(|| (common.into_iter().map(weight).sum(), skill))
        })
        .collect();
    scored.sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.name.cmp(&y.name)));
    scored.into_iter().take(CHOSEN_MAX).map(|(_, skill)| skill).collect()
}

/// Words of three letters and more without their commonest endings; of scripts without spaces, pairs of characters.
fn words(text: &str) -> BTreeSet<String> {
    let lower = text.to_lowercase();
    let mut found = BTreeSet::new();
    for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        if word.is_ascii() {
            let stem =
                ["ing", "ed", "es", "s"].iter().find_map(|e| word.strip_suffix(e)).filter(|s| s.len() >= 3);
            if word.len() >= 3 && !COMMON.contains(&word) {
                found.insert(stem.unwrap_or(word).to_owned());
            }
        } else {
            let chars: Vec<char> = word.chars().collect();
            found.extend(chars.windows(2).map(|pair| pair.iter().collect::<String>()));
        }
    }
    found
}

/// Where the files of a skill stand in the attempt.
fn place(skill: &Skill, name: &str) -> String {
    let own = skill.folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    format!("temp/knowledge/{own}/{name}")
}

/// What the prompt says of them; empty: there are none.
pub(crate) fn words_for_prompt(skills: &[Skill]) -> String {
    let said = skills.iter().map(|skill| {
        let files: Vec<String> = files(skill).iter().map(|(name, _)| place(skill, name)).collect();
        let beside = if files.is_empty() {
            String::new()
        } else {
            format!("\n\nFiles that belong to it: {}", files.join(", "))
        };
        format!("## {}\n\n{}{beside}", skill.name, prompt::clip(&skill.text, TEXT_CHARS_MAX))
    });
    said.collect::<Vec<_>>().join("\n\n")
}

/// Name and place of each file beside the SKILL.md, folders below it left out.
fn files(skill: &Skill) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(&skill.folder).into_iter().flatten().flatten();
    let mut found: Vec<(String, PathBuf)> = entries
        .filter(|e| e.metadata().is_ok_and(|m| m.is_file() && m.len() <= FILE_BYTES_MAX))
        .map(|e| (e.file_name().to_string_lossy().into_owned(), e.path()))
        .filter(|(name, _)| name != SKILL)
        .collect();
    found.sort();
    found.truncate(FILES_MAX);
    found
}

/// What is laid into the attempt: path and bytes.
pub(crate) fn laid(skills: &[Skill]) -> Vec<(String, Vec<u8>)> {
    let of = |skill: &Skill| {
        let read = |(name, path): (String, PathBuf)| Some((place(skill, &name), std::fs::read(path).ok()?));
        files(skill).into_iter().filter_map(read).collect::<Vec<_>>()
    };
    skills.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(skills: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, description) in skills {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            let text = format!("---\nname: {name}\ndescription: {description}\n---\nHow to {name}.\n");
            std::fs::write(folder.path().join(name).join(SKILL), text).unwrap();
        }
        folder
    }

    fn names(folder: &Path, description: &str) -> Vec<String> {
        let ticket = Ticket { description: description.into(), ..Ticket::default() };
        chosen(folder, &ticket).into_iter().map(|s| s.name).collect()
    }

    #[test]
    fn a_ticket_gets_the_skills_whose_description_fits_it() {
        let folder = shelf(&[
            (
                "invoices",
                "Checking invoices of suppliers against orders: use when an invoice is to be checked",
            ),
            ("charts", "Drawing charts of time series with the house colours"),
            ("report", "How reports of the house are written: headings, tone, length"),
            ("合同", "审查合同条款与付款条件"),
        ]);
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        assert_eq!(names(folder.path(), "Check the invoice of May against its order"), ["invoices"]);
        assert_eq!(names(folder.path(), "Draw the time series as a chart"), ["charts"]);
        assert_eq!(names(folder.path(), "请审查这份合同的付款条件"), ["合同"]);
        assert_eq!(names(folder.path(), "Translate a poem"), Vec::<String>::new());
        assert_eq!(names(Path::new(""), "Check the invoice of May against its order"), Vec::<String>::new());
    }

    #[test]
    fn files_beside_it_are_laid_into_the_attempt_and_named() {
        let folder = shelf(&[("charts", "Drawing charts of time series")]);
        std::fs::write(folder.path().join("charts/colours.json"), "{}").unwrap();
        let ticket = Ticket { description: "a chart of the time series".into(), ..Ticket::default() };
        let skills = chosen(folder.path(), &ticket);
        assert_eq!(laid(&skills), [("temp/knowledge/charts/colours.json".to_owned(), b"{}".to_vec())]);
        let said = words_for_prompt(&skills);
        assert!(said.starts_with("## charts\n\nHow to charts."), "{said}");
        assert!(said.ends_with("belong to it: temp/knowledge/charts/colours.json"), "{said}");
    }
}
