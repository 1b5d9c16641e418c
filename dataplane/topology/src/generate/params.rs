//! Parameters as text, checked against the names and ranges a kind accepts.

use std::ops::RangeInclusive;

use super::{DEFAULT_RATE, GenerateError};
use crate::graph::{LinkSpeed, LinkWidth};
use crate::rate::parse_rate;

/// Parameters of one fabric; every name in it is accepted by its kind and given once.
#[derive(Debug)]
pub(super) struct Params<'a> {
    given: &'a [(String, String)],
}

impl<'a> Params<'a> {
    pub(super) fn new(
        kind: &'static str,
        accepted: &[&str],
        given: &'a [(String, String)],
    ) -> Result<Self, GenerateError> {
        for (index, (name, _)) in given.iter().enumerate() {
            if !accepted.contains(&name.as_str()) {
                return Err(GenerateError::UnknownParameter { kind, name: name.clone() });
            }
            if given[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(GenerateError::RepeatedParameter { name: name.clone() });
            }
        }
        Ok(Self { given })
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.given.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// A whole number in `range`, decimal or `0x`; `None` if it is not given.
    pub(super) fn number<T>(
        &self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, GenerateError>
    where
        T: TryFrom<u64> + PartialOrd + std::fmt::Display,
    {
        let Some(value) = self.text(name) else { return Ok(None) };
        let number = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => value.parse().ok(),
        };
        match number.and_then(|n| T::try_from(n).ok()).filter(|n| range.contains(n)) {
            Some(number) => Ok(Some(number)),
            None => Err(bad(name, value, format!("a number from {} to {}", range.start(), range.end()))),
        }
    }

    pub(super) fn rate(&self) -> Result<(LinkWidth, LinkSpeed), GenerateError> {
        match self.text("rate") {
            None => Ok(DEFAULT_RATE),
            Some(text) => parse_rate(text.as_bytes()).ok_or_else(|| {
                bad("rate", text, "width and speed such as 4xEDR (1, 2, 4, 8, 12; SDR to XDR, FDR10)")
            }),
        }
    }
}

pub(super) fn bad(
    name: &'static str,
    value: impl std::fmt::Display,
    wanted: impl Into<String>,
) -> GenerateError {
    GenerateError::BadValue { name, value: value.to_string(), wanted: wanted.into() }
}
