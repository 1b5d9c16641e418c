//! The route table under traffic: what a look, a publication, a reload and a whole table cost the worker and who waits.
//!
//! One thread on the client's core sends MADs *and* publishes, because the machine may have no third core. So that the
//! publishing itself is not taken for its effect, the other side of each comparison publishes just as much into a
//! table that nobody reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use madplane_dataplane::acl::Acl;
use madplane_dataplane::route_view::RouteView;
use madplane_port::machine::pin_thread;
use madplane_shm::header::Incarnation;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::table::TableOptions;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use tempfile::TempDir;

use crate::by_lid::{Kind, LidQuery, Patience, PlaneClient};
use crate::error::BenchError;
use crate::fabrics::Fabric;
use crate::harness::{Distribution, Pace, Spread, Summary};
use crate::load::nanoseconds;
use crate::machine::Cores;
use crate::plane::{Plane, PlaneOptions};
use crate::report::{Bar, Record};
use crate::scenario::Options;
use crate::subnet::Subnet;
use crate::tables::{Publisher, RouteSpec, set_route};

pub mod control;
pub mod whole;

/// Hosts up to six hops away, few enough to be programmed through the rings.
pub(crate) const HOSTS_128: &str = "builtin:fat-tree,radix=8,levels=3";
/// Routes of the tables that are changed under traffic.
const ROUTES: u32 = 1024;
/// Requests on their way at full rate.
const DEPTH: u32 = 64;
/// Publications a second that the worker has to stand.
const PUBLICATIONS: f64 = 200_000.0;

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    on_the_client_core(|cores| {
        let mut records = vec![look(options)?];
        records.extend(under_traffic(options, cores)?);
        Ok(records)
    })
}

/// Runs `measure` on a thread of its own that is pinned to the client's core, so that the pinning ends with it.
pub(crate) fn on_the_client_core(
    measure: impl FnOnce(Cores) -> Result<Vec<Record>, BenchError> + Send,
) -> Result<Vec<Record>, BenchError> {
    let cores = Cores::choose()?;
    std::thread::scope(|scope| {
        let pinned = || {
            pin_thread(cores.client);
            measure(cores)
        };
        scope
            .spawn(pinned)
            .join()
            .unwrap_or_else(|_| Err(BenchError::Wrong("the client panicked".to_owned())))
    })
}

/// A directory in memory, if there is one.
fn memory_directory() -> Result<TempDir, BenchError> {
    let shm = std::path::Path::new("/dev/shm");
    let directory = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() };
    directory.map_err(|e| BenchError::io("temporary directory", e))
}

fn table_failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::program("route table", error.to_string())
}

/// What a worker pays for looking at a table that did not change.
fn look(options: &Options) -> Result<Record, BenchError> {
    let directory = memory_directory()?;
    let path = directory.path().join("table");
    let table = TableOptions { routes: ROUTES, tenants: 16 };
    let publisher = RoutePublisher::create(&path, table, Incarnation::default()).map_err(table_failed)?;
    let counters = RouteCounters::create(&directory.path().join("use"), ROUTES, Incarnation::default());
    let reader = TableReader::open(&path).map_err(table_failed)?;
    let mut view = RouteView::new(reader, Arc::new(counters.map_err(table_failed)?), true);
    let mut acl = Acl::default();
    let fabric = Fabric::from_spec("builtin:ring,switches=3,hosts=1")?;
    let mut engine = crate::by_lid::EngineClient::build(&fabric)?;
    while view.is_due() {
        view.refresh(&mut engine.shard, &mut acl);
    }
    let count = options.count_or(50_000_000);
    let mut rounds = Vec::new();
    for _ in 0..options.rounds_or(7) {
        let start = Instant::now();
        for _ in 0..count {
            if std::hint::black_box(&view).is_due() {
                return Err(BenchError::Wrong("the table has changed".to_owned()));
            }
        }
        let each = start.elapsed().as_nanos() as f64 / f64::from(count);
        let mut summary = Summary::of("burst_1_ns", each);
        summary.values.insert("burst_32_ns_per_mad".to_owned(), each / 32.0);
        rounds.push(summary);
    }
    drop(publisher);
    let record = Record::from_rounds("table", "look at an unchanged table", "ns", &rounds);
    let (one, many) = (record.median("burst_1_ns"), record.median("burst_32_ns_per_mad"));
    Ok(record.held_to(Bar::at_most("look at burst 1, ns", one, 3.0)).held_to(Bar::at_most(
        "look at burst 32, ns per MAD",
        many,
        1.0,
    )))
}

/// A plane with a subnet, and a client of its first host.
struct Rig {
    plane: Plane,
    client: PlaneClient,
    query: LidQuery,
    path: Vec<u8>,
    pair: (u16, u16),
}

