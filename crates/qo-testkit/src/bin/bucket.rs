//! A bucket in memory for another program: `bucket --latency-ms 60 -- qo bench --store s3://qo-test/bench`.
//!
//! While the program runs, the server answers on a free port of this machine; the program's environment says where.
//! Every request takes `--latency-ms`. At the end the server prints to stderr how many requests of each kind it
//! counted.
#![allow(clippy::print_stderr)] // A program for people.

use qo_testkit::Bucket;
use std::process::{Command, ExitCode};
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (latency_ms, command) = match &arguments[..] {
        [option, ms, dashes, command @ ..] if option == "--latency-ms" && dashes == "--" => {
            (ms.parse(), command)
        }
        [dashes, command @ ..] if dashes == "--" => (Ok(0), command),
        _ => return usage(),
    };
    let (Ok(latency_ms), [program, arguments @ ..]) = (latency_ms, command) else { return usage() };
    let bucket = Bucket::start(1);
    bucket.set_latency(Duration::from_millis(latency_ms));
    let status = Command::new(program).args(arguments).envs(bucket.environment()).status();
    let asked = bucket.requests();
    eprintln!(
        "bucket: {} PUT, {} GET, {} HEAD, {} LIST, {} DELETE",
        asked.put, asked.get, asked.head, asked.list, asked.delete
    );
    match status {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("bucket: {program}: {error}");
            ExitCode::from(127)
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: bucket [--latency-ms MS] -- COMMAND [ARGUMENT]…");
    ExitCode::from(2)
}
