//! Which records become which plots.
//!
//! By the labels of records, not by their names: `mode`, `load`, `client`, `depth`, `sessions`, `hops`, `impl`, `route`.
//! `modes`, `raw` and `route-types` have plots of their own; every other scenario gets bars of what it has. Pure.

use super::plot::{Axis, Plot, Point, Row, Rows, Series};
use super::scale::{Scale, Unit, label};
use super::tables::escape;
use crate::report::{Record, number};

/// Series of one plot at most; more would not be told apart.
const MOST_SERIES: usize = 8;
/// Modes in the order of their colours.
const MODES: [&str; 3] = ["polling", "interrupt", "adaptive"];
/// What an open load is called where nothing limits it.
const ALL: &str = "max";

/// The plots of a scenario.
pub(super) fn of(bench: &str, records: &[&Record]) -> String {
    match bench {
        "modes" => modes(records),
        "raw" => raw(records) + &bars(records, &["p50"]),
        "route-types" => route_types(records) + &curves(records),
        _ => curves(records) + &bars(records, &[]),
    }
}

fn label_of<'a>(record: &'a Record, label: &str) -> Option<&'a str> {
    record.labels.get(label).map(String::as_str)
}

/// A label as a number; `max` is beyond all.
fn number_of(record: &Record, label: &str) -> Option<f64> {
    match label_of(record, label)? {
        ALL => Some(f64::INFINITY),
        text => text.parse().ok(),
    }
}

/// The values of a label, each once, by size.
fn values_of(records: &[&Record], label: &str) -> Vec<String> {
    let mut values: Vec<(f64, &str)> = Vec::new();
    for record in records {
        if let (Some(text), Some(number)) = (label_of(record, label), number_of(record, label))
            && !values.iter().any(|(_, known)| *known == text)
        {
            values.push((number, text));
        }
    }
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values.into_iter().map(|(_, text)| text.to_owned()).collect()
}

/// Median of a metric with the ends of its rounds.
fn point(record: &Record, x: f64, metric: &str) -> Option<Point> {
    let spread = record.metrics.get(metric)?;
    let ends = (spread.rounds.len() > 1).then_some((spread.low, spread.high));
    Some(Point { x, y: spread.median, spread: ends })
}

/// The time that each share of all requests does not exceed, from the median on; the longest is in the tables.
fn percentiles(record: &Record) -> Vec<Point> {
    let shown = record.curve.iter().filter(|(quantile, _)| Scale::Nines.takes(*quantile));
    shown.map(|(quantile, ns)| Point { x: *quantile, y: *ns as f64, spread: None }).collect()
}

fn percentile_axes() -> (Axis, Axis) {
    (
        Axis::new("share of all requests that took no longer", Scale::Nines, Unit::Plain),
        Axis::new("time", Scale::Log, Unit::Ns),
    )
}

/// Percentile curves, one plot for each number of hops.
fn curves(records: &[&Record]) -> String {
    let drawn: Vec<&Record> = records.iter().filter(|record| !record.curve.is_empty()).copied().collect();
    let mut groups: Vec<(String, Vec<&Record>)> = Vec::new();
    for record in drawn {
        let title = label_of(record, "hops").map_or_else(String::new, |hops| format!(", {hops} hops"));
        match groups.iter_mut().find(|(of, members)| *of == title && members.len() < MOST_SERIES) {
            Some((_, members)) => members.push(record),
            None => groups.push((title, vec![record])),
        }
    }
    let plot = |(title, members): &(String, Vec<&Record>)| {
        let series = members.iter().enumerate().map(|(style, record)| Series {
            name: record.case.clone(),
            style,
            dashed: style >= MOST_SERIES / 2,
            points: percentiles(record),
        });
        let (x, y) = percentile_axes();
        Plot {
            title: format!("Latency percentiles{title}"),
            x,
            y,
            series: series.collect(),
            rules: Vec::new(),
            otherwise: String::new(),
        }
        .to_html()
    };
    groups.iter().map(plot).collect()
}

