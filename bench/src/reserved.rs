//! The reserved class under a flood: one session of a reserved tenant among sixteen that send as much as they can.
//!
//! One thread on the client's core is all seventeen clients. It fills the rings of the bulk sessions to the brim before each
//! probe, so that the worker has work while the probe is under way; idle probes take turns with flooded ones.

use std::time::{Duration, Instant};

use madplane_client::{RawSession, TenantName};
use madplane_shm::table::tenant::{TenantEntry, service_class, tenant_right};

use crate::by_lid::{Kind, LidQuery, PlaneClient};
use crate::error::BenchError;
use crate::fabrics::Fabric;
use crate::harness::{Distribution, Spread, Summary};
use crate::load::nanoseconds;
use crate::machine::Cores;
use crate::plane::{Plane, PlaneOptions};
use crate::report::{Bar, Record};
use crate::scenario::Options;
use crate::subnet::Subnet;
use crate::table::{HOSTS_128, on_the_client_core};
use crate::tables::Publisher;

/// Sessions that flood.
const BULK: usize = 16;
/// Slots of each of their rings.
const BULK_SLOTS: u32 = 256;
/// Name of the reserved tenant.
const TENANT: &str = "critical";
/// Pause between two idle probes, about what the filling of the rings takes.
const PAUSE: Duration = Duration::from_micros(20);
/// How long both classes flood for the shares.
const WINDOW: Duration = Duration::from_millis(100);

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    on_the_client_core(|cores| measure(options, cores))
}

/// A client, what it asks, and how many answers are on their way.
struct Flooder {
    client: PlaneClient,
    query: LidQuery,
    open: usize,
    answered: u64,
}

impl Flooder {
    fn new(client: PlaneClient, fabric: &Fabric, node: u32) -> Self {
        let query = client.query(Kind::Smp, Subnet::lid(node), Subnet::guid(fabric, node));
        Self { client, query, open: 0, answered: 0 }
    }

    /// Takes what has come, and sends as long as there is room for the answers.
    fn refill(&mut self) -> Result<(), BenchError> {
        self.drain()?;
        while self.open < BULK_SLOTS as usize && self.client.push(&self.query) {
            self.open += 1;
        }
        self.client.flush();
        Ok(())
    }

    fn drain(&mut self) -> Result<(), BenchError> {
        // until there is none, which also gives the slots back
        while self.client.take(&self.query)? {
            self.open = self.open.saturating_sub(1);
            self.answered += 1;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), BenchError> {
        let start = Instant::now();
        while self.open > 0 {
            self.drain()?;
            if start.elapsed() > Duration::from_secs(10) {
                return Err(BenchError::Silence(10));
            }
        }
        Ok(())
    }
}

fn reserved_tenant() -> Option<TenantEntry> {
    let mut entry = TenantEntry::new(TENANT)?;
    entry.rights = tenant_right::SMP_GET | tenant_right::SMP_SET;
    entry.class = service_class::RESERVED;
    entry.classes = [u64::MAX; 4];
    (entry.p_keys[0], entry.p_key_count) = (0xFFFF, 1);
    entry.id = 1;
    Some(entry)
}

fn measure(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(HOSTS_128)?;
    let subnet = Subnet::draw(&fabric);
    let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
    let mut first = PlaneClient::attach(plane.paths(), "", BULK_SLOTS)?;
    subnet.bring_up(&fabric, &mut first)?;
    let node =
        subnet.at_distance(4).next().ok_or_else(|| BenchError::Usage("no host at 4 hops".to_owned()))?;
    let mut publisher = Publisher::start(&plane, 1024)?;
    let entry = reserved_tenant().ok_or_else(|| BenchError::Usage("not a tenant".to_owned()))?;
    publisher.set_tenant(0, &entry);
    publisher.sync()?;
    let mut bulk = vec![Flooder::new(first, &fabric, node)];
    while bulk.len() < BULK {
        let client = PlaneClient::attach(plane.paths(), "", BULK_SLOTS)?;
        bulk.push(Flooder::new(client, &fabric, node));
    }
    let attach = |error: &dyn std::fmt::Display| BenchError::Attach(error.to_string());
    let name = TenantName::new(TENANT).map_err(|error| attach(&error))?;
    let session = RawSession::open_as(plane.paths(), "", BULK_SLOTS, name).map_err(|error| attach(&error))?;
    let mut reserved = Flooder::new(PlaneClient::over(session)?, &fabric, node);
    let count = options.count_or(20_000);
    let (mut latencies, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds_or(7) {
        let mut times = [Distribution::new(), Distribution::new()];
        // in blocks of a hundred, so that both meet the same machine
        for _ in 0..count.div_ceil(100) {
            for _ in 0..100 {
                let start = Instant::now();
                while start.elapsed() < PAUSE {
                    std::hint::spin_loop();
                }
                probe(&mut reserved, &mut times[0])?;
            }
            for _ in 0..100 {
                bulk.iter_mut().try_for_each(Flooder::refill)?;
                probe(&mut reserved, &mut times[1])?;
            }
            bulk.iter_mut().try_for_each(Flooder::finish)?;
        }
        let mut summary = Summary::default();
        for (what, times) in ["idle", "flooded"].into_iter().zip(&times) {
            for (metric, value) in times.summary(None).values {
                summary.values.insert(format!("{what}_{metric}"), value);
            }
        }
        latencies.push(summary);
        shares.push(share(&mut reserved, &mut bulk)?);
    }
    let record =
        Record::from_rounds("reserved", "reserved session among 16 that flood, 4 hops", "ns", &latencies);
    let over = |metric: &str| {
        Spread::quotient(
            record.rounds(&format!("flooded_{metric}")),
            record.rounds(&format!("idle_{metric}")),
        )
    };
    let (p50, p999) = (over("p50"), over("p99.9"));
    let bar = Bar::at_most("p99.9 under the flood over idle", p999.median, 2.0);
    let record = record.with("flooded_over_idle_p50", p50).with("flooded_over_idle_p99.9", p999).held_to(bar);
    let bulk = Record::from_rounds("reserved", "bulk while the reserved session floods too", "", &shares);
    let percent = bulk.median("bulk_share_percent");
    let bulk = bulk.held_to(Bar::at_least("share of the bulk sessions, percent", percent, 5.0));
    Ok(vec![record.noting("one thread is all clients; it fills all rings before each probe"), bulk])
}

fn probe(reserved: &mut Flooder, times: &mut Distribution) -> Result<(), BenchError> {
    let start = Instant::now();
    reserved.client.ask_one(&reserved.query)?;
    times.record(nanoseconds(start.elapsed()));
    Ok(())
}

/// Both classes flood: who gets how much.
fn share(reserved: &mut Flooder, bulk: &mut [Flooder]) -> Result<Summary, BenchError> {
    reserved.answered = 0;
    bulk.iter_mut().for_each(|flooder| flooder.answered = 0);
    let start = Instant::now();
    while start.elapsed() < WINDOW {
        for flooder in &mut *bulk {
            // the reserved ring is never empty
            reserved.refill()?;
            flooder.refill()?;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let others: u64 = bulk.iter().map(|flooder| flooder.answered).sum();
    let mine = reserved.answered;
    reserved.finish()?;
    bulk.iter_mut().try_for_each(Flooder::finish)?;
    let mut summary = Summary::of("bulk_share_percent", others as f64 * 100.0 / (others + mine) as f64);
    summary.values.insert("bulk_per_second".to_owned(), others as f64 / elapsed);
    summary.values.insert("reserved_per_second".to_owned(), mine as f64 / elapsed);
    Ok(summary)
}
