//! The verbs port on real devices: 10^5 MADs each way, both strategies, the kernel's agent as the other end, and what an
//! operator is told when a device cannot be used.
//!
//! Needs the soft-RoCE devices of scripts/rxe-vm and the feature `verbs`; skipped elsewhere.
#![cfg(feature = "verbs")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they saw and why they are skipped"
)]

mod kept;
mod support;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kept::{Change, DevicePort};
use madplane_port::datagram::{Carrier, Datagrams, MAX_FRAME};
use madplane_port::device::{Backend, Unavailable, devices};
use madplane_port::umad_dev::AgentSpec;
use madplane_port::umad_dev::port::UmadPort;
use madplane_port::verbs::mad_port::answer;
use madplane_port::verbs::{MadPort, Moderation, QueueSettings, UdDatagrams};
use madplane_port::{MadMessage, MadRx, MadTx};
use madplane_shm::message::Envelope;
use support::{CLASS, GSI_Q_KEY, OUI, number_of, receive, rxe_or_skip, sleep_on, vendor_mad, wait_for};

const GET: u8 = 0x01;
const GET_RESP: u8 = 0x81;
const SEND: u8 = 0x03;

fn open(device: &str) -> MadPort {
    open_with(device, &QueueSettings::default()).unwrap()
}

fn open_with(device: &str, settings: &QueueSettings) -> Result<MadPort, Unavailable> {
    MadPort::open(&format!("verbs:{device}").parse().unwrap(), settings)
}

/// MADs that may be on their way at once: fewer than the receiver has slots.
const WINDOW: u32 = 256;
const FLOOD: u32 = 100_000;

/// One end of a flood: sends its MADs inside the window, takes the other's and ticks them off.
struct Flooder {
    port: MadPort,
    to: Envelope,
    sent: u32,
    seen: Vec<u8>,
    got: u32,
    out_of_order: u32,
}

impl Flooder {
    fn new(device: &str) -> Self {
        let port = open(device);
        let seen = vec![0; FLOOD as usize];
        Self { port, to: Envelope::default(), sent: 0, seen, got: 0, out_of_order: 0 }
    }

    /// A duty cycle; `taken_there` is how many of its MADs the other end has taken.
    fn turn(&mut self, taken_there: u32) -> bool {
        let mut buffer = [MadMessage::default(); 32];
        let count = self.port.rx_burst(&mut buffer);
        for message in &buffer[..count] {
            let number = number_of(&message.mad);
            assert_eq!(message.mad, vendor_mad(SEND, number), "whole");
            self.seen[number as usize] += 1;
            self.out_of_order += u32::from(number != self.got);
            self.got += 1;
        }
        self.port.release();
        let room = (WINDOW - (self.sent - taken_there)).min(FLOOD - self.sent).min(32);
        let burst: Vec<_> = (self.sent..self.sent + room)
            .map(|number| MadMessage { envelope: self.to, mad: vendor_mad(SEND, number) })
            .collect();
        let given = self.port.tx_burst(&burst);
        self.sent += u32::try_from(given).unwrap();
        self.port.flush();
        count > 0 || given > 0
    }

    /// Turns until everything has come and been taken there; sleeping, if it is to, when a turn found nothing.
    fn run(mut self, sleeping: bool, taken_here: &AtomicU32, taken_there: &AtomicU32) -> Self {
        let mut last_progress = Instant::now();
        while self.got < FLOOD || taken_there.load(Ordering::Acquire) < FLOOD {
            let worked = self.turn(taken_there.load(Ordering::Acquire));
            taken_here.store(self.got, Ordering::Release);
            if worked {
                last_progress = Instant::now();
            } else if sleeping {
                // drained (above): arm, look once more, sleep, acknowledge; bounded, because room at the other end is no event
                if self.port.arm() {
                    sleep_on(self.port.waker(), 100);
                }
                self.port.disarm();
            } else {
                std::thread::yield_now();
            }
            assert!(last_progress.elapsed() < support::WATCHDOG, "stuck at {} and {}", self.sent, self.got);
        }
        self
    }

