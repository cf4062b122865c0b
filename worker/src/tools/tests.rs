//! Tools over real folders, with real bubblewrap and Python.

use super::*;
use serde_json::json;
use shared::blob::Blobs;
use shared::workspace::{Merged, Overlay, merge};
use std::path::Path;
use std::time::Duration;

const GOAL: &str = "g1";

struct Fixture {
    folder: tempfile::TempDir,
    blobs: Blobs,
    limits: config::Limits,
    worker: config::Worker,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cfg = config::Blobs { folder: folder.path().join("blobs"), ..Default::default() };
        let worker = config::Worker { code_timeout_ms: 20_000, ..Default::default() };
        Self { blobs: Blobs::open(&cfg).unwrap(), folder, limits: config::Limits::default(), worker }
    }

    async fn attempt(&self, root: &str, overlay: &str) -> Attempt {
        let scratch = self.folder.path().join("scratch");
        Attempt::open(&self.blobs, GOAL, root, overlay, &scratch, &self.limits, "measure").await.unwrap()
    }

    async fn tools(&self) -> ToolBox {
        ToolBox::new(
            self.attempt("", "").await,
            Some(Sandbox::probe().unwrap()),
            &self.worker,
            Arc::new(Catalogue::builtin()),
        )
    }
}

async fn code(tools: &mut ToolBox, code: &str) -> ToolResult {
    tools.call("code_interpreter", &json!({"code": code})).await.unwrap()
}

