//! Slots as bars, and the last minutes as sparklines. Figures are attributes of SVG: no style is inline.

use super::text::number;
use maud::{Markup, html};
use qo_core::{GroupRef, GroupStatus};

/// Most slots that are drawn one by one.
const CELLS: u64 = 16;
/// A cell, and the gap behind it.
const CELL: (u64, u64) = (11, 3);
const HEIGHT: u64 = 14;
/// The width of a bar that is not drawn slot by slot.
const WIDTH: u64 = CELLS * (CELL.0 + CELL.1) - CELL.1;
/// The size of a sparkline.
const SPARK: (u64, u64) = (96, 22);

/// How much of a group is taken, drawn. Of `GROUP/*` only the limit: each key has its own slots.
pub fn group(status: &GroupStatus) -> Markup {
    match (&status.group, status.limit) {
        (GroupRef::EveryKey(_), Some(limit)) if limit > 0 => {
            html! { span.free { (number(limit)) " for each key" } }
        }
        (_, limit) => slots(status.used, limit),
    }
}

/// How many of so many slots are taken, drawn.
pub fn slots(used: u64, limit: Option<u32>) -> Markup {
    match limit {
        None => html! { span.free { "no limit" } },
        Some(0) if used == 0 => html! { span.state.held { "held" } },
        Some(limit) => drawn(used, limit.into(), "slots taken"),
    }
}

/// How many of so many are there, drawn. `what` says of what.
pub fn drawn(used: u64, limit: u64, what: &str) -> Markup {
    let over = used > limit;
    let label = match limit {
        0 => format!("held, and {} still taken", number(used)),
        _ => format!("{} of {} {what}", number(used), number(limit)),
    };
    let cells = used.max(limit);
    if cells <= CELLS {
        let width = cells * (CELL.0 + CELL.1) - CELL.1;
        return html! {
            svg.slots role="img" aria-label=(label) width=(width) height=(HEIGHT) viewBox={"0 0 " (width) " " (HEIGHT)} {
                @for cell in 0..cells {
                    @let class = if cell >= limit { "over" } else if cell < used { "on" } else { "off" };
                    rect class=(class) x=(cell * (CELL.0 + CELL.1)) y="0" width=(CELL.0) height=(HEIGHT) rx="3" {}
                }
            }
        };
    }
    // At least a hair of what is there, and of what is left.
    let part = (used.min(limit) * WIDTH).checked_div(limit.max(1)).unwrap_or(0);
    let part = match used {
        0 => 0,
        used if used < limit => part.clamp(2, WIDTH - 2),
        _ => WIDTH,
    };
    let class = if over { "over" } else { "on" };
    html! {
        svg.slots role="img" aria-label=(label) width=(WIDTH) height=(HEIGHT) viewBox={"0 0 " (WIDTH) " " (HEIGHT)} {
            rect.off x="0" y="0" width=(WIDTH) height=(HEIGHT) rx="3" {}
            @if part > 0 { rect class=(class) x="0" y="0" width=(part) height=(HEIGHT) rx="3" {} }
        }
    }
}

/// The figures of a group beside its bar: `3 / 4`.
pub fn figures(status: &GroupStatus) -> Markup {
    html! {
        span.figures {
            b { (number(status.used)) }
            @if let (Some(limit), false) = (status.limit, matches!(status.group, GroupRef::EveryKey(_))) { " / " (number(limit)) }
        }
    }
}

/// Slots that jobs ask for beyond those that they have.
pub fn wanted(status: &GroupStatus) -> u64 {
    status.live.saturating_sub(status.used)
}

/// The last minutes as a line: the newest figure is at the right. Nothing while there are fewer than two.
pub fn spark(samples: &[u64], what: &str) -> Markup {
    let (Some(&last), Some(&top)) = (samples.last(), samples.iter().max()) else { return html! {} };
    if samples.len() < 2 {
        return html! {};
    }
    let (width, height) = SPARK;
    let top = top.max(1);
    let low = height - 3;
    let x = |at: usize| at as u64 * (width - 4) / (samples.len() as u64 - 1).max(1) + 1;
    let y = |value: u64| low - value * (low - 3) / top;
    let points: Vec<_> =
        samples.iter().enumerate().map(|(at, value)| format!("{},{}", x(at), y(*value))).collect();
    let line = points.join(" ");
    let end = samples.len() - 1;
    html! {
        svg.spark role="img" aria-label={(what) ", the last minutes: now " (number(last)) ", at most " (number(top))}
            width=(width) height=(height) viewBox={"0 0 " (width) " " (height)} {
            polygon points={"1," (low) " " (line) " " (x(end)) "," (low)} {}
            polyline points=(line) {}
            circle cx=(x(end)) cy=(y(last)) r="2" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_slots_are_drawn_one_by_one_and_many_as_a_bar() {
        let few = slots(2, Some(3)).into_string();
        assert_eq!((few.matches("class=\"on\"").count(), few.matches("class=\"off\"").count()), (2, 1));
        let lowered = slots(3, Some(2)).into_string();
        assert_eq!(lowered.matches("class=\"over\"").count(), 1, "{lowered}");
        let many = slots(1, Some(1_000_000)).into_string();
        assert!(many.contains("width=\"2\"") && many.matches("<rect").count() == 2, "{many}");
        assert!(slots(5, Some(0)).into_string().contains("held, and 5 still taken"));
        assert!(slots(0, Some(0)).into_string().contains("held"));
    }

    #[test]
    fn a_sparkline_holds_any_figures() {
        assert_eq!(spark(&[4], "x").into_string(), "");
        for samples in [vec![0, 0], vec![1 << 50, 0, 7], vec![3; 120]] {
            assert!(spark(&samples, "x").into_string().contains("polyline"));
        }
    }
}
