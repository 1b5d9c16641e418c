//! How a worker waits: modes, the numbers that tune them, and what control asks of each worker.
//!
//! A [`Tuning`] is complete and sound, a [`TuningPatch`] says only some of it. Control declares a patch for each worker in the
//! table ([`TuningRecord`]); a worker lays it over what it was started with and shows the result in the status segment. The
//! names are those that operators know from elsewhere, with their aliases.
//!
//! | word | writer | readers | ordering |
//! |---|---|---|---|
//! | [`TuningRecord`] | madctld | workers | relaxed, checked by a sum; shown by the table's generation |
//!
//! A record that is written while it is read fails its check, and its writer moves the generation afterwards, so the reader
//! comes again. Not here: what a worker does with the numbers.

use std::fmt;

use crate::sync::{AtomicU64, Ordering};

/// Words of a record.
pub const TUNING_WORDS: usize = 16;

/// What a worker does when a duty cycle found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Mode {
    /// Look again.
    #[default]
    Polling = 0,
    /// Sleep until a doorbell.
    Interrupt = 1,
    /// Poll while traffic comes, sleep when it does not.
    Adaptive = 2,
}

/// How `adaptive` chooses; the values of [`Parameter::Adaptive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Adaptation {
    /// By `max_empty_polls` and `idle_poll_us` alone.
    Off = 0,
    /// Two thresholds of load besides.
    #[default]
    Hysteresis = 1,
    /// As hysteresis; moderation walks the nine profiles of [`PROFILES`].
    Dim = 2,
}

impl Mode {
    const NAMES: &[(&str, u64)] = &[("polling", 0), ("interrupt", 1), ("adaptive", 2), ("poll", 0)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Of a number that travelled.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Polling, Self::Interrupt, Self::Adaptive].into_iter().find(|mode| *mode as u64 == number)
    }
}