async fn told(tools: &mut ToolBox, name: &str, args: Value) -> String {
    match tools.call(name, &args).await {
        Err(ToolError::Tell(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn put(tools: &ToolBox, path: &str, text: &str) {
    let path = tools.attempt().folder().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Processes whose command line holds the mark.
fn running(mark: &str) -> bool {
    let holds =
        |p: &Path| std::fs::read(p.join("cmdline")).is_ok_and(|b| String::from_utf8_lossy(&b).contains(mark));
    std::fs::read_dir("/proc").unwrap().flatten().any(|p| holds(&p.path()))
}

#[tokio::test]
async fn variables_stay_and_files_become_part_of_the_attempt() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    assert_eq!(code(&mut tools, "x = 20\nimport math").await.text, "(nothing was printed)");
    let result =
        code(&mut tools, "open('outputs/x.txt', 'w').write(str(x + 1))\nprint('ok')\nmath.floor(x * 2.12)")
            .await;
    let want = ToolResult {
        text: "ok\n42\n\n[new or changed files: outputs/x.txt]".into(),
        changed: vec!["outputs/x.txt".into()],
        failed: false,
    };
    assert_eq!(result, want);
    let overlay = tools.attempt_mut().seal().await.unwrap();
    let overlay = Overlay::load(&fixture.blobs, GOAL, &overlay).await.unwrap();
    assert_eq!(overlay.files["outputs/x.txt"].entry.as_ref().unwrap().creator, "measure");
}

#[tokio::test]
async fn an_error_is_an_observation_with_the_codes_own_lines() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    let text = code(&mut tools, "print('before')\ndef f(n):\n    return 1 / n\nf(0)").await.text;
    assert!(text.starts_with("before\nTraceback"), "{text}");
    assert!(
        text.contains("    return 1 / n") && text.ends_with("ZeroDivisionError: division by zero\n"),
        "{text}"
    );
    assert!(!text.contains("driver") && !text.contains("execute"), "{text}");
    let text = code(&mut tools, "if True\n    pass").await.text;
    assert!(text.contains("SyntaxError"), "{text}");
    assert_eq!(code(&mut tools, "f(1)").await.text, "1.0\n");
    assert_eq!(code(&mut tools, "raise SystemExit(3)").await.text, "exit: 3\n");
    assert_eq!(code(&mut tools, "f(2)").await.text, "0.5\n", "an exit keeps the variables");
    assert!(code(&mut tools, "input()").await.text.contains("EOFError"));
}

#[tokio::test]
async fn what_children_print_is_seen_in_order() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    let text = code(
        &mut tools,
        "import os, sys, subprocess\nprint('1')\nos.system('echo 2')\nprint('3', file=sys.stderr)\n\
         _ = subprocess.run(['sh', '-c', 'echo 4 >&2'])",
    )
    .await
    .text;
    assert_eq!(text, "1\n2\n3\n4\n");
}

#[tokio::test]
async fn after_a_timeout_python_starts_anew_and_the_model_is_told() {
    let mut fixture = Fixture::new();
    fixture.worker.code_timeout_ms = 1_500;
    let mut tools = fixture.tools().await;
    code(&mut tools, "x = 1").await;
    let stuck = "open('outputs/part', 'w').write('p')\nprint('so far', flush=True)\n\
                 import subprocess, time\nsubprocess.Popen(['sleep', '97531'])\ntime.sleep(97531)";
    let result = code(&mut tools, stuck).await;
    assert!(
        result.text.starts_with("so far\n") && result.text.contains("stopped after 1 s"),
        "{}",
        result.text
    );
    assert!(result.text.contains("all variables are gone"), "{}", result.text);
    assert_eq!(result.changed, ["outputs/part"]);
    while running("97531") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(code(&mut tools, "print('x' in globals())").await.text.starts_with("False"));
}

#[tokio::test]
async fn a_python_that_dies_or_takes_too_much_is_replaced() {
    let mut fixture = Fixture::new();
    fixture.worker.code_memory_bytes_max = 512 * 1024 * 1024;
    let mut tools = fixture.tools().await;
    let text = code(&mut tools, "import os\nprint('last words', flush=True)\nos._exit(7)").await.text;
    assert!(text.starts_with("last words\n") && text.contains("Python ended with code 7"), "{text}");
    let text = code(&mut tools, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)").await.text;
    assert!(text.contains("killed by signal 11"), "{text}");
    let text = code(&mut tools, "x = bytearray(2 * 1024**3)").await.text;
    assert!(text.contains("MemoryError"), "{text}");
    let grow = "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        x = bytearray(200 * 1024**2)\n\
                \x20       for i in range(0, len(x), 4096): x[i] = 1\n        time.sleep(60)\ntime.sleep(60)";
    let text = code(&mut tools, grow).await.text;
    assert!(text.contains("more than 536870912 bytes of memory"), "{text}");
    let text = code(&mut tools, "import os\nos.close(1); os.close(2); print('unseen')").await.text;
    assert!(!text.contains("gone"), "{text}");
    assert_eq!(code(&mut tools, "y = 3").await.text, "(nothing was printed)");
}

#[tokio::test]
async fn a_fork_that_runs_to_the_end_does_not_answer_for_its_parent() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    let text = code(
        &mut tools,
        "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('p' if pid else 'c')",
    )
    .await
    .text;
    assert_eq!(text, "c\np\n");
    assert_eq!(code(&mut tools, "print(1)").await.text, "1\n");
}

#[tokio::test]
async fn c8_a_flood_is_spilled_and_head_and_tail_stay() {
    let mut fixture = Fixture::new();
    fixture.worker.tool_output_bytes_max = 2_000;
    let mut tools = fixture.tools().await;
    let result = code(&mut tools, "print('begin'); print('x' * 100_000); print('end')").await;
    assert!(
        result.text.len() < 2_200 && result.text.starts_with("begin\n") && result.text.ends_with("end\n")
    );
    assert!(result.text.contains("the whole is in temp/code_interpreter-1.txt"), "{}", result.text);
    assert!(result.changed.is_empty(), "temp is not part of the attempt");
    let path = tools.attempt().folder().join("temp/code_interpreter-1.txt");
    assert_eq!(std::fs::metadata(path).unwrap().len(), 100_001 + 10);
    let result = code(&mut tools, "print('x' * 30_000_000)").await;
    assert!(result.text.len() < 2_200);
    let part = tools.call("read_file", &json!({"path": "temp/code_interpreter-1.txt"})).await.unwrap().text;
    assert!(part.ends_with("[bytes 0 to 2000 of 100011; go on with offset_bytes 2000]"), "{part}");
}

#[tokio::test]
async fn what_python_plants_is_not_followed_and_the_model_hears_of_it() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    let secret = fixture.folder.path().join("secret");
    std::fs::write(&secret, "s3cret").unwrap();
    let plant = format!(
        "import os, socket\nos.symlink({secret:?}, 'outputs/link')\nos.symlink('/etc', 'outputs/etc')\n\
         os.mkfifo('outputs/fifo')\nopen('outputs/one', 'w').write('1')\nos.link('outputs/one', 'outputs/two')\n\
         with open('outputs/huge', 'wb') as f:\n    try: f.truncate(1 << 40)\n    except OSError as e: print(e.strerror)\n\
         try: os.mknod('outputs/null', 0o666 | 0o020000, os.makedev(1, 3))\nexcept OSError as e: print(e.strerror)"
    );
    let result = code(&mut tools, &plant).await;
    assert_eq!(result.changed, ["outputs/huge"], "{}", result.text);
    assert!(result.text.starts_with("File too large\nOperation not permitted\n"), "{}", result.text);
    for part in [
        "[not taken: outputs/link is a symbolic link]",
        "[not taken: outputs/etc is a symbolic link]",
        "[not taken: outputs/fifo is a FIFO]",
        "[not taken: outputs/one is a hard link]",
    ] {
        assert!(result.text.contains(part), "{part}: {}", result.text);
    }
    assert!(told(&mut tools, "read_file", json!({"path": "outputs/link"})).await.contains("symbolic link"));
    assert!(
        told(&mut tools, "read_file", json!({"path": "outputs/etc/passwd"})).await.contains("beneath a link")
    );
    assert!(
        told(&mut tools, "append_file", json!({"path": "outputs/fifo", "content": "x"}))
            .await
            .contains("FIFO")
    );
    let overlay = tools.attempt_mut().seal().await.unwrap();
    let overlay = Overlay::load(&fixture.blobs, GOAL, &overlay).await.unwrap();
    assert_eq!(overlay.files.keys().collect::<Vec<_>>(), ["outputs/huge"]);
    assert_eq!(overlay.files["outputs/huge"].entry.as_ref().unwrap().size_bytes, 0);
}

