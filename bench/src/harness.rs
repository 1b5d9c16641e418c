//! Distributions of single measurements, and how they spread over rounds.
//!
//! A *round* is one stretch of measuring one thing; rounds of different things take turns, so that a change of the machine
//! meets all of them. What is reported is the median over the rounds, with the lowest and the highest round beside it.
//! Owned by whoever measures, on one thread.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize};

/// Longest time that a [`Distribution`] can hold: one minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// Points of a [`Distribution::curve`] per halving of what is left above them.
const CURVE_TICKS: u32 = 4;

/// Times of one round, in nanoseconds, to three digits.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    histogram: Histogram<u64>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

impl Distribution {
    /// Starts empty; allocates everything it will ever need.
    ///
    /// # Panics
    /// Never: the bounds are constants.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Self { histogram }
    }

    /// Adds one time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The time that the fraction `quantile` of all do not exceed.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile)
    }

    /// Adds all times of another distribution.
    ///
    /// # Panics
    /// Never: all distributions have the same bounds.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("the bounds are the same");
    }

    /// Time by quantile, finer towards 1: what a percentile plot draws.
    pub fn curve(&self) -> Vec<(f64, u64)> {
        self.histogram
            .iter_quantiles(CURVE_TICKS)
            .map(|step| (step.quantile_iterated_to(), step.value_iterated_to()))
            .collect()
    }

    /// The histogram itself, for its log.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// The customary percentiles, mean and standard deviation, and the rate if `elapsed` is given.
    pub fn summary(&self, elapsed: Option<Duration>) -> Summary {
        let at = |quantile| self.quantile(quantile) as f64;
        let mut values = BTreeMap::from([
            ("p50".to_owned(), at(0.50)),
            ("p90".to_owned(), at(0.90)),
            ("p99".to_owned(), at(0.99)),
            ("p99.9".to_owned(), at(0.999)),
            ("max".to_owned(), self.histogram.max() as f64),
            ("mean".to_owned(), self.histogram.mean()),
            ("sd".to_owned(), self.histogram.stdev()),
        ]);
        if let Some(elapsed) = elapsed {
            values.insert("per_second".to_owned(), self.count() as f64 / elapsed.as_secs_f64());
        }
        Summary { values }
    }
}

/// MADs in one stretch of a [`Pace`].
pub const STRETCH: u32 = 1024;

/// How fast a stream went: as a whole, and in short stretches.
///
/// On a machine that does other things too, most stretches of a quarter of a millisecond are undisturbed and their median
/// is what the program can do; the whole says what it got.
#[derive(Debug, Clone)]
pub struct Pace {
    start: Instant,
    stretch_start: Instant,
    counted: u32,
    stretches: Distribution,
    elapsed: Duration,
    in_stretch: u32,
    stretch: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    /// Prepares; the clock starts with [`Pace::start`].
    pub fn new() -> Self {
        Self::of_stretches(STRETCH)
    }

    /// The same with stretches of another length, for what is not slowed by its other side within [`STRETCH`].
    pub fn of_stretches(stretch: u32) -> Self {
        let now = Instant::now();
        let (stretches, elapsed) = (Distribution::new(), Duration::ZERO);
        Self { start: now, stretch_start: now, counted: 0, stretches, elapsed, in_stretch: 0, stretch }
    }

    /// Starts the clock.
    pub fn start(&mut self) {
        self.start = Instant::now();
        self.stretch_start = self.start;
    }

    /// Counts MADs that are done; reads the clock once per stretch.
    #[inline]
    pub fn done(&mut self, count: u32) {
        self.in_stretch += count;
        if self.in_stretch >= self.stretch {
            let now = Instant::now();
            let ns = u64::try_from((now - self.stretch_start).as_nanos()).unwrap_or(u64::MAX);
            self.stretches.record(ns.saturating_mul(u64::from(self.stretch)) / u64::from(self.in_stretch));
            self.counted += self.in_stretch;
            self.elapsed = now - self.start;
            self.stretch_start = now;
            self.in_stretch = 0;
        }
    }

    /// Whether a stretch is over; before that there is no rate.
    pub fn has_rate(&self) -> bool {
        self.counted > 0
    }

    /// Rate over everything, and the rate of the median stretch.
    pub fn summary(&self) -> Summary {
        let whole = f64::from(self.counted) / self.elapsed.as_secs_f64();
        let median = f64::from(self.stretch) * 1e9 / self.stretches.quantile(0.5) as f64;
        Summary {
            values: BTreeMap::from([
                ("per_second".to_owned(), whole),
                ("per_second_median_stretch".to_owned(), median),
                ("ns_per_mad_median_stretch".to_owned(), 1e9 / median),
            ]),
        }
    }
}

/// Named numbers of one round.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Summary {
    /// By metric.
    pub values: BTreeMap<String, f64>,
}

impl Summary {
    /// One number.
    pub fn of(metric: &str, value: f64) -> Self {
        Self { values: BTreeMap::from([(metric.to_owned(), value)]) }
    }

    /// The number called `metric`, NaN if there is none.
    pub fn get(&self, metric: &str) -> f64 {
        self.values.get(metric).copied().unwrap_or(f64::NAN)
    }
}

/// A number over several rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Middle round.
    #[serde(deserialize_with = "number_or_none")]
    pub median: f64,
    /// Lowest round.
    #[serde(deserialize_with = "number_or_none")]
    pub low: f64,
    /// Highest round.
    #[serde(deserialize_with = "number_or_none")]
    pub high: f64,
    /// All rounds in the order in which they ran.
    #[serde(deserialize_with = "numbers_or_none")]
    pub rounds: Vec<f64>,
}

