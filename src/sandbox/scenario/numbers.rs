//! Numbers with bounds, whose mistakes tell the bounds.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A whole number from `LOW` to `HIGH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whole<const LOW: u32, const HIGH: u32>(u32);

impl<const LOW: u32, const HIGH: u32> Whole<LOW, HIGH> {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The number as a count.
    pub fn count(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

struct WholeVisitor<const LOW: u32, const HIGH: u32>;

impl<const LOW: u32, const HIGH: u32> Visitor<'_> for WholeVisitor<LOW, HIGH> {
    type Value = Whole<LOW, HIGH>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {LOW} to {HIGH}")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(n) if (LOW..=HIGH).contains(&n) => Ok(Whole(n)),
            _ => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(n) if (LOW..=HIGH).contains(&n) => Ok(Whole(n)),
            _ => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }
}

impl<'de, const LOW: u32, const HIGH: u32> Deserialize<'de> for Whole<LOW, HIGH> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

/// A number from `LOW` to `HIGH` thousandths.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Real<const LOW_MILLI: u32, const HIGH_MILLI: u32>(f64);

impl<const LOW_MILLI: u32, const HIGH_MILLI: u32> Real<LOW_MILLI, HIGH_MILLI> {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

struct RealVisitor<const LOW_MILLI: u32, const HIGH_MILLI: u32>;

impl<const LOW_MILLI: u32, const HIGH_MILLI: u32> Visitor<'_>
    for RealVisitor<LOW_MILLI, HIGH_MILLI>
{
    type Value = Real<LOW_MILLI, HIGH_MILLI>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (f64::from(LOW_MILLI) / 1e3, f64::from(HIGH_MILLI) / 1e3);
        write!(f, "a number from {low} to {high}")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        let (low, high) = (f64::from(LOW_MILLI) / 1e3, f64::from(HIGH_MILLI) / 1e3);
        if number.is_finite() && (low..=high).contains(&number) {
            Ok(Real(number))
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        self.visit_f64(number as f64)
    }
}

impl<'de, const LOW_MILLI: u32, const HIGH_MILLI: u32> Deserialize<'de>
    for Real<LOW_MILLI, HIGH_MILLI>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RealVisitor)
    }
}