impl Adaptation {
    const NAMES: &[(&str, u64)] = &[("off", 0), ("hysteresis", 1), ("dim", 2), ("on", 1)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// Time in microseconds and number of MADs of each step of dynamic moderation, least latency first: those of rdma's.
pub const PROFILES: [(u64, u64); 9] =
    [(1, 1), (1, 4), (2, 4), (2, 8), (4, 8), (16, 8), (16, 16), (32, 16), (32, 32)];

macro_rules! parameters {
    ($( $(#[doc = $doc:expr])* $name:ident = $id:literal, $label:literal, $unit:literal, $default:literal, $least:literal..=$most:literal, [$($alias:literal),*]; )*) => {
        /// One number that tunes a worker; the discriminant travels.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Parameter {
            $( $(#[doc = $doc])* $name = $id, )*
        }

        impl Parameter {
            /// All in the order of their numbers.
            pub const ALL: [Parameter; PARAMETERS] = [ $( Parameter::$name, )* ];

            const FACTS: [Facts; PARAMETERS] = [ $( Facts {
                label: $label, unit: $unit, default: $default, least: $least, most: $most, aliases: &[$($alias),*],
            }, )* ];
        }
    };
}

struct Facts {
    label: &'static str,
    unit: &'static str,
    default: u64,
    least: u64,
    most: u64,
    aliases: &'static [&'static str],
}

/// Number of parameters.
pub const PARAMETERS: usize = 11;

parameters! {
    /// One of [`Mode`].
    Mode = 0, "mode", "", 0, 0..=2, ["rx-mode"];
    /// Longest time for which a wake-up is held back.
    ModeratorTimeout = 1, "moderator_timeout", "us", 16, 0..=100_000, ["rx-usecs", "cq_period"];
    /// MADs that wake at once.
    ModeratorPkts = 2, "moderator_pkts", "MADs", 8, 1..=65_535, ["rx-frames", "cq_count"];
    /// Pause between two polls of `polling`.
    PollInterval = 3, "poll_interval", "us", 0, 0..=100_000, ["poll-sleep-usec"];
    /// Empty polls before `adaptive` sleeps.
    MaxEmptyPolls = 4, "max_empty_polls", "polls", 512, 1..=1_000_000_000, ["napi_defer_hard_irqs"];
    /// Time without work before `adaptive` sleeps; whichever comes first.
    IdlePollUs = 5, "idle_poll_us", "us", 200, 0..=10_000_000, ["idle-poll-time-us"];
    /// MADs within `idle_poll_us` from which on only the time counts.
    PollThreshold = 6, "poll_threshold", "MADs", 10, 1..=1_000_000, ["polling_threshold_vector_length"];
    /// MADs within `idle_poll_us` below which empty polls count again.
    IrqThreshold = 7, "irq_threshold", "MADs", 5, 0..=1_000_000, ["interrupt_threshold_vector_length"];
    /// How long the load may stay between both thresholds before empty polls count again.
    SuspendTimeout = 8, "suspend_timeout", "us", 20_000, 0..=10_000_000, ["irq-suspend-timeout"];
    /// MADs taken from a source at one time.
    Burst = 9, "burst", "MADs", 32, 1..=256, ["budget"];
    /// One of [`Adaptation`].
    Adaptive = 10, "adaptive", "", 1, 0..=2, ["adaptive-rx"];
}

/// Why something is not a tuning; one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TuningError {
    /// Not of the form NAME=VALUE.
    #[error("{0:?} is not of the form NAME=VALUE")]
    Form(String),
    /// No such parameter.
    #[error(
        "no parameter {name:?}{hint}; there are mode, moderator_timeout, moderator_pkts, poll_interval, max_empty_polls, idle_poll_us, poll_threshold, irq_threshold, suspend_timeout, burst, adaptive"
    )]
    Name {
        /// What was asked for.
        name: String,
        /// The nearest one.
        hint: String,
    },
    /// No such choice.
    #[error("{label} is {choices}, not {value:?}{hint}")]
    Choice {
        /// The parameter.
        label: &'static str,
        /// What it may be.
        choices: &'static str,
        /// What was asked for.
        value: String,
        /// The nearest one.
        hint: String,
    },
    /// Not a number, or out of range.
    #[error("{label} is a whole number of {unit} from {least} to {most}, not {value:?}")]
    Value {
        /// The parameter.
        label: &'static str,
        /// Its unit.
        unit: &'static str,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
        /// What was asked for.
        value: String,
    },
    /// The thresholds are the wrong way round.
    #[error("irq_threshold {irq} is above poll_threshold {poll}")]
    Thresholds {
        /// `irq_threshold`.
        irq: u64,
        /// `poll_threshold`.
        poll: u64,
    },
    /// Named twice with different values.
    #[error("{0} is given twice")]
    Twice(&'static str),
}

impl Parameter {
    const fn facts(self) -> &'static Facts {
        &Self::FACTS[self as usize]
    }

    /// Its name.
    pub const fn label(self) -> &'static str {
        self.facts().label
    }

    /// Its unit; empty for a choice.
    pub const fn unit(self) -> &'static str {
        self.facts().unit
    }

    /// Other names for it.
    pub const fn aliases(self) -> &'static [&'static str] {
        self.facts().aliases
    }

    /// The one of this name or alias; hyphens and underscores are the same.
    ///
    /// # Errors
    /// [`TuningError::Name`] with the nearest one.
    pub fn find(name: &str) -> Result<Self, TuningError> {
        let wanted = plain(name);
        let found = Self::ALL.into_iter().find(|parameter| {
            plain(parameter.label()) == wanted
                || parameter.aliases().iter().any(|alias| plain(alias) == wanted)
        });
        found.ok_or_else(|| {
            let names =
                Self::ALL.iter().flat_map(|p| std::iter::once(p.label()).chain(p.aliases().iter().copied()));
            TuningError::Name { name: name.to_owned(), hint: hint(&wanted, names) }
        })
    }

    fn choices(self) -> Option<(&'static [(&'static str, u64)], &'static str)> {
        match self {
            Self::Mode => Some((Mode::NAMES, "polling, interrupt or adaptive")),
            Self::Adaptive => Some((Adaptation::NAMES, "off, hysteresis or dim")),
            _ => None,
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`TuningError::Choice`] or [`TuningError::Value`].
    pub fn parse(self, text: &str) -> Result<u64, TuningError> {
        let Facts { label, unit, least, most, .. } = *self.facts();
        if let Some((names, choices)) = self.choices() {
            let wanted = text.trim().to_ascii_lowercase();
            let found = names.iter().find(|(name, _)| *name == wanted);
            return found.map(|(_, number)| *number).ok_or_else(|| {
                let hint = hint(&wanted, names.iter().map(|(name, _)| *name));
                TuningError::Choice { label, choices, value: text.to_owned(), hint }
            });
        }
        let number = text.trim().parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| TuningError::Value { label, unit, least, most, value: text.to_owned() })
    }

    /// Writes a value.
    pub fn show(self, value: u64) -> String {
        match self.choices().and_then(|(names, _)| names.iter().find(|(_, number)| *number == value)) {
            Some((name, _)) => (*name).to_owned(),
            None => value.to_string(),
        }
    }

    fn allows(self, value: u64) -> bool {
        (self.facts().least..=self.facts().most).contains(&value)
    }
}

