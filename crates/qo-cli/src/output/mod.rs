//! Output for people and for programs.
//!
//! Results go to stdout, everything else to stderr. With `--json` a command prints exactly one JSON document: an array for
//! a listing, an object for one thing. Tables are for people and may change. The field names of JSON are those of
//! `qo-core`, but a document about one job calls it `id` everywhere; times are RFC 3339 in UTC. docs/reference/json.md lists every field.

mod dates;
mod json;
mod table;
mod time;

pub use json::{Outcome, detail, ended, explanation, group, schedule};
pub use qo::core::words::counted;
pub use table::{Style, Table, clean};
pub use time::Times;

use crate::trouble::Done;
use clap::ValueEnum;
use dates::Dated;
use qo::Error;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};

/// When colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where a command writes: stdout for its result, stderr for everything else.
pub struct Screen {
    out: BufWriter<io::Stdout>,
    colour_out: bool,
    colour_err: bool,
}

impl Screen {
    /// A screen with or without colours.
    pub fn new(colour: Colour) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let allowed = !is_dumb && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let coloured = |is_terminal: bool| match colour {
            Colour::Auto => allowed && is_terminal,
            Colour::Always => true,
            Colour::Never => false,
        };
        let (colour_out, colour_err) =
            (coloured(io::stdout().is_terminal()), coloured(io::stderr().is_terminal()));
        Self { out: BufWriter::new(io::stdout()), colour_out, colour_err }
    }

    /// Whether stderr has colours.
    pub fn colours_on_stderr(&self) -> bool {
        self.colour_err
    }

    /// A line of the result.
    pub fn line(&mut self, line: impl Display) -> Done {
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Text of the result, as it is.
    pub fn raw(&mut self, text: &str) -> Done {
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// Text that a program wrote. On a terminal, control characters are escaped, because they could steer it. `whole`
    /// ends the text with a newline if it has none.
    pub fn written(&mut self, text: &str, whole: bool) -> Done {
        if io::stdout().is_terminal() {
            return text.lines().try_for_each(|line| self.line(clean(&line.replace('\t', "    "))));
        }
        self.raw(text)?;
        if whole && !text.ends_with('\n') { self.raw("\n") } else { Ok(()) }
    }

    /// Bytes of the result, unchanged. On a terminal, which they could steer, a note about them instead.
    pub fn bytes(&mut self, bytes: &[u8]) -> Done {
        if io::stdout().is_terminal() {
            let bytes = bytes.len();
            self.say(format_args!(
                "{bytes} bytes that are not text: redirect stdout to get them, or use --json"
            ));
            return Ok(());
        }
        Ok(self.out.write_all(bytes)?)
    }

    /// A table of the result.
    pub fn table(&mut self, table: Table) -> Done {
        let text = table.render(self.colour_out);
        self.raw(&text)
    }

    /// One JSON document.
    pub fn json(&mut self, document: &impl Serialize) -> Done {
        let text = serde_json::to_string_pretty(&Dated(document))
            .map_err(|error| Error::new(qo::ErrorKind::Internal, format!("json: {error}")))?;
        self.line(text)
    }

    /// A word in a style, if there are colours.
    pub fn styled(&self, text: &str, style: Style) -> String {
        if self.colour_out { style.paint(text) } else { text.to_owned() }
    }

    /// Flushes stdout.
    pub fn flush(&mut self) -> Done {
        Ok(self.out.flush()?)
    }

    /// Prints something that is not the result.
    pub fn say(&mut self, text: impl Display) {
        // Flush stdout first, so that both streams are in order on a terminal. If stderr is closed there is no reader
        // to inform.
        let _ = self.out.flush();
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Tells what went wrong.
    pub fn error(&mut self, error: &Error) {
        let word = if self.colour_err { Style::Bad.paint("error:") } else { "error:".into() };
        self.say(format_args!("{word} {error}"));
    }

    /// Tells what looks wrong.
    pub fn warn(&mut self, text: impl Display) {
        let word = if self.colour_err { Style::Warn.paint("warning:") } else { "warning:".into() };
        self.say(format_args!("{word} {text}"));
    }

    /// Tells what to do next.
    pub fn hint(&mut self, text: impl Display) {
        let word = if self.colour_err { Style::Strong.paint("hint:") } else { "hint:".into() };
        self.say(format_args!("{word} {text}"));
    }
}

/// A JSON array that is written element by element, however long it is.
pub struct Array {
    empty: bool,
}

impl Array {
    /// Begins the array.
    pub fn begin(screen: &mut Screen) -> Done<Self> {
        screen.raw("[")?;
        Ok(Self { empty: true })
    }

    /// Adds an element, on a line of its own.
    pub fn add(&mut self, screen: &mut Screen, element: &impl Serialize) -> Done {
        let text = serde_json::to_string(&Dated(element))
            .map_err(|error| Error::new(qo::ErrorKind::Internal, format!("json: {error}")))?;
        let separator = if std::mem::take(&mut self.empty) { "\n  " } else { ",\n  " };
        screen.raw(separator)?;
        screen.raw(&text)
    }

    /// Ends the array.
    pub fn end(self, screen: &mut Screen) -> Done {
        screen.raw(if self.empty { "]\n" } else { "\n]\n" })
    }
}
