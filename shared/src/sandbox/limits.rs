//! Limits of one process (a shell sets rlimits inside, before it becomes the program) and of the whole tree
//! (a watch counts processes and memory in use, which rlimits cannot).

use super::Job;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest single file that a job may write.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Foreign code yields to the worker, whose leases must be renewed.
const NICE: u8 = 10;
const OPEN_FILES_MAX: u64 = 512;
/// How often the tree is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The folder is looked at once in so many looks.
const FOLDER_EVERY: u32 = 10;
/// The job's files may take this much more of the disk than when it began.
const FOLDER_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Files and folders counted for that; a job with more has other troubles.
const FOLDER_ENTRIES_MAX: usize = 100_000;
/// When memory runs out, the kernel takes the sandbox before the worker.
const OOM_SCORE: &str = "500";
/// bubblewrap's own two processes are part of the tree.
const OWN_PROCESSES: u64 = 2;
const PAGE_BYTES: u64 = 4096;

/// What the shell inside says when everything is set up, and what it waits for then.
pub(super) const READY: [u8; 1] = *b"\n";
pub(super) const GO: &[u8] = b"go\n";

/// The shell program that sets the limits, shakes hands and becomes `"$@"`. A limit that cannot be set ends it
/// (I7); the number of open files may already be lower. dash and busybox call the process limit `-p`, bash `-u`.
pub(super) fn prelude(memory_bytes: u64, processes: u64, counts_processes: bool) -> String {
    let (files, memory) = (FILE_BYTES_MAX / 512, (memory_bytes / 1024).max(1));
    let processes = if counts_processes {
        format!(" && {{ ulimit -p {processes} 2>/dev/null || ulimit -u {processes}; }}")
    } else {
        String::new()
    };
    format!(
        "ulimit -n {OPEN_FILES_MAX} 2>/dev/null; \
         ulimit -c 0 && ulimit -f {files} && ulimit -v {memory}{processes} && echo && read -r go || exit 125; \
         exec nice -n {NICE} \"$@\""
    )
}

/// Offers the tree to the kernel for the case that memory runs out. Failing is no harm.
pub(super) fn offer(pid: Option<u32>) {
    for pid in pid.map(|pid| tree(pid, OWN_PROCESSES)).unwrap_or_default() {
        let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), OOM_SCORE);
    }
}

/// Waits until the tree passes the limits; never ends while it keeps them.
pub(super) async fn watch(pid: Option<u32>, job: &Job) -> String {
    let Some(pid) = pid else { return std::future::pending().await };
    tokio::select! {
        why = watch_processes(pid, job) => why,
        why = watch_folder(&job.folder) => why,
    }
}

async fn watch_folder(folder: &Path) -> String {
    let used = |folder: PathBuf| async {
        tokio::task::spawn_blocking(move || used_bytes(&folder)).await.unwrap_or_default()
    };
    let mut look = tokio::time::interval(LOOK_EVERY * FOLDER_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    look.tick().await;
    let before = used(folder.to_owned()).await;
    loop {
        look.tick().await;
        if used(folder.to_owned()).await > before + FOLDER_BYTES_MAX {
            return format!("more than {FOLDER_BYTES_MAX} bytes of disk");
        }
    }
}

/// What the folder's files take of the disk. Links are counted, not followed.
fn used_bytes(folder: &Path) -> u64 {
    let (mut open, mut used, mut entries) = (vec![folder.to_owned()], 0, 0);
    while let Some(folder) = open.pop() {
        let Ok(inside) = std::fs::read_dir(folder) else { continue };
        for entry in inside.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            used += meta.blocks() * 512;
            entries += 1;
            if entries > FOLDER_ENTRIES_MAX {
                return used;
            }
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    used
}

async fn watch_processes(pid: u32, job: &Job) -> String {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let tree = tree(pid, job.processes_max + OWN_PROCESSES);
        if tree.len() as u64 > job.processes_max + OWN_PROCESSES {
            return format!("more than {} processes", job.processes_max);
        }
        // Cheap first: resident pages count twice what processes share. Only above the limit exactly.
        let resident: u64 = tree.iter().map(|pid| resident_bytes(*pid)).sum();
        if resident > job.memory_bytes_max {
            let used: u64 = tree.iter().map(|pid| proportional_bytes(*pid)).sum();
            if used > job.memory_bytes_max {
                return format!("more than {} bytes of memory in all processes", job.memory_bytes_max);
            }
        }
    }
}

/// The process and those below it; stops when there are more than `max`.
pub(super) fn tree(pid: u32, max: u64) -> Vec<u32> {
    let mut tree = vec![pid];
    let mut next = 0;
    while next < tree.len() && tree.len() as u64 <= max {
        let tasks = format!("/proc/{}/task", tree[next]);
        next += 1;
        let Ok(tasks) = std::fs::read_dir(tasks) else { continue };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            tree.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    tree
}

fn resident_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE_BYTES
}

/// Shared pages are divided by the number of those who share them. Not readable: the resident ones.
fn proportional_bytes(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/smaps_rollup");
    let Ok(text) = std::fs::read_to_string(Path::new(&path)) else { return resident_bytes(pid) };
    let kib =
        text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or_else(|| resident_bytes(pid), |kib: u64| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_sets_every_limit_or_does_not_start() {
        assert_eq!(
            prelude(1024 * 1024, 64, true),
            "ulimit -n 512 2>/dev/null; ulimit -c 0 && ulimit -f 524288 && ulimit -v 1024 && \
             { ulimit -p 64 2>/dev/null || ulimit -u 64; } && echo && read -r go || exit 125; exec nice -n 10 \"$@\""
        );
        assert!(!prelude(1024, 64, false).contains("64;"));
    }

    #[test]
    fn the_disk_that_is_used_is_counted_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/b"), vec![1; 300_000]).unwrap();
        std::os::unix::fs::symlink("/usr", folder.path().join("c")).unwrap();
        std::fs::File::create(folder.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let used = used_bytes(folder.path());
        assert!((300_000..1_000_000).contains(&used), "{used}");
    }

    #[test]
    fn the_tree_of_this_process_holds_its_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = tree(std::process::id(), 1000);
        assert!(found.contains(&child.id()), "{found:?}");
        assert!(resident_bytes(std::process::id()) > PAGE_BYTES);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