    fn check(&self, name: &str) {
        let lost = self.seen.iter().filter(|times| **times == 0).count();
        let doubled = self.seen.iter().filter(|times| **times > 1).count();
        let counters = self.port.counters();
        println!("{name}: {FLOOD} sent to it, {lost} lost, {doubled} doubled, {counters:?}");
        let reported = counters.send_failed + counters.receive_failed + counters.unreachable;
        assert_eq!((lost, doubled, reported), (0, 0, 0));
        assert_eq!(self.out_of_order, 0, "UD between two devices on one wire keeps order");
        assert_eq!((counters.sent, counters.received), (u64::from(FLOOD), u64::from(FLOOD)));
    }
}

fn flood(sleeping: bool) {
    let (mut a, mut b) = (Flooder::new("rxe0"), Flooder::new("rxe1"));
    a.to = support::to("rxe1", b.port.number());
    b.to = support::to("rxe0", a.port.number());
    let (taken_a, taken_b) = (AtomicU32::new(0), AtomicU32::new(0));
    let (a, b) = std::thread::scope(|scope| {
        let there = scope.spawn(|| b.run(sleeping, &taken_b, &taken_a));
        let here = a.run(sleeping, &taken_a, &taken_b);
        (here, there.join().unwrap())
    });
    a.check("rxe0");
    b.check("rxe1");
    assert_eq!(sleeping, a.port.counters().wakeups + b.port.counters().wakeups > 0);
}

#[test]
fn a_hundred_thousand_mads_each_way_polled() {
    if rxe_or_skip("flood, polled") {
        flood(false);
    }
}

#[test]
fn a_hundred_thousand_mads_each_way_by_completion_channel() {
    if rxe_or_skip("flood, by completion channel") {
        flood(true);
    }
}

/// Waits for one MAD: polling, or asleep, where the wake-up has to come.
fn next_mad(port: &mut MadPort, sleeping: bool) -> MadMessage {
    let mut buffer = [MadMessage::default()];
    wait_for("a MAD of a round trip", || {
        if port.rx_burst(&mut buffer) == 1 {
            port.release();
            return Some(buffer[0]);
        }
        if sleeping {
            if port.arm() {
                assert!(sleep_on(port.waker(), 30_000), "a wake-up was lost");
            }
            port.disarm();
        }
        None
    })
}

/// Median round trip of one MAD at a time, the other end in a thread of its own.
fn median_round_trip(rounds: u32, sleeping: bool) -> Duration {
    let (mut a, mut b) = (open("rxe0"), open("rxe1"));
    let to_b = support::to("rxe1", b.number());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..rounds {
                let mut request = next_mad(&mut b, sleeping);
                request.mad[3] = GET_RESP;
                request.envelope = Envelope { q_key: GSI_Q_KEY, ..answer(&request.envelope) };
                assert_eq!(b.tx_burst(&[request]), 1);
                b.flush();
            }
            assert_eq!(sleeping, b.counters().wakeups > 0);
        });
        let mut times = Vec::new();
        for number in 0..rounds {
            let begun = Instant::now();
            assert_eq!(a.tx_burst(&[MadMessage { envelope: to_b, mad: vendor_mad(GET, number) }]), 1);
            a.flush();
            assert_eq!(number_of(&next_mad(&mut a, sleeping).mad), number);
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        times[times.len() / 2]
    })
}

#[test]
fn round_trips_polled_and_by_completion_channel() {
    if !rxe_or_skip("round trips") {
        return;
    }
    let polled = median_round_trip(2000, false);
    let slept = median_round_trip(2000, true);
    println!(
        "median round trip: polled {:.1} us, by completion channel {:.1} us, ratio {:.2}",
        polled.as_secs_f64() * 1e6,
        slept.as_secs_f64() * 1e6,
        slept.as_secs_f64() / polled.as_secs_f64()
    );
}

