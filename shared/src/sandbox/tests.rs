//! The sandbox with real bubblewrap and real Python.

use super::*;
use std::path::Path;

fn sandbox() -> Sandbox {
    Sandbox::probe().unwrap()
}

fn job(folder: &Path, argv: &[&str]) -> Job {
    Job {
        argv: argv.iter().map(|word| (*word).into()).collect(),
        folder: folder.into(),
        read_only: vec![],
        env: vec![],
        stdin: vec![],
        timeout_ms: 20_000,
        memory_bytes_max: 512 * 1024 * 1024,
        processes_max: 32,
        output_bytes_max: 10_000,
    }
}

async fn python(folder: &Path, code: &str) -> Output {
    sandbox().run(job(folder, &["python3", "-c", code])).await.unwrap()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Processes whose command line holds the mark.
fn running(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let holds = |path: PathBuf| std::fs::read(path).is_ok_and(|b| String::from_utf8_lossy(&b).contains(mark));
    processes.filter(|p| holds(p.path().join("cmdline"))).count()
}

async fn all_gone(mark: &str) -> bool {
    for _ in 0..500 {
        if running(mark) == 0 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test]
async fn a_program_reads_its_input_and_writes_into_its_folder_only() {
    let dir = folder();
    std::fs::write(dir.path().join("in.txt"), "42").unwrap();
    let code = "import os, sys\nprint(open('in.txt').read(), sys.stdin.read(), os.environ['MORE'], os.getcwd())\n\
                open('out.txt', 'w').write('done')\nprint('e', file=sys.stderr)\nsys.exit(3)";
    let mut job = job(dir.path(), &["python3", "-c", code]);
    job.stdin = b"fed".into();
    job.env = vec![("MORE".into(), "m".into())];
    let output = sandbox().run(job).await.unwrap();
    let want = Output {
        code: Some(3),
        stdout: "42 fed m /workspace\n".into(),
        stderr: "e\n".into(),
        timed_out: false,
        truncated: false,
    };
    assert_eq!(output, want);
    assert_eq!(std::fs::read_to_string(dir.path().join("out.txt")).unwrap(), "done");
}

#[tokio::test]
async fn nothing_else_of_the_host_can_be_written() {
    let dir = folder();
    let code = "
import os
for path in ['/usr/x', '/etc/x', '/x', '/dev/x', '/bin/x', '/workspace/../x', '/var/x', '/sys/x']:
    try:
        open(path, 'w').write('x')
        print('WRITTEN', path)
    except OSError as e:
        pass
for path in ['sys/kernel/core_pattern', 'sys/kernel/hostname', 'sys/vm/overcommit_memory', 'sysrq-trigger', 'self/oom_score_adj']:
    try:
        os.open('/proc/' + path, os.O_WRONLY)
        print('WRITTEN', path)
    except OSError as e:
        pass
print(sorted(os.listdir('/')))
print(open('/tmp/x', 'w').write('x'))";
    let output = python(dir.path(), code).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!output.stdout.contains("WRITTEN"), "{output:?}");
    for hidden in ["home", "var", "mnt", "sys"] {
        assert!(!output.stdout.contains(&format!("'{hidden}'")), "{hidden}: {output:?}");
    }
}

#[tokio::test]
async fn i12_no_network_no_environment_no_other_processes_no_accounts() {
    let dir = folder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!(
        "
import os, socket
for address in [('127.0.0.1', {port}), ('1.1.1.1', 53)]:
    try:
        socket.create_connection(address, timeout=2)
        print('CONNECTED', address)
    except OSError as e:
        print(type(e).__name__)
print([i[1] for i in socket.if_nameindex()])
print(len([p for p in os.listdir('/proc') if p.isdigit()]) < 6)
print([k for k in os.environ if 'CARGO' in k or 'SECRET' in k], os.environ['HOME'], os.getuid())
print([p for p in ['/etc/passwd', '/etc/shadow', '/etc/resolv.conf', '/home', '/root/.profile'] if os.path.exists(p)])"
    );
    let output = python(dir.path(), &code).await;
    assert_eq!(
        output.stdout, "ConnectionRefusedError\nOSError\n['lo']\nTrue\n[] /tmp 1000\n[]\n",
        "{output:?}"
    );
}

#[tokio::test]
async fn too_much_memory_is_a_memory_error_and_many_processes_of_it_are_killed() {
    let dir = folder();
    let output = python(dir.path(), "x = bytearray(2 * 1024**3)").await;
    assert!(output.stderr.contains("MemoryError"), "{output:?}");
    let code = "
import os, time
for _ in range(4):
    if os.fork() == 0:
        x = bytearray(os.urandom(1)) * (200 * 1024 * 1024)
        time.sleep(60)
time.sleep(60)";
    let output = python(dir.path(), code).await;
    assert_eq!(output.code, None);
    assert!(
        output.stderr.ends_with("[killed: more than 536870912 bytes of memory in all processes]"),
        "{output:?}"
    );
}

#[tokio::test]
async fn a_fork_bomb_ends() {
    let dir = folder();
    // 512 processes at most: a real one would take a starved machine along where the kernel sets no limit.
    let code = "import os, time\nfor _ in range(9):\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(0.01)\ntime.sleep(60)";
    let mut job = job(dir.path(), &["python3", "-c", code, "bomb-7f3a"]);
    job.timeout_ms = 3_000;
    let output = sandbox().run(job).await.unwrap();
    // Forks fail; where the kernel does not limit them, the watch kills.
    assert!(output.code.is_none(), "{output:?}");
    assert!(all_gone("bomb-7f3a").await);
}

#[tokio::test]
async fn a_huge_file_is_refused_while_it_is_written() {
    let dir = folder();
    let code = "
f = open('big', 'wb')
try:
    f.truncate(1 << 40)
except OSError as e:
    print(e.strerror)";
    let output = python(dir.path(), code).await;
    assert_eq!(output.stdout, "File too large\n", "{output:?}");
}

#[tokio::test]
async fn outputs_are_capped_at_both_ends_and_a_flood_does_not_block() {
    let dir = folder();
    let output = python(dir.path(), "print('begin'); print('x' * 5_000_000); print('end')").await;
    assert_eq!((output.code, output.truncated), (Some(0), true));
    assert!(output.stdout.starts_with("begin\n") && output.stdout.ends_with("end\n"));
    assert!(output.stdout.len() < 10_100);
}

#[tokio::test]
async fn after_the_timeout_the_whole_tree_is_dead_and_what_was_said_is_kept() {
    let dir = folder();
    let code = "import subprocess, time\nprint('before', flush=True)\n\
                subprocess.Popen(['setsid', 'sleep', '987654321'])\ntime.sleep(987654321)";
    let mut job = job(dir.path(), &["python3", "-c", code]);
    job.timeout_ms = 1_000;
    let output = sandbox().run(job).await.unwrap();
    assert_eq!((output.code, output.timed_out, output.stdout.as_str()), (None, true, "before\n"));
    assert!(all_gone("987654321").await);
}

#[tokio::test]
async fn a_dropped_run_and_a_dropped_child_leave_nothing_behind() {
    let dir = folder();
    let sandbox = sandbox();
    let sleep = job(dir.path(), &["sleep", "987654322"]);
    let run = tokio::time::timeout(Duration::from_millis(300), sandbox.run(sleep.clone())).await;
    assert!(run.is_err());
    assert!(all_gone("987654322").await);
    let child = sandbox.start(&sleep).await.unwrap();
    assert!(running("987654322") > 0);
    drop(child);
    assert!(all_gone("987654322").await);
    // At any moment of its start.
    for ms in (0..40).step_by(2) {
        let cut = tokio::time::timeout(Duration::from_millis(ms), sandbox.start(&sleep)).await;
        drop(cut);
    }
    assert!(all_gone("987654322").await);
}

/// Bubblewrap's first process may get to tie itself to the outer one only after the program runs.
#[tokio::test]
async fn a_child_that_is_dropped_as_soon_as_it_is_there_leaves_nothing_behind() {
    let dir = folder();
    let sandbox = sandbox();
    let sleep = job(dir.path(), &["sleep", "987654325"]);
    for _ in 0..40 {
        drop(sandbox.start(&sleep).await.unwrap());
    }
    assert!(all_gone("987654325").await);
}

#[tokio::test]
async fn background_processes_end_with_the_program() {
    let dir = folder();
    let script = "setsid sleep 987654323 >/dev/null 2>&1 & echo started";
    let output = sandbox().run(job(dir.path(), &["sh", "-c", script])).await.unwrap();
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "started\n"));
    assert!(all_gone("987654323").await);
}

