//! What bubblewrap is told. Pure: a layout and a folder in, words out; the order of the words is the policy
//! (later mounts lie over earlier ones).

use super::{Python, WORKSPACE};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Each of the two memory file systems inside.
const TMPFS_BYTES: u64 = 256 * 1024 * 1024;
/// User inside; outside it is the worker's own, or of a worker that is root [`Layout::user`].
const USER: &str = "1000";
/// What programs need of /etc: the dynamic linker, alternatives, time zone, fonts, Python's own set-up.
/// No accounts, no host name, no resolver, no keys.
const ETC: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/fonts",
    "/etc/mime.types",
    "/etc/python3",
];

/// What works on this host, as the probe found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub bwrap: PathBuf,
    /// User and group that bubblewrap is started as; `None`: those of this process.
    pub user: Option<u32>,
    /// `/bin`, `/lib`…: a link into /usr, or a folder of its own (`None`).
    pub roots: Vec<(PathBuf, Option<PathBuf>)>,
    /// Bound read-only beside the system's folders: where Python lives, when that is elsewhere.
    pub read_only: Vec<PathBuf>,
    pub python: Option<Python>,
    /// bubblewrap knows `--disable-userns` and may use it.
    pub disables_userns: bool,
    /// bubblewrap knows `--size`.
    pub sizes_tmpfs: bool,
    /// A fresh /proc can be mounted; in some containers it cannot.
    pub mounts_proc: bool,
    /// The kernel counts processes per user namespace, so that a limit does not count the worker's threads.
    pub counts_processes: bool,
}

/// bubblewrap's arguments up to and with `--`. `filter` is the number under which it inherits the open
/// file with the system calls that are refused. `read_only`: folders of this job alone, at the same place inside.
pub(super) fn arguments(
    layout: &Layout,
    folder: &Path,
    read_only: &[PathBuf],
    filter: Option<i32>,
) -> Vec<OsString> {
    let mut to: Vec<OsString> = Vec::with_capacity(96);
    let mut add = |words: &[&dyn AsRef<std::ffi::OsStr>]| to.extend(words.iter().map(|w| w.as_ref().into()));
    // Namespaces: no network (only a loopback of its own), no other processes, no shared memory of the host.
    for name in ["user", "ipc", "pid", "net", "uts"] {
        add(&[&format!("--unshare-{name}")]);
    }
    add(&[&"--unshare-cgroup-try"]);
    if layout.disables_userns {
        add(&[&"--disable-userns"]);
    }
    add(&[&"--uid", &USER, &"--gid", &USER, &"--hostname", &"sandbox"]);
    // The tree dies with bubblewrap, bubblewrap with the thread that started it; no terminal to type into.
    add(&[&"--die-with-parent", &"--new-session", &"--cap-drop", &"ALL"]);
    if let Some(filter) = filter {
        add(&[&"--seccomp", &filter.to_string()]);
    }
    // The system, read-only.
    add(&[&"--ro-bind", &"/usr", &"/usr"]);
    for (path, target) in &layout.roots {
        match target {
            Some(target) => add(&[&"--symlink", target, path]),
            None => add(&[&"--ro-bind", path, path]),
        }
    }
    for path in ETC {
        add(&[&"--ro-bind-try", path, path]);
    }
    if layout.mounts_proc {
        add(&[&"--proc", &"/proc"]);
    }
    add(&[&"--dev", &"/dev"]);
    for path in ["/dev/shm", "/tmp"] {
        if layout.sizes_tmpfs {
            add(&[&"--size", &TMPFS_BYTES.to_string()]);
        }
        add(&[&"--tmpfs", &path]);
    }
    // After /tmp, below which they may lie.
    for path in layout.read_only.iter().chain(read_only) {
        add(&[&"--ro-bind", path, path]);
    }
    // The one place that can be written and stays.
    add(&[&"--bind", &folder, &WORKSPACE, &"--chdir", &WORKSPACE]);
    // Run as root, the files of /proc/sys are this user's own: core_pattern would be a way out.
    if layout.mounts_proc {
        add(&[&"--remount-ro", &"/proc"]);
    }
    add(&[&"--remount-ro", &"/dev", &"--remount-ro", &"/"]);
    add(&[&"--"]);
    to
}

