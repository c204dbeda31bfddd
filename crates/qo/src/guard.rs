//! The guard.
/// The guard's main.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(2)
}
