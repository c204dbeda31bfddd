//! What can go wrong, the exit codes for it, and hints for the user.

use crate::output::Screen;
use qo::{Cause, Error, ErrorKind};
use std::ffi::OsString;
use std::io;

/// The command line, or a value, broke a rule.
pub const USAGE: u8 = 2;
/// The command ran, and what it was asked for did not succeed.
pub const FAILED: u8 = 1;
/// Ctrl-C, as a shell reports it.
pub const INTERRUPTED: u8 = 130;

/// Why a command ends early.
#[derive(Debug)]
pub enum Trouble {
    /// An error to print, with hints.
    Error {
        /// What went wrong.
        error: Error,
        /// What to do about it.
        hints: Vec<String>,
    },
    /// Everything has been printed; only the exit code is left.
    Exit(u8),
    /// The reader of stdout is gone: there is nothing left to print to.
    Closed,
    /// The command is done, but its result cannot be printed on stdout. Doing it again would be wrong.
    Mute(io::Error),
}

/// The result of a command.
pub type Done<T = ()> = Result<T, Trouble>;

impl Trouble {
    /// A mistake on the command line that clap cannot see.
    pub fn usage(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message).into()
    }

    /// The same trouble, with another hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        match self {
            Self::Error { error, mut hints } => {
                hints.push(hint.into());
                Self::Error { error, hints }
            }
            other => other,
        }
    }

    /// The kind of the error, if it is one.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Error { error, .. } => Some(error.kind()),
            Self::Exit(_) | Self::Closed | Self::Mute(_) => None,
        }
    }

    /// Prints the trouble, an error as JSON if the command line asks for that, and returns the exit code.
    pub fn tell(&self, screen: &mut Screen, json: bool) -> u8 {
        match self {
            Self::Error { error, hints } => {
                if json {
                    screen.say(as_json(error, hints));
                } else {
                    screen.error(error);
                    hints.iter().for_each(|hint| screen.hint(hint));
                }
                exit_code(error.kind())
            }
            Self::Exit(code) => *code,
            Self::Closed => 0,
            Self::Mute(error) => {
                screen.warn(format_args!("stdout: {error}; the changes are made all the same"));
                FAILED
            }
        }
    }
}

/// Whether these arguments ask for JSON. Mistakes on the command line are printed so, too, when clap has not parsed it.
pub fn speaks_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// An error for programs, in one line.
pub fn as_json(error: &Error, hints: &[String]) -> String {
    let mut told = serde_json::to_value(error).unwrap_or_default();
    if let (Some(told), false) = (told.as_object_mut(), hints.is_empty()) {
        told.insert("hints".into(), hints.into());
    }
    serde_json::json!({ "error": told }).to_string()
}

/// The exit code of an error.
pub fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid => USAGE,
        ErrorKind::NotFound => 3,
        ErrorKind::LimitReached => 4,
        ErrorKind::Unavailable | ErrorKind::Unknown => 75,
        ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::Data | ErrorKind::Internal => FAILED,
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        // A format that this release does not know is no damage; its error says what to do.
        let is_something_else = matches!(error.cause(), Some(Cause::OtherFormat | Cause::OtherNamespace));
        let is_damage = error.kind() == ErrorKind::Data && !is_something_else;
        let doctor = "`qo doctor --verify` says what is damaged, `qo doctor --repair` gets it going again";
        let hints = is_damage.then(|| doctor.to_owned()).into_iter().collect();
        Self::Error { error, hints }
    }
}

/// An error while writing to stdout: every other failure has an error of its own.
impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Mute(error),
        }
    }
}
