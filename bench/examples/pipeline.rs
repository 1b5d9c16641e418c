//! A stream of directed-route queries through one worker on this thread, for a profiler that counts instructions.
//!
//! `pipeline [HOPS] [COUNT] [DEPTH]`; defaults 4, 20000, 32. Run it twice with different counts and take the difference:
//! that is the cost per MAD without the start.
#![forbid(unsafe_code)]

use madplane_bench::BenchError;
use madplane_bench::fabrics::{Fabric, RING};
use madplane_bench::load::Query;
use madplane_bench::solo::Solo;

fn main() -> Result<(), BenchError> {
    let number = |at: usize, default: u32| {
        std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (hops, count, depth) = (number(1, 4), number(2, 20_000), number(3, 32));
    let fabric = Fabric::from_spec(RING)?;
    let mut solo = Solo::build(&fabric)?;
    let hi_tid = solo.register(madplane_wire::mad::CLASS_SUBN_DIRECTED, 0)?;
    let route = fabric
        .route(usize::try_from(hops).unwrap_or(usize::MAX))
        .ok_or_else(|| BenchError::Usage(format!("no route of {hops} hops")))?;
    solo.stream(&mut Query::new(&route, hi_tid), count, depth)?;
    Ok(())
}
