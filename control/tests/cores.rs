//! Where the threads of a real plane run: what it is told, what it is allowed, and what becomes of it when that changes.
//!
//! madplaned belongs to another crate; without it beside madctl these tests say so and pass.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use madplane_client::{AgentSpec, Envelope, MadMessage, PlanePaths, RawSession, kind};
use madplane_shm::process::lock;
use madplane_wire::smp::attr;
use madplane_wire::{Mad, MadMut, SmpMut, mad};
use serde_json::Value;
use support::cpuset::Cpuset;
use support::{Bed, NAME, PATIENCE, Running, eventually, ok, present};

const FABRIC: [&str; 4] = ["up", "--fabric", "builtin:ring,switches=4,hosts=2", "--no-huge"];

fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Two cores, or a word why not: the lowest, and the one that a worker takes.
fn two_cores() -> Option<(usize, usize)> {
    let cores = allowed();
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    present("second core", first != last, "a plane on one core has nowhere to go").then_some((first, last))
}

/// What the kernel lets each thread of a process run on, by the name of the thread.
fn masks(pid: u32) -> BTreeMap<String, String> {
    let mut masks = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        masks.insert(field("Name:"), field("Cpus_allowed_list:"));
    }
    masks
}

struct Seen {
    cpu: Value,
    mode: Value,
    shares: Value,
}

impl Seen {
    fn of(bed: &Bed) -> Self {
        let shown = ok(&bed.madctl(&["mode", "show", "--format", "json"]));
        let worker = serde_json::from_str::<Value>(&shown).unwrap()["workers"][0].clone();
        let field = |name: &str| worker[name].clone();
        Self { cpu: field("cpu"), mode: field("mode"), shares: field("shares_core") }
    }

    fn is_alone_on(&self, core: usize) -> bool {
        self.cpu == core && self.mode == "polling" && self.shares == false
    }

    fn shares(&self) -> bool {
        self.cpu.is_null() && self.mode == "interrupt" && self.shares == true
    }
}

fn plane_pid(bed: &Bed) -> u32 {
    lock::holder(&bed.run_file("madplaned.lock")).unwrap().unwrap().pid
}

/// Who claims a core among the planes of this test.
fn claims(bed: &Bed, core: usize) -> Option<u32> {
    let file = bed.root().join("run").join(format!("core-{core}.lock"));
    lock::holder(&file).unwrap().map(|holder| holder.pid)
}

/// A client that asks without pause, and misses no answer.
struct Asking {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: JoinHandle<u64>,
}

impl Asking {
    fn start(bed: &Bed) -> Self {
        let paths = PlanePaths::under(&bed.root(), NAME).unwrap();
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, count) = (stop.clone(), answered.clone());
        let thread = std::thread::spawn(move || ask(&paths, &ends, &count));
        Self { stop, answered, thread }
    }

    /// Waits until it has been answered once more than a little.
    fn goes_on(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        eventually("answers keep coming", || self.answered.load(Ordering::Relaxed) > before + 1_000);
    }

    /// Ends it; how many requests it sent and how many answers it has.
    fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.thread.join().unwrap();
        (sent, self.answered.load(Ordering::Relaxed))
    }
}

/// Asks the own node, eight requests on their way, each answer the next; returns how often.
fn ask(paths: &PlanePaths, stop: &AtomicBool, answered: &AtomicU64) -> u64 {
    let mut session = RawSession::open(paths, "", 0).unwrap();
    let spec = AgentSpec { mgmt_class: mad::CLASS_SUBN_DIRECTED, class_version: 1, ..AgentSpec::default() };
    let hi_tid = session.register(&spec).unwrap();
    let envelope = Envelope {
        kind: kind::MAD,
        agent: hi_tid,
        slid: 0xFFFF,
        dlid: 0xFFFF,
        length: 256,
        ..Envelope::default()
    };
    let mut request = MadMessage { envelope, ..MadMessage::default() };
    SmpMut::new(&mut request.mad).init_directed(mad::METHOD_GET, attr::NODE_INFO, 0, 0, &[]);
    let mut answer = MadMessage::default();
    let (mut sent, mut got) = (0_u64, 0_u64);
    let mut since = Instant::now();
    while !(stop.load(Ordering::Relaxed) && got == sent) {
        while sent - got < 8 && !stop.load(Ordering::Relaxed) {
            MadMut::new(&mut request.mad).set_tid(sent);
            session.send(&request).unwrap();
            sent += 1;
        }
        if session.try_recv(&mut answer) {
            let mad = Mad::new(&answer.mad);
            assert_eq!((mad.is_response(), mad.tid() & 0xffff_ffff), (true, got & 0xffff_ffff));
            got += 1;
            answered.store(got, Ordering::Relaxed);
            since = Instant::now();
        } else {
            assert!(since.elapsed() < PATIENCE, "answer {got} of {sent} is missing");
            std::thread::yield_now();
        }
    }
    sent
}

