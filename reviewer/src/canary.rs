//! Known deliverables: canaries with a planted defect, and controls that are good. What they are, where they come
//! from, and what an answer to one is worth. Pure but for the reading of the folder.

use crate::judge::judged_items;
use anyhow::{Context as _, ensure};
use serde::Deserialize;
use shared::goal::Goal;
use shared::store::ProbeKind;
use shared::ticket::{Check, Report, ReviewPolicy, Ticket, VerdictItem};
use std::collections::BTreeMap;
use std::path::Path;

/// Those that every reviewer has, canaries and controls in turn.
const BUILT_IN: [(&str, &str); 8] = [
    ("wrong-total", include_str!("canaries/wrong-total.toml")),
    ("right-total", include_str!("canaries/right-total.toml")),
    ("missing-section", include_str!("canaries/missing-section.toml")),
    ("all-sections", include_str!("canaries/all-sections.toml")),
    ("against-its-source", include_str!("canaries/against-its-source.toml")),
    ("as-its-source", include_str!("canaries/as-its-source.toml")),
    ("speaks-to-the-reviewer", include_str!("canaries/speaks-to-the-reviewer.toml")),
    ("within-its-constraint", include_str!("canaries/within-its-constraint.toml")),
];
/// Largest file of the folder, and most of them.
const FILE_BYTES_MAX: u64 = 256 * 1024;
const FILES_MAX: usize = 200;

/// A deliverable whose verdict is known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Canary {
    /// Taken from the file's name.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) kind: ProbeKind,
    /// The goal's text and its constraints.
    goal: String,
    #[serde(default)]
    constraints: Vec<String>,
    /// What the ticket asked for.
    description: String,
    expected_output: String,
    /// Judged items, beside the goal's, which always comes last.
    items: Vec<String>,
    /// A canary's planted defects, as numbers of items from 1: one of them must fail. None for a control.
    #[serde(default)]
    flawed: Vec<usize>,
    /// The worker's summary.
    report: String,
    /// Delivered files: path and text.
    pub(crate) files: BTreeMap<String, String>,
}

impl Canary {
    fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let it: Self = toml::from_str(text)?;
        ensure!(!it.files.is_empty(), "it delivers no file");
        ensure!(!it.items.is_empty(), "it has no items");
        let items = judged_items(&it.ticket()).len();
        match it.kind {
            ProbeKind::Canary => {
                ensure!(!it.flawed.is_empty(), "a canary says in `flawed` which items must fail");
                ensure!(
                    it.flawed.iter().all(|n| (1..=items).contains(n)),
                    "`flawed` numbers items from 1 to {items}"
                );
            }
            ProbeKind::Control => ensure!(it.flawed.is_empty(), "a control has nothing in `flawed`"),
        }
        Ok(Self { name: name.into(), ..it })
    }

    /// The goal as the judge sees it.
    pub(crate) fn goal(&self) -> Goal {
        Goal { text: self.goal.clone(), constraints: self.constraints.clone(), ..Goal::default() }
    }

    /// The ticket as the judge sees it: nothing tells it from another.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket {
            key: "report".into(),
            description: self.description.clone(),
            expected_output: self.expected_output.clone(),
            outputs: self.files.keys().cloned().collect(),
            checklist: self.items.iter().map(|text| Check::Judged { text: text.clone() }).collect(),
            review: ReviewPolicy::Judged,
            ..Ticket::default()
        }
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            status: "done".into(),
            summary: self.report.clone(),
            outputs: self.files.keys().cloned().collect(),
            ..Report::default()
        }
    }

    /// Whether the verdict is right: a planted defect was found, or all of a good one was passed.
    pub(crate) fn is_right(&self, verdict: &[VerdictItem]) -> bool {
        match self.kind {
            ProbeKind::Canary => self
                .flawed
                .iter()
                .any(|n| n.checked_sub(1).and_then(|i| verdict.get(i)).is_some_and(|v| !v.pass)),
            ProbeKind::Control => verdict.iter().all(|item| item.pass),
        }
    }
}

/// All known deliverables: the built-in ones, then those of the folder by name.
///
/// # Errors
/// The file that is none, and why.
pub(crate) fn all(folder: &Path) -> anyhow::Result<Vec<Canary>> {
    let mut all = vec![];
    for (name, text) in BUILT_IN {
        all.push(Canary::parse(name, text).with_context(|| format!("built-in canary {name}"))?);
    }
    if folder.as_os_str().is_empty() {
        return Ok(all);
    }
    let listed = std::fs::read_dir(folder)
        .with_context(|| format!("reviewer.canaries.folder {}", folder.display()))?
        .collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<_> = listed.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "toml"));
    paths.sort();
    ensure!(paths.len() <= FILES_MAX, "{} holds more than {FILES_MAX} canaries", folder.display());
    for path in paths {
        let of = || format!("canary {}", path.display());
        ensure!(std::fs::metadata(&path).with_context(of)?.len() <= FILE_BYTES_MAX, "{} is too large", of());
        let text = std::fs::read_to_string(&path).with_context(of)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        all.push(Canary::parse(&name, &text).with_context(of)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(passes: &[bool]) -> Vec<VerdictItem> {
        let item = |pass: &bool| VerdictItem {
            item: String::new(),
            pass: *pass,
            reason: String::new(),
            evidence: String::new(),
            by_code: false,
        };
        passes.iter().map(item).collect()
    }

    #[test]
    fn the_built_in_ones_are_sound_and_as_many_good_as_bad() {
        let all = all(Path::new("")).unwrap();
        let canaries = all.iter().filter(|c| c.kind == ProbeKind::Canary).count();
        assert_eq!(canaries * 2, all.len());
        for one in &all {
            let items = judged_items(&one.ticket()).len();
            assert_eq!(
                one.is_right(&verdict(&vec![true; items])),
                one.kind == ProbeKind::Control,
                "{}",
                one.name
            );
        }
    }

    #[test]
    fn only_the_planted_defect_counts_as_found() {
        let all = all(Path::new("")).unwrap();
        let canary = all.iter().find(|c| c.flawed == [1]).unwrap();
        let items = judged_items(&canary.ticket()).len();
        let failing = |n: usize| (1..=items).map(|i| i != n).collect::<Vec<_>>();
        assert!(canary.is_right(&verdict(&failing(1))));
        assert!(!canary.is_right(&verdict(&failing(2))), "another item failed: the defect went unseen");
        let control = all.iter().find(|c| c.kind == ProbeKind::Control).unwrap();
        assert!(!control.is_right(&verdict(&[true, false, true])));
    }

    #[test]
    fn a_file_that_is_no_canary_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = "kind = \"control\"\ngoal = \"g\"\ndescription = \"d\"\nexpected_output = \"e\"\nitems = [\"i\"]\n\
            report = \"r\"\n[files]\n\"outputs/a.md\" = \"a\"\n";
        std::fs::write(folder.path().join("own.toml"), text).unwrap();
        let own = all(folder.path()).unwrap();
        assert_eq!(own.last().unwrap().name, "own");
        std::fs::write(folder.path().join("own.toml"), text.replace("control", "canary")).unwrap();
        let wrong = format!("{:#}", all(folder.path()).unwrap_err());
        assert!(wrong.contains("own.toml") && wrong.contains("flawed"), "{wrong}");
    }
}