#[tokio::test]
async fn i7_without_a_sandbox_there_is_no_code_tool_and_a_broken_one_fails_the_attempt() {
    let fixture = Fixture::new();
    let mut tools =
        ToolBox::new(fixture.attempt("", "").await, None, &fixture.worker, Arc::new(Catalogue::builtin()));
    let names = |tools: &ToolBox| -> Vec<String> {
        tools.declarations(&["code".into(), "files".into()]).into_iter().map(|t| t.name).collect()
    };
    let without =
        ["append_file", "finish", "list_files", "read_file", "search_files", "update_progress", "write_file"];
    assert_eq!(names(&tools), without);
    assert!(told(&mut tools, "code_interpreter", json!({"code": "1"})).await.contains("no sandbox"));
    let mut tools = fixture.tools().await;
    assert!(names(&tools).contains(&"code_interpreter".into()));
    std::fs::remove_dir_all(tools.attempt().folder()).unwrap();
    let broken = tools.call("code_interpreter", &json!({"code": "1"})).await;
    assert!(matches!(broken, Err(ToolError::Broken(_))), "{broken:?}");
}

#[tokio::test]
async fn the_description_names_the_python_and_its_libraries() {
    let fixture = Fixture::new();
    let tools = fixture.tools().await;
    let decls = tools.declarations(&["code".into()]);
    let decl = tool::find(&decls, "code_interpreter").unwrap();
    assert!(
        decl.description.contains(" Python 3.") && decl.description.contains("At most 20 s a call"),
        "{decl:?}"
    );
    assert_eq!(
        decls.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["code_interpreter", "finish", "update_progress"]
    );
}

/// A stand-in for matplotlib in the workspace: the real one may not be installed.
#[tokio::test]
async fn figures_that_the_code_did_not_save_are_saved_under_the_tickets_name() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    put(&tools, "matplotlib/__init__.py", "");
    put(
        &tools,
        "matplotlib/figure.py",
        "class Figure:\n    def savefig(self, where):\n        open(where, 'wb').write(b'PNG')\n",
    );
    put(
        &tools,
        "matplotlib/pyplot.py",
        "from matplotlib.figure import Figure\nfigs = {}\ndef figure(n=None):\n    n = n or len(figs) + 1\n\
         \x20   return figs.setdefault(n, Figure())\ndef get_fignums(): return list(figs)\ndef close(_): figs.clear()\n",
    );
    let result = code(
        &mut tools,
        "import matplotlib.pyplot as plt\na = plt.figure(); b = plt.figure()\na.savefig('outputs/mine.png')\nprint('plotted')",
    )
    .await;
    assert!(result.text.contains("[figures saved: outputs/measure-figure-1-1.png]"), "{}", result.text);
    for path in ["outputs/mine.png", "outputs/measure-figure-1-1.png"] {
        assert!(result.changed.contains(&path.into()), "{:?}", result.changed);
    }
    let result = code(&mut tools, "plt.get_fignums()").await;
    assert_eq!(result.text, "[]\n");
}