impl Rig {
    fn start(cores: Cores) -> Result<Self, BenchError> {
        let fabric = Fabric::from_spec(HOSTS_128)?;
        let subnet = Subnet::draw(&fabric);
        let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
        let mut client = PlaneClient::attach(plane.paths(), "", 0)?;
        subnet.bring_up(&fabric, &mut client)?;
        let node =
            subnet.at_distance(6).next().ok_or_else(|| BenchError::Usage("no host at 6 hops".to_owned()))?;
        let query = client.query(Kind::Smp, Subnet::lid(node), Subnet::guid(&fabric, node));
        let path = subnet.paths[node as usize].clone();
        Ok(Self { plane, client, query, path, pair: (Subnet::lid(fabric.host), Subnet::lid(node)) })
    }

    /// The route of the MADs, then others that nobody uses.
    fn fill(
        &self,
        mut set: impl FnMut(u32, &RouteSpec<'_>) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        (0..ROUTES).try_for_each(|index| set(index, &self.spec(index, 0)))
    }

    fn spec(&self, index: u32, p_key: u16) -> RouteSpec<'_> {
        let (slid, dlid) = self.pair;
        let unused = u16::try_from(0x4000 + index).unwrap_or(0x4000);
        RouteSpec { slid, dlid: if index == 0 { dlid } else { unused }, path: &self.path, p_key }
    }
}

/// Sends `count` requests with up to [`DEPTH`] on their way; `between` runs once per turn.
fn stream(
    client: &mut PlaneClient,
    query: &LidQuery,
    count: u32,
    mut between: impl FnMut() -> Result<(), BenchError>,
    mut answered: impl FnMut(u32),
    mut asked: impl FnMut(u32),
) -> Result<Pace, BenchError> {
    let (mut sent, mut got) = (0u32, 0u32);
    let mut pace = Pace::new();
    let mut patience = Patience::default();
    pace.start();
    while got < count {
        let before = sent;
        while sent - got < DEPTH && sent < count && client.push(query) {
            asked(sent);
            sent += 1;
        }
        if sent != before {
            client.flush();
        }
        between()?;
        let before = got;
        while client.take(query)? {
            answered(got);
            got += 1;
        }
        if got == before {
            patience.look()?;
        } else {
            patience = Patience::default();
            pace.done(got - before);
        }
    }
    Ok(pace)
}

fn under_traffic(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let mut rig = Rig::start(cores)?;
    let mut shown = Publisher::start(&rig.plane, ROUTES)?;
    rig.fill(|index, spec| shown.set(index, Some(spec)))?;
    shown.sync()?;
    let directory = memory_directory()?;
    let table = TableOptions { routes: ROUTES, tenants: 16 };
    let mut unread = RoutePublisher::create(&directory.path().join("table"), table, Incarnation::default())
        .map_err(table_failed)?;
    let mut records = vec![singles(options, &mut rig, &mut shown, &mut unread)?];
    records.push(reloads(options, &mut rig, &mut shown, &mut unread)?);
    records.push(applied(options, &mut rig, &mut shown)?);
    Ok(records)
}

/// Single routes published at a steady rate while the worker forwards as fast as it can.
fn singles(
    options: &Options,
    rig: &mut Rig,
    shown: &mut Publisher,
    unread: &mut RoutePublisher,
) -> Result<Record, BenchError> {
    let count = options.count_or(1_500_000);
    let every = Duration::from_secs_f64(1.0 / (PUBLICATIONS * 1.02));
    let mut rounds = Vec::new();
    for _ in 0..options.rounds_or(7) {
        let mut summary = Summary::default();
        for (what, is_shown) in [("unread", false), ("shown", true)] {
            let (mut published, mut number) = (0u64, 0u32);
            let Rig { client, query, path, pair, .. } = &mut *rig;
            let start = Instant::now();
            let mut due = start;
            let pace = stream(
                client,
                query,
                count,
                || {
                    let now = Instant::now();
                    // what cannot be caught up within a turn is left out and missing in the rate
                    for _ in 0..8 {
                        if now < due {
                            break;
                        }
                        due += every;
                        number += 1;
                        let index = 1 + number.wrapping_mul(7919) % (ROUTES - 1);
                        let dlid = u16::try_from(0x4000 + index).unwrap_or(0x4000);
                        let p_key = if (number / ROUTES).is_multiple_of(2) { 0xFFFF } else { 0 };
                        let spec = RouteSpec { slid: pair.0, dlid, path, p_key };
                        if is_shown {
                            shown.set(index, Some(&spec))?;
                            shown.publish();
                        } else {
                            set_route(unread, index, &spec, u64::from(number))?;
                            unread.publish();
                        }
                        published += 1;
                    }
                    if now > due + Duration::from_millis(1) {
                        due = now;
                    }
                    Ok(())
                },
                |_| (),
                |_| (),
            )?;
            let rate = published as f64 / start.elapsed().as_secs_f64();
            summary.values.insert(format!("{what}_publications_per_second"), rate);
            for (metric, value) in pace.summary().values {
                summary.values.insert(format!("{what}_{metric}"), value);
            }
        }
        rounds.push(summary);
    }
    shown.sync()?;
    let record =
        Record::from_rounds("table", "single routes published at full rate of the worker", "", &rounds);
    let metric = "per_second_median_stretch";
    let kept = Spread::quotient(
        record.rounds(&format!("shown_{metric}")),
        record.rounds(&format!("unread_{metric}")),
    );
    let fall = Spread::new(kept.rounds.iter().map(|kept| (1.0 - kept) * 100.0).collect());
    let bars = [
        Bar::at_least(
            "single routes published a second",
            record.median("shown_publications_per_second"),
            PUBLICATIONS,
        ),
        Bar::at_most("fall of the worker's throughput, percent", fall.median, 10.0),
    ];
    let record = bars.into_iter().fold(record, Record::held_to);
    Ok(record
        .with("fall_percent", fall)
        .noting("one core sends, checks and publishes; 'unread' publishes as much to nobody"))
}