/// Metrics that are drawn as bars, what they are, and how they are written.
const BARS: &[(&str, &str, Unit)] = &[
    ("p50", "median time", Unit::Ns),
    ("ns_per_mad", "processor time of one MAD", Unit::Ns),
    ("per_second_median_stretch", "rate of the median stretch, a second", Unit::Count),
    ("per_second", "rate, a second", Unit::Count),
    ("burst_1_ns", "push and pop of one, one at a time", Unit::Ns),
    ("burst_8_ns", "push and pop of one, in bursts of 8", Unit::Ns),
    ("burst_32_ns", "push and pop of one, in bursts of 32", Unit::Ns),
    ("read_ns", "time of one read", Unit::Ns),
    ("publish_ns_per_entry", "publishing, time of one entry", Unit::Ns),
    ("follow_ns_per_entry", "following a publication, time of one entry", Unit::Ns),
    ("wall_s", "wall time, seconds", Unit::Plain),
    ("startup_s", "start, seconds", Unit::Plain),
];

/// Bars of what several cases have in common; quotients apart from the rest.
fn bars(records: &[&Record], but: &[&str]) -> String {
    let mut out = String::new();
    let has = |record: &&Record, metric: &str| record.metrics.contains_key(metric);
    for (metric, what, unit) in BARS.iter().filter(|(metric, ..)| !but.contains(metric)) {
        let of: Vec<&Record> =
            records.iter().filter(|record| has(record, metric) && record.unit != "times").copied().collect();
        // the rate of the median stretch says the same, undisturbed
        let better =
            *metric == "per_second" && of.iter().any(|record| has(record, "per_second_median_stretch"));
        let beside = *metric == "per_second" && of.iter().any(|record| has(record, "ns_per_mad"));
        if of.len() > 1 && !better && !beside {
            out.push_str(&rows(&of, metric, &sentence(what), what, *unit, Vec::new()));
        }
        let quotients: Vec<&Record> =
            records.iter().filter(|record| has(record, metric) && record.unit == "times").copied().collect();
        if !quotients.is_empty() {
            let title = format!("{}: how many times", sentence(what));
            let one = vec![("1".to_owned(), 1.0)];
            out.push_str(&rows(&quotients, metric, &title, "times", Unit::Plain, one));
        }
    }
    out
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

fn rows(
    records: &[&Record],
    metric: &str,
    title: &str,
    axis: &str,
    unit: Unit,
    rules: Vec<(String, f64)>,
) -> String {
    // what a case is of gives the colour
    let kinds = ["impl", "route", "way", "mode", "side", "workers"];
    let of = |record: &Record| kinds.iter().find_map(|kind| label_of(record, kind)).unwrap_or("").to_owned();
    let mut known: Vec<String> = Vec::new();
    let rows = records.iter().filter_map(|record| {
        let spread = record.metrics.get(metric)?;
        let kind = of(record);
        let place = known.iter().position(|known| *known == kind).unwrap_or_else(|| {
            known.push(kind);
            known.len() - 1
        });
        let style = if record.case.contains("floor: ") { BESIDE } else { place % BESIDE };
        Some(Row {
            name: record.case.clone(),
            style,
            value: spread.median,
            spread: (spread.rounds.len() > 1).then_some((spread.low, spread.high)),
            shown: if unit == Unit::Plain { number(spread.median) } else { label(spread.median, unit) },
        })
    });
    Rows {
        title: title.to_owned(),
        axis: Axis::new(axis, Scale::Linear, unit),
        rows: rows.collect(),
        rules,
        otherwise: String::new(),
    }
    .to_html()
}

/// Latency by length of the route, beside the floor.
fn raw(records: &[&Record]) -> String {
    let along = |metric: &str| -> Vec<Point> {
        let of = records.iter().filter(|record| label_of(record, "depth").is_none_or(|depth| depth == "1"));
        let mut points: Vec<Point> =
            of.filter_map(|record| point(record, number_of(record, "hops")?, metric)).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    };
    let line = |(style, metric): (usize, &str)| Series {
        name: metric.to_owned(),
        style,
        dashed: style > 0,
        points: along(metric),
    };
    let floor = records.iter().find(|record| record.case.starts_with("floor:"));
    Plot {
        title: "Round trip through the rings by hops, one in flight".to_owned(),
        x: Axis::new("hops of the directed route", Scale::Linear, Unit::Plain),
        y: Axis::new("time there and back", Scale::Log, Unit::Ns),
        series: ["p50", "p90", "p99"].into_iter().enumerate().map(line).collect(),
        rules: floor.map(|floor| ("p50 of the floor".to_owned(), floor.median("p50"))).into_iter().collect(),
        otherwise: "the file is older than the labels that say which case has how many hops".to_owned(),
    }
    .to_html()
}

/// A value along the axis of loads, depths or sessions: a series for each mode.
struct Along<'a> {
    label: &'static str,
    names: Vec<String>,
    records: Vec<&'a Record>,
}

