//! Plots as SVG: lines over two axes, and rows of bars.
//!
//! Colours are classes of the page's style sheet (`c0`, `c1`, ...), so that they follow its light or dark scheme; series
//! also differ by marker and dashes. The same input gives the same text. Pure; what it does not do: choose what to draw.

use std::fmt::Write as _;

use super::scale::{Placed, Scale, Unit};
use super::tables::escape;

/// Size of a plot, and of the room beside its axes.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 48.0;
/// Colours of the style sheet.
const COLOURS: usize = 8;
/// Most points of a line that get markers.
const MARKED: usize = 16;

/// An axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    /// What it shows, with the unit.
    pub(super) title: String,
    pub(super) scale: Scale,
    pub(super) unit: Unit,
}

impl Axis {
    pub(super) fn new(title: &str, scale: Scale, unit: Unit) -> Self {
        Self { title: title.to_owned(), scale, unit }
    }
}

/// A point, and how far the rounds behind it reach up and down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) spread: Option<(f64, f64)>,
}

/// A line of points.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    /// Number of colour and marker.
    pub(super) style: usize,
    pub(super) dashed: bool,
    pub(super) points: Vec<Point>,
}

/// Lines over two axes.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Heights that everything is compared with.
    pub(super) rules: Vec<(String, f64)>,
    /// What would fill the plot if it is empty.
    pub(super) otherwise: String,
}

impl Plot {
    /// A figure of the page.
    pub(super) fn to_html(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let drawable = |point: &&Point| self.x.scale.takes(point.x) && self.y.scale.takes(point.y);
        if !points().any(|point| drawable(&point)) {
            return empty(&self.title, &self.otherwise);
        }
        let all = || points().filter(drawable);
        let heights = all()
            .flat_map(|point| point.spread.map_or([point.y; 3], |(low, high)| [low, point.y, high]))
            .chain(self.rules.iter().map(|(_, at)| *at));
        let x = self.x.scale.place(all().map(|point| point.x), LEFT, WIDTH - RIGHT);
        let y = self.y.scale.place(heights, HEIGHT - BOTTOM, TOP);
        let mut svg = start(&self.title, HEIGHT);
        self.draw_axes(&mut svg, &x, &y);
        for (name, at) in &self.rules {
            draw_rule(&mut svg, name, y.at(*at));
        }
        for series in &self.series {
            draw_series(&mut svg, series, &x, &y);
        }
        svg.push_str("</svg>");
        let left_out = points().count() - all().count();
        figure(&self.title, &svg, &self.legend(), left_out)
    }

