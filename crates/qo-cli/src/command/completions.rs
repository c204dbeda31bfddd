//! `qo completions`

use crate::cli::Cli;
use crate::output::Screen;
use crate::trouble::Done;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print the completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  qo completions bash > ~/.local/share/bash-completion/completions/qo")]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Prints them.
    pub fn run(self, screen: &mut Screen) -> Done {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "qo", &mut script);
        screen.raw(&String::from_utf8_lossy(&script))
    }
}
