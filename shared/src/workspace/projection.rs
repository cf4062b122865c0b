//! TODO.md and FILE_INDEX.json as users know them: drawn from the store's truth, never read back (I1). Pure.

use super::Manifest;
use crate::goal::Goal;
use crate::ticket::{Status, Ticket};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Name of the drawn plan.
pub const TODO: &str = "TODO.md";
/// Name of the drawn list of files.
pub const FILE_INDEX: &str = "FILE_INDEX.json";
/// Deepest nesting of the drawn plan.
const NESTING_MAX: usize = 8;
/// Longest text in one cell or line, in characters.
const LINE_CHARS_MAX: usize = 200;

struct Words {
    title: &'static str,
    task: &'static str,
    constraints: &'static str,
    plan: &'static str,
    progress: &'static str,
    columns: [&'static str; 5],
    files: &'static str,
    file_columns: [&'static str; 4],
    findings: &'static str,
    none: &'static str,
    criteria: &'static str,
    colon: &'static str,
}

const ENGLISH: Words = Words {
    title: "Task list",
    task: "Original task",
    constraints: "Constraints",
    plan: "Task plan",
    progress: "Execution progress",
    columns: ["#", "Step", "Executor", "Status", "Output files"],
    files: "Generated files",
    file_columns: ["File", "Type", "Creator", "Description"],
    findings: "Key findings",
    none: "(none yet)",
    criteria: "criteria",
    colon: ": ",
};

const CHINESE: Words = Words {
    title: "任务清单",
    task: "原始任务",
    constraints: "约束条件",
    plan: "任务计划",
    progress: "执行进度",
    columns: ["#", "步骤", "执行者", "状态", "输出文件"],
    files: "生成文件索引",
    file_columns: ["文件", "类型", "创建者", "说明"],
    findings: "关键发现",
    none: "（暂无）",
    criteria: "完成标准",
    colon: "：",
};

/// The plan with its progress as Markdown: original task, plan, progress table, files, key findings.
/// `lang` is `zh…` for Chinese, anything else for English.
#[must_use]
pub fn todo_md(goal: &Goal, tickets: &[Ticket], manifest: &Manifest, lang: &str) -> String {
    let chinese = lang.to_ascii_lowercase().starts_with("zh");
    let words = if chinese { &CHINESE } else { &ENGLISH };
    let mut out = format!("# {}\n\n## {}\n\n{}\n", words.title, words.task, goal.text.trim());
    if !goal.constraints.is_empty() {
        let _ = write!(out, "\n### {}\n\n", words.constraints);
        for constraint in &goal.constraints {
            let _ = writeln!(out, "- {}", line(constraint));
        }
    }
    let _ = write!(out, "\n## {}\n\n", words.plan);
    plan(&mut out, tickets, words);
    let _ = write!(out, "\n## {}\n\n", words.progress);
    row(&mut out, &words.columns);
    row(&mut out, &["---"; 5]);
    for (n, ticket) in tickets.iter().enumerate() {
        let executor = if ticket.role.is_empty() { &ticket.pool } else { &ticket.role };
        let status = if chinese { in_chinese(ticket.status) } else { ticket.status.as_str() };
        let files = delivered(ticket).join(", ");
        row(&mut out, &[&(n + 1).to_string(), &ticket.key, executor, status, &files]);
    }
    let _ = write!(out, "\n## {}\n\n", words.files);
    if manifest.files.is_empty() {
        let _ = writeln!(out, "{}", words.none);
    } else {
        row(&mut out, &words.file_columns);
        row(&mut out, &["---"; 4]);
        for (path, entry) in &manifest.files {
            row(&mut out, &[path, &entry.mime, &entry.creator, &entry.description]);
        }
    }
    let _ = write!(out, "\n## {}\n\n", words.findings);
    if goal.conclusions.is_empty() {
        let _ = writeln!(out, "{}", words.none);
    }
    for conclusion in &goal.conclusions {
        let _ = writeln!(out, "- {}", line(conclusion));
    }
    out
}

/// The nested list of tickets: those that were split from another stand below it.
fn plan(out: &mut String, tickets: &[Ticket], words: &Words) {
    if tickets.is_empty() {
        let _ = writeln!(out, "{}", words.none);
        return;
    }
    let known: BTreeSet<&str> = tickets.iter().map(|t| t.task_id.as_str()).collect();
    let mut below: BTreeMap<&str, Vec<&Ticket>> = BTreeMap::new();
    for ticket in tickets {
        let parent = ticket.parent_id.as_str();
        let parent = if known.contains(parent) && parent != ticket.task_id { parent } else { "" };
        below.entry(parent).or_default().push(ticket);
    }
    let mut drawn = BTreeSet::new();
    let mut open: Vec<(usize, &Ticket)> = Vec::new();
    open.extend(below.get("").into_iter().flatten().rev().map(|t| (0, *t)));
    while let Some((depth, ticket)) = open.pop() {
        if !drawn.insert(ticket.task_id.as_str()) {
            continue;
        }
        let mark = if ticket.status == Status::Done { 'x' } else { ' ' };
        let indent = "  ".repeat(depth.min(NESTING_MAX));
        let text = line(&ticket.description);
        let _ = write!(out, "{indent}- [{mark}] {}{}{text}", ticket.key, words.colon);
        if !ticket.expected_output.is_empty() {
            let _ = write!(out, " ({}{}{})", words.criteria, words.colon, line(&ticket.expected_output));
        }
        out.push('\n');
        let inside = below.get(ticket.task_id.as_str()).into_iter().flatten();
        open.extend(inside.rev().map(|t| (depth + 1, *t)));
    }
}

/// What the ticket's report names; before there is one, what the plan asks for.
fn delivered(ticket: &Ticket) -> Vec<String> {
    let reported: Vec<String> = ticket
        .result
        .get("outputs")
        .and_then(|o| o.as_array())
        .into_iter()
        .flatten()
        .filter_map(|o| o.as_str().map(Into::into))
        .collect();
    if reported.is_empty() { ticket.outputs.clone() } else { reported }
}

fn row(out: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(out, "| {} ", line(cell).replace('|', "\\|"));
    }
    out.push_str("|\n");
}

/// One line, not too long: texts of models must not break the table or the list.
fn line(text: &str) -> String {
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = words.char_indices().nth(LINE_CHARS_MAX) {
        words.truncate(at);
        words.push('…');
    }
    words
}

fn in_chinese(status: Status) -> &'static str {
    match status {
        Status::Pending => "待处理",
        Status::Running => "执行中",
        Status::Reviewing => "审核中",
        Status::Rejected => "已退回",
        Status::Done => "已完成",
        Status::Blocked => "等待前置",
        Status::AwaitingApproval => "待批准",
        Status::Escalated => "已上报",
        Status::NeedsHuman => "需要人工",
        Status::Skipped => "已跳过",
        Status::Superseded => "已替换",
        Status::Failed => "失败",
        Status::Cancelled => "已取消",
    }
}