impl<'a> Along<'a> {
    fn new(records: &[&'a Record], label: &'static str) -> Self {
        let records: Vec<&Record> =
            records.iter().filter(|record| label_of(record, label).is_some()).copied().collect();
        Self { label, names: values_of(&records, label), records }
    }

    /// The points of a mode by the number of the name.
    fn points(&self, mode: &str, metric: &str) -> Vec<Point> {
        (0u32..)
            .zip(&self.names)
            .filter_map(|(number, name)| {
                let here = |record: &&&Record| {
                    label_of(record, self.label) == Some(name) && label_of(record, "mode") == Some(mode)
                };
                point(self.records.iter().find(here)?, f64::from(number), metric)
            })
            .collect()
    }

    /// A line for each mode and metric; the second and further metrics are dashed.
    fn series(&self, metrics: &[(&str, &str)]) -> Vec<Series> {
        let of = |(style, mode): (usize, &'static str)| {
            metrics.iter().enumerate().map(move |(number, (metric, what))| Series {
                name: if what.is_empty() { mode.to_owned() } else { format!("{mode}, {what}") },
                style,
                dashed: number > 0,
                points: self.points(mode, metric),
            })
        };
        MODES.into_iter().enumerate().flat_map(of).collect()
    }

    fn x(&self, title: &str) -> Axis {
        let name = |name: &String| {
            name.parse().map_or_else(|_| name.clone(), |value: f64| label(value, Unit::Count))
        };
        Axis::new(title, Scale::Names(self.names.iter().map(name).collect()), Unit::Plain)
    }

    fn plot(&self, title: &str, x: &str, y: Axis, metrics: &[(&str, &str)], otherwise: &str) -> String {
        Plot {
            title: title.to_owned(),
            x: self.x(x),
            y,
            series: self.series(metrics),
            rules: Vec::new(),
            otherwise: otherwise.to_owned(),
        }
        .to_html()
    }
}

const NO_LOADS: &str = "no open loads were measured";
const OFFERED: &str = "offered load, MADs a second";

fn modes(records: &[&Record]) -> String {
    let loads = Along::new(records, "load");
    let mut out = mode_curves(&loads);
    let cpu = [("worker_cpu", "worker"), ("process_cpu", "all of the plane")];
    let seconds = Axis::new("processor seconds a second", Scale::Linear, Unit::Plain);
    out += &loads.plot("Processor time by load", OFFERED, seconds, &cpu, NO_LOADS);
    let each = [("worker_cpu_ns_per_mad", "")];
    let axis = Axis::new("processor time of the worker", Scale::Log, Unit::Ns);
    out += &loads.plot("Processor time of one MAD by load", OFFERED, axis, &each, NO_LOADS);
    let wakes = [("wake_ups_per_mad", "wake-ups"), ("coalesced_per_mad", "gathered")];
    let axis = Axis::new("for each MAD", Scale::Linear, Unit::Plain);
    out += &loads.plot("Wake-ups of one MAD by load", OFFERED, axis, &wakes, NO_LOADS);
    out += &against_throughput(&loads);
    out += &closed_loops(records);
    let sessions = Along::new(records, "sessions");
    let times = [("p50", "p50"), ("p99", "p99")];
    let axis = Axis::new("time from when it was due", Scale::Log, Unit::Ns);
    out + &sessions.plot(
        "Latency by number of sessions that share a load",
        "sessions",
        axis,
        &times,
        "no shared loads were measured",
    )
}

/// Percentile curves of all modes, one plot for each load.
fn mode_curves(loads: &Along<'_>) -> String {
    let of_load = |load: &String| {
        let series = MODES.into_iter().enumerate().filter_map(|(style, mode)| {
            let here = |record: &&&Record| {
                label_of(record, "load") == Some(load) && label_of(record, "mode") == Some(mode)
            };
            let points = percentiles(loads.records.iter().find(here)?);
            Some(Series { name: mode.to_owned(), style, dashed: false, points })
        });
        let title = match load.parse() {
            Ok(rate) => format!("Latency at {} MADs a second", label(rate, Unit::Count)),
            Err(_) => "Latency at all that a client can send".to_owned(),
        };
        let (x, y) = percentile_axes();
        let otherwise = "nothing is sent at this load".to_owned();
        Plot { title, x, y, series: series.collect(), rules: Vec::new(), otherwise }
    };
    let with_curves = |load: &&String| {
        let of = |record: &&Record| label_of(record, "load") == Some(load) && !record.curve.is_empty();
        loads.records.iter().any(of)
    };
    let plots: String = loads.names.iter().filter(with_curves).map(|load| of_load(load).to_html()).collect();
    if plots.is_empty() {
        let (x, y) = percentile_axes();
        let (title, otherwise) = ("Latency percentiles by load".to_owned(), NO_LOADS.to_owned());
        return Plot { title, x, y, series: Vec::new(), rules: Vec::new(), otherwise }.to_html();
    }
    plots
}

/// What a mode answers in a second, and how long one MAD then takes.
fn against_throughput(loads: &Along<'_>) -> String {
    let line = |style: usize, mode: &str, metric: &str| {
        let of = loads.records.iter().filter(|record| label_of(record, "mode") == Some(mode));
        let mut points: Vec<Point> =
            of.filter_map(|record| point(record, record.median("per_second"), metric)).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series { name: format!("{mode}, {metric}"), style, dashed: metric != "p50", points }
    };
    let series = MODES
        .into_iter()
        .enumerate()
        .flat_map(|(style, mode)| ["p50", "p99"].map(|metric| line(style, mode, metric)));
    Plot {
        title: "Throughput against latency, open loads and all a client can send".to_owned(),
        x: Axis::new("answers a second", Scale::Log, Unit::Count),
        y: Axis::new("time from when it was due", Scale::Log, Unit::Ns),
        series: series.collect(),
        rules: Vec::new(),
        otherwise: NO_LOADS.to_owned(),
    }
    .to_html()
}

/// Closed loops by depth: latency, and against throughput; a plot for each way in which the client waits.
fn closed_loops(records: &[&Record]) -> String {
    let closed: Vec<&Record> =
        records.iter().filter(|record| label_of(record, "depth").is_some()).copied().collect();
    let mut ways: Vec<&str> = closed.iter().filter_map(|record| label_of(record, "client")).collect();
    ways.sort_unstable();
    ways.dedup();
    let plot = |way: &str| {
        let of: Vec<&Record> =
            closed.iter().filter(|record| label_of(record, "client") == Some(way)).copied().collect();
        let depths = Along::new(&of, "depth");
        let axis = Axis::new("time there and back", Scale::Log, Unit::Ns);
        let title = format!("Closed loop by requests in flight, client {way}");
        depths.plot(&title, "in flight", axis, &[("p50", "p50"), ("p99", "p99")], "nothing was measured")
    };
    if ways.is_empty() {
        return plot("of any kind");
    }
    ways.into_iter().map(plot).collect()
}

/// The values of a label in the order of the records, each once.
fn kinds_of<'a>(records: &[&'a Record], label: &str) -> Vec<&'a str> {
    let mut kinds: Vec<&str> = Vec::new();
    for kind in records.iter().filter_map(|record| label_of(record, label)) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// Mean and deviation by way of routing and length, and the paper's, as bars and as a table.
