//! Results as HTML tables: every number of every record, with the spread of its rounds.
//!
//! Cases with the same metrics share a table; it stands upright or lies on its side, whichever is narrower. All text from
//! results is escaped. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::check::Verdicts;
use crate::harness::Spread;
use crate::machine::Environment;
use crate::report::{Bar, Outcome, Record, Status, number};

/// Metrics that come first, in this order; the others follow by name.
const FIRST: [&str; 8] = ["p50", "p90", "p99", "p99.9", "max", "mean", "sd", "per_second"];
/// Most metrics of a table that stands upright.
const UPRIGHT: usize = 8;

/// Text as part of HTML, within and outside of attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

/// All records of a scenario.
pub(super) fn records(records: &[&Record]) -> String {
    let mut groups: BTreeMap<Vec<&str>, Vec<&Record>> = BTreeMap::new();
    let mut order: Vec<Vec<&str>> = Vec::new();
    for record in records {
        let metrics = metrics(record);
        if !order.contains(&metrics) {
            order.push(metrics.clone());
        }
        groups.entry(metrics).or_default().push(record);
    }
    order
        .iter()
        .map(|metrics| {
            let records = &groups[metrics];
            let table = if metrics.len() <= UPRIGHT || metrics.len() <= records.len() {
                upright(metrics, records)
            } else {
                on_its_side(metrics, records)
            };
            format!("<div class=\"wide\">{table}</div>\n")
        })
        .collect()
}

/// Names of a record's metrics in the order of the table.
fn metrics(record: &Record) -> Vec<&str> {
    let mut names: Vec<&str> = record.metrics.keys().map(String::as_str).collect();
    names.sort_by_key(|name| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    names
}

fn upright(metrics: &[&str], records: &[&Record]) -> String {
    let heads: String = metrics.iter().map(|metric| format!("<th>{}</th>", escape(metric))).collect();
    let mut out = format!("<table><thead><tr><th>case</th>{heads}</tr></thead><tbody>");
    for record in records {
        let cells: String = metrics.iter().map(|metric| cell(record, metric)).collect();
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>{cells}</tr>", about(record));
    }
    out + "</tbody></table>"
}

fn on_its_side(metrics: &[&str], records: &[&Record]) -> String {
    let heads: String = records.iter().map(|record| format!("<th>{}</th>", about(record))).collect();
    let mut out = format!("<table><thead><tr><th>metric</th>{heads}</tr></thead><tbody>");
    for metric in metrics {
        let cells: String = records.iter().map(|record| cell(record, metric)).collect();
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(metric));
    }
    out + "</tbody></table>"
}

/// Case, unit, bars and note of a record.
fn about(record: &Record) -> String {
    let mut out = escape(&record.case);
    if !record.unit.is_empty() {
        let _ = write!(out, " <small>[{}]</small>", escape(&record.unit));
    }
    for bar in &record.bars {
        let _ = write!(out, "<small class=\"bar-line\">{}</small>", bar_line(bar));
    }
    if !record.note.is_empty() {
        let _ = write!(out, "<small class=\"note\">{}</small>", escape(&record.note));
    }
    out
}

fn bar_line(bar: &Bar) -> String {
    let (class, verdict) = if bar.is_met() { ("pass", "met") } else { ("short", "missed") };
    format!(
        "{}: {} {} {} <b class=\"{class}\">{verdict}</b>",
        escape(&bar.what),
        number(bar.value),
        if bar.at_most { "≤" } else { "≥" },
        number(bar.limit)
    )
}

fn cell(record: &Record, metric: &str) -> String {
    record
        .metrics
        .get(metric)
        .map_or_else(|| "<td></td>".to_owned(), |spread| format!("<td>{}</td>", value(spread)))
}

/// Median and, if there is more than one round, the lowest and the highest.
pub(super) fn value(spread: &Spread) -> String {
    let mut out = number(spread.median);
    if spread.rounds.len() > 1 {
        let _ = write!(out, " <small>({} .. {})</small>", number(spread.low), number(spread.high));
    }
    out
}

/// What was measured on.
pub(super) fn environments(environments: &[&Environment]) -> String {
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    let mut row = |name: &'static str, of: &dyn Fn(&Environment) -> String| {
        rows.push((name, environments.iter().map(|environment| of(environment)).collect()));
    };
    let or_unknown = |text: &str| if text.is_empty() { "not known".to_owned() } else { text.to_owned() };
    row("command", &|e| e.command.clone());
    row("begun", &|e| utc(e.unix_time));
    row("processor", &|e| e.cpu_model.clone());
    row("cores", &|e| {
        let list = if e.core_list.is_empty() { String::new() } else { format!(" ({})", e.core_list) };
        let used: Vec<_> = e.cores_used.iter().map(usize::to_string).collect();
        let used = match used.as_slice() {
            [client, worker] => format!("; client on {client}, worker on {worker}"),
            _ => String::new(),
        };
        format!("{}{list}{used}", e.cores)
    });
    row("hypervisor", &|e| match (e.virtual_machine, e.hypervisor.as_str()) {
        (false, _) => "none".to_owned(),
        (true, "") => "yes".to_owned(),
        (true, name) => name.to_owned(),
    });
    row("kernel", &|e| e.kernel.clone());
    row("frequency governor", &|e| or_unknown(&e.governor));
    row("clock", &|e| or_unknown(&e.clock_source));
    row("huge pages", &|e| format!("{} of {} free", e.huge_pages_free, e.huge_pages));
    row("load before", &|e| or_unknown(&e.load_before));
    row("build", &|e| {
        format!(
            "{}, commit {}",
            if e.release { "release" } else { "DEBUG BUILD: not to be quoted" },
            e.commit
        )
    });
    let mut out = "<table class=\"facts\"><tbody>".to_owned();
    for (name, values) in rows {
        let same = values.iter().all(|value| value == &values[0]);
        let shown = if same { &values[..values.len().min(1)] } else { &values[..] };
        let span = if same { values.len().max(1) } else { 1 };
        let cells: String =
            shown.iter().map(|value| format!("<td colspan=\"{span}\">{}</td>", escape(value))).collect();
        let _ = write!(out, "<tr><th scope=\"row\">{name}</th>{cells}</tr>");
    }
    out + "</tbody></table>"
}

