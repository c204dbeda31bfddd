//! Claiming less when the machine, or a service that the jobs talk to, is under pressure.

use qo_core::Claim;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How many recent durations the p99 is computed from.
const RECENT: usize = 256;
/// With fewer durations the p99 means nothing.
const ENOUGH: usize = 20;
/// How often the worker reads the memory in use.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How full the memory is and how long tasks take.
#[derive(Debug)]
pub(crate) struct Pressure {
    memory_threshold_percent: u32,
    latency_threshold: Option<Duration>,
    durations: VecDeque<Duration>,
    looked: Option<Instant>,
    /// The share of the memory that was in use, from 0 to 1.
    memory_used: Option<f64>,
}

impl Pressure {
    pub fn new(memory_threshold_percent: u32, latency_threshold: Option<Duration>) -> Self {
        Self {
            memory_threshold_percent,
            latency_threshold,
            durations: VecDeque::new(),
            looked: None,
            memory_used: None,
        }
    }

    /// An attempt took this long.
    pub fn took(&mut self, duration: Duration) {
        if self.latency_threshold.is_some() {
            if self.durations.len() == RECENT {
                self.durations.pop_front();
            }
            self.durations.push_back(duration);
        }
    }

    /// What to claim under the present pressure. At least one job, because finished jobs are what frees memory.
    pub fn ease(&mut self, mut claim: Claim, now: Instant) -> Claim {
        self.look(now);
        let share = self.share();
        let eased = |count: u32| (f64::from(count) * share).ceil() as u32;
        claim.max = eased(claim.max);
        if let Some(prefetch) = &mut claim.prefetch {
            prefetch.buffer = eased(prefetch.buffer);
        }
        claim
    }

    /// How much of a claim the worker asks for.
    fn share(&self) -> f64 {
        let memory = if self.memory_is_short() { 0.5 } else { 1.0 };
        if self.is_slow() { memory * 0.7 } else { memory }
    }

    /// The same, in percent.
    pub fn capacity_percent(&self) -> u8 {
        (self.share() * 100.0).round() as u8
    }

    /// How full the memory is. None if the threshold is 100: then the worker does not look.
    pub fn memory_percent(&mut self, now: Instant) -> Option<u8> {
        self.look(now);
        self.memory_used.map(|share| (share * 100.0).round().clamp(0.0, 100.0) as u8)
    }

    fn look(&mut self, now: Instant) {
        let looks = self.memory_threshold_percent < 100;
        if looks && self.looked.is_none_or(|at| now >= at + LOOK_EVERY) {
            (self.looked, self.memory_used) = (Some(now), memory_used());
        }
    }

    fn memory_is_short(&self) -> bool {
        self.memory_used.is_some_and(|share| share * 100.0 > f64::from(self.memory_threshold_percent))
    }

    fn is_slow(&self) -> bool {
        let Some(threshold) = self.latency_threshold.filter(|_| self.durations.len() >= ENOUGH) else {
            return false;
        };
        let mut sorted: Vec<Duration> = self.durations.iter().copied().collect();
        let at = (sorted.len() * 99).div_ceil(100) - 1;
        *sorted.select_nth_unstable(at).1 > threshold
    }
}

/// The share of the memory that is in use, from 0 to 1: of the control group that has the least left, else of the
/// machine.
fn memory_used() -> Option<f64> {
    in_control_groups(
        Path::new("/sys/fs/cgroup"),
        &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
    )
    .or_else(|| in_machine(&fs::read_to_string("/proc/meminfo").ok()?))
}

fn in_control_groups(root: &Path, own: &str) -> Option<f64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let mut group: PathBuf = root.join(path.trim_start_matches('/'));
    let mut fullest: Option<f64> = None;
    while group.starts_with(root) {
        let share = in_control_group(&group);
        fullest = fullest.into_iter().chain(share).reduce(f64::max);
        if !group.pop() {
            break;
        }
    }
    fullest
}

fn in_control_group(group: &Path) -> Option<f64> {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    let most: f64 = read("memory.max")?.trim().parse().ok()?;
    let current: f64 = read("memory.current")?.trim().parse().ok()?;
    // The kernel reclaims inactive file cache when memory is needed.
    let cached = read("memory.stat").and_then(|stat| {
        stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<f64>().ok())
    });
    (most > 0.0).then(|| (current - cached.unwrap_or(0.0)).max(0.0) / most)
}

fn in_machine(meminfo: &str) -> Option<f64> {
    let kilobytes = |name: &str| -> Option<f64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().ok()
    };
    let (total, available) = (kilobytes("MemTotal")?, kilobytes("MemAvailable")?);
    (total > 0.0).then(|| 1.0 - available / total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo_core::Prefetch;

    const WHOLE: Claim = Claim { max: 50, max_claim_batch: None, prefetch: None };

    #[tokio::test]
    async fn a_short_memory_halves_a_claim_and_slow_tasks_take_three_tenths_of_it() {
        let now = Instant::now();
        let mut pressure = Pressure::new(80, Some(Duration::from_millis(10)));
        (pressure.looked, pressure.memory_used) = (Some(now), Some(0.8));
        assert_eq!(pressure.ease(WHOLE, now).max, 50);
        (0..100).for_each(|_| pressure.took(Duration::from_millis(11)));
        assert_eq!((pressure.ease(WHOLE, now).max, pressure.capacity_percent()), (35, 70));
        pressure.memory_used = Some(0.81);
        assert_eq!(pressure.memory_percent(now), Some(81));
        let soft = Claim { prefetch: Some(Prefetch { buffer: 10, lease_ms: 1_000 }), ..WHOLE };
        let eased = pressure.ease(soft, now);
        assert_eq!((eased.max, eased.prefetch.map(|prefetch| prefetch.buffer)), (18, Some(4)));
        assert_eq!(pressure.ease(Claim { max: 1, ..WHOLE }, now).max, 1);
        (0..RECENT).for_each(|_| pressure.took(Duration::from_millis(1)));
        assert_eq!(pressure.ease(WHOLE, now).max, 25);
    }

    #[test]
    fn the_fullest_control_group_counts_without_what_it_only_caches() {
        let root = tempfile::tempdir().expect("a directory");
        let own = root.path().join("a/b");
        fs::create_dir_all(&own).expect("groups");
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).expect("written");
        write("a/memory.max", "1000\n");
        write("a/memory.current", "900\n");
        write("a/memory.stat", "anon 1\ninactive_file 400\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "800\n");
        assert_eq!(in_control_groups(root.path(), "0::/a/b\n"), Some(0.5));
        assert_eq!(in_control_groups(root.path(), "0::/\n"), None);
        assert_eq!(in_machine("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  250 kB\n"), Some(0.75));
    }
}