/// The whole environment of a job, before its own variables. Nothing of the worker's comes in (I12).
pub(super) fn environment(layout: &Layout) -> Vec<(&'static str, OsString)> {
    let mut path = OsString::new();
    if let Some(folder) = layout.python.as_ref().and_then(|python| python.program.parent()) {
        path.push(folder);
        path.push(":");
    }
    path.push("/usr/local/bin:/usr/bin:/bin");
    let mut all: Vec<(&'static str, OsString)> = vec![("PATH", path)];
    for (name, value) in [
        ("HOME", "/tmp"),
        ("TMPDIR", "/tmp"),
        ("USER", "sandbox"),
        ("LANG", "C.UTF-8"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONIOENCODING", "utf-8"),
        ("MPLBACKEND", "Agg"),
        ("MPLCONFIGDIR", "/tmp"),
        // Each thread of these reserves address space, which is limited.
        ("OMP_NUM_THREADS", "2"),
        ("OPENBLAS_NUM_THREADS", "2"),
        ("MALLOC_ARENA_MAX", "2"),
    ] {
        all.push((name, value.into()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            user: None,
            bwrap: "/usr/bin/bwrap".into(),
            roots: vec![("/bin".into(), Some("usr/bin".into())), ("/lib64".into(), None)],
            read_only: vec!["/opt/py".into()],
            python: Some(Python {
                program: "/opt/py/bin/python3".into(),
                version: "3.12.1".into(),
                libraries: vec![],
            }),
            disables_userns: true,
            sizes_tmpfs: true,
            mounts_proc: true,
            counts_processes: true,
        }
    }

    fn words(layout: &Layout) -> String {
        let words = arguments(layout, Path::new("/scratch/a b"), &["/opt/mcp".into()], Some(7));
        words.iter().map(|w| w.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_policy_word_for_word() {
        let etc: String = ETC.iter().map(|path| format!("--ro-bind-try {path} {path} ")).collect();
        let want = format!(
            "--unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try \
             --disable-userns --uid 1000 --gid 1000 --hostname sandbox --die-with-parent --new-session \
             --cap-drop ALL --seccomp 7 --ro-bind /usr /usr --symlink usr/bin /bin --ro-bind /lib64 /lib64 {etc}--proc /proc \
             --dev /dev --size 268435456 --tmpfs /dev/shm --size 268435456 --tmpfs /tmp --ro-bind /opt/py /opt/py --ro-bind /opt/mcp /opt/mcp \
             --bind /scratch/a b /workspace --chdir /workspace --remount-ro /proc --remount-ro /dev --remount-ro / --"
        );
        assert_eq!(words(&layout()), want);
    }

    #[test]
    fn what_the_host_cannot_do_is_left_out_but_never_a_wall() {
        let poor = Layout { bwrap: "/usr/bin/bwrap".into(), ..Layout::default() };
        let text = words(&poor);
        for gone in ["--disable-userns", "--size", "--proc ", "/opt/py"] {
            assert!(!text.contains(gone), "{gone}");
        }
        for wall in
            ["--unshare-net", "--unshare-pid", "--unshare-user", "--die-with-parent", "--cap-drop ALL"]
        {
            assert!(text.contains(wall), "{wall}");
        }
        assert_eq!(text.matches("--bind ").count(), 1);
    }

    #[test]
    fn i12_the_environment_is_made_here() {
        let names: Vec<_> = environment(&layout()).into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"PATH") && names.len() == 12, "{names:?}");
        assert_eq!(environment(&layout())[0].1, "/opt/py/bin:/usr/local/bin:/usr/bin:/bin");
    }
}
