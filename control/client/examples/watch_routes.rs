//! Prints the published routes of a plane and then every change to them, as the workers see it.
//!
//! ```sh
//! cargo run -p madplane-ctl --example watch_routes -- [PLANE] [CHANGES]
//! ```
//!
//! Ends after so many changes; 0 prints what there is. It only reads: nothing here needs a running daemon, so it can be
//! pointed at a plane that has died to see what was there.
#![allow(clippy::print_stdout, reason = "this is a program")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use madctl::view::RouteLine;
use madctl::{Key, Plane, View};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let plane = Plane::open(&arguments.next().unwrap_or_default())?;
    let changes: usize = arguments.next().map_or(Ok(usize::MAX), |number| number.parse())?;

    let mut view = plane.view();
    let head = view.head()?;
    println!("plane {}: madplaned {}, pid {}, {}", head.name, head.version, head.pid, head.state.label());

    let mut known = BTreeMap::new();
    let mut seen = 0;
    let mut generation = show_changes(&mut view, &mut known)?.0;
    while seen < changes {
        std::thread::sleep(Duration::from_millis(20));
        let (now, moved) = show_changes(&mut view, &mut known)?;
        seen += moved;
        if now != generation {
            generation = now;
            println!("generation {generation}: {} routes", known.len());
        }
    }
    Ok(())
}

/// Prints what is not as it was, and returns the generation and how many routes that were.
fn show_changes(view: &mut View, known: &mut BTreeMap<Key, u64>) -> Result<(u64, usize), Box<dyn Error>> {
    let table = view.routes()?;
    if table.damaged > 0 {
        println!("! {} damaged routes or tenants are not shown", table.damaged);
    }
    let mut moved = 0;
    let mut gone = std::mem::take(known);
    for route in &table.routes {
        let key = (route.slid, route.dlid);
        // an id is never given to another route, so a new one under an old key is a replacement
        if gone.remove(&key) != Some(route.id) {
            println!("+ {}", line(route));
            moved += 1;
        }
        known.insert(key, route.id);
    }
    for (slid, dlid) in gone.keys() {
        println!("- {slid:#06x} -> {dlid:#06x}");
        moved += 1;
    }
    Ok((table.generation, moved))
}

fn line(route: &RouteLine) -> String {
    let ports: Vec<String> = route.path.iter().map(u8::to_string).collect();
    let owner = route.tenant_name.as_ref().map_or_else(String::new, |name| format!(", tenant {name}"));
    format!(
        "{:#06x} -> {:#06x}: ports {}, {} packets{owner}",
        route.slid,
        route.dlid,
        ports.join(","),
        route.packets
    )
}