/// The accepted files as JSON, sorted by path.
#[must_use]
pub fn file_index_json(manifest: &Manifest) -> String {
    #[derive(Serialize)]
    struct Index<'a> {
        version: u32,
        files: Vec<File<'a>>,
    }
    #[derive(Serialize)]
    struct File<'a> {
        path: &'a str,
        r#type: &'a str,
        size_bytes: u64,
        sha256: &'a str,
        creator: &'a str,
        description: &'a str,
        version: u32,
    }
    let files = manifest
        .files
        .iter()
        .map(|(path, e)| File {
            path,
            r#type: &e.mime,
            size_bytes: e.size_bytes,
            sha256: &e.hash,
            creator: &e.creator,
            description: &e.description,
            version: e.version,
        })
        .collect();
    let mut text = serde_json::to_string_pretty(&Index { version: 1, files }).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Entry;
    use serde_json::json;

    fn ticket(id: &str, parent: &str, key: &str, status: Status) -> Ticket {
        Ticket {
            task_id: id.into(),
            parent_id: parent.into(),
            key: key.into(),
            status,
            role: "data_analyst".into(),
            description: format!("do {key}\nwell | fast"),
            outputs: vec![format!("outputs/{key}.md")],
            ..Ticket::default()
        }
    }

    fn sample() -> (Goal, Vec<Ticket>, Manifest) {
        let goal = Goal {
            text: "Compare A and B.".into(),
            constraints: vec!["at most 300 words".into()],
            conclusions: vec!["A is faster".into()],
            ..Goal::default()
        };
        let mut measure = ticket("1", "", "measure", Status::Done);
        measure.expected_output = "a table".into();
        measure.result = json!({"outputs": ["data/m.csv"]});
        let tickets = vec![
            measure,
            ticket("2", "", "write", Status::Running),
            ticket("3", "2", "intro", Status::Blocked),
        ];
        let mut manifest = Manifest::default();
        let entry = Entry {
            hash: crate::blob::reference(b"x"),
            size_bytes: 1,
            creator: "measure".into(),
            description: "raw | data".into(),
            ..Entry::default()
        };
        assert!(manifest.insert("data/m.csv", entry));
        (goal, tickets, manifest)
    }

    #[test]
    fn the_plan_is_drawn_with_the_sections_that_users_know() {
        let (goal, tickets, manifest) = sample();
        let want = "\
# Task list

## Original task

Compare A and B.

### Constraints

- at most 300 words

## Task plan

- [x] measure: do measure well | fast (criteria: a table)
- [ ] write: do write well | fast
  - [ ] intro: do intro well | fast

## Execution progress

| # | Step | Executor | Status | Output files |
| --- | --- | --- | --- | --- |
| 1 | measure | data_analyst | done | data/m.csv |
| 2 | write | data_analyst | running | outputs/write.md |
| 3 | intro | data_analyst | blocked | outputs/intro.md |

## Generated files

| File | Type | Creator | Description |
| --- | --- | --- | --- |
| data/m.csv | text/csv | measure | raw \\| data |

## Key findings

- A is faster
";
        assert_eq!(todo_md(&goal, &tickets, &manifest, "en"), want);
    }

    #[test]
    fn in_chinese_too_and_an_empty_goal_says_so() {
        let (goal, tickets, manifest) = sample();
        let text = todo_md(&goal, &tickets, &manifest, "zh-CN");
        for part in [
            "# 任务清单",
            "## 原始任务",
            "## 任务计划",
            "## 执行进度",
            "| 状态 |",
            "已完成",
            "## 生成文件索引",
            "## 关键发现",
        ] {
            assert!(text.contains(part), "{part}");
        }
        let empty = todo_md(&Goal::default(), &[], &Manifest::default(), "en");
        assert_eq!(empty.matches("(none yet)").count(), 3);
    }

    #[test]
    fn tickets_that_are_each_others_parents_do_not_hang_it() {
        let tickets = [ticket("1", "2", "a", Status::Done), ticket("2", "1", "b", Status::Done)];
        assert!(todo_md(&Goal::default(), &tickets, &Manifest::default(), "en").contains("| 2 | b |"));
    }

    #[test]
    fn the_index_lists_the_accepted_files() {
        let (_, _, manifest) = sample();
        let index: serde_json::Value = serde_json::from_str(&file_index_json(&manifest)).unwrap();
        let want = json!({"version": 1, "files": [{"path": "data/m.csv", "type": "text/csv", "size_bytes": 1,
            "sha256": crate::blob::reference(b"x"), "creator": "measure", "description": "raw | data",
            "version": 1}]});
        assert_eq!(index, want);
    }
}
