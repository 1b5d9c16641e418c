//! Workers that sleep: nothing is lost and nothing waits longer than it should, whatever the mode and however often it changes.
//!
//! A worker runs on a thread of its own, as in the daemon, and answers directed requests of a client that counts exactly.

#[path = "modes/bench.rs"]
mod bench;

use std::time::{Duration, Instant};

use bench::Stand;
use madplane_shm::counters::Counter;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn every_request_is_answered_in_every_mode() {
    for tune in [
        "mode=polling",
        "mode=polling poll_interval=50",
        "mode=interrupt",
        "mode=interrupt rx-usecs=0",
        "mode=interrupt adaptive=dim",
        "mode=adaptive",
        "mode=adaptive adaptive=off max_empty_polls=3",
        "mode=adaptive adaptive=dim",
    ] {
        for shares_core in [false, true] {
            let mut stand = Stand::with(tune, shares_core);
            for depth in [1, 4, 64] {
                stand.exchange(2_000, depth, PATIENCE);
            }
            let sent = stand.finish();
            assert_eq!(sent.counter(Counter::SessionReceived), 6_000, "{tune}");
        }
    }
}

#[test]
fn a_lone_mad_wakes_a_sleeper_of_any_kind() {
    for tune in
        ["mode=interrupt", "mode=adaptive", "mode=interrupt moderator_timeout=100000 moderator_pkts=64"]
    {
        let mut stand = Stand::with(tune, false);
        for pause_ms in [0, 1, 3, 30, 250] {
            std::thread::sleep(Duration::from_millis(pause_ms));
            stand.exchange(1, 1, PATIENCE);
        }
        let counts = stand.finish();
        assert!(counts.counter(Counter::WakeUps) >= 4, "{tune}: {counts:?}");
    }
}

#[test]
fn a_mad_alone_after_a_batch_is_held_back_no_longer_than_moderation_says() {
    // without the bound it would wait for 63 more: for ever, or for the next heartbeat
    let mut stand = Stand::with("mode=interrupt moderator_timeout=2000 moderator_pkts=64", false);
    for _ in 0..50 {
        stand.exchange(64, 64, PATIENCE);
        stand.exchange(1, 1, PATIENCE);
    }
    let counts = stand.finish();
    assert_eq!(counts.counter(Counter::SessionReceived), 50 * 65);
    assert!(counts.counter(Counter::SleepsModerated) > 0, "{counts:?}");
}

#[test]
fn moderation_gathers_wake_ups() {
    let mut stand = Stand::with("mode=interrupt moderator_timeout=100000 moderator_pkts=16", false);
    stand.exchange(16, 16, PATIENCE);
    // a program that asks for a doorbell after every MAD, 16 at a time
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(2));
        stand.trickle(16, PATIENCE);
    }
    let counts = stand.finish();
    let (mads, wakes) = (counts.counter(Counter::SessionReceived), counts.counter(Counter::WakeUps));
    assert_eq!(mads, 1_616);
    assert!(wakes * 2 < mads, "{wakes} wake-ups for {mads} MADs");
    assert!(counts.counter(Counter::WakeUpsCoalesced) > 50, "{counts:?}");
}

#[test]
fn random_pauses_around_the_moment_of_falling_asleep_lose_nothing() {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    println!("seed {seed}");
    for tune in ["mode=interrupt", "mode=adaptive max_empty_polls=20", "mode=interrupt adaptive=dim"] {
        let mut stand = Stand::with(tune, false);
        let mut random = u64::from(seed) | 1;
        let end = Instant::now() + Duration::from_secs(2);
        let mut asked = 0;
        while Instant::now() < end {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pause = Duration::from_nanos((random >> 33) % 40_000);
            let from = Instant::now();
            while from.elapsed() < pause {
                std::hint::spin_loop();
            }
            let burst = 1 + (random >> 60);
            stand.exchange(burst, burst, PATIENCE);
            asked += burst;
        }
        let counts = stand.finish();
        assert_eq!(counts.counter(Counter::SessionReceived), asked, "{tune}");
    }
}