/// How the scenarios ended; empty if nothing is known.
pub(super) fn outcomes(outcomes: &[&Outcome]) -> String {
    if outcomes.is_empty() {
        return String::new();
    }
    let mut out =
        "<table class=\"words\"><thead><tr><th>scenario</th><th>ended</th><th>seconds</th></tr></thead><tbody>".to_owned();
    for outcome in outcomes {
        let (class, how) = match outcome.status {
            Status::Measured => ("pass", "measured".to_owned()),
            Status::Skipped => ("none", format!("skipped: {}", outcome.reason)),
            Status::Failed => ("short", format!("failed: {}", outcome.reason)),
        };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"text {class}\">{}</td><td>{:.1}</td></tr>",
            escape(&outcome.bench),
            escape(&how),
            outcome.elapsed_s
        );
    }
    out + "</tbody></table>"
}

/// The bars of the project.
pub(super) fn verdicts(verdicts: &Verdicts) -> String {
    let mut out = "<div class=\"wide\"><table class=\"words\"><thead><tr><th></th><th>bar</th><th>issue</th><th>measured</th><th>limit</th>\
                   <th>of</th></tr></thead><tbody>"
        .to_owned();
    for bar in &verdicts.bars {
        let (class, verdict) = if bar.pass { ("pass", "pass") } else { ("short", "SHORT") };
        let remarks = if bar.pass { Vec::new() } else { bar.remarks() };
        let remarks: String = remarks
            .iter()
            .map(|remark| format!("<small class=\"note\">{}</small>", escape(remark)))
            .collect();
        let _ = write!(
            out,
            "<tr><td class=\"{class}\">{verdict}</td><th scope=\"row\">{} <small>{}</small>{remarks}</th><td>{}</td>\
             <td>{}</td><td>{} {}</td><td class=\"text\">{}</td></tr>",
            escape(&bar.what),
            escape(&bar.name),
            bar.issue,
            bar.value.map_or_else(|| "not measured".to_owned(), number),
            if bar.at_most { "≤" } else { "≥" },
            number(bar.limit),
            escape(&bar.place().unwrap_or_default())
        );
    }
    let _ = write!(out, "</tbody></table></div><p>{} pass, {} short.</p>", verdicts.passed, verdicts.short);
    out
}

/// Unix time as date and time of day, UTC.
fn utc(unix_time: u64) -> String {
    let (days, seconds) = (unix_time / 86_400, unix_time % 86_400);
    // years begin in March, so that the leap day is the last: 400 of them have 146,097 days
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * march_month + 2) / 5 + 1;
    let (month, later) = if march_month < 10 { (march_month + 3, 0) } else { (march_month - 9, 1) };
    let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
    format!("{:04}-{month:02}-{date:02} {hour:02}:{minute:02} UTC", era * 400 + year + later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Summary;

    #[test]
    fn nothing_from_a_result_is_taken_for_markup() {
        let hostile = r#"<script>alert("x")</script> & 'y'"#;
        let record = Record::from_rounds(hostile, hostile, hostile, &[Summary::of(hostile, 1.0)])
            .noting(hostile)
            .held_to(Bar::at_most(hostile, 2.0, 1.0));
        let html = records(&[&record]);
        assert!(!html.contains("<script") && !html.contains("\"x\""), "{html}");
        assert_eq!(
            html.matches("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &#39;y&#39;").count(),
            5
        );
    }

    #[test]
    fn cases_with_other_metrics_get_a_table_of_their_own() {
        let one = Record::from_rounds("b", "one", "ns", &[Summary::of("p50", 1.0), Summary::of("p50", 3.0)]);
        let two = Record::from_rounds("b", "two", "", &[Summary::of("per_second", 4e6)]);
        let html = records(&[&one, &two, &one]);
        assert_eq!(html.matches("<table>").count(), 2, "{html}");
        assert!(html.contains("<td>2.000 <small>(1.000 .. 3.000)</small></td>"), "{html}");
        assert!(html.contains("<td>4000000</td>"), "{html}");
    }

    #[test]
    fn a_case_with_many_metrics_lies_on_its_side() {
        let mut round = Summary::of("p50", 1.0);
        for number in 0..20 {
            round.values.insert(format!("m{number}"), 1.0);
        }
        let html = records(&[&Record::from_rounds("b", "one", "ns", &[round])]);
        assert!(html.contains("<th>metric</th><th>one ") && html.matches("<tr>").count() == 22, "{html}");
        assert!(html.find(">p50<") < html.find(">m0<"), "percentiles first: {html}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_time, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_795_975_329, "2026-11-29 18:02 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(unix_time), date);
        }
    }
}
