//! What is asked of the machine: its clocks.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the machine's monotonic clock: all its processes read the same.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds of processor time that this process has used, all its threads together.
pub fn cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}