fn plain(name: &str) -> String {
    name.trim().trim_start_matches("--").to_ascii_lowercase().replace('-', "_")
}

/// `; did you mean NAME?` for the nearest name that is near.
fn hint<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let near = names.map(|name| (distance(wanted, &plain(name)), name)).min_by_key(|(far, _)| *far);
    match near {
        Some((far, name)) if far <= 2.max(wanted.len() / 3) => format!("; did you mean {name}?"),
        _ => String::new(),
    }
}

/// Number of letters to add, remove or change.
fn distance(one: &str, two: &str) -> usize {
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (above, letter) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (at, other) in two.bytes().enumerate() {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[two.len()]
}

/// Everything that tunes a worker; every value is within its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    values: [u64; PARAMETERS],
}

impl Default for Tuning {
    fn default() -> Self {
        Self { values: Parameter::ALL.map(|parameter| parameter.facts().default) }
    }
}

impl Tuning {
    /// One value.
    pub const fn get(&self, parameter: Parameter) -> u64 {
        self.values[parameter as usize]
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        Mode::from_number(self.get(Parameter::Mode)).unwrap_or_default()
    }

    /// How `adaptive` chooses.
    pub fn adaptation(&self) -> Adaptation {
        match self.get(Parameter::Adaptive) {
            0 => Adaptation::Off,
            2 => Adaptation::Dim,
            _ => Adaptation::Hysteresis,
        }
    }

    /// With `patch` laid over it.
    ///
    /// # Errors
    /// [`TuningError::Thresholds`].
    pub fn with(mut self, patch: &TuningPatch) -> Result<Self, TuningError> {
        for (parameter, value) in patch.entries() {
            self.values[parameter as usize] = value;
        }
        let (irq, poll) = (self.get(Parameter::IrqThreshold), self.get(Parameter::PollThreshold));
        if irq > poll { Err(TuningError::Thresholds { irq, poll }) } else { Ok(self) }
    }

    /// Writes the values into shared words, by the numbers of their parameters.
    pub fn store(&self, words: &[AtomicU64; TUNING_WORDS]) {
        for (word, value) in words.iter().zip(self.values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads what [`Tuning::store`] wrote; values out of bounds are the default.
    pub fn load(words: &[AtomicU64; TUNING_WORDS]) -> Self {
        let mut made = Self::default();
        for parameter in Parameter::ALL {
            let value = words[parameter as usize].load(Ordering::Relaxed);
            if parameter.allows(value) {
                made.values[parameter as usize] = value;
            }
        }
        made
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, parameter) in Parameter::ALL.into_iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{}={}", parameter.label(), parameter.show(self.get(parameter)))?;
        }
        Ok(())
    }
}

/// Some of the values; each is within its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TuningPatch {
    set: u64,
    values: [u64; PARAMETERS],
}

impl TuningPatch {
    /// Reads NAME=VALUE words.
    ///
    /// # Errors
    /// [`TuningError`], one line.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, TuningError> {
        let mut made = Self::default();
        for word in words {
            let (name, text) = word.split_once('=').ok_or_else(|| TuningError::Form(word.to_owned()))?;
            let parameter = Parameter::find(name)?;
            let value = parameter.parse(text)?;
            if made.get(parameter).is_some_and(|other| other != value) {
                return Err(TuningError::Twice(parameter.label()));
            }
            made.set(parameter, value);
        }
        Ok(made)
    }

    /// With this one value.
    #[must_use]
    pub fn of_mode(mode: Mode) -> Self {
        let mut made = Self::default();
        made.set(Parameter::Mode, mode as u64);
        made
    }

    fn set(&mut self, parameter: Parameter, value: u64) {
        self.set |= 1 << parameter as u8;
        self.values[parameter as usize] = value;
    }

    /// One value, if it says it.
    pub fn get(&self, parameter: Parameter) -> Option<u64> {
        (self.set >> parameter as u8 & 1 == 1).then_some(self.values[parameter as usize])
    }

    /// What it says.
    pub fn entries(&self) -> impl Iterator<Item = (Parameter, u64)> {
        Parameter::ALL.into_iter().filter_map(|parameter| Some((parameter, self.get(parameter)?)))
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// With `later` laid over it.
    #[must_use]
    pub fn and(mut self, later: &Self) -> Self {
        for (parameter, value) in later.entries() {
            self.set(parameter, value);
        }
        self
    }
}