/// A stretch of measuring after each reload.
const WINDOW: Duration = Duration::from_millis(20);

/// 1,024 routes changed in one publication while the worker forwards as fast as it can.
fn reloads(
    options: &Options,
    rig: &mut Rig,
    shown: &mut Publisher,
    unread: &mut RoutePublisher,
) -> Result<Record, BenchError> {
    let windows = options.count_or(100);
    let mut rounds = Vec::new();
    for round in 0..options.rounds_or(7) {
        let mut summary = Summary::default();
        let mut both = [Distribution::new(), Distribution::new()];
        for window in 0..windows {
            // in turns, the other one first in every second round
            for turn in [round % 2, 1 - round % 2] {
                let is_shown = turn == 1;
                let p_key = if window % 2 == 0 { 0xFFFF } else { 0 };
                for index in 0..ROUTES {
                    let spec = rig.spec(index, p_key);
                    if is_shown {
                        shown.set(index, Some(&spec))?;
                    } else {
                        set_route(unread, index, &spec, u64::from(window))?;
                    }
                }
                if is_shown {
                    shown.publish();
                } else {
                    unread.publish();
                }
                latencies(&mut rig.client, &rig.query, WINDOW, &mut both[usize::from(is_shown)])?;
            }
        }
        shown.sync()?;
        for (what, times) in ["without", "with"].into_iter().zip(&both) {
            for (metric, value) in times.summary(None).values {
                summary.values.insert(format!("{what}_{metric}"), value);
            }
        }
        rounds.push(summary);
    }
    let record =
        Record::from_rounds("table", "1,024 routes reloaded at full rate of the worker", "ns", &rounds);
    let growth = Spread::quotient(record.rounds("with_p99.9"), record.rounds("without_p99.9"));
    let growth = Spread::new(growth.rounds.iter().map(|ratio| (ratio - 1.0) * 100.0).collect());
    let bar = Bar::at_most("growth of p99.9 by a reload, percent", growth.median, 20.0);
    Ok(record.with("growth_percent_p99.9", growth).held_to(bar).noting(format!(
        "{DEPTH} in flight; one reload every {} ms; 'without' reloads a table that nobody reads",
        WINDOW.as_millis()
    )))
}

/// Latency of each request of a stream that lasts `window`.
fn latencies(
    client: &mut PlaneClient,
    query: &LidQuery,
    window: Duration,
    times: &mut Distribution,
) -> Result<(), BenchError> {
    let mut sent_at = [Instant::now(); DEPTH as usize];
    let (mut sent, mut got) = (0usize, 0usize);
    let start = Instant::now();
    let mut now = start;
    let mut patience = Patience::default();
    while now - start < window || got < sent {
        while now - start < window && sent - got < sent_at.len() && client.push(query) {
            sent_at[sent % sent_at.len()] = now;
            sent += 1;
        }
        client.flush();
        let before = got;
        while client.take(query)? {
            now = Instant::now();
            times.record(nanoseconds(now - sent_at[got % sent_at.len()]));
            got += 1;
        }
        if got == before {
            patience.look()?;
        } else {
            patience = Patience::default();
        }
        now = Instant::now();
    }
    Ok(())
}

/// From the publication of one route until the worker forwards by it.
fn applied(options: &Options, rig: &mut Rig, shown: &mut Publisher) -> Result<Record, BenchError> {
    let count = options.count_or(20_000);
    let mut rounds = Vec::new();
    let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..options.rounds_or(7) {
        let mut summary = Summary::default();
        let mut times = Distribution::new();
        for number in 0..count {
            // at some time of the worker's cycle, as an operator's change is
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pause = Duration::from_nanos(5_000 + (dice >> 33) % 30_000);
            let start = Instant::now();
            while start.elapsed() < pause {
                std::hint::spin_loop();
            }
            let index = 1 + number.wrapping_mul(7919) % (ROUTES - 1);
            let p_key = if (number / ROUTES).is_multiple_of(2) { 0xFFFF } else { 0 };
            let spec = rig.spec(index, p_key);
            let start = Instant::now();
            shown.set(index, Some(&spec))?;
            let generation = shown.publish();
            shown.wait(generation)?;
            times.record(nanoseconds(start.elapsed()));
        }
        summary.values.extend(times.summary(None).values);
        rounds.push(summary);
    }
    let record = Record::from_rounds(
        "table",
        "one route from change to applied, publisher in the client",
        "ns",
        &rounds,
    );
    let p99 = record.median("p99");
    Ok(record.held_to(Bar::at_most("change to applied, p99, ns", p99, 10_000.0)))
}
