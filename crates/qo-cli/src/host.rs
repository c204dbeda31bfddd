//! What the process around the command line can do, and how it is started again.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// The process that holds the command line. The default is the program `qo`: it has no Python, and starts its own
/// executable again where a command needs another process.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Whether the host runs Python apps. Without it `qo worker MODULE:OBJECT` is refused.
    pub python: bool,
    /// The command that starts the same command line again, such as `["python", "-m", "qo"]`; the arguments follow it.
    /// `qo demo` starts its workers with it. Defaults to the executable of this process.
    pub own_command: Option<Vec<OsString>>,
    /// The executable that guards programs: it calls [`qo::guard::main`]. `qo worker` and `qo slot run` need it.
    /// Defaults to the executable of this process.
    pub guard: Option<PathBuf>,
}

impl Host {
    /// The command that starts the same command line again, without arguments.
    pub(crate) fn again(&self) -> io::Result<Command> {
        match self.own_command.as_deref() {
            Some([program, arguments @ ..]) => {
                let mut command = Command::new(program);
                command.args(arguments);
                Ok(command)
            }
            Some([]) | None => Ok(Command::new(std::env::current_exe()?)),
        }
    }

    /// The executable that guards programs.
    pub(crate) fn guard(&self) -> io::Result<PathBuf> {
        self.guard.clone().map_or_else(qo::guard::own_executable, Ok)
    }
}
