//! From values to places on an axis, and the ticks between.
//!
//! Pure.

/// How an axis is divided.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scale {
    /// From zero, or from the least value if that is below.
    Linear,
    /// By powers of ten; only for values above zero.
    Log,
    /// Quantiles from 0.5 to below 1, by the number of nines.
    Nines,
    /// The values are numbers of these names.
    Names(Vec<String>),
}

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Nanoseconds, as ns, µs, ms or s.
    Ns,
    /// With k, M or G.
    Count,
    /// As they are.
    Plain,
}

/// A scale laid out between two places of the drawing.
#[derive(Debug, Clone)]
pub(super) struct Placed<'a> {
    scale: &'a Scale,
    /// Least and greatest position in units of the scale.
    domain: (f64, f64),
    from: f64,
    to: f64,
}

/// A value with a line of its own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

impl Scale {
    /// Whether a value can be shown.
    pub(super) fn takes(&self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Self::Linear => true,
                Self::Log => value > 0.0,
                Self::Nines => (0.5..1.0).contains(&value),
                Self::Names(names) => value >= 0.0 && value < names.len() as f64,
            }
    }

    /// Position of a value in units of the scale.
    fn position(&self, value: f64) -> f64 {
        match self {
            Self::Linear | Self::Names(_) => value,
            Self::Log => value.log10(),
            Self::Nines => -(1.0 - value).log10(),
        }
    }

    /// Lays the scale out so that all values are between `from` and `to`.
    pub(super) fn place(&self, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Placed<'_> {
        let (low, high) = values
            .filter(|value| self.takes(*value))
            .map(|value| self.position(value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let domain = match self {
            Self::Linear => {
                let (low, high) = (low.min(0.0), if high > low.min(0.0) { high } else { low.min(0.0) + 1.0 });
                let step = step(high - low);
                ((low / step).floor() * step, (high / step).ceil() * step)
            }
            Self::Log => (outward(low, false), outward(high, true).max(outward(low, false) + 0.3)),
            Self::Nines => (0.5f64.log10().abs(), high.ceil().max(1.0)),
            Self::Names(names) => (-0.5, names.len() as f64 - 0.5),
        };
        Placed { scale: self, domain, from, to }
    }
}

impl Placed<'_> {
    pub(super) fn takes(&self, value: f64) -> bool {
        self.scale.takes(value)
    }

    /// Place of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let (low, high) = self.domain;
        let share = (self.scale.position(value) - low) / (high - low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Whether a value lies above the last place.
    pub(super) fn is_beyond(&self, value: f64) -> bool {
        self.scale.position(value) > self.domain.1
    }

    /// Ticks, from the least value up.
    pub(super) fn ticks(&self, unit: Unit) -> Vec<Tick> {
        let (low, high) = self.domain;
        let tick = |value: f64| Tick { value, label: label(value, unit) };
        match self.scale {
            Scale::Names(names) => (0u32..)
                .zip(names)
                .map(|(number, name)| Tick { value: f64::from(number), label: name.clone() })
                .collect(),
            Scale::Nines => NINES
                .iter()
                .map(|(quantile, name)| Tick { value: *quantile, label: (*name).to_owned() })
                .filter(|tick| self.scale.position(tick.value) <= high + 1e-9)
                .collect(),
            Scale::Linear => {
                let step = step(high - low);
                let first = (low / step - 1e-9).ceil() * step;
                let count = ((high - first) / step + 1e-9).floor();
                counted(count).map(|number| tick(clean(first + number * step))).collect()
            }
            Scale::Log => {
                let steps: &[f64] = if high - low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                counted(high.ceil() - low.floor())
                    .flat_map(|decade| steps.iter().map(move |step| (low.floor() + decade, *step)))
                    .map(|(decade, step)| (decade + step.log10(), step * 10f64.powf(decade)))
                    .filter(|(at, _)| *at > low - 1e-9 && *at < high + 1e-9)
                    .map(|(_, value)| tick(clean(value)))
                    .collect()
            }
        }
    }
}

/// Quantiles that have ticks.
const NINES: [(f64, &str); 7] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
    (0.999_999, "99.9999 %"),
];

/// 0, 1, ... up to `count`.
fn counted(count: f64) -> impl Iterator<Item = f64> {
    (0u16..).map(f64::from).take_while(move |number| *number <= count + 1e-9)
}

/// A round step that divides `range` into four to ten.
fn step(range: f64) -> f64 {
    let power = 10f64.powf((range / 4.0).log10().floor());
    let first = [5.0, 2.0].into_iter().find(|factor| factor * power <= range / 4.0);
    first.unwrap_or(1.0) * power
}

