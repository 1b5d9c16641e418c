//! LID, directed, pinned and cached routing over 1, 2, 4 and 6 hops: mean and deviation, percentiles.
//!
//! One client asks the same nodes for their NodeInfo, one request at a time, through the raw rings of a running plane: by
//! forwarding tables, along a directed route, by a pinned route that is resolved (*cached*), and by one that has to be looked
//! at anew. The last needs a change of the route before each request; what that costs the others is measured by the same
//! requests with another route published before each. All ways take turns within a round, and the floor with them. Beside
//! our numbers stand those of the paper: round trips of SMPs through a real fabric, so they say what the three ways are
//! worth to each other there, not that we are faster than a wire.

use std::time::Duration;

use madplane_port::machine::pin_thread;
use madplane_wire::mad::class;

use crate::by_lid::PlaneClient;
use crate::error::BenchError;
use crate::fabrics::{Fabric, Route};
use crate::floor::Floors;
use crate::harness::{Distribution, Spread, Summary};
use crate::load::{Query, RingClient};
use crate::machine::Cores;
use crate::pinned::HOPS;
use crate::plane::{Plane, PlaneOptions};
use crate::report::Record;
use crate::scenario::Options;
use crate::subnet::Subnet;
use crate::table::{HOSTS_128, on_the_client_core};
use crate::tables::{Publisher, RouteSpec};
use crate::ways::{Way, misses};

/// Requests of a case and round, and how many there are for one with publications.
const COUNT: u32 = 50_000;
const FEWER: u32 = 5;
/// What all of it takes by default, about.
const WHOLE: Duration = Duration::from_secs(12);

/// A kind of routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Routing {
    Lid,
    Directed,
    Anew,
    Cached,
}

impl Routing {
    /// In the order in which they take turns.
    const ALL: [Self; 4] = [Self::Lid, Self::Directed, Self::Anew, Self::Cached];

    /// For people.
    fn name(self) -> &'static str {
        match self {
            Self::Lid => "LID",
            Self::Directed => "directed",
            Self::Anew => "pinned, looked up anew",
            Self::Cached => "pinned, cached",
        }
    }

    /// The label `route`.
    fn label(self) -> &'static str {
        match self {
            Self::Lid => "lid",
            Self::Directed => "directed",
            Self::Anew => "pinned",
            Self::Cached => "cached",
        }
    }

    /// The paper's name, mean and standard deviation in microseconds.
    fn paper(self) -> (&'static str, f64, f64) {
        match self {
            Self::Lid => ("LID routing", 5.2, 1.8),
            Self::Directed | Self::Anew => ("direct routing", 3.1, 0.4),
            Self::Cached => ("cached direct routing", 2.7, 0.2),
        }
    }

    /// How its route is published; a directed one needs none.
    fn way(self) -> Way {
        match self {
            Self::Lid | Self::Directed => Way::Tables,
            Self::Anew => Way::Uncached,
            Self::Cached => Way::Cached,
        }
    }
}

/// A kind of routing to one node, and what it gave.
#[derive(Debug)]
struct Case {
    routing: Routing,
    hops: usize,
    /// A route is published before each request.
    published: bool,
    dlid: u16,
    path: Vec<u8>,
    query: Query,
    rounds: Vec<Summary>,
    times: Distribution,
}

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    on_the_client_core(|cores| measure(options, cores))
}

/// Requests of a round of a case without publications.
fn count(options: &Options) -> u32 {
    let default = options.count_or(COUNT);
    match options.duration {
        None => default,
        Some(wanted) => {
            let wanted = f64::from(default) * wanted.as_secs_f64() / WHOLE.as_secs_f64();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
            let wanted = wanted.clamp(200.0, 1e8) as u32;
            wanted
        }
    }
}

fn measure(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(options.fabric.as_deref().unwrap_or(HOSTS_128))?;
    let subnet = Subnet::draw(&fabric);
    let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
    subnet.bring_up(&fabric, &mut PlaneClient::attach(plane.paths(), "", 0)?)?;
    let mut client = RingClient::attach(plane.paths(), "", 0)?;
    let by_lid = client.register(class::SUBN_LID)?;
    let mut publisher = Publisher::start(&plane, 1024)?;
    let mut cases = cases(&fabric, &subnet, &client, by_lid);
    let mut floors = Floors::default();
    let count = count(options);
    let slid = Subnet::lid(fabric.host);
    for _ in 0..options.rounds_or(5) {
        let pause = plane.pause();
        floors.sample(cores, count)?;
        drop(pause);
        pin_thread(cores.client);
        for case in &mut cases {
            let times = one_round(&mut client, &mut publisher, case, slid, count)?;
            case.rounds.push(times.summary(None));
            case.times.merge(&times);
        }
    }
    let floor = floors.transfer("route-types");
    let records = cases.into_iter().map(|case| record(case, &floor));
    Ok(std::iter::once(floor.clone()).chain(records).collect())
}