#[tokio::test]
async fn closed_outputs_do_not_end_the_watch() {
    let dir = folder();
    let mut job = job(dir.path(), &["sh", "-c", "exec >&- 2>&-; exec sleep 987654324"]);
    job.timeout_ms = 500;
    assert!(sandbox().run(job).await.unwrap().timed_out);
}

#[tokio::test]
async fn i7_a_sandbox_that_cannot_be_set_up_is_broken_not_a_result() {
    let dir = folder();
    let gone = job(&dir.path().join("gone"), &["true"]);
    assert!(matches!(sandbox().run(gone).await, Err(SandboxError::Broken(_))));
    let mut broken = sandbox();
    for layout in std::iter::once(&mut broken.layout).chain(&mut broken.as_other) {
        Arc::make_mut(layout).read_only.push("/nonexistent/prefix".into());
    }
    let error = broken.run(job(dir.path(), &["true"])).await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent/prefix"), "{error}");
    assert!(matches!(sandbox().run(job(dir.path(), &[])).await, Err(SandboxError::Job(_))));
    let output = sandbox().run(job(dir.path(), &["no-such-program"])).await.unwrap();
    assert_eq!(output.code, Some(127));
}

#[tokio::test]
async fn nested_namespaces_and_set_user_id_programs_give_nothing() {
    let dir = folder();
    let script =
        "unshare -U true 2>/dev/null && echo NESTED; cat /proc/self/status | grep -E 'CapEff|NoNewPrivs'";
    let output = sandbox().run(job(dir.path(), &["sh", "-c", script])).await.unwrap();
    assert_eq!(output.stdout, "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n", "{output:?}");
}

