//! The runtime as real processes: killed, stopped, drained; and programs under their guard.
//!
//! This file is the test, the worker processes that it starts, and the guard of their programs: it starts itself again,
//! and the first argument says which part to play.

mod chaos;
mod diary;
mod namesake;
mod programs;
mod signals;
mod stage;
mod worker;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

type Test = (&'static str, fn());

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), || stage::run($module::$name()))),*]
    };
}

const TESTS: &[Test] = tests![
    programs::an_exit_code_says_what_becomes_of_the_job,
    programs::a_program_gets_its_payload_and_its_environment,
    programs::whatever_a_program_writes_is_read_and_bounded,
    programs::what_a_program_leaves_behind_is_killed,
    programs::a_program_that_shall_stop_is_asked_then_killed,
    programs::a_guard_survives_signals_and_reports_them,
    programs::a_guard_that_is_killed_takes_its_program_and_its_descendants_along,
    programs::a_blocked_event_loop_lets_no_program_be_killed,
    signals::a_worker_that_is_killed_takes_its_programs_and_their_children_along,
    signals::a_stopped_worker_that_goes_on_runs_nothing_and_is_fenced,
    signals::a_stopped_worker_on_a_bucket_that_goes_on_runs_nothing,
    signals::a_blocking_handler_ends_a_process_without_lease_with_exit_code_70,
    signals::a_process_whose_exit_is_held_up_is_killed,
    signals::the_first_sigterm_drains_and_the_second_releases,
    namesake::two_processes_with_one_name_on_a_directory_are_two_owners,
    namesake::two_processes_with_one_name_on_a_bucket_are_two_owners,
    chaos::workers_killed_every_300_ms_exceed_no_limit_and_lose_no_job,
    chaos::workers_killed_every_second_in_a_bucket_exceed_and_lose_nothing,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("guard") => return qo::guard::main(),
        Some("worker") => return worker::main(&arguments[1..]),
        _ => {}
    }
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| say(format_args!("{name}: test")));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        let result = catch_unwind(AssertUnwindSafe(test));
        say(format_args!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" }));
        passed += u32::from(result.is_ok());
        failed += u32::from(result.is_err());
    }
    say(format_args!("test result: {passed} passed; {failed} failed"));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(line: std::fmt::Arguments<'_>) {
    writeln!(std::io::stdout(), "{line}").expect("written");
}