/// The next of 1, 2, 5, 10, ... above or below, as a power of ten.
fn outward(at: f64, up: bool) -> f64 {
    let floor = at.floor();
    let steps = [0.0, 2f64.log10(), 5f64.log10(), 1.0].map(|step| floor + step);
    let found = if up {
        steps.into_iter().find(|step| *step >= at - 1e-9)
    } else {
        steps.into_iter().rev().find(|step| *step <= at + 1e-9)
    };
    found.unwrap_or(at)
}

/// Without the dust of adding up.
fn clean(value: f64) -> f64 {
    format!("{value:.9e}").parse().unwrap_or(value)
}

/// How a value is written at an axis.
pub(super) fn label(value: f64, unit: Unit) -> String {
    let steps: &[(f64, &str)] = match unit {
        Unit::Ns => &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")],
        Unit::Count => &[(1e9, " G"), (1e6, " M"), (1e3, " k")],
        Unit::Plain => &[],
    };
    let found = steps.iter().find(|(size, _)| value.abs() >= *size * 0.999_999);
    let (size, suffix) = found.copied().unwrap_or((1.0, if unit == Unit::Ns { " ns" } else { "" }));
    format!("{}{suffix}", short(value / size))
}

/// Three digits that mean something, without trailing zeros.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "-".to_owned() };
    }
    if value.abs() < 1e-3 {
        return format!("{value:.0e}");
    }
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale, values: &[f64], unit: Unit) -> Vec<String> {
        let placed = scale.place(values.iter().copied(), 0.0, 100.0);
        placed.ticks(unit).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_around_the_values() {
        assert_eq!(labels(&Scale::Linear, &[0.2, 0.93], Unit::Plain), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&Scale::Linear, &[0.0], Unit::Plain), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(
            labels(&Scale::Linear, &[-24.0, 175.0], Unit::Ns),
            ["0 ns", "50 ns", "100 ns", "150 ns"],
            "zero is one of them"
        );
        assert_eq!(labels(&Scale::Log, &[430.0, 1900.0], Unit::Ns), ["200 ns", "500 ns", "1 µs", "2 µs"]);
        assert_eq!(
            labels(&Scale::Log, &[1e3, 4.4e6], Unit::Count),
            ["1 k", "10 k", "100 k", "1 M"],
            "more than three decades"
        );
        assert_eq!(
            labels(&Scale::Nines, &[0.5, 0.9995], Unit::Plain),
            ["50 %", "90 %", "99 %", "99.9 %", "99.99 %"]
        );
        let names = Scale::Names(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(labels(&names, &[0.0], Unit::Plain), ["a", "b"]);
    }

    #[test]
    fn values_lie_between_the_ends_in_their_order() {
        for scale in [Scale::Linear, Scale::Log, Scale::Nines] {
            let values = [0.5, 0.7, 0.9, 0.99];
            let placed = scale.place(values.into_iter(), 300.0, 10.0);
            let places = values.map(|value| placed.at(value));
            assert!(places.is_sorted_by(|a, b| a > b), "{scale:?}: {places:?}");
            assert!(places.iter().all(|at| (10.0..=300.0).contains(at)), "{scale:?}: {places:?}");
        }
    }

    #[test]
    fn what_has_no_place_is_not_taken() {
        assert!(Scale::Linear.takes(0.0) && !Scale::Linear.takes(f64::NAN));
        assert!(!Scale::Log.takes(0.0) && !Scale::Log.takes(-1.0) && Scale::Log.takes(1e-9));
        assert!(!Scale::Nines.takes(1.0) && !Scale::Nines.takes(0.4) && Scale::Nines.takes(0.5));
        assert!(!Scale::Names(Vec::new()).takes(0.0));
    }

    #[test]
    fn numbers_are_written_short() {
        for (value, unit, text) in [
            (1.0, Unit::Ns, "1 ns"),
            (2500.0, Unit::Ns, "2.5 µs"),
            (1e9, Unit::Ns, "1 s"),
            (0.5, Unit::Ns, "0.5 ns"),
            (4_383_580.0, Unit::Count, "4.38 M"),
            (512.0, Unit::Count, "512"),
            (0.0, Unit::Count, "0"),
            (1.1, Unit::Plain, "1.1"),
            (0.0345, Unit::Plain, "0.0345"),
            (0.000_01, Unit::Plain, "1e-5"),
        ] {
            assert_eq!(label(value, unit), text);
        }
    }
}