#[tokio::test]
async fn system_calls_that_lead_out_are_refused() {
    let dir = folder();
    let code = "
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    ctypes.set_errno(0)
    libc.syscall(*a)
    return errno.errorcode.get(ctypes.get_errno())
try:
    socket.socket(40, socket.SOCK_STREAM)
    print('VSOCK')
except OSError as e:
    print(errno.errorcode[e.errno])
print(call(425, 8, ctypes.create_string_buffer(120)))
try:
    os.unshare(0x10000000) if hasattr(os, 'unshare') else print(call(272, 0x10000000))
except OSError as e:
    print(errno.errorcode[e.errno])
import threading
t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
import subprocess
print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout, end='')
print(os.nice(0), open('/proc/self/oom_score_adj').read(), end='')";
    let output = python(dir.path(), code).await;
    // It yields to whoever started it, however that one is ranked itself.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let own: i32 = stat.rsplit(") ").next().unwrap().split(' ').nth(16).unwrap().parse().unwrap();
    let nice = (own + 10).min(19);
    let want = format!("EAFNOSUPPORT\nEPERM\nEPERM\nthread\nchild\n{nice} 500\n");
    assert_eq!(output.stdout, want, "{output:?}");
}

/// Of root's processes the kernel limits none: under root they are another user's, and so are their files, which
/// root reads and both write.
#[tokio::test]
async fn of_a_worker_that_is_root_code_runs_as_another_user() {
    use std::os::unix::fs::MetadataExt;
    let dir = folder();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(dir.path().join("data/given"), "by the worker").unwrap();
    let code = "
import os, time
open('data/given', 'a').write(', then by the code')
open('made', 'w').write('x')
os.chmod('made', 0o600)
n = 0
try:
    for n in range(200):
        if os.fork() == 0:
            time.sleep(60)
except OSError as e:
    print(type(e).__name__, n < 40)";
    let output = python(dir.path(), code).await;
    assert_eq!(
        output.stdout, "BlockingIOError True\n",
        "the kernel refuses, nobody has to watch: {output:?}"
    );
    let given = std::fs::read_to_string(dir.path().join("data/given")).unwrap();
    assert_eq!(given, "by the worker, then by the code");
    assert_eq!(std::fs::read_to_string(dir.path().join("made")).unwrap(), "x");
    let (own, made) = (nix::unistd::geteuid(), std::fs::metadata(dir.path().join("made")).unwrap().uid());
    let want = if own.is_root() { user::NOBODY } else { own.as_raw() };
    assert_eq!(made, want);
    // A second job of the same folder goes on with the files of the first.
    let output = python(dir.path(), "open('made', 'a').write('y'); print(open('made').read())").await;
    assert_eq!(output.stdout, "xy\n", "{output:?}");
}

/// Workers do not run as root: the same again as another user, in a process of its own.
#[test]
fn it_holds_for_another_user_too() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = folder();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = std::process::Command::new(program);
    command
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .args(["--test-threads", "1"]);
    for name in [
        "i12_no_network",
        "nothing_else_of_the_host",
        "a_fork_bomb",
        "system_calls",
        "a_program_reads",
        "of_a_worker_that_is_root",
    ] {
        command.arg(format!("sandbox::tests::{name}"));
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("6 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The threads that started a sandbox may end; the sandbox must not.
#[test]
fn a_sandbox_outlives_the_thread_that_asked_for_it() {
    let dir = folder();
    let sandbox = sandbox();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    let job = job(dir.path(), &["sh", "-c", "read line; echo $line"]);
    let asks = move || handle.block_on(sandbox.start(&job)).unwrap();
    let mut child = std::thread::spawn(asks).join().unwrap();
    runtime.block_on(async {
        child.stdin.take().unwrap().write_all(b"still here\n").await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.stdout, b"still here\n");
    });
}
