//! The engine against a real Redis and a folder of blobs: one handler of the test's own each.

use super::*;
use crate::blob::Blobs;
use crate::goal::NewGoal;
use crate::store::{Answered, Submitted, Written};
use crate::ticket::patch::NewTicket;
use crate::ticket::{ReviewPolicy, Status, Ticket, TicketSpec, new_id};
use crate::workspace::{Change, Entry, Manifest, Overlay};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Redis on a socket in its own folder, store, blobs, short periods.
struct Bench {
    _server: Server,
    _folder: tempfile::TempDir,
    store: Store,
    blobs: Blobs,
    redis: config::Redis,
    lease: config::Lease,
    goal: String,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("redis.sock");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"])
            .arg(folder.path())
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the tests need redis-server: apt-get install redis-server, or run tests/run.sh");
        let server = Server(child);
        let redis = config::Redis {
            url: format!("unix://{}", socket.display()),
            allow_no_persistence: true,
            ..config::Redis::default()
        };
        let until = Instant::now() + PATIENCE;
        let store = loop {
            match Store::connect(&redis).await {
                Ok(store) => break store,
                Err(error) => assert!(Instant::now() < until, "redis-server does not answer: {error}"),
            }
        };
        let blobs =
            Blobs::open(&config::Blobs { folder: folder.path().join("blobs"), retention_s: 60 }).unwrap();
        let lease = config::Lease {
            lease_ms: 900,
            renew_ms: 200,
            sweep_ms: 100,
            retry_delay_ms: 10,
            ..config::Lease::default()
        };
        Self { _server: server, _folder: folder, store, blobs, redis, lease, goal: new_id() }
    }

    /// Submits and seals one goal of tickets without needs; returns their ids.
    async fn plan(&self, keys: &[&str]) -> Vec<String> {
        let goal = NewGoal { id: self.goal.clone(), text: "test goal".into(), ..NewGoal::default() };
        assert_eq!(self.store.submit_goal(&goal, 1_000).await.unwrap(), Submitted::New);
        let claim = self.store.manage_claim("m", "lease", 10_000).await.unwrap().unwrap();
        let page: Vec<NewTicket> = keys
            .iter()
            .map(|key| NewTicket {
                id: new_id(),
                parent_id: self.goal.clone(),
                need_ids: vec![],
                spec: TicketSpec { review: ReviewPolicy::None, ..TicketSpec::new(key, "do it", "a file") },
            })
            .collect();
        assert_eq!(self.store.submit_tickets(&claim.held, &page).await.unwrap(), Written::Ok);
        assert_eq!(self.store.seal(&claim.held, page.len()).await.unwrap(), Written::Ok);
        page.into_iter().map(|t| t.id).collect()
    }

    fn options(&self, slots: usize) -> Options {
        Options {
            role: "worker",
            kind: Kind::Work,
            lanes: vec!["work.default".into()],
            slots,
            actor: String::new(),
            tools: vec![],
            sandbox: false,
            drain_ms: 5_000,
            lease: self.lease.clone(),
            redis: self.redis.clone(),
            readiness: readiness(&self.lease),
        }
    }

    /// The engine and a sweeper beside it.
    fn start<H: Handler>(&self, handler: H, options: Options) -> Running {
        let stop = CancellationToken::new();
        let sweeping =
            sweeper::run(self.store.clone(), self.blobs.clone(), self.lease.clone(), 3_600, stop.clone());
        tokio::spawn(sweeping);
        let engine = run(self.store.clone(), self.blobs.clone(), handler, options, stop.clone());
        Running { stop, engine: tokio::spawn(engine) }
    }

    /// Waits until the ticket is as wanted.
    async fn until(&self, id: &str, what: &str, wanted: impl Fn(&Ticket) -> bool) -> Ticket {
        let until = Instant::now() + PATIENCE;
        loop {
            let ticket = self.store.ticket(id).await.unwrap().unwrap();
            if wanted(&ticket) {
                return ticket;
            }
            assert!(Instant::now() < until, "not {what}: {ticket:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn manifest(&self) -> Manifest {
        let root = self.store.goal(&self.goal).await.unwrap().unwrap().root;
        Manifest::load(&self.blobs, &self.goal, &root).await.unwrap()
    }

    /// The overlay of an attempt that wrote one file.
    async fn overlay(blobs: &Blobs, ticket: &Ticket, path: &str, text: &str) -> String {
        let base = Manifest::load(blobs, &ticket.goal, &ticket.base_root).await.unwrap();
        let hash = blobs.put(&ticket.goal, text.to_owned()).await.unwrap();
        let mut overlay = Overlay::new(&ticket.base_root);
        let entry = Entry {
            hash,
            size_bytes: text.len() as u64,
            mime: "text/plain".into(),
            creator: ticket.key.clone(),
            description: String::new(),
            version: 1,
        };
        let base_hash = base.hash(path).map(Into::into);
        overlay.files.insert(path.into(), Change { entry: Some(entry), base_hash });
        overlay.save(blobs, &ticket.goal).await.unwrap()
    }
}

struct Running {
    stop: CancellationToken,
    engine: tokio::task::JoinHandle<Result<(), ConsumerError>>,
}

impl Running {
    async fn end(self) -> Result<(), ConsumerError> {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.engine).await.expect("the engine ends").unwrap()
    }
}

