//! Figures: what was measured, round by round, and the bar that it must reach.

use serde::Serialize;

/// One figure, measured in every round.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// Its unit.
    pub unit: Unit,
    /// One value for each round.
    pub rounds: Vec<f64>,
    /// The bar that it must reach, if there is one.
    pub bar: Option<Bar>,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Jobs a second.
    JobsPerSecond,
    /// A share of something, in hundredths.
    Percent,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Micros,
    /// Requests to a bucket.
    Requests,
    /// Requests to a bucket for each job.
    PerJob,
    /// Requests to a bucket in a minute.
    PerMinute,
    /// Mebibytes.
    Mebibytes,
    /// Dollars.
    Dollars,
}

/// What a figure must reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Bar {
    /// Whether a value reaches the bar.
    pub fn is_reached(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    /// The bar, for people.
    pub fn shown(self, unit: Unit) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {}", unit.shown(least)),
            Self::AtMost(most) => format!("≤ {}", unit.shown(most)),
        }
    }
}

impl Unit {
    /// A value, for people.
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::JobsPerSecond => format!("{} jobs/s", thousands(value)),
            Self::Percent if value < 10.0 => format!("{value:.2} %"),
            Self::Percent => format!("{value:.1} %"),
            Self::Ms if value < 100.0 => format!("{value:.1} ms"),
            Self::Ms => format!("{value:.0} ms"),
            Self::Micros => format!("{value:.1} µs"),
            Self::Requests if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Requests | Self::PerMinute => format!("{value:.1}"),
            Self::PerJob => format!("{value:.4}"),
            Self::Mebibytes => format!("{value:.0} MiB"),
            Self::Dollars => format!("${value:.3}"),
        }
    }
}

/// A number with a comma every three digits.
fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Figure {
    /// A figure without a bar.
    pub fn new(what: impl Into<String>, unit: Unit, rounds: Vec<f64>) -> Self {
        Self { what: what.into(), unit, rounds, bar: None }
    }

    /// The figure, and what it must reach.
    #[must_use]
    pub fn bar(mut self, bar: Bar) -> Self {
        self.bar = Some(bar);
        self
    }

    /// The value in the middle.
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }

    /// The smallest and the largest value.
    pub fn spread(&self) -> (f64, f64) {
        let smallest = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        (smallest, self.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    /// Whether the median reaches the bar, if there is one.
    pub fn is_reached(&self) -> Option<bool> {
        self.bar.map(|bar| bar.is_reached(self.median()))
    }
}

/// The value in the middle; of an even number the mean of both. NaN if there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}

/// The value that this percentage of all values does not exceed.
pub fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(index.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_knows_its_median_percentiles_and_bar() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        assert!(median(&[]).is_nan() && percentile(&[], 99.0).is_nan());
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&hundred, 50.0), percentile(&hundred, 99.0)), (50.0, 99.0));
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        let figure = Figure::new("rate", Unit::JobsPerSecond, vec![14_000.0, 16_000.0, 15_500.4]);
        assert_eq!((figure.spread(), figure.is_reached()), ((14_000.0, 16_000.0), None));
        assert_eq!(figure.clone().bar(Bar::AtLeast(15_000.0)).is_reached(), Some(true));
        assert_eq!(figure.bar(Bar::AtMost(15_000.0)).is_reached(), Some(false));
    }

    #[test]
    fn a_figure_is_shown_with_its_unit_and_few_digits() {
        assert_eq!(Unit::JobsPerSecond.shown(1_234_567.8), "1,234,568 jobs/s");
        assert_eq!(Unit::JobsPerSecond.shown(999.0), "999 jobs/s");
        assert_eq!(Bar::AtLeast(95.0).shown(Unit::Percent), "≥ 95.0 %");
    }
}