/// Reads what JSON has for a number that is none: `null`, as NaN.
pub(crate) fn number_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

fn numbers_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(from)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

impl Spread {
    /// Sorts the rounds out. Without a round every number is NaN.
    pub fn new(rounds: Vec<f64>) -> Self {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => f64::NAN,
            length if length % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
        Self { median, low: end(sorted.first()), high: end(sorted.last()), rounds }
    }

    /// Round by round quotient of two series that took turns.
    pub fn quotient(over: &[f64], under: &[f64]) -> Self {
        Self::new(over.iter().zip(under).map(|(over, under)| over / under).collect())
    }

    /// Whether some round of `self` reaches into the rounds of `other`.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// Slope and intercept of the straight line that fits best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Growth of y per unit of x.
    pub slope: f64,
    /// y at x = 0.
    pub intercept: f64,
    /// Largest distance of a point from the line.
    pub worst: f64,
}

/// Least squares through `points`; `None` for fewer than two different x.
pub fn fit_line(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / count;
    let spread = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum::<f64>();
    if points.len() < 2 || spread == 0.0 {
        return None;
    }
    let slope = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum::<f64>() / spread;
    let intercept = mean_y - slope * mean_x;
    let worst = points.iter().map(|p| (p.1 - intercept - slope * p.0).abs()).fold(0.0, f64::max);
    Some(Line { slope, intercept, worst })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth_of_the_truth() {
        let mut times = Distribution::new();
        for ns in 1..=100_000 {
            times.record(ns);
        }
        let summary = times.summary(Some(Duration::from_secs(2)));
        for (metric, truth) in
            [("p50", 50_000.0), ("p99", 99_000.0), ("max", 100_000.0), ("per_second", 50_000.0)]
        {
            let error = (summary.get(metric) - truth).abs() / truth;
            assert!(error < 1e-3, "{metric} {}", summary.get(metric));
        }
        assert!(summary.get("p17").is_nan());
    }

    #[test]
    fn a_pause_shows_in_the_whole_rate_and_not_in_the_median_stretch() {
        let mut pace = Pace::new();
        pace.start();
        for stretch in 0..9 {
            if stretch == 4 {
                std::thread::sleep(Duration::from_millis(50));
            }
            pace.done(STRETCH);
        }
        let summary = pace.summary();
        assert!(summary.get("per_second") <= 9.0 * 1024.0 / 0.050);
        assert!(summary.get("per_second_median_stretch") > summary.get("per_second"));
    }

    #[test]
    fn a_stretch_is_as_long_as_was_asked_for() {
        let mut pace = Pace::of_stretches(10 * STRETCH);
        pace.start();
        for _ in 0..9 {
            pace.done(STRETCH);
        }
        assert!(!pace.has_rate(), "no stretch is over");
        pace.done(STRETCH);
        assert!(pace.has_rate() && pace.summary().get("per_second") > 0.0);
    }

    #[test]
    fn a_time_beyond_the_longest_is_kept_as_the_longest() {
        let mut times = Distribution::new();
        times.record(u64::MAX);
        assert_eq!(times.count(), 1);
        assert!(times.quantile(1.0) >= LONGEST_NS / 2);
    }

    #[test]
    fn the_median_of_rounds_ignores_one_bad_round() {
        let spread = Spread::new(vec![5.0, 4.0, 90.0]);
        assert_eq!((spread.median, spread.low, spread.high), (5.0, 4.0, 90.0));
        assert_eq!(spread.rounds, [5.0, 4.0, 90.0]);
        assert_eq!(Spread::new(vec![2.0, 4.0]).median, 3.0);
        assert!(Spread::new(Vec::new()).median.is_nan());
    }

    #[test]
    fn a_round_without_a_number_is_read_back_as_none() {
        let written = serde_json::to_string(&Spread::new(vec![f64::NAN, 2.0])).unwrap();
        let read: Spread = serde_json::from_str(&written).unwrap();
        assert!(read.rounds[0].is_nan() && read.rounds[1].to_bits() == 2f64.to_bits(), "{written}");
        let empty = serde_json::to_string(&Spread::new(Vec::new())).unwrap();
        assert!(serde_json::from_str::<Spread>(&empty).unwrap().median.is_nan(), "{empty}");
    }

    #[test]
    fn a_quotient_pairs_the_rounds_that_ran_beside_each_other() {
        let quotient = Spread::quotient(&[10.0, 40.0], &[5.0, 10.0]);
        assert_eq!(quotient.rounds, [2.0, 4.0]);
    }

    #[test]
    fn rounds_apart_do_not_overlap_and_rounds_that_touch_do() {
        let (low, high) = (Spread::new(vec![1.0, 2.0]), Spread::new(vec![3.0, 4.0]));
        assert!(!low.overlaps(&high) && !high.overlaps(&low));
        assert!(low.overlaps(&Spread::new(vec![2.0, 9.0])));
    }

    #[test]
    fn a_line_is_found_again() {
        let points: Vec<_> = (0..13).map(|x| (f64::from(x), 400.0 + 12.5 * f64::from(x))).collect();
        let line = fit_line(&points).unwrap();
        assert!(
            (line.slope - 12.5).abs() < 1e-9 && (line.intercept - 400.0).abs() < 1e-9 && line.worst < 1e-9
        );
        assert!(fit_line(&points[..1]).is_none());
    }
}