#[test]
fn a_worker_follows_its_cpuset_and_loses_nothing_meanwhile() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let (Some((first, own)), Some(cpuset)) = (two_cores(), Cpuset::new()) else { return };
    cpuset.set(&[first, own]);
    let _running = Running(&bed);
    ok(&bed.madctl(&FABRIC));
    let pid = plane_pid(&bed);
    let client = Asking::start(&bed);
    let is_home = || {
        Seen::of(&bed).is_alone_on(own)
            && claims(&bed, own) == Some(pid)
            && masks(pid)["madplane-w0"] == own.to_string()
    };
    assert!(is_home());
    cpuset.take(pid);
    client.goes_on();
    assert!(is_home(), "a cpuset with all cores changes nothing");
    for round in 0..3 {
        // to the other core, and to its own: on a single one nobody polls
        for left in [first, own] {
            cpuset.set(&[left]);
            eventually("the worker shares what is left", || Seen::of(&bed).shares());
            eventually("its lock goes with the core", || claims(&bed, own).is_none());
            let masks = masks(pid);
            assert!(masks.values().all(|mask| *mask == left.to_string()), "{round}: {masks:?}");
            client.goes_on();
            cpuset.set(&[first, own]);
            eventually("the worker is back", is_home);
            eventually("housekeeping leaves it alone", || {
                masks_of_others(pid).iter().all(|mask| *mask != own.to_string())
            });
            client.goes_on();
        }
    }
    let (sent, answered) = client.end();
    assert_eq!(sent, answered);
    assert_eq!(drops(&bed), 0);
}

/// Masks of all threads that are no workers.
fn masks_of_others(pid: u32) -> Vec<String> {
    masks(pid).into_iter().filter(|(name, _)| !name.starts_with("madplane-w")).map(|(_, mask)| mask).collect()
}

/// MADs dropped by all workers, whatever the reason.
fn drops(bed: &Bed) -> u64 {
    let status = madplane_shm::status::Status::open(&bed.status_file()).unwrap();
    status.worker(0).drops.iter().map(|word| word.load(madplane_shm::sync::Ordering::Relaxed)).sum()
}

/// `madctl up` on some cores only, as srun and systemd do it too; what it printed.
fn up_within(bed: &Bed, cores: &str, further: &[&str]) -> Option<String> {
    let mut command = bed.program("taskset");
    command.args(["-c", cores, env!("CARGO_BIN_EXE_madctl"), "--name", NAME]).args(FABRIC).args(further);
    let started = command.output();
    present("taskset", started.is_ok(), "it is in util-linux").then(|| ok(&started.unwrap()))
}

#[test]
fn a_worker_has_its_core_to_itself_and_nobody_else_has_its_mask() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let Some((_, own)) = two_cores() else { return };
    let _running = Running(&bed);
    ok(&bed.madctl(&FABRIC));
    let pid = plane_pid(&bed);
    let masks = masks(pid);
    assert_eq!(masks["madplane-w0"], own.to_string());
    for mask in masks_of_others(pid) {
        let others: Vec<usize> = madplane_cores(&mask);
        assert!(!others.is_empty() && !others.contains(&own), "{masks:?}");
    }
    let control = lock::holder(&bed.run_file("madctld.lock")).unwrap().unwrap().pid;
    assert_eq!(masks_of_others(control), [ranges(&allowed())], "madctld goes where it likes");
    assert_eq!(claims(&bed, own), Some(pid));
    let slack = std::fs::read_to_string(format!("/proc/{}/timerslack_ns", worker_thread(&bed)));
    assert_eq!(slack.unwrap().trim(), "1000");
}

/// The list that the kernel writes, as numbers.
fn madplane_cores(list: &str) -> Vec<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(part).collect()
}

