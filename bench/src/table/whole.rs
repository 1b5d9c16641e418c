//! Tables of 65,536 routes: how long a worker takes for all of it, and the memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use madplane_dataplane::acl::Acl;
use madplane_dataplane::route_view::RouteView;
use madplane_shm::header::Incarnation;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::table::TableOptions;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;

use crate::by_lid::EngineClient;
use crate::error::BenchError;
use crate::fabrics::Fabric;
use crate::harness::Summary;
use crate::machine::Cores;
use crate::machine::thread_ns;
use crate::plane::{Plane, PlaneOptions};
use crate::report::{Bar, Record};
use crate::scenario::Options;
use crate::tables::{Publisher, RouteSpec, set_route};

use super::{HOSTS_128, table_failed};

/// As many as a table can hold.
pub(super) const ROUTES: u32 = 65_536;

/// LIDs of the route at `index`; none of them is of the fabric's hosts.
pub(super) fn lids(index: u32) -> (u16, u16) {
    let half = |number: u32| u16::try_from(0x1000 + number).unwrap_or(0x1000);
    (half(index / 256), half(0x1000 + index % 256))
}

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    super::on_the_client_core(|cores| {
        let mut records = vec![alone(options)?];
        records.extend(through_a_plane(options, cores)?);
        Ok(records)
    })
}

/// What following all of a table costs a worker, in processor time and without another core.
fn alone(options: &Options) -> Result<Record, BenchError> {
    let directory = super::memory_directory()?;
    let path = directory.path().join("table");
    let table = TableOptions { routes: ROUTES, tenants: 16 };
    let mut publisher = RoutePublisher::create(&path, table, Incarnation::default()).map_err(table_failed)?;
    let counters = RouteCounters::create(&directory.path().join("use"), ROUTES, Incarnation::default());
    let counters = Arc::new(counters.map_err(table_failed)?);
    let fabric = Fabric::from_spec(HOSTS_128)?;
    let mut rounds = Vec::new();
    for _ in 0..options.rounds_or(7) {
        let mut engine = EngineClient::build(&fabric)?;
        let mut acl = Acl::default();
        let reader = TableReader::open(&path).map_err(table_failed)?;
        let mut view = RouteView::new(reader, counters.clone(), true);
        view.make_room(&mut engine.shard);
        let mut summary = Summary::default();
        for (what, p_key) in [("new", 0xFFFF), ("changed", 0)] {
            for index in 0..ROUTES {
                let (slid, dlid) = lids(index);
                let spec = RouteSpec { slid, dlid, path: &[1, 2, 3, 4, 5, 6], p_key };
                set_route(&mut publisher, index, &spec, u64::from(p_key) << 32 | u64::from(index))?;
            }
            publisher.publish();
            let (before, mut steps) = (thread_ns(), 0);
            let (mut longest, mut last) = (0.0, before);
            while view.is_due() {
                view.refresh(&mut engine.shard, &mut acl);
                steps += 1;
                let now = thread_ns();
                longest = f64::max(longest, now - last);
                last = now;
            }
            summary.values.insert(format!("{what}_cpu_ms"), (last - before) / 1e6);
            summary.values.insert(format!("{what}_steps"), f64::from(steps));
            summary.values.insert(format!("{what}_longest_step_us"), longest / 1e3);
        }
        rounds.push(summary);
    }
    let record =
        Record::from_rounds("table-whole", "65,536 routes followed on the caller's thread", "", &rounds);
    Ok(record.noting("processor time; a look at its clock is in every step"))
}

fn through_a_plane(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(HOSTS_128)?;
    let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
    let before = plane.process().memory("VmRSS");
    let mut publisher = Publisher::start(&plane, ROUTES)?;
    let mut rounds = Vec::new();
    for round in 0..options.rounds_or(7) * 2 {
        let p_key = if round % 2 == 0 { 0xFFFF } else { 0 };
        for index in 0..ROUTES {
            let (slid, dlid) = lids(index);
            publisher.set(index, Some(&RouteSpec { slid, dlid, path: &[1, 2, 3, 4, 5, 6], p_key }))?;
        }
        let start = Instant::now();
        let generation = publisher.publish();
        publisher.wait(generation)?;
        let all = start.elapsed();
        rounds.push(Summary::of("resync_ms", all.as_secs_f64() * 1e3));
        std::thread::sleep(Duration::from_millis(10));
    }
    let first = rounds.first().map_or(f64::NAN, |first| first.get("resync_ms"));
    let after = plane.process().memory("VmRSS");
    let file = std::fs::metadata(plane.paths().table_segment()).map_or(0, |found| found.len());
    let mut memory = Summary::of("worker_mb", after.saturating_sub(before) as f64 / 1e6);
    memory.values.insert("table_file_mb".to_owned(), file as f64 / 1e6);
    memory.values.insert("first_resync_ms".to_owned(), first);
    let record = Record::from_rounds("table-whole", "65,536 routes, all changed, one worker", "ms", &rounds);
    let resync = record.median("resync_ms");
    let memory = Record::from_rounds("table-whole", "65,536 routes, memory", "MB", &[memory]);
    Ok(vec![
        record
            .held_to(Bar::at_most("full resync of 65,536 routes, ms", resync, 5.0))
            .noting("from publish to applied; the first time the routes are new to the worker"),
        memory.noting("worker_mb includes the mapped table and the route counters"),
    ])
}