#[test]
fn a_queue_pair_of_ours_and_the_kernels_agent_ask_each_other() {
    if !rxe_or_skip("queue pair against the kernel's agent") {
        return;
    }
    let mut ours = open("rxe0");
    let mut kernel = UmadPort::open(&"umad:rxe1".parse().unwrap()).unwrap();
    let agent = kernel
        .register(&AgentSpec {
            pair: 1,
            class: CLASS,
            version: 1,
            oui: OUI,
            methods: 1 << GET,
            ..Default::default()
        })
        .unwrap();
    for number in 0..20 {
        // we ask, the agent answers
        assert_eq!(
            ours.tx_burst(&[MadMessage { envelope: support::to("rxe1", 1), mad: vendor_mad(GET, number) }]),
            1
        );
        ours.flush();
        let mut request = receive(&mut kernel, "our request");
        assert_eq!((request.envelope.src_qp, number_of(&request.mad)), (ours.number(), number));
        request.mad[3] = GET_RESP;
        request.envelope = Envelope { q_key: GSI_Q_KEY, ..answer(&request.envelope) };
        assert_eq!(kernel.tx_burst(&[request]), 1);
        let response = receive(&mut ours, "the agent's answer");
        assert_eq!((response.envelope.src_qp, number_of(&response.mad)), (1, number));
        // the agent asks, we answer
        let envelope = Envelope { agent, ..support::to("rxe0", ours.number()) };
        assert_eq!(kernel.tx_burst(&[MadMessage { envelope, mad: vendor_mad(GET, 1000 + number) }]), 1);
        let mut request = receive(&mut ours, "the agent's request");
        assert_eq!(request.envelope.src_qp, 1);
        request.mad[3] = GET_RESP;
        request.envelope = Envelope { q_key: GSI_Q_KEY, ..answer(&request.envelope) };
        assert_eq!(ours.tx_burst(&[request]), 1);
        ours.flush();
        let response = receive(&mut kernel, "our answer");
        assert_eq!((response.envelope.agent, number_of(&response.mad)), (agent, 1000 + number));
    }
    assert_eq!(kernel.timed_out(), None);
}

#[test]
fn a_burst_is_one_doorbell() {
    if !rxe_or_skip("one doorbell") {
        return;
    }
    let (mut a, mut b) = (open("rxe0"), open("rxe1"));
    let to = support::to("rxe1", b.number());
    let burst: Vec<_> =
        (0..32).map(|number| MadMessage { envelope: to, mad: vendor_mad(SEND, number) }).collect();
    assert_eq!(a.tx_burst(&burst[..20]), 20);
    assert_eq!(a.tx_burst(&burst[20..]), 12);
    assert_eq!(a.counters().doorbells, 0, "nothing leaves before the flush");
    assert!(a.flush());
    assert!(!a.flush());
    for number in 0..32 {
        assert_eq!(number_of(&receive(&mut b, "a MAD of the burst").mad), number);
    }
    assert_eq!((a.counters().doorbells, a.counters().sent, b.counters().received), (1, 32, 32));
}

#[test]
fn many_destinations_share_a_bounded_number_of_address_handles() {
    if !rxe_or_skip("address handles") {
        return;
    }
    let (mut a, mut b) = (open("rxe0"), open("rxe1"));
    let to = support::to("rxe1", b.number());
    let mut number = 0;
    // 1500 flow labels are 1500 addresses, more than the table and its waiting room hold, twice
    for _ in 0..2 {
        for flow_label in 0..1500 {
            let envelope = Envelope { flow_label, ..to };
            let message = [MadMessage { envelope, mad: vendor_mad(SEND, number) }];
            wait_for("room", || {
                let given = a.tx_burst(&message);
                a.flush();
                (given == 1).then_some(())
            });
            let got = receive(&mut b, "a MAD of each address");
            assert_eq!(number_of(&got.mad), number);
            number += 1;
        }
    }
    assert_eq!(a.counters().unreachable, 0);
}

