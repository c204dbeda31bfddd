//! Tables for people.

use comfy_table::{ContentArrangement, presets};

/// How a word is shown on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// All is well.
    Good,
    /// Look here.
    Warn,
    /// Something is wrong.
    Bad,
    /// Less important.
    Dim,
    /// More important.
    Strong,
}

/// Marks where a style begins and ends while a table is laid out: characters without width, so that the layout is the
/// same with and without colours.
const MARKS: [(Style, char); 5] = [
    (Style::Good, '\u{2061}'),
    (Style::Warn, '\u{2062}'),
    (Style::Bad, '\u{2063}'),
    (Style::Dim, '\u{2064}'),
    (Style::Strong, '\u{2060}'),
];
const END: char = '\u{206a}';

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "\u{1b}[0m",
            Self::Good => "\u{1b}[32m",
            Self::Warn => "\u{1b}[33m",
            Self::Bad => "\u{1b}[31m",
            Self::Dim => "\u{1b}[2m",
            Self::Strong => "\u{1b}[1m",
        }
    }

    /// The text in this style.
    pub fn paint(self, text: &str) -> String {
        if self == Self::Plain { text.to_owned() } else { format!("{}{text}\u{1b}[0m", self.code()) }
    }
}

/// A text without control characters, which could move a terminal's cursor, and without the style marks of this module.
pub fn clean(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else if matches!(c, '\u{2060}'..='\u{206f}' | '\u{202a}'..='\u{202e}') {
            String::new()
        } else {
            c.to_string()
        }
    };
    text.chars().map(shown).collect()
}

/// Rows under a header.
pub struct Table {
    table: comfy_table::Table,
    rows: usize,
}

impl Table {
    /// A table with these columns.
    pub fn new(header: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header.iter().map(|title| mark(title, Style::Dim)));
        Self { table, rows: 0 }
    }

    /// A list of names and values, without a header.
    pub fn of_facts() -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        Self { table, rows: 0 }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [(String, Style); N]) {
        self.rows += 1;
        self.table.add_row(cells.map(|(text, style)| mark(&clean(&text), style)));
    }

    /// Adds a name and its value.
    pub fn fact(&mut self, name: &str, value: impl Into<String>) {
        self.row([(name.to_owned(), Style::Dim), (value.into(), Style::Plain)]);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The table as text, a line for each row.
    pub fn render(&self, colour: bool) -> String {
        let mut text = String::new();
        for line in self.table.lines() {
            let line = line.trim_end_matches([' ', END]);
            // The first column stands at the left edge.
            text.push_str(line.strip_prefix(' ').unwrap_or(line));
            text.push(END);
            text.push('\n');
        }
        let mut painted = String::with_capacity(text.len());
        for c in text.chars() {
            let mark = MARKS.iter().find(|(_, mark)| *mark == c);
            match mark {
                Some((style, _)) if colour => painted.push_str(style.code()),
                None if c == END && colour => painted.push_str(Style::Plain.code()),
                None if c != END => painted.push(c),
                Some(_) | None => {}
            }
        }
        painted
    }
}

fn mark(text: &str, style: Style) -> String {
    match MARKS.iter().find(|(marked, _)| *marked == style) {
        Some((_, mark)) => format!("{mark}{text}{END}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row([("a long name".into(), Style::Plain), ("failed".into(), Style::Bad)]);
        table.row([("b\u{1b}[2J\u{2061}".into(), Style::Plain), ("ok".into(), Style::Good)]);
        table
    }

    #[test]
    fn a_table_has_the_same_columns_with_and_without_colours() {
        let plain = table().render(false);
        assert_eq!(plain, "NAME         STATE\na long name  failed\nb\\u{1b}[2J   ok\n");
        let coloured = table().render(true);
        assert!(coloured.contains("\u{1b}[31mfailed\u{1b}[0m"), "{coloured:?}");
        let codes = ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m"];
        let stripped = codes.iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(
            stripped.lines().map(str::trim_end).collect::<Vec<_>>(),
            plain.lines().collect::<Vec<_>>()
        );
    }
}
