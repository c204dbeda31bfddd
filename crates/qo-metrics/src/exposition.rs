//! The two text formats, and which of them a scraper gets.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::fmt;

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, version 0.0.4: what every scraper reads.
    Prometheus,
    /// OpenMetrics text, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format that an `Accept` header prefers. Prometheus text if it does not ask for OpenMetrics.
    pub fn accepted(accept: Option<&str>) -> Self {
        let (mut open, mut plain) = (0.0, None::<f32>);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            match kind.as_str() {
                "application/openmetrics-text" => open = quality,
                "text/plain" => plain = Some(quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain.unwrap_or(0.0) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// What the `Content-Type` header says.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics of a registry as text.
pub fn text(registry: &Registry, format: Format) -> Result<String, fmt::Error> {
    let mut open = String::new();
    encode(&mut open, registry)?;
    Ok(match format {
        Format::OpenMetrics => open,
        Format::Prometheus => plain(&open),
    })
}

/// OpenMetrics as Prometheus text. There a counter's family is called as its samples are, `…_total`, and there are
/// neither units nor an end mark.
fn plain(open: &str) -> String {
    let mut plain = String::with_capacity(open.len());
    let mut help: Option<(&str, &str)> = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // It is written with its type, which comes next.
            help = rest.split_once(' ');
            continue;
        }
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, said)) = help.take().filter(|(helped, _)| *helped == name) {
                plain.extend(["# HELP ", name, total, " ", said, "\n"]);
            }
            plain.extend(["# TYPE ", name, total, " ", kind, "\n"]);
            continue;
        }
        plain.extend([line, "\n"]);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;

    #[test]
    fn a_scraper_gets_the_format_that_it_asks_for() {
        for (accept, format) in [
            (None, Format::Prometheus),
            (Some("*/*"), Format::Prometheus),
            (Some("text/plain"), Format::Prometheus),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            // As Prometheus asks.
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
                ),
                Format::OpenMetrics,
            ),
            (Some("application/openmetrics-text;q=0.2, text/plain;q=0.8"), Format::Prometheus),
            (Some("application/openmetrics-text;q=0"), Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn a_counter_has_its_full_name_in_prometheus_text() {
        let mut registry = Registry::default();
        let counted: Family<[(&str, String); 1], Counter> = Family::default();
        registry.register("tries", "Tries", counted.clone());
        counted.get_or_create(&[("by", "a \"b\"\\\n".to_owned())]).inc_by(3);
        let gauge: Gauge = Gauge::default();
        registry.register("level", "A level", gauge);
        let plain = text(&registry, Format::Prometheus).expect("a text");
        let expected = "# HELP tries_total Tries.\n# TYPE tries_total counter\ntries_total{by=\"a \\\"b\\\"\\\\\\n\"} 3\n\
                        # HELP level A level.\n# TYPE level gauge\nlevel 0\n";
        assert_eq!(plain, expected);
        let open = text(&registry, Format::OpenMetrics).expect("a text");
        assert!(open.starts_with("# HELP tries Tries.\n# TYPE tries counter\n") && open.ends_with("# EOF\n"));
    }
}