#[test]
fn an_address_without_a_way_is_counted_and_does_not_hold_others_up() {
    if !rxe_or_skip("unreachable") {
        return;
    }
    let (mut a, mut b) = (open("rxe0"), open("rxe1"));
    let good = support::to("rxe1", b.number());
    // Ethernet needs a global header
    let bad = Envelope { flags: 0, ..good };
    let burst = [bad, good].map(|envelope| MadMessage { envelope, mad: vendor_mad(SEND, 9) });
    assert_eq!(a.tx_burst(&burst), 2);
    a.flush();
    assert_eq!(number_of(&receive(&mut b, "the good one").mad), 9);
    assert_eq!((a.counters().unreachable, a.counters().sent), (1, 1));
}

#[test]
fn slots_lie_on_huge_pages_and_moderation_is_refused_by_soft_roce() {
    if !rxe_or_skip("huge pages") {
        return;
    }
    let moderation = Some(Moderation { count: 8, period_us: 16 });
    let port = open_with("rxe0", &QueueSettings { moderation, ..Default::default() }).unwrap();
    assert!(port.on_huge_pages());
    println!("moderation of soft-RoCE: {:?}", port.moderation());
    assert!(matches!(port.moderation(), Err(libc::EOPNOTSUPP | libc::ENOSYS)), "{:?}", port.moderation());
    let port = open_with("rxe0", &QueueSettings { huge_pages: false, ..Default::default() }).unwrap();
    assert!(!port.on_huge_pages());
}

#[test]
fn frames_of_a_link_pass_both_ways_and_strangers_do_not() {
    if !rxe_or_skip("frames") {
        return;
    }
    let settings = QueueSettings { q_key: 0x0026_d700, ..Default::default() };
    let end =
        |device: &str| UdDatagrams::open(&format!("verbs:{device}").parse().unwrap(), &settings).unwrap();
    let (mut a, mut b, mut stranger) = (end("rxe0"), end("rxe1"), end("rxe0"));
    assert_eq!((a.carrier(), a.send(&[1])), (Carrier::Down, false), "nobody to send to yet");
    a.connect(b.own());
    b.connect(a.own());
    stranger.connect(b.own());
    assert_eq!(a.carrier(), Carrier::Up);
    assert!(stranger.send(&[0xee; 100]));
    stranger.flush();
    wait_for("the stranger's frame", || {
        assert_eq!(b.receive(&mut [0; MAX_FRAME]), None);
        (b.strange() == 1).then_some(())
    });
    assert!(!a.send(&[0; MAX_FRAME + 1]));
    for length in [1, 64, 257, MAX_FRAME] {
        let byte = u8::try_from(length % 251).unwrap();
        let (from, to) = (&mut a, &mut b);
        assert!(from.send(&vec![byte; length]));
        from.flush();
        let mut into = [0xa5; MAX_FRAME];
        let got = wait_for("a frame", || to.receive(&mut into));
        assert_eq!((got, into[..got].iter().all(|b| *b == byte)), (length, true));
        assert!(to.send(&into[..got]));
        to.flush();
        let got = wait_for("a frame back", || from.receive(&mut into));
        assert_eq!(got, length);
    }
}

