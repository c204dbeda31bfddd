//! Lengths of time as people write them: `250ms`, `90s`, `10m`, `1h30m`, `14d`, `2w`.

use qo_core::caps;

/// Units, the longest name first where one begins with another.
const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 7 * 86_400_000)];

/// What is wrong with a text that is no length of time.
const RULE: &str = "must be a length of time such as 250ms, 90s, 10m, 1h30m or 14d";

/// Reads a length of time in milliseconds. A number needs its unit; only `0` needs none. The error is the rule.
pub fn parse_ms(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(RULE)?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let number: u64 = number.parse().map_err(|_| RULE)?;
        let ms = UNITS.iter().find(|(name, _)| *name == unit).ok_or(RULE)?.1;
        total =
            number.checked_mul(ms).and_then(|ms| total.checked_add(ms)).ok_or("must be at most ten years")?;
        rest = after;
    }
    match (text.is_empty(), total > caps::DURATION_MS) {
        (true, _) => Err(RULE.into()),
        (_, true) => Err("must be at most ten years".into()),
        _ => Ok(total),
    }
}

/// Writes a length of time with its one or two largest units: `1h 30m`, `14d`, `850ms`.
pub fn show_ms(ms: u64) -> String {
    const SHOWN: [(&str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let Some(first) = SHOWN.iter().position(|&(_, unit)| ms >= unit) else { return "0s".into() };
    let (name, unit) = SHOWN[first];
    let whole = format!("{}{name}", ms / unit);
    // The milliseconds of a minute are noise.
    match SHOWN.get(first + 1).filter(|_| unit > 1_000 || ms < 10_000) {
        Some(("ms", _)) if !ms.is_multiple_of(1_000) => format!("{:.1}s", ms as f64 / 1_000.0),
        Some(&(next, smaller)) if smaller > 1 && ms % unit >= smaller => {
            format!("{whole} {}{next}", ms % unit / smaller)
        }
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_read_as_people_write_them() {
        let read = |text| parse_ms(text).ok();
        assert_eq!(read("250ms"), Some(250));
        assert_eq!(read("90s"), Some(90_000));
        assert_eq!(read("1h30m"), Some(5_400_000));
        assert_eq!(read("14d"), Some(14 * 86_400_000));
        assert_eq!(read("2w"), Some(14 * 86_400_000));
        assert_eq!(read("0"), Some(0));
        for bad in ["", "s", "10", "-1s", "1.5h", "1 h", "10y", "99999999999999999999s", "9999999d", "ms5"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn lengths_of_time_are_shown_short() {
        for (ms, shown) in [
            (0, "0s"),
            (850, "850ms"),
            (1_500, "1.5s"),
            (2_000, "2s"),
            (90_000, "1m 30s"),
            (60_000, "1m"),
            (61_200, "1m 1s"),
            (45_300, "45s"),
            (5_400_000, "1h 30m"),
            (14 * 86_400_000, "14d"),
            (90_061_000, "1d 1h"),
        ] {
            assert_eq!(show_ms(ms), shown);
        }
    }
}
