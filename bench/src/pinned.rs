//! Pinned routes against forwarding tables: the same endpoints, in turns, in one run.
//!
//! On the engine alone in processor time (`engine`), and as round trips of the raw client through a running plane
//! (`rings`). *Uncached* means that the route has to be looked at anew for each request, *cached* that it is resolved.

use madplane_engine::{Packet, PinnedRoute, Shard};

use crate::by_lid::{EngineClient, Kind, PlaneClient};
use crate::error::BenchError;
use crate::fabrics::{Fabric, HOSTS_11664};
use crate::harness::{Spread, Summary};
use crate::machine::{Cores, all_cores, on_cores, thread_ns};
use crate::plane::{Plane, PlaneOptions};
use crate::report::{Bar, Record};
use crate::scenario::Options;
use crate::subnet::Subnet;
use crate::table::{HOSTS_128, on_the_client_core};
use crate::tables::{Publisher, RouteSpec};
use crate::ways::Way;

/// Lengths of the paths.
pub const HOPS: [usize; 4] = [1, 2, 4, 6];
/// Most destinations of one case.
const DESTINATIONS: usize = 4096;

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    let mut records = on_cores(&all_cores()[all_cores().len().saturating_sub(1)..], || engine(options))?;
    records.extend(on_the_client_core(|cores| rings(options, cores))?);
    Ok(records)
}

/// One case of the engine: who is asked, and the routes there.
struct Case {
    kind: Kind,
    hops: usize,
    requests: Vec<Packet>,
    routes: Vec<PinnedRoute>,
    rounds: Vec<Summary>,
}

fn pinned_route(slid: u16, dlid: u16, path: &[u8]) -> PinnedRoute {
    let mut route = PinnedRoute { slid, dlid, ..PinnedRoute::default() };
    route.path[..path.len()].copy_from_slice(path);
    route.path_len = u8::try_from(path.len()).unwrap_or(0);
    route
}

fn engine(options: &Options) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(options.fabric.as_deref().unwrap_or(HOSTS_11664))?;
    let subnet = Subnet::draw(&fabric);
    let mut client = EngineClient::build(&fabric)?;
    subnet.bring_up(&fabric, &mut client)?;
    let mut cases = Vec::new();
    for hops in HOPS {
        let all: Vec<u32> = subnet.at_distance(hops).take(DESTINATIONS).collect();
        let sets: Vec<&[u32]> = if all.len() > 1 { vec![&all[..1], &all] } else { vec![&all] };
        for nodes in sets.into_iter().filter(|nodes| !nodes.is_empty()) {
            for kind in Kind::ALL {
                let requests: Vec<_> =
                    nodes.iter().map(|node| EngineClient::request(kind, Subnet::lid(*node))).collect();
                for (request, node) in requests.iter().zip(nodes) {
                    client.check(kind, request, Subnet::guid(&fabric, *node))?;
                }
                let slid = Subnet::lid(fabric.host);
                let route =
                    |node: &u32| pinned_route(slid, Subnet::lid(*node), &subnet.paths[*node as usize]);
                let routes = nodes.iter().map(route).collect();
                cases.push(Case { kind, hops, requests, routes, rounds: Vec::new() });
            }
        }
    }
    let count = options.count_or(200_000);
    for _ in 0..options.rounds_or(7) {
        for case in &mut cases {
            case.rounds.push(one_round(&mut client, case, count)?);
        }
    }
    Ok(cases.iter().map(engine_record).collect())
}