#[tokio::test]
async fn figures_of_the_real_matplotlib_are_saved_if_it_is_there() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    let sandbox = Sandbox::probe().unwrap();
    if !sandbox.python().unwrap().libraries.contains(&"matplotlib".into()) {
        return;
    }
    let plot = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()\n\
                plt.figure(); plt.bar([1], [2]); plt.savefig('outputs/bar.png')";
    let result = code(&mut tools, plot).await;
    assert_eq!(result.changed, ["outputs/bar.png", "outputs/measure-figure-1-1.png"], "{}", result.text);
    assert!(!result.text.contains("Warning"), "{}", result.text);
    let png = tools.attempt().read("outputs/measure-figure-1-1.png", 1_000_000).await.unwrap();
    assert!(png.starts_with(b"\x89PNG"));
}

#[tokio::test]
async fn files_are_written_appended_read_in_parts_and_listed() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    let result = tools
        .call("write_file", &json!({"path": "/workspace/outputs/a.md", "content": "héllo"}))
        .await
        .unwrap();
    assert_eq!(result.text, "wrote 6 bytes to outputs/a.md\n[new or changed files: outputs/a.md]");
    assert_eq!(result.changed, ["outputs/a.md"]);
    let result =
        tools.call("append_file", &json!({"path": "outputs/a.md", "content": " world"})).await.unwrap();
    assert!(result.text.starts_with("appended 6 bytes to outputs/a.md, which has 12 now"), "{}", result.text);
    let read = |offset: u64| json!({"path": "outputs/a.md", "offset_bytes": offset, "limit_bytes": 4});
    assert_eq!(
        tools.call("read_file", &read(0)).await.unwrap().text,
        "hél\n[bytes 0 to 4 of 12; go on with offset_bytes 4]"
    );
    assert_eq!(tools.call("read_file", &read(8)).await.unwrap().text, "orld\n[bytes 8 to 12 of 12]");
    assert!(told(&mut tools, "read_file", read(12)).await.contains("has 12 bytes"));
    tools.call("write_file", &json!({"path": "temp/t", "content": ""})).await.unwrap();
    assert_eq!(
        tools.call("list_files", &json!(null)).await.unwrap().text,
        "outputs/a.md (12 bytes)\ntemp/t (0 bytes)"
    );
    assert_eq!(tools.call("list_files", &json!({"prefix": "temp/"})).await.unwrap().text, "temp/t (0 bytes)");
    assert_eq!(
        tools.call("read_file", &json!({"path": "temp/t"})).await.unwrap().text,
        "[`temp/t` is empty]"
    );
    assert!(
        told(&mut tools, "read_file", json!({"path": "outputs/b.md"}))
            .await
            .contains("there are outputs/a.md")
    );
    for path in ["../x", "/etc/passwd", "TODO.md", ".git/hooks/x"] {
        told(&mut tools, "write_file", json!({"path": path, "content": "x"})).await;
    }
    assert!(told(&mut tools, "read_file", json!({"path": "/etc/passwd"})).await.contains("relative"));
    assert!(told(&mut tools, "web_search", json!({})).await.contains("no tool `web_search`"));
    assert!(told(&mut tools, "read_file", json!({"path": 3})).await.contains("`path`"));
    put(&tools, "data/x.png", "\u{89}PNG\0");
    assert!(told(&mut tools, "read_file", json!({"path": "data/x.png"})).await.contains("image/png"));
}

#[tokio::test]
async fn an_image_that_is_read_is_shown_within_the_caps() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    let image = |path: &str, bytes: usize| {
        let file = tools.attempt().folder().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, [b"\x89PNG\r\n\x1a\n".as_slice(), &vec![0; bytes]].concat()).unwrap();
    };
    for (path, bytes) in [("data/a.png", 10), ("data/b.png", 10), ("data/huge.png", 5_000)] {
        image(path, bytes);
    }
    put(&tools, "data/fake.png", "no image at all");
    // A direct call shows nobody anything.
    assert!(told(&mut tools, "read_file", json!({"path": "data/a.png"})).await.contains("not a text file"));
    tools.show_images(1, 1_000);
    let read = async |tools: &mut ToolBox, path: &str| {
        tools.call("read_file", &json!({"path": path})).await.unwrap().text
    };
    assert!(read(&mut tools, "/workspace/data/a.png").await.contains("shown below"));
    assert!(read(&mut tools, "data/b.png").await.contains("no more images"));
    assert!(read(&mut tools, "data/huge.png").await.contains("too large to be shown (at most 1000)"));
    assert_eq!(read(&mut tools, "data/fake.png").await, "no image at all");
    let shown: Vec<String> = tools.take_images().into_iter().map(|i| i.path).collect();
    assert_eq!(shown, ["data/a.png"]);
    assert!(tools.take_images().is_empty());
}