impl fmt::Display for TuningPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (parameter, value)) in self.entries().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{}={}", parameter.label(), parameter.show(value))?;
        }
        Ok(())
    }
}

/// What control asks of one worker, in the table.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct TuningRecord {
    words: [AtomicU64; TUNING_WORDS],
}

mod word {
    /// 0 for a record that nobody wrote.
    pub(super) const VERSION: usize = 0;
    pub(super) const CHECKSUM: usize = 1;
    pub(super) const SET: usize = 2;
    pub(super) const VALUES: usize = 3;
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<TuningRecord>() == 128 && align_of::<TuningRecord>() == 128);
    assert!(word::VALUES + PARAMETERS <= TUNING_WORDS && PARAMETERS <= 64);
};

/// Lists the record and the parameters for [`crate::layout::listing`].
pub(crate) fn list_fields(out: &mut String) {
    use std::fmt::Write;
    let _ = writeln!(
        out,
        "TuningRecord version {} checksum {} set {} values {}",
        word::VERSION,
        word::CHECKSUM,
        word::SET,
        word::VALUES
    );
    for parameter in Parameter::ALL {
        let _ = writeln!(out, "parameter {} {}", parameter as u8, parameter.label());
    }
}

impl TuningRecord {
    /// Writes `patch` for `worker`. One thread of the writing process; shown when the table's generation moves.
    pub(crate) fn store(&self, worker: usize, patch: &TuningPatch) {
        let mut words = [0; TUNING_WORDS];
        words[word::VERSION] = self.words[word::VERSION].load(Ordering::Relaxed) + 1;
        words[word::SET] = patch.set;
        words[word::VALUES..word::VALUES + PARAMETERS].copy_from_slice(&patch.values);
        words[word::CHECKSUM] = check(worker, &words);
        for (to, value) in self.words.iter().zip(words) {
            to.store(value, Ordering::Relaxed);
        }
    }

    /// What stands there for `worker`; `None` while it is written, and if it is damaged.
    pub(crate) fn load(&self, worker: usize) -> Option<TuningPatch> {
        let mut words = [0; TUNING_WORDS];
        for (value, from) in words.iter_mut().zip(&self.words) {
            *value = from.load(Ordering::Relaxed);
        }
        if words == [0; TUNING_WORDS] {
            return Some(TuningPatch::default());
        }
        if words[word::CHECKSUM] != check(worker, &words) {
            return None;
        }
        let mut patch = TuningPatch::default();
        for parameter in Parameter::ALL {
            let value = words[word::VALUES + parameter as usize];
            if words[word::SET] >> parameter as u8 & 1 == 1 && parameter.allows(value) {
                patch.set(parameter, value);
            }
        }
        Some(patch)
    }
}

const DOMAIN: u64 = 0x7475_6e65;

