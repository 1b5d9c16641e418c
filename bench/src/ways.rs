//! Ways of a request that is addressed by LID, and routes that are published between requests.
//!
//! A pinned route is looked at anew after it has changed. To compare that with what does not change, one route is published
//! before each request whatever the way, and only for [`Way::Uncached`] it is the route that is used. Whether a way was
//! taken is read from the worker's counters. Owned by the thread that publishes and asks.

use std::time::{Duration, Instant};

use madplane_shm::counters::Counter;
use madplane_shm::process::monotonic_ns;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering;

use crate::error::BenchError;
use crate::harness::Distribution;
use crate::load::nanoseconds;
use crate::tables::{Publisher, RouteSpec};

/// A LID that nobody has.
const UNUSED_LID: u16 = 0xBFFF;
/// Longest time until a worker has shown what it counted.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// How a request by LID finds its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By forwarding tables: no route is pinned.
    Tables,
    /// By a pinned route that is looked at anew.
    Uncached,
    /// By a pinned route that is resolved.
    Cached,
}

impl Way {
    /// All.
    pub const ALL: [Self; 3] = [Self::Tables, Self::Uncached, Self::Cached];

    /// As in the names of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Uncached => "uncached",
            Self::Cached => "cached",
        }
    }

    /// Pins `used`, or takes it away, and waits until the worker has it.
    ///
    /// # Errors
    /// As [`Publisher::sync`].
    pub fn prepare(self, publisher: &mut Publisher, used: &RouteSpec<'_>) -> Result<(), BenchError> {
        publisher.set(0, (self != Self::Tables).then_some(used))?;
        publisher.set(1, Some(&unused(used)))?;
        publisher.sync()
    }

    /// Times of `count` requests. `used` is the route of the request; before each, a route is published.
    ///
    /// # Errors
    /// Those of `ask`, and [`BenchError::Wrong`] if the route was not taken in this way.
    pub fn with_publications(
        self,
        publisher: &mut Publisher,
        used: &RouteSpec<'_>,
        count: u32,
        mut ask: impl FnMut() -> Result<(), BenchError>,
    ) -> Result<Distribution, BenchError> {
        self.prepare(publisher, used)?;
        ask()?;
        let (place, spec) = if self == Self::Uncached { (0, *used) } else { (1, unused(used)) };
        let mut times = Distribution::new();
        let before = misses(publisher.status())?;
        for number in 0..count {
            let p_key = if number % 2 == 0 { 0xFFFF } else { 0 };
            publisher.set(place, Some(&RouteSpec { p_key, ..spec }))?;
            publisher.sync()?;
            let start = Instant::now();
            ask()?;
            times.record(nanoseconds(start.elapsed()));
        }
        let resolved = misses(publisher.status())? - before;
        if if self == Self::Uncached { resolved < u64::from(count) } else { resolved != 0 } {
            return Err(BenchError::Wrong(format!("{}: {resolved} of {count} resolved anew", self.name())));
        }
        Ok(times)
    }
}

/// A route of the same shape that nobody uses.
fn unused<'a>(used: &RouteSpec<'a>) -> RouteSpec<'a> {
    RouteSpec { slid: used.dlid, dlid: UNUSED_LID, ..*used }
}

/// Routes that the worker has resolved until now.
///
/// # Errors
/// [`BenchError::Silence`] if it does not show what it counts.
pub fn misses(status: &Status) -> Result<u64, BenchError> {
    let block = status.worker(0);
    let now_ns = monotonic_ns();
    let start = Instant::now();
    // its counts are those of the moment of its heartbeat
    while block.heartbeat_ns.load(Ordering::Acquire) < now_ns {
        if start.elapsed() > SHOWN_WITHIN {
            return Err(BenchError::Silence(SHOWN_WITHIN.as_secs()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(block.counters[Counter::DrCacheMiss as usize].load(Ordering::Relaxed))
}
