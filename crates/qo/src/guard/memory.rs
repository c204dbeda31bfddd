//! Whether the kernel killed a process because memory ran out.
//!
//! A process does not say that itself: it gets SIGKILL, like one that an operator killed. The kernel counts its kills for
//! the whole machine. So a SIGKILL while that count grew is told as one of them.

use super::Ended;
use rustix::process::Signal;

/// How many processes the kernel has killed for their memory since the machine started. 0 if it does not tell.
pub fn oom_kills() -> u64 {
    parse(&std::fs::read_to_string("/proc/vmstat").unwrap_or_default())
}

fn parse(vmstat: &str) -> u64 {
    let count = vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
    count.unwrap_or(0)
}

/// How a process ended, for people. `before` and `now` are [`oom_kills`], while it still ran and after its end.
pub fn told(ended: &Ended, before: u64, now: u64) -> String {
    let is_kill = matches!(ended, Ended::Killed(signal) if *signal == Signal::KILL.as_raw());
    match is_kill && now > before {
        true => format!("{ended}, by the kernel because memory ran out"),
        false => ended.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_while_memory_ran_out_is_told_and_no_other_end() {
        let [kill, fault] = [Signal::KILL, Signal::SEGV].map(|signal| Ended::Killed(signal.as_raw()));
        let memory = "killed by signal 9 (SIGKILL), by the kernel because memory ran out";
        assert_eq!(told(&kill, 3, 4), memory);
        assert_eq!(told(&kill, 4, 4), "killed by signal 9 (SIGKILL)");
        assert_eq!(told(&fault, 3, 4), "killed by signal 11 (SIGSEGV)");
        assert_eq!(told(&Ended::Exited(137), 3, 4), "exit code 137");
    }

    #[test]
    fn the_count_of_the_kernel_is_read() {
        assert_eq!(parse("pgfault 12\noom_kill 7\noom_kill_x 9\n"), 7);
        assert_eq!(parse("pgfault 12\n"), 0);
    }
}