/// Runs one test of this program again as another user, or with other limits; what it prints.
fn again(test: &str, prefix: &str, uid: Option<u32>) -> String {
    let own = std::env::current_exe().unwrap();
    let mut shell = Command::new("bash");
    shell
        .arg("-c")
        .arg(format!("{prefix} exec \"$0\" --exact {test} --nocapture --ignored"))
        .arg(own)
        .env("MADPLANE_DEVICE_CHILD", "1");
    if let Some(uid) = uid {
        shell.uid(uid).gid(uid);
    }
    let output = shell.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Not a test: what a child of the tests below prints.
#[test]
#[ignore = "a child of other tests"]
fn child() {
    match open_with("rxe0", &QueueSettings { q_key: 0x11, ..Default::default() }) {
        Ok(_) => println!("verbs: available"),
        Err(reason) => println!("verbs: {reason}"),
    }
    match DevicePort::open(&"auto:rxe0".parse().unwrap(), &[]) {
        Ok((port, reasons)) => println!("auto: {:?} after {reasons:?}", port.backend().unwrap()),
        Err(reasons) => println!("auto: none after {reasons:?}"),
    }
    match devices() {
        Ok(list) => println!("devices: {:?}", list.iter().map(|device| &device.name).collect::<Vec<_>>()),
        Err(error) => println!("devices: {:?}", error.raw_os_error()),
    }
}

#[test]
fn what_a_user_may_not_do_is_one_line_each() {
    if !rxe_or_skip("permissions and limits") {
        return;
    }
    let told = again("child", "ulimit -l 64;", Some(65534));
    assert!(
        told.contains("verbs: unavailable, because 240 KiB of locked memory are needed and 64 KiB are allowed (ulimit -l)"),
        "{told}"
    );
    assert!(told.contains("auto: none after [LockedMemory"), "{told}");
    assert!(told.contains("NoPermission { what: \"/dev/infiniband/umad0\" }"), "{told}");
    let told = again("child", "ulimit -l unlimited;", None);
    assert!(told.contains("verbs: available") && told.contains("auto: Verbs after []"), "{told}");
}

#[test]
fn a_missing_library_is_said_and_the_kernels_device_taken() {
    if !rxe_or_skip("missing library") {
        return;
    }
    let library = std::fs::read_to_string("/proc/self/maps").unwrap().lines().find_map(|line| {
        line.find("/").map(|at| line[at..].to_owned()).filter(|path| path.contains("libibverbs.so"))
    });
    let directory = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];
    let files = library
        .into_iter()
        .chain(directory.iter().map(|directory| format!("{directory}/libibverbs.so.1")))
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .map(|path| path.display().to_string())
        .collect::<std::collections::BTreeSet<_>>();
    assert!(!files.is_empty(), "the library is somewhere");
    for file in &files {
        std::fs::rename(file, format!("{file}.away")).unwrap();
    }
    let told = again("child", "", None);
    for file in &files {
        std::fs::rename(format!("{file}.away"), file).unwrap();
    }
    assert!(told.contains("verbs: unavailable, because libibverbs is missing (libibverbs.so.1"), "{told}");
    assert!(told.contains("auto: Umad after [NoLibrary"), "{told}");
}

fn shell(command: &str) {
    let status = Command::new("bash").arg("-c").arg(command).status().unwrap();
    assert!(status.success(), "{command}");
}

fn next_change(port: &mut DevicePort, what: &str) -> Change {
    wait_for(what, || {
        let change = port.tick();
        if change.is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        change.filter(|change| *change != Change::Readdressed)
    })
}

#[test]
fn a_port_that_goes_down_says_so_and_comes_back() {
    if !rxe_or_skip("port down") {
        return;
    }
    let (mut port, passed_over) = DevicePort::open(&"auto:rxe0".parse().unwrap(), &[]).unwrap();
    assert_eq!((port.backend(), passed_over), (Some(Backend::Verbs), vec![]));
    shell("ip link set net0 down");
    let Change::Down { why } = next_change(&mut port, "the fall") else { panic!("it fell") };
    assert_eq!(why.to_string(), "unavailable, because rxe0 port 1 is DOWN, not ACTIVE");
    assert!(!port.is_up());
    let refused = open_with("rxe0", &QueueSettings::default()).unwrap_err();
    assert_eq!(refused.to_string(), "unavailable, because rxe0 port 1 is DOWN, not ACTIVE");
    shell("ip link set net0 up");
    assert_eq!(next_change(&mut port, "the return"), Change::Up);
    assert!(port.is_up());
    // the addresses of both ends come back a moment later
    wait_for("a GID", || (support::gid_of("rxe0") != [0; 16]).then_some(()));
}
