//! qo on the command line.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(2)
}