/// Numbers as the kernel writes a list.
fn ranges(cores: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => parts.push((*core, *core)),
        }
    }
    let part = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

fn worker_thread(bed: &Bed) -> u32 {
    let status = madplane_shm::status::Status::open(&bed.status_file()).unwrap();
    status.worker(0).thread.load(madplane_shm::sync::Ordering::Relaxed)
}

#[test]
fn only_allowed_cores_are_used_whoever_restricted_them() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let Some((first, own)) = two_cores() else { return };
    let _running = Running(&bed);
    for only in [first, own] {
        let Some(said) = up_within(&bed, &only.to_string(), &[]) else { return };
        assert_eq!(said.matches("warning:").count(), 1, "{said}");
        let masks = masks(plane_pid(&bed));
        assert!(masks.values().all(|mask| *mask == only.to_string()), "{masks:?}");
        assert!(Seen::of(&bed).shares());
        assert_eq!((claims(&bed, first), claims(&bed, own)), (None, None), "who never polls claims no core");
        ok(&bed.madctl(&["down"]));
    }
    let both = format!("{first},{own}");
    up_within(&bed, &both, &["--cores", &first.to_string()]);
    assert!(Seen::of(&bed).is_alone_on(first), "the one that is named, also if it is the lowest");
}

#[test]
fn workers_that_are_given_every_core_never_poll_in_vain() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let Some((first, own)) = two_cores() else { return };
    let _running = Running(&bed);
    let both = format!("{first},{own}");
    for further in [&["--cores", &both][..], &["--overprovisioned", "--mode", "polling"]] {
        let Some(said) = up_within(&bed, &both, further) else { return };
        assert_eq!(said.matches("warning:").count(), 1, "{said}");
        let seen = Seen::of(&bed);
        assert_eq!((seen.mode, seen.shares), ("interrupt".into(), true.into()), "{further:?}");
        let polls = || {
            let status = madplane_shm::status::Status::open(&bed.status_file()).unwrap();
            let block = status.worker(0);
            let load =
                |word: &madplane_shm::sync::AtomicU64| word.load(madplane_shm::sync::Ordering::Relaxed);
            (load(&block.polls_empty) + load(&block.polls_full), load(&block.slept_ns))
        };
        let before = polls();
        eventually("it sleeps", || polls().1 > before.1 + 300_000_000);
        assert!(
            polls().0 - before.0 < 10_000,
            "one that polls does so a million times: {:?} {before:?}",
            polls()
        );
        ok(&bed.madctl(&["down"]));
    }
}

#[test]
fn a_plane_without_a_core_leaves_those_of_other_planes_alone() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let Some((first, own)) = two_cores() else { return };
    let _running = Running(&bed);
    let both = format!("{first},{own}");
    if up_within(&bed, &both, &[]).is_none() {
        return;
    }
    let other = |arguments: &[&str]| {
        let mut command = bed.program("taskset");
        command.args(["-c", &both, env!("CARGO_BIN_EXE_madctl"), "--name", "other"]).args(arguments);
        ok(&command.output().unwrap())
    };
    assert!(other(&FABRIC).contains("warning: workers have no core of their own"));
    let file = bed.root().join("run/other/madplaned.lock");
    let masks = masks(lock::holder(&file).unwrap().unwrap().pid);
    other(&["down"]);
    assert!(masks.values().all(|mask| *mask == first.to_string()), "{masks:?}");
}

#[test]
fn memory_is_locked_if_that_is_allowed_and_worth_one_line_if_not() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let locked_kib = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", plane_pid(&bed))).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        line.trim().split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let complaints = || {
        let log = std::fs::read_to_string(bed.run_file("madplaned.log")).unwrap();
        log.matches("memory cannot be locked").count()
    };
    ok(&bed.madctl(&FABRIC));
    assert_eq!(complaints(), usize::from(locked_kib() == 0), "said if and only if it is so");
    ok(&bed.madctl(&["down"]));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut without = bed.program("setpriv");
    without.args(["--bounding-set=-ipc_lock", "prlimit", "--memlock=65536"]);
    without.args([env!("CARGO_BIN_EXE_madctl"), "--name", NAME]).args(FABRIC);
    let started = without.output();
    if present("setpriv", started.is_ok(), "it is in util-linux") {
        ok(&started.unwrap());
        assert_eq!((locked_kib(), complaints()), (0, 1));
    }
}