/// A handler from a closure.
struct Does<F>(F);

impl<F, Fut> Handler for Does<F>
where
    F: Fn(Job) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send,
{
    fn handle(&self, job: Job) -> impl Future<Output = Outcome> + Send {
        (self.0)(job)
    }
}

fn done(overlay_ref: String) -> Outcome {
    let report = Report { status: "done".into(), summary: "s".into(), ..Report::default() };
    Outcome::Completed { report, overlay_ref, actor: "test".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i5_attempts_that_end_together_are_all_published() {
    let bench = Bench::new().await;
    let keys: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
    let ids = bench.plan(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let blobs = bench.blobs.clone();
    // Nobody publishes before all have started, so that roots really move under them.
    let gate = Arc::new(tokio::sync::Barrier::new(8));
    let handler = Does(move |job: Job| {
        let (blobs, gate) = (blobs.clone(), Arc::clone(&gate));
        async move {
            let t = &job.claim.ticket;
            let overlay = Bench::overlay(&blobs, t, &format!("outputs/{}.md", t.key), &t.key).await;
            gate.wait().await;
            done(overlay)
        }
    });
    let running = bench.start(handler, bench.options(8));
    for id in &ids {
        let ticket = bench.until(id, "done", |t| t.status == Status::Done).await;
        assert_eq!(ticket.attempts, 1);
    }
    let paths: Vec<String> = bench.manifest().await.files.into_keys().collect();
    assert_eq!(paths, (0..8).map(|n| format!("outputs/t{n}.md")).collect::<Vec<_>>());
    running.end().await.unwrap();
    assert_eq!(bench.store.audit().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_two_attempts_at_one_file_conflict_and_the_second_sees_the_first() {
    let bench = Bench::new().await;
    let ids = bench.plan(&["a", "b"]).await;
    let blobs = bench.blobs.clone();
    let gate = Arc::new(tokio::sync::Barrier::new(2));
    let handler = Does(move |job: Job| {
        let (blobs, gate) = (blobs.clone(), Arc::clone(&gate));
        async move {
            let t = &job.claim.ticket;
            let overlay =
                Bench::overlay(&blobs, t, "outputs/shared.md", &format!("{}{}", t.key, t.attempts)).await;
            if t.attempts == 1 {
                gate.wait().await;
            } else {
                assert!(
                    t.failure.contains("outputs/shared.md was changed by another ticket"),
                    "{}",
                    t.failure
                );
            }
            done(overlay)
        }
    });
    let running = bench.start(handler, bench.options(2));
    let mut conflicts = 0;
    for id in &ids {
        conflicts += bench.until(id, "done", |t| t.status == Status::Done).await.counters.conflicts;
    }
    assert_eq!(conflicts, 1);
    assert_eq!(bench.manifest().await.files["outputs/shared.md"].version, 2);
    running.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q34_a_handler_that_panics_stops_at_its_cap_and_others_flow() {
    let bench = Bench::new().await;
    let ids = bench.plan(&["bad", "good"]).await;
    let handler = Does(|job: Job| async move {
        assert!(job.claim.ticket.key != "bad", "planted");
        done(String::new())
    });
    let running = bench.start(handler, bench.options(1));
    let bad = bench.until(&ids[0], "escalated", |t| t.status == Status::Escalated).await;
    assert_eq!((bad.attempts, bad.counters.faults), (3, 3));
    assert!(bad.failure.contains("panicked") && bad.failure.contains("planted"), "{}", bad.failure);
    bench.until(&ids[1], "done", |t| t.status == Status::Done).await;
    running.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q09_handlers_that_hog_every_thread_do_not_starve_the_renewals() {
    let bench = Bench::new().await;
    let ids = bench.plan(&["a", "b"]).await;
    let burn = Duration::from_millis(bench.lease.lease_ms * 3);
    // Another process sweeps all the while.
    let sweep = (bench.redis.clone(), bench.lease.clone());
    let stop_sweeping = CancellationToken::new();
    let stopped = stop_sweeping.clone();
    let sweeping = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::connect_unchecked(&sweep.0).await.unwrap();
            while !stopped.is_cancelled() {
                store.sweep(&sweep.1).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    });
    let handler = Does(move |_: Job| async move {
        let until = Instant::now() + burn;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        done(String::new())
    });
    let running = bench.start(handler, bench.options(2));
    for id in &ids {
        let ticket = bench.until(id, "done", |t| t.status == Status::Done).await;
        assert_eq!((ticket.attempts, ticket.counters.losses), (1, 0));
    }
    stop_sweeping.cancel();
    sweeping.join().unwrap();
    running.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q13_what_ends_within_the_drain_is_written_and_the_rest_is_given_back() {
    let bench = Bench::new().await;
    let ids = bench.plan(&["quick", "endless", "third"]).await;
    let claimed = Arc::new(Semaphore::new(0));
    let (go, seen) = (CancellationToken::new(), Arc::clone(&claimed));
    let gone = go.clone();
    let handler = Does(move |job: Job| {
        let (gone, seen) = (gone.clone(), Arc::clone(&seen));
        async move {
            seen.add_permits(1);
            if job.claim.ticket.key == "quick" {
                gone.cancelled().await;
                return done(String::new());
            }
            job.stop.cancelled().await;
            Outcome::Failed { class: FailClass::Fault, detail: "cut".into(), delay_ms: None }
        }
    });
    let running = bench.start(handler, Options { drain_ms: 300, ..bench.options(2) });
    let _both = claimed.acquire_many(2).await.unwrap();
    running.stop.cancel();
    go.cancel();
    running.end().await.unwrap();
    let [quick, endless, third] =
        [&ids[0], &ids[1], &ids[2]].map(async |id| bench.store.ticket(id).await.unwrap().unwrap());
    let (quick, endless, third) = (quick.await, endless.await, third.await);
    assert_eq!((quick.status, quick.attempts), (Status::Done, 1));
    assert_eq!((endless.status, endless.counters.releases, endless.counters.faults), (Status::Pending, 1, 0));
    assert_eq!((third.status, third.attempts), (Status::Pending, 0), "no claim after the stop");
    assert!(bench.store.consumers().await.unwrap().is_empty(), "it said goodbye");
    assert_eq!(bench.store.audit().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_ticket_stops_its_handler() {
    let bench = Bench::new().await;
    let ids = bench.plan(&["a"]).await;
    let handler = Does(|job: Job| async move {
        job.stop.cancelled().await;
        Outcome::Released
    });
    let running = bench.start(handler, bench.options(1));
    bench.until(&ids[0], "running", |t| t.status == Status::Running).await;
    assert_eq!(bench.store.cancel_ticket(&ids[0], "person", 10_000).await.unwrap(), Answered::Ok);
    bench.until(&ids[0], "cancelled", |t| t.status == Status::Cancelled).await;
    running.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q18_a_handler_that_never_looks_leaks_its_slot_and_the_process_must_restart() {
    let bench = Bench::new().await;
    let lease = config::Lease { run_limit_ms: 400, ..bench.lease.clone() };
    bench.plan(&["a"]).await;
    let handler = Does(|_: Job| async move {
        // Ignores its stop token for longer than anybody waits.
        tokio::time::sleep(Duration::from_secs(600)).await;
        done(String::new())
    });
    let running = bench.start(handler, Options { lease, ..bench.options(1) });
    let ended = tokio::time::timeout(PATIENCE, running.engine).await.expect("the engine ends").unwrap();
    assert!(matches!(ended, Err(ConsumerError::AllLeaked)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q18_a_leaked_slot_frees_the_goal_and_leaves_the_other_slots_at_work() {
    let bench = Bench::new().await;
    let lease = config::Lease { run_limit_ms: 400, ..bench.lease.clone() };
    let ids = bench.plan(&["a"]).await;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(std::sync::Mutex::new(ended));
    let handler = Does(move |job: Job| {
        let ended = Arc::clone(&ended);
        async move {
            if job.claim.ticket.key == "a" && job.claim.ticket.attempts == 1 {
                // Blocking code that looks at no stop token, until the test lets it go.
                let _ = tokio::task::spawn_blocking(move || ended.lock().unwrap().recv()).await;
            }
            done(String::new())
        }
    });
    let readiness = bench.options(2).readiness;
    let options = Options { lease, readiness: readiness.clone(), ..bench.options(2) };
    let running = bench.start(handler, options);
    // The run limit ends the lease; the other slot does the ticket again meanwhile.
    let ticket = bench.until(&ids[0], "done", |t| t.status == Status::Done).await;
    assert_eq!((ticket.attempts, ticket.counters.losses), (2, 1));
    let goal = bench.store.goal(&bench.goal).await.unwrap().unwrap();
    assert_eq!(goal.counts.get("running").copied().unwrap_or(0), 0, "nothing of it is in flight any more");
    assert_eq!(bench.store.audit().await.unwrap(), []);
    assert!(crate::telemetry::metrics::text().contains("leaked"), "the metric says so");
    assert!(readiness.is_ready(), "one leaked slot of two");
    end.send(()).unwrap();
    running.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q27_a_claim_loop_that_ends_early_ends_the_engine_and_its_readiness() {
    let bench = Bench::new().await;
    let options = bench.options(1);
    let readiness = options.readiness.clone();
    let handler = Does(|_: Job| async { done(String::new()) });
    let engine = Engine::new(bench.store.clone(), bench.blobs.clone(), handler, options);
    let slots = Arc::clone(&engine.slots);
    let stop = CancellationToken::new();
    let running = tokio::spawn(serve(engine, stop.clone()));
    let until = Instant::now() + PATIENCE;
    while !readiness.is_ready() || bench.store.consumers().await.unwrap().is_empty() {
        assert!(Instant::now() < until, "it does not serve");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What the loop waits for is gone: it returns although nobody said stop.
    slots.close();
    let ended = tokio::time::timeout(PATIENCE, running).await.expect("the engine ends").unwrap();
    assert!(matches!(ended, Err(ConsumerError::ClaimLoop(_))), "{ended:?}");
    assert!(!readiness.is_ready() && !stop.is_cancelled());
    assert!(bench.store.consumers().await.unwrap().is_empty(), "it counts as a consumer no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_to_drain_ends_the_consumer() {
    let bench = Bench::new().await;
    let running = bench.start(Does(|_: Job| async { done(String::new()) }), bench.options(1));
    let until = Instant::now() + PATIENCE;
    let consumer = loop {
        if let Some(consumer) = bench.store.consumers().await.unwrap().pop() {
            break consumer;
        }
        assert!(Instant::now() < until, "not published");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((consumer.slots, consumer.state.as_str()), (1, "active"));
    assert!(bench.store.order_consumer(&consumer.id, "draining").await.unwrap());
    let ended = tokio::time::timeout(PATIENCE, running.engine).await.expect("the engine ends").unwrap();
    ended.unwrap();
}

#[tokio::test]
async fn two_folders_are_not_one_fleet() {
    let bench = Bench::new().await;
    check_blobs(&bench.store, &bench.blobs).await.unwrap();
    check_blobs(&bench.store, &bench.blobs).await.unwrap();
    let other = tempfile::tempdir().unwrap();
    let elsewhere = Blobs::open(&config::Blobs { folder: other.path().into(), retention_s: 60 }).unwrap();
    let wrong = check_blobs(&bench.store, &elsewhere).await.unwrap_err();
    assert!(wrong.to_string().contains("blobs.folder"), "{wrong}");
}