    fn draw_axes(&self, svg: &mut String, x: &Placed, y: &Placed) {
        let bottom = HEIGHT - BOTTOM;
        for tick in y.ticks(self.y.unit) {
            let at = y.at(tick.value);
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{LEFT}" x2="{}" y1="{at:.1}" y2="{at:.1}"/>"#,
                WIDTH - RIGHT
            );
            let _ = write!(
                svg,
                r#"<text class="tick" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 6.0,
                at + 4.0,
                escape(&tick.label)
            );
        }
        for tick in x.ticks(self.x.unit) {
            let at = x.at(tick.value);
            let _ = write!(svg, r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{bottom}"/>"#);
            let _ = write!(
                svg,
                r#"<text class="tick" x="{at:.1}" y="{}" text-anchor="middle">{}</text>"#,
                bottom + 16.0,
                escape(&tick.label)
            );
        }
        let _ = write!(svg, r#"<path class="axis" d="M{LEFT} {TOP}V{bottom}H{}"/>"#, WIDTH - RIGHT);
        let _ = write!(
            svg,
            r#"<text class="axis-title" x="{:.1}" y="{}" text-anchor="middle">{}</text>"#,
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 10.0,
            escape(&self.x.title)
        );
        let middle = f64::midpoint(TOP, bottom);
        let _ = write!(
            svg,
            r#"<text class="axis-title" transform="translate(14 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escape(&self.y.title)
        );
    }

    fn legend(&self) -> String {
        let entry = |series: &Series| {
            let colour = series.style % COLOURS;
            let dashes = if series.dashed { " dashed" } else { "" };
            format!(
                r#"<li><svg class="key" viewBox="0 0 34 12" aria-hidden="true"><path class="line c{colour}{dashes}" d="M1 6H33"/>{}</svg>{}</li>"#,
                marker(17.0, 6.0, series.style),
                escape(&series.name)
            )
        };
        let drawn = self.series.iter().filter(|series| !series.points.is_empty());
        format!(r#"<ul class="legend">{}</ul>"#, drawn.map(entry).collect::<String>())
    }
}

fn draw_rule(svg: &mut String, name: &str, at: f64) {
    let right = WIDTH - RIGHT;
    let _ = write!(svg, r#"<line class="rule" x1="{LEFT}" x2="{right}" y1="{at:.1}" y2="{at:.1}"/>"#);
    let _ = write!(
        svg,
        r#"<text class="rule-name" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
        right - 4.0,
        at - 4.0,
        escape(name)
    );
}

fn draw_series(svg: &mut String, series: &Series, x: &Placed, y: &Placed) {
    let colour = series.style % COLOURS;
    let drawable = |point: &&Point| x.takes(point.x) && y.takes(point.y);
    let mut path = String::new();
    for point in series.points.iter().filter(drawable) {
        let command = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{:.1} {:.1}", x.at(point.x), y.at(point.y));
    }
    if path.is_empty() {
        return;
    }
    let dashes = if series.dashed { " dashed" } else { "" };
    let _ = write!(
        svg,
        r#"<path class="line c{colour}{dashes}" d="{path}"><title>{}</title></path>"#,
        escape(&series.name)
    );
    if series.points.len() > MARKED {
        return;
    }
    for point in series.points.iter().filter(drawable) {
        let (at, height) = (x.at(point.x), y.at(point.y));
        if let Some((low, high)) = point.spread.filter(|(low, high)| y.takes(*low) && y.takes(*high)) {
            let _ = write!(
                svg,
                r#"<path class="whisker c{colour}" d="M{at:.1} {:.1}V{:.1}"/>"#,
                y.at(low),
                y.at(high)
            );
        }
        svg.push_str(&marker(at, height, series.style));
    }
}

/// A marker that differs from its neighbours in form as well as in colour.
fn marker(x: f64, y: f64, style: usize) -> String {
    let colour = style % COLOURS;
    match style % 4 {
        0 => format!(r#"<circle class="mark c{colour}" cx="{x:.1}" cy="{y:.1}" r="3.4"/>"#),
        1 => format!(
            r#"<rect class="mark c{colour}" x="{:.1}" y="{:.1}" width="6.4" height="6.4"/>"#,
            x - 3.2,
            y - 3.2
        ),
        2 => format!(r#"<path class="mark c{colour}" d="M{:.1} {:.1}l4 7h-8z"/>"#, x, y - 4.2),
        _ => format!(
            r#"<path class="mark c{colour}" d="M{:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z"/>"#,
            x,
            y - 4.2
        ),
    }
}

/// A bar.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) style: usize,
    pub(super) value: f64,
    pub(super) spread: Option<(f64, f64)>,
    /// Stands behind the bar.
    pub(super) shown: String,
}

/// Bars from zero, one below the other.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub(super) title: String,
    pub(super) axis: Axis,
    pub(super) rows: Vec<Row>,
    pub(super) rules: Vec<(String, f64)>,
    pub(super) otherwise: String,
}

/// Height of a row, of one whose name takes two lines, the room for names, and what a letter of a number takes.
const ROW: f64 = 22.0;
const TALL_ROW: f64 = 31.0;
const NAMES: f64 = 264.0;
const LETTER: f64 = 6.8;
/// Ticks that have room for their numbers.
const MOST_TICKS: usize = 6;
/// Letters of a name that fit into a line.
const NAME_LETTERS: usize = 40;
/// What of a whisker is shown, in longest bars.
const LONGEST_WHISKER: f64 = 1.5;

impl Rows {
    /// A figure of the page.
    pub(super) fn to_html(&self) -> String {
        let drawable: Vec<&Row> = self.rows.iter().filter(|row| self.axis.scale.takes(row.value)).collect();
        if drawable.is_empty() {
            return empty(&self.title, &self.otherwise);
        }
        let long = drawable.iter().any(|row| row.name.chars().count() > NAME_LETTERS);
        let height = if long { TALL_ROW } else { ROW };
        let bottom = TOP + 10.0 + height * drawable.len() as f64;
        let longest = drawable.iter().map(|row| row.shown.chars().count()).max().unwrap_or(0);
        let right = WIDTH - 12.0 - LETTER * longest as f64;
        let x = self.axis.scale.place(self.ends(&drawable).into_iter(), NAMES, right);
        let mut svg = start(&self.title, bottom + BOTTOM);
        self.draw_axis(&mut svg, &x, bottom, right);
        for (number, row) in drawable.iter().enumerate() {
            draw_row(&mut svg, row, &x, (TOP + 5.0 + height * number as f64, height));
        }
        for (name, at) in &self.rules {
            let (name, at) = (escape(name), x.at(*at));
            let _ = write!(svg, r#"<line class="rule" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{bottom}"/>"#);
            let _ = write!(
                svg,
                r#"<text class="rule-name" x="{at:.1}" y="{}" text-anchor="middle">{name}</text>"#,
                TOP - 2.0
            );
        }
        svg.push_str("</svg>");
        figure(&self.title, &svg, "", self.rows.len() - drawable.len())
    }

    /// All that has to have a place on the axis: a bad round does not make everything else small.
    fn ends(&self, rows: &[&Row]) -> Vec<f64> {
        let longest = rows.iter().map(|row| row.value.abs()).fold(0.0, f64::max) * LONGEST_WHISKER;
        let whiskers = rows.iter().filter_map(|row| row.spread).flat_map(|(low, high)| [low, high]);
        let whiskers = whiskers.map(|end| end.clamp(-longest, longest));
        let rules = self.rules.iter().map(|(_, at)| *at);
        rows.iter().map(|row| row.value).chain(whiskers).chain(rules).collect()
    }

    fn draw_axis(&self, svg: &mut String, x: &Placed, bottom: f64, right: f64) {
        let ticks = x.ticks(self.axis.unit);
        let sparse = if ticks.len() > MOST_TICKS { 2 } else { 1 };
        for tick in ticks.into_iter().step_by(sparse) {
            let at = x.at(tick.value);
            let _ = write!(svg, r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{bottom}"/>"#);
            let _ = write!(
                svg,
                r#"<text class="tick" x="{at:.1}" y="{}" text-anchor="middle">{}</text>"#,
                bottom + 16.0,
                escape(&tick.label)
            );
        }
        let zero = x.at(0.0);
        let _ = write!(svg, r#"<path class="axis" d="M{zero:.1} {TOP}V{bottom}"/>"#);
        let _ = write!(
            svg,
            r#"<text class="axis-title" x="{:.1}" y="{}" text-anchor="middle">{}</text>"#,
            f64::midpoint(NAMES, right),
            bottom + 36.0,
            escape(&self.axis.title)
        );
    }
}

/// A name in at most two lines; what does not fit ends in dots.
fn name_lines(name: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in name.split_inclusive(' ') {
        let line = lines.last_mut().expect("there is always one");
        let fits = line.chars().count() + word.trim_end().chars().count() <= NAME_LETTERS;
        if fits || line.is_empty() || lines.len() == 2 {
            lines.last_mut().expect("there is always one").push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    for line in &mut lines {
        if line.trim_end().chars().count() > NAME_LETTERS {
            *line = line.chars().take(NAME_LETTERS - 1).chain(['…']).collect();
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

fn draw_row(svg: &mut String, row: &Row, x: &Placed, (top, height): (f64, f64)) {
    let colour = row.style % COLOURS;
    let (from, to, middle) = (x.at(0.0), x.at(row.value), top + height / 2.0);
    let lines = name_lines(&row.name);
    let first = middle + 4.0 - 6.5 * (lines.len() - 1) as f64;
    let _ = write!(svg, r#"<text class="tick" text-anchor="end"><title>{}</title>"#, escape(&row.name));
    for (number, line) in lines.iter().enumerate() {
        let y = first + 13.0 * number as f64;
        let _ = write!(svg, r#"<tspan x="{}" y="{y:.1}">{}</tspan>"#, NAMES - 6.0, escape(line));
    }
    svg.push_str("</text>");
    let (left, width) = (from.min(to), (to - from).abs());
    let _ = write!(
        svg,
        r#"<rect class="bar c{colour}" x="{left:.1}" y="{:.1}" width="{width:.1}" height="{}"><title>{}: {}</title></rect>"#,
        middle - ROW / 2.0 + 3.0,
        ROW - 6.0,
        escape(&row.name),
        escape(&row.shown)
    );
    let mut end = from.max(to);
    if let Some((low, high)) = row.spread.filter(|(low, high)| x.takes(*low) && x.takes(*high)) {
        let (low, high, beyond) = (x.at(low), x.at(high), x.is_beyond(high));
        // an arrow says that the whisker goes on
        let arrow = if beyond { "m-4 -3l4 3l-4 3" } else { "" };
        let _ = write!(svg, r#"<path class="whisker on-bar" d="M{low:.1} {middle:.1}H{high:.1}{arrow}"/>"#);
        end = end.max(high);
    }
    let _ = write!(
        svg,
        r#"<text class="tick" x="{:.1}" y="{:.1}">{}</text>"#,
        end + 5.0,
        middle + 4.0,
        escape(&row.shown)
    );
}

fn start(title: &str, height: f64) -> String {
    format!(r#"<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{}">"#, escape(title))
}

fn figure(title: &str, svg: &str, legend: &str, left_out: usize) -> String {
    let left_out = match left_out {
        0 => String::new(),
        one_or_more => format!(
            r#"<p class="remark">{one_or_more} of the values cannot be shown on these axes (zero, or none); the tables have them.</p>"#
        ),
    };
    format!("<figure><figcaption>{}</figcaption>{svg}{legend}{left_out}</figure>\n", escape(title))
}

fn empty(title: &str, otherwise: &str) -> String {
    format!(
        "<figure><figcaption>{}</figcaption><p class=\"none\">Nothing to draw: {}.</p></figure>\n",
        escape(title),
        escape(otherwise)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Point {
        Point { x, y, spread: None }
    }

    fn plot(points: Vec<Point>) -> Plot {
        Plot {
            title: "a < b".to_owned(),
            x: Axis::new("load, MADs a second", Scale::Log, Unit::Count),
            y: Axis::new("time", Scale::Log, Unit::Ns),
            series: vec![Series { name: "p50 & co".to_owned(), style: 9, dashed: true, points }],
            rules: vec![("floor".to_owned(), 400.0)],
            otherwise: "run modes".to_owned(),
        }
    }

    #[test]
    fn a_plot_names_its_axes_its_series_and_its_rules() {
        let html = plot(vec![point(1e3, 500.0), point(1e6, 9000.0)]).to_html();
        for part in ["a &lt; b", "load, MADs a second", "p50 &amp; co", "floor", "dashed", "1 µs", "1 M"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        let html = plot(vec![point(0.0, 500.0), point(1e3, f64::NAN)]).to_html();
        assert!(html.contains("Nothing to draw: run modes.") && !html.contains("<svg"), "{html}");
        let html = plot(vec![point(0.0, 500.0), point(1e3, 700.0)]).to_html();
        assert!(html.contains("1 of the values cannot be shown"), "{html}");
    }

    #[test]
    fn rows_begin_at_zero_and_keep_whole_names_in_their_titles() {
        let row = |name: &str, value: f64| Row {
            name: name.to_owned(),
            style: 0,
            value,
            spread: Some((value * 0.9, value * 1.1)),
            shown: format!("{value}"),
        };
        let long = "x".repeat(60);
        let rows = Rows {
            title: "t".to_owned(),
            axis: Axis::new("ns", Scale::Linear, Unit::Plain),
            rows: vec![row("zero", 0.0), row(&long, 50.0), row("none", f64::NAN)],
            rules: Vec::new(),
            otherwise: String::new(),
        };
        let html = rows.to_html();
        assert!(html.contains(r#"x="264.0" y="24.5" width="0.0""#), "{html}");
        assert!(html.contains(&format!("<title>{long}</title>")) && html.contains('…'), "{html}");
        assert_eq!(html.matches("l4 3l-4 3").count(), 0, "nothing goes on: {html}");
        assert!(html.contains("1 of the values"), "{html}");
    }

    #[test]
    fn names_take_two_lines_before_they_are_cut() {
        assert_eq!(name_lines("short"), ["short"]);
        let long = "libibmad: smp_query_via over 4 hops, ibsim on the client's core";
        assert_eq!(name_lines(long), ["libibmad: smp_query_via over 4 hops,", "ibsim on the client's core"]);
        let longer = name_lines(&format!("{long} and all that one could say about it"));
        assert!(longer.len() == 2 && longer[1].ends_with('…') && longer[1].chars().count() == NAME_LETTERS);
        assert_eq!(name_lines(""), [""]);
    }

    #[test]
    fn one_bad_round_does_not_make_all_bars_small() {
        let row = |high: f64| Row {
            name: "a".to_owned(),
            style: 0,
            value: 100.0,
            spread: Some((90.0, high)),
            shown: "100".to_owned(),
        };
        let (axis, rules) = (Axis::new("ns", Scale::Linear, Unit::Plain), Vec::new());
        let rows = |rows: Vec<Row>| Rows {
            title: String::new(),
            axis: axis.clone(),
            rows,
            rules: Vec::clone(&rules),
            otherwise: String::new(),
        };
        let html = rows(vec![row(110.0), row(25_000.0)]).to_html();
        assert_eq!(html.matches("l4 3l-4 3").count(), 1, "{html}");
        assert!(html.contains(">150<") || html.contains(">160<"), "the axis ends soon: {html}");
    }
}
