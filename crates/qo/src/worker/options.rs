//! How a worker behaves, as plain data.

use qo_core::{ClaimSettings, Configuration, Error, Name, Result, caps, default_app};
use std::net::SocketAddr;
use std::time::Duration;

/// The settings of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// What the worker is called: a label, not an identity. Defaults to the host's name and the process id.
    pub name: Option<Name>,
    /// The queues it serves; empty means all of them. Defaults to all.
    pub queues: Vec<Name>,
    /// Jobs that it runs at once: its permits. Defaults to 100; to the number of CPUs if every task is a program.
    pub max_concurrent_tasks: Option<u32>,
    /// How long its session lives after each exchange. Defaults to 30 s.
    pub lease: Duration,
    /// How many jobs it claims, and whether ahead of time. Defaults to [`ClaimSettings::default`].
    pub claim: ClaimSettings,
    /// How often it looks for work when nothing wakes it up. Defaults to 100 ms on a store without a wake-up channel
    /// and to 5 s on one with it. Defaults to 30 s in a bucket, where every look costs something and the store itself
    /// tails the log.
    pub poll_interval: Option<Duration>,
    /// How long a handler may take to stop after it was told to. Defaults to 10 s.
    pub cancel_grace: Duration,
    /// Above this share of memory it claims half as much; 100 turns that off. Defaults to 80.
    pub memory_threshold_percent: u32,
    /// While the p99 of recent attempts is above this it claims 0.7 times as much. Defaults to off.
    pub latency_threshold: Option<Duration>,
    /// Where it shows its metrics to a Prometheus: `/metrics` at this address; port 0 takes a free one. Defaults to
    /// nowhere.
    pub metrics_addr: Option<SocketAddr>,
    /// Lets `metrics_addr` be an address that other machines reach. The metrics are not encrypted, and every process
    /// that reaches them may read them: they name groups. Defaults to no.
    pub metrics_insecure: bool,
    /// The service whose code and configuration it pushes. What other apps pushed stays. Defaults to the app of its
    /// configuration, else `default`.
    pub app: Option<Name>,
    /// The content of the configuration file, which the worker pushes when it starts. Defaults to none: nothing is
    /// pushed.
    pub configuration: Option<Configuration>,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            name: None,
            queues: Vec::new(),
            max_concurrent_tasks: None,
            lease: Duration::from_secs(30),
            claim: ClaimSettings::default(),
            poll_interval: None,
            cancel_grace: Duration::from_secs(10),
            memory_threshold_percent: 80,
            latency_threshold: None,
            metrics_addr: None,
            metrics_insecure: false,
            app: None,
            configuration: None,
        }
    }
}

/// Jobs that a worker runs at once, if its settings do not say and not every task is a program.
pub(crate) const PERMITS: u32 = 100;

impl WorkerOptions {
    /// The service whose code and configuration it pushes.
    pub fn app(&self) -> Name {
        let configured = || self.configuration.as_ref().map(|configuration| configuration.app.clone());
        self.app.clone().or_else(configured).unwrap_or_else(default_app)
    }

    /// Jobs that a worker with these settings runs at once.
    pub(crate) fn permits(&self, all_are_programs: bool) -> u32 {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        let usual = || if all_are_programs { u32::try_from(cpus()).unwrap_or(PERMITS) } else { PERMITS };
        self.max_concurrent_tasks.unwrap_or_else(usual)
    }

    /// Checks every rule and lists every mistake.
    pub fn check(&self) -> Result<()> {
        let within = |field: &str, value: u64, least: u64, most: u64| {
            let rule = format!("must be {least} to {most}");
            (!(least..=most).contains(&value)).then(|| Error::invalid(field, value, rule))
        };
        let within_ms = |field: &str, value: Option<Duration>, least: u64, most: u64| {
            let value = value?;
            let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
            let rule = || format!("must be {least:?} to {most:?}");
            (!(least..=most).contains(&value))
                .then(|| Error::invalid(field, format_args!("{value:?}"), rule()))
        };
        let pushed = self.configuration.as_ref().map(|configuration| &configuration.app);
        let another = self.app.as_ref().zip(pushed).filter(|(app, pushed)| app != pushed);
        let another = another.map(|(app, pushed)| {
            Error::invalid("app", app, format_args!("must be that of the configuration, {pushed}"))
        });
        let reached = self.metrics_addr.filter(|addr| !addr.ip().is_loopback() && !self.metrics_insecure);
        let reached = reached.map(|addr| {
            let rule = "must be an address of this machine alone, such as 127.0.0.1:9464, unless metrics_insecure is \
                        set: every process that reaches the metrics may read them";
            Error::invalid("metrics_addr", addr, rule)
        });
        let mistakes = [
            another,
            reached,
            within(
                "max_concurrent_tasks",
                self.max_concurrent_tasks.unwrap_or(1).into(),
                1,
                caps::LIMIT.into(),
            ),
            within_ms("lease", Some(self.lease), caps::LEASE_MIN_MS, caps::LEASE_MAX_MS),
            within_ms("poll_interval", self.poll_interval, 1, caps::DURATION_MS),
            within_ms("cancel_grace", Some(self.cancel_grace), 0, caps::LEASE_MAX_MS),
            within("memory_threshold_percent", self.memory_threshold_percent.into(), 1, 100),
            within_ms("latency_threshold", self.latency_threshold, 1, caps::DURATION_MS),
            self.claim.check(self.configuration.as_ref().unwrap_or(&Configuration::default())).err(),
        ];
        Error::all(mistakes.into_iter().flatten().collect())
    }
}

/// The host's name and the process id, as a valid name.
pub(crate) fn default_name() -> Name {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name_of(&host, std::process::id())
}

fn name_of(host: &str, pid: u32) -> Name {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let host: String = host.chars().take(100).map(|c| if is_fine(c) { c } else { '_' }).collect();
    let host = host.trim_start_matches(['.', '-']);
    let host = if host.is_empty() { "worker" } else { host };
    Name::parse("name", &format!("{host}-{pid}")).unwrap_or_else(|_| unreachable!("every character is fine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_host_makes_a_name() {
        for (host, name) in [
            ("web-1.example.org", "web-1.example.org-7"),
            ("böse host!", "b_se_host_-7"),
            ("", "worker-7"),
            ("-.x", "x-7"),
            ("cluster", "cluster-7"),
            (&"h".repeat(300), &format!("{}-7", "h".repeat(100))),
        ] {
            assert_eq!(&*name_of(host, 7), name);
        }
        assert!(!default_name().is_empty());
    }

    #[test]
    fn every_mistake_in_the_options_is_listed() {
        let options = WorkerOptions {
            max_concurrent_tasks: Some(0),
            lease: Duration::from_millis(1),
            memory_threshold_percent: 101,
            metrics_addr: Some("0.0.0.0:9464".parse().expect("an address")),
            ..WorkerOptions::default()
        };
        let error = options.check().expect_err("four mistakes").to_string();
        for field in ["max_concurrent_tasks", "lease", "memory_threshold_percent", "metrics_addr"] {
            assert!(error.contains(field), "{error}");
        }
        let open = WorkerOptions {
            metrics_addr: options.metrics_addr,
            metrics_insecure: true,
            ..Default::default()
        };
        open.check().expect("the user says that it is meant");
    }
}