/// By tables, uncached, cached.
fn one_round(client: &mut EngineClient, case: &Case, count: u32) -> Result<Summary, BenchError> {
    let set = |shard: &mut Shard, on: bool| {
        for (index, route) in (0u32..).zip(&case.routes) {
            shard.set_route(index, on.then_some(route));
        }
    };
    let mut summary = Summary::default();
    let mut time = |client: &mut EngineClient, what: &str, forgets: bool| {
        client.stream(&case.requests, count / 10 + 1, |_| ())?;
        let (before, activity) = (thread_ns(), client.shard.pinned_activity());
        client.stream(&case.requests, count, |shard| {
            if forgets {
                shard.forget_link_states();
            }
        })?;
        summary.values.insert(format!("{what}_ns"), (thread_ns() - before) / f64::from(count));
        Ok::<_, BenchError>(client.shard.pinned_activity().cache_misses - activity.cache_misses)
    };
    let none = time(client, "tables", false)?;
    set(&mut client.shard, true);
    let all = time(client, "uncached", true)?;
    // the first pass after the last change resolves them; it is not measured
    client.stream(&case.requests, u32::try_from(case.requests.len()).unwrap_or(u32::MAX), |_| ())?;
    let few = time(client, "cached", false)?;
    set(&mut client.shard, false);
    if none != 0 || all < u64::from(count) || few != 0 {
        return Err(BenchError::Wrong(format!(
            "routes resolved {none}, {all} and {few} times in {count} each"
        )));
    }
    Ok(summary)
}

fn engine_record(case: &Case) -> Record {
    let name =
        format!("engine, {}, {} hops, {} destinations", case.kind.name(), case.hops, case.requests.len());
    held(Record::from_rounds("pinned", &name, "", &case.rounds), "_ns", case.hops, 1.0)
}

/// Adds the ratios and what they are held to.
fn held(record: Record, suffix: &str, hops: usize, limit: f64) -> Record {
    let over = |what: &str| {
        Spread::quotient(record.rounds(&format!("tables{suffix}")), record.rounds(&format!("{what}{suffix}")))
    };
    let (uncached, cached) = (over("uncached"), over("cached"));
    let mut bars = vec![
        Bar::at_least("tables over pinned, uncached", uncached.median, limit),
        Bar::at_least("tables over pinned, cached", cached.median, limit),
    ];
    if hops >= 4 && limit >= 1.0 {
        bars.push(Bar::at_least("tables over pinned, cached, 4 hops or more", cached.median, 1.2));
    }
    let record = record.with("tables_over_uncached", uncached).with("tables_over_cached", cached);
    bars.into_iter().fold(record, Record::held_to)
}

fn rings(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(HOSTS_128)?;
    let subnet = Subnet::draw(&fabric);
    let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
    let mut client = PlaneClient::attach(plane.paths(), "", 0)?;
    subnet.bring_up(&fabric, &mut client)?;
    let mut publisher = Publisher::start(&plane, 1024)?;
    let count = options.count_or(20_000);
    let mut records = Vec::new();
    for hops in HOPS {
        let Some(node) = subnet.at_distance(hops).next() else { continue };
        let path = subnet.paths[node as usize].as_slice();
        let used = RouteSpec { slid: Subnet::lid(fabric.host), dlid: Subnet::lid(node), path, p_key: 0 };
        for kind in Kind::ALL {
            let query = client.query(kind, used.dlid, Subnet::guid(&fabric, node));
            let mut rounds = Vec::new();
            for _ in 0..options.rounds_or(7) {
                let mut summary = Summary::default();
                for way in Way::ALL {
                    let ask = || client.ask_one(&query);
                    let times = way.with_publications(&mut publisher, &used, count, ask)?;
                    for (metric, value) in times.summary(None).values {
                        summary.values.insert(format!("{}_{metric}", way.name()), value);
                    }
                }
                rounds.push(summary);
            }
            let name = format!("rings, {}, {hops} hops", kind.name());
            let record = Record::from_rounds("pinned", &name, "ns", &rounds);
            records.push(held(record, "_p50", hops, NOT_SLOWER).noting(
                "two transfers between the cores are in every round trip; one route is published before each, whatever the way",
            ));
        }
    }
    Ok(records)
}

/// What two round trips that take equally long may differ by.
const NOT_SLOWER: f64 = 0.97;
