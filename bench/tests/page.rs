//! The page of results from outside: as it was, complete, well-formed, and sufficient to itself.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use madplane_bench::check::{GOALS, Goal};
use madplane_bench::harness::Summary;
use madplane_bench::page::to_html;
use madplane_bench::report::{Bar, Line, Record, from_json_lines};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn small() -> Vec<Line> {
    from_json_lines(&std::fs::read_to_string(golden("page.jsonl")).unwrap()).unwrap()
}

/// The page with two bars, whatever the project asks for today.
fn page_of(lines: &[Line]) -> String {
    let is_one = |goal: &&Goal| ["hop", "load_time"].contains(&goal.name);
    let goals: Vec<Goal> = GOALS.iter().filter(is_one).copied().collect();
    assert_eq!(goals.len(), 2);
    to_html(&goals, lines)
}

/// To be written anew with `MADPLANE_BLESS=1` when the page is meant to change.
#[test]
fn the_same_results_give_the_page_that_is_kept() {
    let page = page_of(&small());
    let path = golden("page.html");
    if std::env::var_os("MADPLANE_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    let differs = page.lines().zip(kept.lines()).enumerate().find(|(_, (new, old))| new != old);
    assert!(page == kept, "the page differs from {}: {differs:?}", path.display());
}

#[test]
fn the_page_needs_nothing_from_outside_and_runs_no_script() {
    let page = page_of(&small());
    for part in
        ["<script", "<link", "<img", "<iframe", "src=", "http://", "https://", "url(", "@import", "onload"]
    {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn a_page_of_nothing_says_so_and_is_well_formed() {
    let page = page_of(&[]);
    assert_well_formed(&page);
    assert!(
        page.contains("do not say what they were measured on") && page.contains("not measured"),
        "{page}"
    );
}

#[test]
fn of_two_results_of_a_case_the_later_is_shown_and_the_other_counted() {
    let at = |value: f64| Line::Result(Record::from_rounds("raw", "one", "ns", &[Summary::of("p50", value)]));
    let page = page_of(&[at(111_111.0), at(222_222.0)]);
    assert!(page.contains("222222") && !page.contains("111111"));
    assert!(page.contains("1 results were replaced"));
}

#[test]
fn every_record_is_on_the_page_and_the_page_is_well_formed_whatever_it_says() {
    let seed = std::process::id();
    println!("seed {seed}");
    let mut dice = Dice(u64::from(seed) + 1);
    for _ in 0..200 {
        let records: Vec<Record> = (0..dice.below(12)).map(|number| dice.record(number)).collect();
        let lines: Vec<Line> = records.iter().cloned().map(Line::Result).collect();
        let page = page_of(&lines);
        assert_well_formed(&page);
        for record in &records {
            let mut texts: Vec<&str> = vec![&record.bench, &record.case, &record.note];
            texts.extend(record.metrics.keys().map(String::as_str));
            texts.extend(record.bars.iter().map(|bar| bar.what.as_str()));
            for text in texts {
                assert!(page.contains(&escaped(text)), "{text:?} of {record:?}");
            }
            for spread in record.metrics.values().filter(|spread| spread.median.is_finite()) {
                // numbers are drawn so that they have six digits
                assert!(page.contains(&format!("{:.0}", spread.median)), "{} of {record:?}", spread.median);
            }
        }
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// Draws records that nobody would write.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        let number = self.below(all.len() as u64);
        all[usize::try_from(number).unwrap()]
    }

    fn text(&mut self) -> String {
        let parts = ["a", "<b>", "\"", "'", "&", "&amp;", "</style>", "--", "µ", "]]>", " ", "%", "<script>"];
        (0..=self.below(5)).map(|_| self.one_of(&parts)).collect()
    }

    fn value(&mut self) -> f64 {
        match self.below(12) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            _ => 100_000.0 + self.below(900_000) as f64,
        }
    }

    fn record(&mut self, number: u64) -> Record {
        let bench = self.one_of(&["modes", "raw", "route-types", "rings", "peers", "<x>"]);
        let metrics = ["p50", "p99", "mean", "sd", "per_second", "worker_cpu", "wake_ups_per_mad", "<m>"];
        let names: Vec<&str> = (0..=self.below(10)).map(|_| self.one_of(&metrics)).collect();
        let rounds: Vec<Summary> = (0..self.below(4))
            .map(|_| {
                let mut round = Summary::default();
                round.values.extend(names.iter().map(|name| ((*name).to_owned(), self.value())));
                round
            })
            .collect();
        let unit = self.one_of(&["ns", "times", "", "<u>"]);
        let mut record = Record::from_rounds(bench, &format!("{} {number}", self.text()), unit, &rounds);
        for label in ["mode", "load", "depth", "client", "sessions", "hops", "route", "impl"] {
            if self.below(2) == 0 {
                let value = self
                    .one_of(&["polling", "adaptive", "0", "1", "1000", "max", "spinning", "<v>", "1e400"]);
                record = record.labelled(label, value);
            }
        }
        if self.below(2) == 0 {
            record.curve =
                (0..self.below(40)).map(|step| (step as f64 / 30.0, self.below(1 << 40))).collect();
        }
        let (what, value) = (self.text(), self.value());
        record.held_to(Bar::at_most(&what, value, 1.0)).noting(self.text())
    }
}

/// Every element is closed in its turn, every attribute is quoted, and every `&` begins a reference.
#[track_caller]
fn assert_well_formed(page: &str) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").expect("a document type");
    let mut open: Vec<&str> = Vec::new();
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        for reference in text.split('&').skip(1) {
            let name = reference.split(';').next().unwrap();
            assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "&{reference:.20}");
        }
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another");
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        for outside in tag.split('"').step_by(2) {
            assert!(!outside.contains('\'') && (outside.ends_with('=') || !outside.contains('=')), "<{tag}>");
        }
        if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}