#[tokio::test]
async fn a_call_that_is_cut_loses_pythons_variables_but_nothing_else() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    code(&mut tools, "x = 1").await;
    let args = json!({"code": "import time; time.sleep(86420)"});
    assert!(
        tokio::time::timeout(Duration::from_millis(200), tools.call("code_interpreter", &args))
            .await
            .is_err()
    );
    assert_eq!(code(&mut tools, "print('x' in globals())").await.text, "False\n");
}

#[tokio::test]
async fn i11_the_model_hears_when_its_files_are_too_many_to_deliver() {
    let mut fixture = Fixture::new();
    fixture.limits.attempt_files_max = 2;
    let mut tools = fixture.tools().await;
    let text = code(&mut tools, "for n in range(3): open(f'outputs/{n}', 'w').write('x')").await.text;
    assert!(text.contains("holds 3 changed files, 2 are allowed"), "{text}");
    assert!(tools.attempt_mut().seal().await.is_err());
}

#[tokio::test]
async fn another_worker_goes_on_with_the_files_and_is_told_that_variables_are_gone() {
    let fixture = Fixture::new();
    let mut first = fixture.tools().await;
    code(&mut first, "x = 1\nopen('outputs/draft', 'w').write('d')").await;
    let overlay = first.attempt_mut().seal().await.unwrap();
    drop(first);
    let mut second = ToolBox::new(
        fixture.attempt("", &overlay).await,
        Some(Sandbox::probe().unwrap()),
        &fixture.worker,
        Arc::new(Catalogue::builtin()),
    );
    second.resumed();
    let text = code(&mut second, "print(open('outputs/draft').read())").await.text;
    assert_eq!(text, "[Python was started anew: variables of before are gone, files are there]\nd\n");
    assert_eq!(code(&mut second, "print(2)").await.text, "2\n");
    let overlay = second.attempt_mut().seal().await.unwrap();
    assert!(
        matches!(merge(&fixture.blobs, GOAL, "", &overlay).await, Ok(Merged::Root(root)) if !root.is_empty())
    );
}

#[tokio::test]
async fn files_are_searched_for_a_text_or_a_pattern_within_limits() {
    let fixture = Fixture::new();
    let mut tools = fixture.tools().await;
    put(&tools, "data/a.csv", "office,desks\nBerlin,12\nbErlin (old),3\n");
    put(&tools, "notes.md", &format!("{}Berlin{}\n", "x".repeat(2_000), "y".repeat(2_000)));
    put(&tools, "data/pic.png", "\0Berlin");
    put(&tools, "data/many.txt", &"row\n".repeat(1_000));
    let mut find = async |args: Value| tools.call("search_files", &args).await.map(|r| r.text);
    assert_eq!(
        find(json!({"pattern": "Berlin", "prefix": "data/"})).await.unwrap(),
        "data/a.csv:2: Berlin,12"
    );
    let any =
        find(json!({"pattern": "BERLIN", "ignore_case": true, "prefix": "/workspace/data"})).await.unwrap();
    assert_eq!(any, "data/a.csv:2: Berlin,12\ndata/a.csv:3: bErlin (old),3");
    let exact = find(json!({"pattern": "(old)"})).await.unwrap();
    assert_eq!(exact, "data/a.csv:3: bErlin (old),3", "a plain text is no pattern");
    let by_pattern = find(json!({"pattern": r"^\w+,\d+$", "regex": true})).await.unwrap();
    assert_eq!(by_pattern, "data/a.csv:2: Berlin,12");
    let long = find(json!({"pattern": "Berlin", "prefix": "notes"})).await.unwrap();
    assert!(long.starts_with("notes.md:1: …xxx") && long.contains("Berlin") && long.len() < 400, "{long}");
    assert!(
        find(json!({"pattern": "row"}))
            .await
            .unwrap()
            .ends_with("[800 more lines: narrow the pattern or give a prefix]")
    );
    assert_eq!(find(json!({"pattern": "nowhere"})).await.unwrap(), "no line holds it");
    for bad in ["(", r"(\w{1000}){1000}"] {
        assert!(
            matches!(find(json!({"pattern": bad, "regex": true})).await, Err(ToolError::Tell(_))),
            "{bad}"
        );
    }
}