#[test]
fn a_thousand_changes_of_mode_under_load_lose_nothing() {
    let mut stand = Stand::with("mode=polling", false);
    let modes = ["polling", "interrupt", "adaptive"];
    let mut asked = 0;
    for change in 0..1_000 {
        let tune = format!("mode={} burst={}", modes[change % 3], 1 + change % 64);
        let generation = stand.tune(&tune);
        stand.exchange(64, 16, PATIENCE);
        asked += 64;
        if change % 50 == 0 {
            stand.wait_for(generation, PATIENCE);
        }
    }
    let last = stand.tune("mode=interrupt");
    stand.wait_for(last, PATIENCE);
    let counts = stand.finish();
    assert_eq!(counts.counter(Counter::SessionReceived), asked);
    assert!(counts.counter(Counter::ModeChanges) >= 20, "{counts:?}");
}

#[test]
fn a_published_tuning_reaches_a_sleeper_when_it_is_rung_and_shows() {
    let mut stand = Stand::with("mode=interrupt", false);
    std::thread::sleep(Duration::from_millis(20));
    let generation = stand.tune("mode=adaptive rx-usecs=7 rx-frames=3");
    stand.wait_for(generation, PATIENCE);
    let shown = stand.shown();
    assert!(shown.contains("mode=adaptive moderator_timeout=7 moderator_pkts=3"), "{shown}");
    // back to what it was started with
    let generation = stand.tune("");
    stand.wait_for(generation, PATIENCE);
    assert!(stand.shown().contains("mode=interrupt moderator_timeout=16 moderator_pkts=8"));
    stand.exchange(10, 1, PATIENCE);
    stand.finish();
}

#[test]
fn what_a_table_asked_for_ends_with_that_table() {
    let mut stand = Stand::with("mode=interrupt", false);
    let generation = stand.tune("mode=adaptive");
    stand.wait_for(generation, PATIENCE);
    assert!(stand.shown().contains("mode=adaptive"));
    stand.replace_table();
    let generation = stand.tune("");
    stand.wait_for(generation, PATIENCE);
    stand.exchange(10, 1, PATIENCE);
    assert!(stand.shown().contains("mode=interrupt"), "{}", stand.shown());
    stand.finish();
}

#[test]
fn mads_over_a_link_wake_a_sleeper_at_either_end() {
    for tune in ["mode=polling", "mode=interrupt", "mode=adaptive"] {
        let (mut one, other) = Stand::linked(tune);
        for depth in [1, 16] {
            one.exchange(500, depth, PATIENCE);
        }
        // keep-alives go on while nobody asks, so the link is still up afterwards
        std::thread::sleep(Duration::from_millis(1_200));
        one.exchange(10, 1, PATIENCE);
        let (one, other) = (one.finish(), other.finish());
        for counts in [&one, &other] {
            assert_eq!(counts.counter(Counter::LinkSent), 1_010, "{tune}");
            assert_eq!(counts.counter(Counter::LinkReceived), 1_010, "{tune}");
        }
        // the other end may have seen this one go
        assert_eq!(one.counter(Counter::LinkEvents), 1, "{tune}");
    }
}

#[test]
fn an_idle_worker_sleeps_and_shows_that_it_lives() {
    for tune in ["mode=interrupt", "mode=adaptive"] {
        let stand = Stand::start(tune, false, true);
        std::thread::sleep(Duration::from_millis(50));
        let (beat, slept) = stand.heartbeat();
        std::thread::sleep(Duration::from_millis(500));
        let (later, slept_later) = stand.heartbeat();
        assert!(later > beat, "{tune}: no heartbeat");
        assert!(slept_later > slept, "{tune}: not asleep");
        stand.finish();
    }
}
