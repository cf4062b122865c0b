//! Finds out at start what bubblewrap can do on this host, and which Python runs inside.

use super::NoSandbox;
use super::arguments::{Layout, arguments, environment};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One program of the probe may take this long.
const TRY: Duration = Duration::from_secs(10);
/// First kernel that counts processes per user namespace.
const COUNTS_SINCE: (u32, u32) = (5, 14);
const ROOTS: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];
/// Libraries that a model may want to know of, by the name that is imported.
const LIBRARIES: &[&str] = &[
    "numpy",
    "pandas",
    "scipy",
    "sklearn",
    "statsmodels",
    "matplotlib",
    "seaborn",
    "plotly",
    "PIL",
    "bs4",
    "lxml",
    "openpyxl",
    "docx",
    "pptx",
    "pypdf",
    "reportlab",
    "sympy",
    "networkx",
    "pyarrow",
    "polars",
    "duckdb",
    "torch",
    "jinja2",
    "yaml",
    "markdown",
    "tabulate",
];
/// Asks a Python inside for its version and which of the libraries named are there, without importing them.
const WHICH: &str = "import sys, importlib.util as u\n\
    print('%d.%d.%d' % sys.version_info[:3], *(n for n in sys.argv[1:] if u.find_spec(n)))";
/// Asks a Python where it and its standard library live.
const WHERE: &str = "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sep='\\n')";

/// The Python that runs inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Python {
    pub program: PathBuf,
    /// Such as `3.11.7`.
    pub version: String,
    /// Well-known libraries that are there, by the name that is imported.
    pub libraries: Vec<String>,
}

/// The most that works here, started as this user (`None`: as whoever we are).
pub(super) fn layout(user: Option<u32>) -> Result<Layout, NoSandbox> {
    let bwrap = on_path("bwrap").ok_or(NoSandbox::Missing)?;
    let help = run(Command::new(&bwrap).arg("--help")).unwrap_or_default();
    let folder = tempfile::tempdir().map_err(|e| NoSandbox::Refused(e.to_string()))?;
    if let Some(user) = user {
        super::user::hand_over(user, folder.path()).map_err(|e| NoSandbox::Refused(e.to_string()))?;
    }
    let most = Layout {
        bwrap,
        user,
        roots: roots(),
        sizes_tmpfs: help.contains("--size BYTES"),
        disables_userns: help.contains("--disable-userns"),
        mounts_proc: true,
        counts_processes: kernel() >= COUNTS_SINCE,
        ..Layout::default()
    };
    let less = Layout { disables_userns: false, ..most.clone() };
    let least = Layout { mounts_proc: false, ..less.clone() };
    let mut refusal = String::new();
    for layout in [most, less, least] {
        match inside(&layout, folder.path(), &["/bin/sh", "-c", "echo inside"]) {
            Ok(out) if out.trim() == "inside" => return Ok(with_python(layout, folder.path())),
            Ok(out) => refusal = format!("unexpected answer {out:?}"),
            Err(why) => refusal = why,
        }
    }
    Err(NoSandbox::Refused(refusal))
}

/// The first Python of the worker's PATH that runs inside; what it needs is bound read-only.
fn with_python(layout: Layout, folder: &Path) -> Layout {
    let candidates =
        on_path("python3").into_iter().chain(["/usr/bin/python3", "/usr/local/bin/python3"].map(Into::into));
    for candidate in candidates {
        let Ok(answer) = run(Command::new(&candidate).args(["-I", "-c", WHERE])) else { continue };
        let mut lines = answer.lines().map(PathBuf::from);
        let Some(program) = lines.next().filter(|path| path.is_absolute()) else { continue };
        let mut read_only: Vec<PathBuf> = lines.filter(|path| !is_of_the_system(path)).collect();
        read_only.dedup();
        if read_only.iter().any(|prefix| is_too_much(prefix)) {
            continue;
        }
        let with = Layout { read_only, ..layout.clone() };
        let name = program.to_string_lossy();
        let argv: Vec<&str> =
            [&*name, "-I", "-c", WHICH].into_iter().chain(LIBRARIES.iter().copied()).collect();
        let Ok(answer) = inside(&with, folder, &argv) else { continue };
        let mut words = answer.split_whitespace().map(str::to_owned);
        if let Some(version) = words.next().filter(|version| version.starts_with("3.")) {
            let python = Python { program, version, libraries: words.collect() };
            return Layout { python: Some(python), ..with };
        }
    }
    layout
}

fn is_of_the_system(path: &Path) -> bool {
    path.starts_with("/usr") || ROOTS.iter().any(|root| path.starts_with(root))
}

/// A prefix that holds this user's home or the current folder would show files that are nobody's business.
fn is_too_much(prefix: &Path) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let here = std::env::current_dir().ok();
    !prefix.is_absolute() || [home, here].into_iter().flatten().any(|path| path.starts_with(prefix))
}

fn inside(layout: &Layout, folder: &Path, argv: &[&str]) -> Result<String, String> {
    let filter = super::seccomp::open().map_err(|e| e.to_string())?;
    let mut command = Command::new(&layout.bwrap);
    if let Some(user) = layout.user {
        command.uid(user).gid(user);
    }
    command
        .args(arguments(layout, folder, &[], filter.as_ref().map(AsRawFd::as_raw_fd)))
        .args(argv)
        .env_clear()
        .envs(environment(layout))
        .current_dir("/");
    run(&mut command)
}

/// Runs a program with a limit of time; its output, or why not.
#[expect(clippy::disallowed_methods, reason = "at start, before anything else runs")]
fn run(command: &mut Command) -> Result<String, String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let end = Instant::now() + TRY;
    // Outputs of the probe's programs fit into a pipe, so that waiting first cannot block them.
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return Err("it does not end".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().chars().take(500).collect())
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

fn roots() -> Vec<(PathBuf, Option<PathBuf>)> {
    ROOTS
        .iter()
        .map(PathBuf::from)
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| {
            let target = std::fs::read_link(&path).ok();
            (path, target)
        })
        .collect()
}

fn kernel() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(['.', '-', '\n']).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_holds_the_home_is_too_much() {
        assert!(is_too_much(Path::new("/")));
        assert!(is_too_much(Path::new("relative")));
        assert!(is_too_much(&std::env::current_dir().unwrap()));
        assert!(!is_too_much(Path::new("/opt/python")));
        assert!(is_of_the_system(Path::new("/usr/local")) && !is_of_the_system(Path::new("/opt")));
    }

    #[test]
    fn a_program_that_does_not_exist_or_fails_is_an_answer() {
        assert!(run(&mut Command::new("/nonexistent/program")).is_err());
        assert_eq!(run(Command::new("sh").args(["-c", "echo no >&2; exit 3"])), Err("no".into()));
    }
}