fn check(worker: usize, words: &[u64; TUNING_WORDS]) -> u64 {
    crate::table::checksum(DOMAIN, u32::try_from(worker).unwrap_or(u32::MAX), words)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests {
    use super::*;

    fn patch(text: &str) -> TuningPatch {
        TuningPatch::parse(text.split_whitespace()).unwrap()
    }

    #[test]
    fn names_numbers_units_bounds_and_defaults_are_the_published_ones() {
        let published = [
            "0 mode=polling",
            "1 moderator_timeout=16 us 0..100000 rx-usecs cq_period",
            "2 moderator_pkts=8 MADs 1..65535 rx-frames cq_count",
            "3 poll_interval=0 us 0..100000 poll-sleep-usec",
            "4 max_empty_polls=512 polls 1..1000000000 napi_defer_hard_irqs",
            "5 idle_poll_us=200 us 0..10000000 idle-poll-time-us",
            "6 poll_threshold=10 MADs 1..1000000 polling_threshold_vector_length",
            "7 irq_threshold=5 MADs 0..1000000 interrupt_threshold_vector_length",
            "8 suspend_timeout=20000 us 0..10000000 irq-suspend-timeout",
            "9 burst=32 MADs 1..256 budget",
            "10 adaptive=hysteresis",
        ];
        for (parameter, expected) in Parameter::ALL.into_iter().zip(published) {
            let Facts { label, unit, least, most, aliases, .. } = *parameter.facts();
            let value = parameter.show(Tuning::default().get(parameter));
            let mut text = format!("{} {label}={value}", parameter as u8);
            if !unit.is_empty() {
                text += &format!(" {unit} {least}..{most} {}", aliases.join(" "));
            }
            assert_eq!(text, expected);
        }
        Tuning::default().with(&TuningPatch::default()).unwrap();
    }

    #[test]
    fn aliases_hyphens_and_capitals_mean_the_same() {
        for (text, label, value) in [
            ("mode=poll", "mode", 0),
            ("Mode=Adaptive", "mode", 2),
            ("rx-usecs=7", "moderator_timeout", 7),
            ("rx_usecs=7", "moderator_timeout", 7),
            ("cq_period=7", "moderator_timeout", 7),
            ("moderator-pkts=3", "moderator_pkts", 3),
            ("--max-empty-polls=9", "max_empty_polls", 9),
            ("adaptive-rx=dim", "adaptive", 2),
        ] {
            let got: Vec<_> = patch(text).entries().map(|(p, v)| (p.label(), v)).collect();
            assert_eq!(got, [(label, value)], "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_one_line_that_says_what_would_do() {
        for (text, expected) in [
            ("mode", "not of the form NAME=VALUE"),
            ("moderator_timeut=3", "did you mean moderator_timeout?"),
            ("xyzzy=3", "no parameter \"xyzzy\"; there are mode,"),
            ("mode=pol", "polling, interrupt or adaptive, not \"pol\"; did you mean poll?"),
            ("mode=interupt", "did you mean interrupt?"),
            ("moderator_timeout=-1", "a whole number of us from 0 to 100000, not \"-1\""),
            ("moderator_timeout=99999999999999999999999", "from 0 to 100000"),
            ("moderator_pkts=0", "from 1 to 65535"),
            ("burst=1.5", "from 1 to 256"),
            ("burst=", "not \"\""),
            ("adaptive=maybe", "off, hysteresis or dim"),
            ("burst=3 budget=4", "burst is given twice"),
        ] {
            let error = TuningPatch::parse(text.split_whitespace()).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
        let wrong = Tuning::default().with(&patch("irq_threshold=11")).unwrap_err();
        assert_eq!(wrong.to_string(), "irq_threshold 11 is above poll_threshold 10");
        Tuning::default().with(&patch("irq_threshold=11 poll_threshold=11")).unwrap();
    }

    #[test]
    fn what_is_said_later_holds_and_the_rest_stays() {
        let all = patch("mode=interrupt burst=4").and(&patch("burst=5 idle_poll_us=1"));
        assert_eq!(all.to_string(), "mode=interrupt idle_poll_us=1 burst=5");
        let tuning = Tuning::default().with(&all).unwrap();
        assert_eq!((tuning.mode(), tuning.get(Parameter::Burst)), (Mode::Interrupt, 5));
        assert_eq!(tuning.get(Parameter::ModeratorPkts), 8);
    }

    #[test]
    fn a_record_is_read_whole_or_not_at_all() {
        let record = TuningRecord { words: Default::default() };
        assert_eq!(record.load(3), Some(TuningPatch::default()));
        let asked = patch("mode=adaptive suspend_timeout=123");
        record.store(3, &asked);
        assert_eq!(record.load(3), Some(asked));
        assert_eq!(record.load(4), None, "another worker's");
        for at in 0..TUNING_WORDS {
            let former = record.words[at].load(Ordering::Relaxed);
            record.words[at].store(former ^ 4, Ordering::Relaxed);
            assert_eq!(record.load(3), None, "word {at}");
            record.words[at].store(former, Ordering::Relaxed);
        }
        record.store(3, &TuningPatch::default());
        assert_eq!(record.load(3), Some(TuningPatch::default()));
    }
}
