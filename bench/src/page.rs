//! Results as one self-contained HTML page: the machine, the bars, plots, and every number in a table.
//!
//! The page is well-formed, needs nothing from outside and runs no script; the same results give the same page. Of two
//! results of one case the later counts, as in `check`; the page says how many were replaced. Pure, any thread. What it
//! does not do: judge beyond the bars, or read files.

mod charts;
mod plot;
mod scale;
mod tables;

use std::fmt::Write as _;

use crate::check::{Goal, check};
use crate::report::{Line, Outcome, Record, latest};

/// Colours for light and dark, and the rest of how the page looks.
const STYLE: &str = include_str!("page/style.css");

/// What the numbers mean.
const READING: &str = "A number is the median over the rounds of a run, with the lowest and the highest round in brackets; \
                       whiskers show the same. Rounds of what is compared took turns, and every answer was checked. \
                       Times are nanoseconds unless something else is said.";

/// The page of these results, held against `goals`.
pub fn to_html(goals: &[Goal], lines: &[Line]) -> String {
    let records = latest(lines);
    let outcomes = latest_outcomes(lines);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>madplane: measurements</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>madplane: measurements</h1>\n"
    );
    let benches = benches(&records);
    let _ = write!(out, "<nav><a href=\"#machine\">machine</a><a href=\"#bars\">bars</a>");
    for bench in &benches {
        let bench = tables::escape(bench);
        let _ = write!(out, "<a href=\"#s-{bench}\">{bench}</a>");
    }
    let _ = write!(out, "</nav>\n<p>{READING}</p>\n<h2 id=\"machine\">Machine and command</h2>\n");
    out += &machine(lines);
    out += &tables::outcomes(&outcomes);
    let replaced = lines.iter().filter(|line| matches!(line, Line::Result(_))).count() - records.len();
    if replaced > 0 {
        let _ = writeln!(out, "<p>{replaced} results were replaced by later ones of the same case.</p>");
    }
    let _ = writeln!(out, "<h2 id=\"bars\">Bars</h2>\n{}", tables::verdicts(&check(goals, lines)));
    for bench in benches {
        let of: Vec<&Record> = records.iter().filter(|record| record.bench == bench).copied().collect();
        let name = tables::escape(bench);
        let _ = writeln!(
            out,
            "<h2 id=\"s-{name}\">{name}</h2>\n<div class=\"plots\">\n{}</div>\n{}",
            charts::of(bench, &of),
            tables::records(&of)
        );
    }
    out + "</body></html>\n"
}

/// The scenarios in the order of their first records.
fn benches<'a>(records: &[&'a Record]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        if !names.contains(&record.bench.as_str()) {
            names.push(&record.bench);
        }
    }
    names
}

fn machine(lines: &[Line]) -> String {
    let mut environments = Vec::new();
    for line in lines {
        let Line::Environment(environment) = line else { continue };
        environments.push(environment);
    }
    if environments.is_empty() {
        return "<p class=\"none\">The results do not say what they were measured on.</p>\n".to_owned();
    }
    format!("<div class=\"wide\">{}</div>\n", tables::environments(&environments))
}

/// How the scenarios ended, the latest of each.
fn latest_outcomes(lines: &[Line]) -> Vec<&Outcome> {
    let mut outcomes: Vec<&Outcome> = Vec::new();
    for line in lines {
        let Line::Outcome(outcome) = line else { continue };
        match outcomes.iter_mut().find(|known| known.bench == outcome.bench) {
            Some(known) => *known = outcome,
            None => outcomes.push(outcome),
        }
    }
    outcomes
}
