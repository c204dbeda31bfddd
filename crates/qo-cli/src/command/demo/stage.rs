//! Where the show is seen: redrawn in place on a terminal, line by line elsewhere.

use super::frame::{Frame, shown};
use super::line::Line;
use super::plan::Task;
use crate::output::{Screen, Style};
use crate::trouble::Done;
use qo::core::GroupRef;
use std::io::{IsTerminal, Write};

/// Seconds between two lines where nothing can be redrawn.
const PLAIN_SECONDS: f64 = 1.0;
/// The size of a terminal that does not report it.
const USUAL: (usize, usize) = (100, 30);

/// Where the show is seen.
pub struct Stage<'a> {
    screen: &'a mut Screen,
    /// Lines on the terminal that can be drawn over; none if it is not a terminal.
    drawn: Option<usize>,
    happened: Vec<Line>,
    next_line: f64,
}

impl<'a> Stage<'a> {
    /// A stage on stdout. Where it cannot redraw, it writes line by line.
    pub fn new(screen: &'a mut Screen) -> Self {
        let can_redraw =
            std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { screen, drawn: can_redraw.then_some(0), happened: Vec::new(), next_line: 0.0 }
    }

    /// Shows an event.
    pub fn say(&mut self, seconds: f64, text: &str, style: Style) -> Done {
        let line = Line::of(format!("{seconds:6.1} s  "), Style::Dim).and(text, style);
        if self.drawn.is_some() {
            self.happened.push(line);
            return Ok(());
        }
        self.screen.line(line.render(self.screen, usize::MAX))?;
        self.screen.flush()
    }

    /// Shows a moment.
    pub fn show(&mut self, frame: &Frame<'_>) -> Done {
        match self.drawn {
            Some(drawn) => self.redraw(frame, drawn),
            None if frame.seconds >= self.next_line => {
                self.next_line = frame.seconds + PLAIN_SECONDS;
                self.screen.line(plain(frame).render(self.screen, usize::MAX))?;
                self.screen.flush()
            }
            None => Ok(()),
        }
    }

    fn redraw(&mut self, frame: &Frame<'_>, drawn: usize) -> Done {
        let (width, height) = size();
        let lines = fitting(frame.lines(), &self.happened, height.saturating_sub(1));
        // The hidden cursor does not flicker over the frame. Each line is cleared behind its text, so that nothing
        // vanishes in between.
        let mut text = "\u{1b}[?25l".to_owned();
        if drawn > 0 {
            text.push_str(&format!("\r\u{1b}[{drawn}A"));
        }
        for line in &lines {
            text.push_str(&line.render(self.screen, width));
            text.push_str("\u{1b}[K\n");
        }
        text.push_str("\u{1b}[J");
        self.drawn = Some(lines.len());
        self.screen.raw(&text)?;
        self.screen.flush()
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if self.drawn.is_some_and(|drawn| drawn > 0) {
            // Show the cursor again.
            let _ = std::io::stdout().write_all(b"\x1b[?25h");
            let _ = std::io::stdout().flush();
        }
    }
}

/// The frame and the events, in at most `most` lines: a low terminal loses blank lines first, then old events.
fn fitting(mut frame: Vec<Line>, happened: &[Line], most: usize) -> Vec<Line> {
    frame.push(Line::new());
    if frame.len() + happened.len() > most {
        frame.retain(|line| !line.is_empty());
    }
    frame.truncate(most.max(1));
    let room = most.saturating_sub(frame.len()).min(happened.len());
    frame.extend_from_slice(&happened[happened.len() - room..]);
    frame
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

/// A moment in one line.
fn plain(frame: &Frame<'_>) -> Line {
    let picture = frame.picture;
    let line = Line::of(format!("{:6.1} s  ", frame.seconds), Style::Dim);
    let mut line = line.plain(format!("{} of {} jobs done  ", picture.done, picture.all));
    for (group, limit) in &picture.limits {
        let used = match group {
            GroupRef::Cluster => picture.running.len(),
            GroupRef::Queue(_) => picture.count(|job| job.in_limited_queue),
            GroupRef::Group(_) => picture.of_task(Task::CallApi),
            GroupRef::Key(..) | GroupRef::EveryKey(_) => continue,
        };
        line = line.and(format!("  {} {used}/{limit}", shown(group, frame.names)), Style::Dim);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_terminal_keeps_the_frame_and_what_happened_last() {
        let line = |text: &str| Line::of(text, Style::Plain);
        let frame = vec![line("a"), Line::new(), line("b")];
        let happened = [line("1"), line("2"), line("3")];
        assert_eq!(fitting(frame.clone(), &happened, 20).len(), 7);
        assert_eq!(fitting(frame.clone(), &happened, 4), [line("a"), line("b"), line("2"), line("3")]);
        assert_eq!(fitting(frame, &happened, 1), [line("a")]);
    }
}
