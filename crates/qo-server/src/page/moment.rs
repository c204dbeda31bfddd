//! Moments: how far away they are, with the date behind it. All by store time, in UTC: the script tells a browser's own.

use maud::{Markup, html};
use qo_core::Time;
use qo_core::words::Moments;

/// What moments are shown relative to.
#[derive(Clone, Copy)]
pub struct Now(pub Time);

impl Now {
    /// How far away a moment is, with the date in its title.
    pub fn ago(self, time: Time) -> Markup {
        html! { time datetime=(time) title=(clock(time)) { (self.away(time)) } }
    }

    /// How long ago something began that goes on: `3m 20s`.
    pub fn since(self, time: Time) -> Markup {
        html! { time datetime=(time) title=(clock(time)) { (self.age(time)) } }
    }
}

impl Moments for Now {
    fn full(&self, time: Time) -> String {
        format!("{} ({})", clock(time), self.away(time))
    }

    fn away(&self, time: Time) -> String {
        match time.cmp(&self.0) {
            std::cmp::Ordering::Greater => format!("in {}", length(time.ms_since(self.0))),
            _ if self.0.ms_since(time) < 1_000 => "now".into(),
            _ => format!("{} ago", self.age(time)),
        }
    }

    fn age(&self, time: Time) -> String {
        length(self.0.ms_since(time))
    }
}

/// A date on the clock of UTC: `2026-11-15 16:41:02 UTC`.
pub fn clock(time: Time) -> String {
    match jiff::Timestamp::from_millisecond(time.as_millis()) {
        Ok(moment) => moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => time.to_string(),
    }
}

/// A length of time by its one or two largest units: `850 ms`, `12s`, `3m 20s`, `2d 4h`.
pub fn length(ms: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let Some(at) = UNITS.iter().position(|(_, unit)| ms >= *unit) else { return format!("{ms} ms") };
    let (name, unit) = UNITS[at];
    let rest = UNITS.get(at + 1).map(|(name, smaller)| (ms % unit / smaller, *name));
    match rest.filter(|(count, _)| *count > 0) {
        Some((count, smaller)) => format!("{}{name} {count}{smaller}", ms / unit),
        None => format!("{}{name}", ms / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_by_how_far_away_they_are() {
        let now = Now(Time::from_millis(10_000_000));
        let away = |ms| now.away(Time::from_millis(ms));
        assert_eq!(
            (away(10_000_000), away(9_999_100), away(9_800_000)),
            ("now".into(), "now".into(), "3m 20s ago".into())
        );
        assert_eq!(
            (away(10_030_000), length(0), length(93_600_000)),
            ("in 30s".into(), "0 ms".into(), "1d 2h".into())
        );
        assert_eq!(clock(Time::from_millis(0)), "1970-01-01 00:00:00 UTC");
    }
}