/// Every kind of routing to a node of each distance, plain and with publications.
fn cases(fabric: &Fabric, subnet: &Subnet, client: &RingClient, by_lid: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    for hops in HOPS {
        let Some(node) = subnet.at_distance(hops).next() else { continue };
        let (path, guid, dlid) =
            (&subnet.paths[node as usize], Subnet::guid(fabric, node), Subnet::lid(node));
        for (routing, published) in Routing::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            if routing == Routing::Anew && !published {
                continue;
            }
            let query = match routing {
                Routing::Directed => client.query(&Route { ports: path.clone(), node_guid: guid }),
                _ => Query::by_lid(dlid, guid, by_lid),
            };
            let (path, rounds, times) = (path.clone(), Vec::new(), Distribution::new());
            cases.push(Case { routing, hops, published, dlid, path, query, rounds, times });
        }
    }
    cases
}

/// Warms up and asks.
fn one_round(
    client: &mut RingClient,
    publisher: &mut Publisher,
    case: &mut Case,
    slid: u16,
    count: u32,
) -> Result<Distribution, BenchError> {
    let Case { routing, published, dlid, ref path, ref mut query, .. } = *case;
    let used = RouteSpec { slid, dlid, path, p_key: 0 };
    let way = routing.way();
    if published {
        let ask = || client.ask_one(query, 0);
        return way.with_publications(publisher, &used, count / FEWER, ask);
    }
    way.prepare(publisher, &used)?;
    client.ask_each(query, count / 10 + 1, &mut Distribution::new())?;
    let before = misses(publisher.status())?;
    let mut times = Distribution::new();
    client.ask_each(query, count, &mut times)?;
    let resolved = misses(publisher.status())? - before;
    if resolved != 0 {
        return Err(BenchError::Wrong(format!("{}: {resolved} routes resolved anew", routing.name())));
    }
    Ok(times)
}

fn record(case: Case, floor: &Record) -> Record {
    let Case { routing, hops, published, .. } = case;
    let between = if published { ", a route published before each" } else { "" };
    let name = format!("{}, {hops} hops{between}", routing.name());
    let record = Record::from_rounds("route-types", &name, "ns", &case.rounds);
    let over = |metric: &str| Spread::quotient(record.rounds(metric), floor.rounds(metric));
    let (p50, mean) = (over("p50"), over("mean"));
    let (paper, paper_mean, paper_sd) = routing.paper();
    let note = beside_the_paper(&record, routing);
    let record = match (routing, published) {
        // there is no other way to have it
        (Routing::Anew, _) => record,
        (_, true) => record.labelled("between", "publication"),
        (_, false) => record.labelled("between", "nothing"),
    };
    record
        .with("p50_over_floor", p50)
        .with("mean_over_floor", mean)
        .labelled("route", routing.label())
        .labelled("hops", hops)
        .labelled("paper_route", paper)
        .labelled("paper_mean_us", paper_mean)
        .labelled("paper_sd_us", paper_sd)
        .distributed(case.times)
        .noting(note)
}

/// Ours and the paper's, mean and standard deviation.
fn beside_the_paper(record: &Record, routing: Routing) -> String {
    let (paper, paper_mean, paper_sd) = routing.paper();
    format!(
        "{:.2} ± {:.2} us here; {paper} of the paper {paper_mean:.1} ± {paper_sd:.1} us",
        record.median("mean") / 1e3,
        record.median("sd") / 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_stands_beside_its_line_of_the_paper() {
        let mut round = Summary::of("mean", 612.0);
        round.values.insert("sd".to_owned(), 98.0);
        let record = Record::from_rounds("route-types", "x", "ns", &[round]);
        let lines = Routing::ALL.map(|routing| beside_the_paper(&record, routing));
        assert_eq!(
            lines,
            [
                "0.61 ± 0.10 us here; LID routing of the paper 5.2 ± 1.8 us",
                "0.61 ± 0.10 us here; direct routing of the paper 3.1 ± 0.4 us",
                "0.61 ± 0.10 us here; direct routing of the paper 3.1 ± 0.4 us",
                "0.61 ± 0.10 us here; cached direct routing of the paper 2.7 ± 0.2 us",
            ]
        );
    }

    #[test]
    fn less_time_means_fewer_requests() {
        let wanted = |seconds: f64| {
            let duration = Some(Duration::from_secs_f64(seconds));
            count(&Options { duration, ..Options::default() })
        };
        assert_eq!((wanted(12.0), wanted(6.0), wanted(0.001)), (COUNT, COUNT / 2, 200));
        assert_eq!(count(&Options { quick: true, ..Options::default() }), COUNT / 10);
    }
}
