//! Requests, for a job, a minute or a million jobs.

use super::super::figure::{Bar, Figure, Unit};
use qo::bucket::Requests;
use std::time::Duration;

const MINUTE: f64 = 60.0;

/// Bars for the requests of a job: all of them, those that write, and what a million jobs cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobBars {
    pub requests: Option<f64>,
    pub puts: Option<f64>,
    pub dollars: Option<f64>,
}

/// The requests of jobs, round by round.
#[derive(Debug, Default)]
pub struct Bill {
    rounds: Vec<(u64, Requests)>,
}

impl Bill {
    /// Adds jobs and the requests that they took.
    pub fn add(&mut self, jobs: u64, requests: Requests) {
        self.rounds.push((jobs, requests));
    }

    /// What a job takes, by kind of request, and what a million jobs cost.
    pub fn figures(&self, what: &str, bars: JobBars) -> Vec<Figure> {
        let figure = |kind: &str, unit, bar: Option<f64>, count: fn(&Requests) -> f64| {
            let each = self.rounds.iter().map(|(jobs, requests)| count(requests) / *jobs as f64);
            let figure = Figure::new(format!("{what}: {kind}"), unit, each.collect());
            match bar {
                Some(most) => figure.bar(Bar::AtMost(most)),
                None => figure,
            }
        };
        vec![
            figure("requests a job", Unit::PerJob, bars.requests, |all| all.total() as f64),
            figure("PUT a job", Unit::PerJob, bars.puts, |all| all.puts as f64),
            figure("GET a job", Unit::PerJob, None, |all| all.gets as f64),
            figure("LIST a job", Unit::PerJob, None, |all| all.lists as f64),
            figure("DELETE a job", Unit::PerJob, None, |all| all.deletes as f64),
            figure("a million jobs cost", Unit::Dollars, bars.dollars, |all| all.dollars() * 1e6),
        ]
    }
}

/// Requests a minute.
pub fn a_minute(requests: u64, time: Duration) -> f64 {
    requests as f64 / time.as_secs_f64() * MINUTE
}