fn route_types(records: &[&Record]) -> String {
    let mut ours: Vec<&Record> =
        records.iter().filter(|record| label_of(record, "route").is_some()).copied().collect();
    ours.sort_by(|a, b| {
        let hops = |record: &Record| number_of(record, "hops").unwrap_or(0.0);
        hops(a).total_cmp(&hops(b))
    });
    let routes = kinds_of(&ours, "route");
    let row = |record: &&Record| {
        let (mean, sd) = (record.median("mean"), record.median("sd"));
        let route = label_of(record, "route").unwrap_or("");
        Row {
            name: record.case.clone(),
            style: routes.iter().position(|known| *known == route).unwrap_or(0),
            value: mean,
            spread: sd.is_finite().then_some(((mean - sd).max(0.0), mean + sd)),
            shown: mean_and_deviation(record),
        }
    };
    let mut rows: Vec<Row> = ours.iter().map(row).collect();
    rows.extend(kinds_of(&ours, "paper_route").into_iter().filter_map(|name| {
        let of = ours.iter().find(|record| label_of(record, "paper_route") == Some(name))?;
        let (mean, sd) = (number_of(of, "paper_mean_us")?, number_of(of, "paper_sd_us")?);
        Some(Row {
            name: format!("the paper: {name}"),
            style: BESIDE,
            value: mean * 1e3,
            spread: Some(((mean - sd) * 1e3, (mean + sd) * 1e3)),
            shown: format!("{mean} ± {sd} µs"),
        })
    }));
    let bars = Rows {
        title: "Mean ± standard deviation by way of routing; the paper's figures are of real links"
            .to_owned(),
        axis: Axis::new("time there and back", Scale::Linear, Unit::Ns),
        rows,
        rules: Vec::new(),
        otherwise: "no ways of routing were measured".to_owned(),
    };
    bars.to_html() + &beside_the_paper(&ours)
}

