//! Lines of text with styles, cut to the width of a terminal.

use crate::output::{Screen, Style};

/// A line of text. Every character is one column wide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    spans: Vec<(String, Style)>,
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line that begins with this text.
    pub fn of(text: impl Into<String>, style: Style) -> Self {
        Self::new().and(text, style)
    }

    /// The line, and this text.
    #[must_use]
    pub fn and(mut self, text: impl Into<String>, style: Style) -> Self {
        self.spans.push((text.into(), style));
        self
    }

    /// The line, and this text as it is.
    #[must_use]
    pub fn plain(self, text: impl Into<String>) -> Self {
        self.and(text, Style::Plain)
    }

    /// The line, filled with blanks up to a column.
    #[must_use]
    pub fn to(self, column: usize) -> Self {
        let blanks = column.saturating_sub(self.width());
        self.plain(" ".repeat(blanks))
    }

    /// How many columns it takes.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|(text, _)| text.chars().count()).sum()
    }

    /// Whether there is nothing on it.
    pub fn is_empty(&self) -> bool {
        self.width() == 0
    }

    /// The line as text, at most `width` columns wide.
    pub fn render(&self, screen: &Screen, width: usize) -> String {
        let (mut text, mut left) = (String::new(), width);
        for (span, style) in &self.spans {
            let fits: String = span.chars().take(left).collect();
            left -= fits.chars().count();
            if !fits.is_empty() {
                text.push_str(&screen.styled(&fits, *style));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Colour;

    #[test]
    fn a_line_is_cut_where_the_terminal_ends_and_never_within_a_style() {
        let line = Line::of("██████", Style::Good).to(10).and("full", Style::Bad);
        assert_eq!(line.width(), 14);
        assert_eq!(line.render(&Screen::new(Colour::Never), 12), "██████    fu");
        assert_eq!(line.render(&Screen::new(Colour::Always), 3), "\u{1b}[32m███\u{1b}[0m");
    }
}