/// Colour of what is only there to compare with.
const BESIDE: usize = 7;

fn mean_and_deviation(record: &Record) -> String {
    format!("{} ± {}", label(record.median("mean"), Unit::Ns), label(record.median("sd"), Unit::Ns))
}

/// Ways of routing down, numbers of hops across, the paper's in the last column.
fn beside_the_paper(records: &[&Record]) -> String {
    let records: Vec<&Record> = records
        .iter()
        .filter(|record| label_of(record, "between").is_none_or(|between| between == "nothing"))
        .copied()
        .collect();
    let hops = values_of(&records, "hops");
    if hops.is_empty() {
        return String::new();
    }
    let heads: String = hops.iter().map(|hops| format!("<th>{} hops</th>", escape(hops))).collect();
    let row = |route: &str| {
        let of: Vec<&Record> =
            records.iter().filter(|record| label_of(record, "route") == Some(route)).copied().collect();
        let cell = |hops: &String| {
            let here = of.iter().find(|record| label_of(record, "hops") == Some(hops));
            format!(
                "<td>{}</td>",
                here.map_or_else(String::new, |record| escape(&mean_and_deviation(record)))
            )
        };
        let cells: String = hops.iter().map(cell).collect();
        let paper = of.first().and_then(|record| {
            let part = |label: &str| label_of(record, label);
            let (mean, sd) = (part("paper_mean_us")?, part("paper_sd_us")?);
            let (mean, sd) = (escape(mean), escape(sd));
            Some(format!("{mean} ± {sd} µs <small>{}</small>", escape(part("paper_route")?)))
        });
        format!(
            "<tr><th scope=\"row\">{}</th>{cells}<td>{}</td></tr>",
            escape(route),
            paper.unwrap_or_default()
        )
    };
    let rows: String = kinds_of(&records, "route").into_iter().map(row).collect();
    format!(
        "<figure><figcaption>Mean ± standard deviation beside the paper's</figcaption><div class=\"wide\"><table><thead>\
         <tr><th>route</th>{heads}<th>the paper</th></tr></thead><tbody>{rows}</tbody></table></div></figure>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Summary;

    fn record(case: &str, labels: &[(&str, &str)], values: &[(&str, f64)]) -> Record {
        let mut round = Summary::default();
        round.values.extend(values.iter().map(|(metric, value)| ((*metric).to_owned(), *value)));
        let record = Record::from_rounds("modes", case, "ns", &[round]);
        labels.iter().fold(record, |record, (label, value)| record.labelled(label, value))
    }

    #[test]
    fn loads_stand_by_size_with_the_greatest_possible_last() {
        let at = |load: &str| record(load, &[("mode", "polling"), ("load", load)], &[("worker_cpu", 1.0)]);
        let all = ["max", "100000", "0", "1000"].map(at);
        let all: Vec<&Record> = all.iter().collect();
        let along = Along::new(&all, "load");
        assert_eq!(along.names, ["0", "1000", "100000", "max"]);
        assert_eq!(along.points("polling", "worker_cpu").len(), 4);
        assert_eq!(along.points("adaptive", "worker_cpu"), []);
        let Scale::Names(names) = along.x("load").scale else { panic!("names") };
        assert_eq!(names, ["0", "1 k", "100 k", "max"]);
    }

    #[test]
    fn each_load_has_its_percentile_curves_and_modes_keep_their_colour() {
        let mut records = Vec::new();
        for mode in ["adaptive", "interrupt"] {
            let mut record = record(mode, &[("mode", mode), ("load", "1000")], &[("p50", 900.0)]);
            record.curve = vec![(0.0, 1), (0.5, 900), (0.99, 2000), (1.0, 9000)];
            records.push(record);
        }
        let html = of("modes", &records.iter().collect::<Vec<_>>());
        assert!(html.contains("Latency at 1 k MADs a second"), "{html}");
        assert!(html.contains("line c1") && html.contains("line c2") && !html.contains("line c0"), "{html}");
        assert!(html.contains("no shared loads were measured"), "a plot without data says so: {html}");
    }

    #[test]
    fn the_papers_figures_stand_beside_ours() {
        let ours = record(
            "directed, 4 hops",
            &[
                ("route", "directed"),
                ("hops", "4"),
                ("paper_route", "direct <routing>"),
                ("paper_mean_us", "3.1"),
                ("paper_sd_us", "0.4"),
            ],
            &[("mean", 600.0), ("sd", 50.0)],
        );
        let html = of("route-types", &[&ours]);
        for part in [
            "directed, 4 hops",
            "the paper: direct &lt;routing&gt;",
            "<td>600 ns ± 50 ns</td><td>3.1 ± 0.4 µs <small>direct &lt;routing&gt;</small></td>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn quotients_are_drawn_apart_and_beside_one() {
        let mut ratio = record("ibsim over plane", &[], &[("p50", 10.5)]);
        ratio.unit = "times".to_owned();
        let (plane, ibsim) =
            (record("plane", &[], &[("p50", 786.0)]), record("ibsim", &[], &[("p50", 8311.0)]));
        let html = of("peers", &[&plane, &ibsim, &ratio]);
        assert!(html.contains("Median time<") && html.contains("8.31 µs"), "{html}");
        assert!(html.contains("Median time: how many times") && html.contains("10.5"), "{html}");
        assert_eq!(html.matches("<figure>").count(), 2, "{html}");
    }
}
