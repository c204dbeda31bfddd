//! `docs/where-a-rule-lives.md` has a row for each rule of `docs/rules.md`, and names files and functions that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../../docs/where-a-rule-lives.md");
const RULES: &str = include_str!("../../../../docs/rules.md");
const COLUMNS: usize = 6;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cells of a line of a table.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The texts between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The rows of the table of rules.
fn rows() -> Vec<Vec<&'static str>> {
    let table = PAGE.lines().skip_while(|line| !line.starts_with("| rule | rule book |")).skip(2);
    table.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// The folder of each column.
fn folders() -> BTreeMap<&'static str, PathBuf> {
    let table = PAGE.lines().skip_while(|line| !line.starts_with("| column | folder |")).skip(2);
    let row = |line: &'static str| {
        let cells = cells(line);
        (cells[0], root().join(quoted(cells[1]).next().expect("a folder")))
    };
    table.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// Every rule: each heading of the rules, and each paragraph under it that begins with a name in bold.
fn rules() -> BTreeSet<String> {
    let (mut rules, mut section) = (BTreeSet::new(), "");
    for paragraph in RULES.split("\n\n") {
        let paragraph = paragraph.trim_start();
        if let Some(heading) = paragraph.strip_prefix("## ") {
            section = heading.lines().next().unwrap_or_default();
            rules.insert(section.to_owned());
        } else if let Some((name, _)) = paragraph.strip_prefix("**").and_then(|rest| rest.split_once("**")) {
            rules.insert(format!("{section}: {}", name.trim_end_matches('.')));
        }
    }
    rules
}

/// Whether a file of Rust or SQL defines a function, or a macro makes it one of a trait.
fn defines(text: &str, function: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    ["fn ", "FUNCTION "].iter().any(|word| {
        let definition = format!("{word}{function}");
        text.match_indices(&definition).any(|(at, found)| is_end(&text[at + found.len()..]))
    })
}

#[test]
fn every_rule_has_a_row_and_every_row_a_rule() {
    let rules = rules();
    assert!(rules.len() > 20, "the rules are found: {rules:?}");
    let named: BTreeSet<String> = rows().iter().map(|row| row[0].to_owned()).collect();
    let missing: Vec<_> = rules.difference(&named).collect();
    assert!(missing.is_empty(), "docs/where-a-rule-lives.md has no row for {missing:?}");
    for name in named {
        let section = name.split(':').next().expect("a section");
        assert!(rules.contains(section), "docs/rules.md has no section {section:?}");
    }
}

#[test]
fn every_file_and_function_of_the_page_is_there() {
    let folders = folders();
    let header = PAGE.lines().find(|line| line.starts_with("| rule | rule book |")).expect("a table");
    let columns = cells(header);
    assert_eq!(columns.len(), COLUMNS);
    let mut mistakes = Vec::new();
    for row in rows() {
        assert_eq!(row.len(), COLUMNS, "{row:?}");
        for (column, cell) in columns.iter().zip(&row).skip(1) {
            let (mut file, mut text) = ("", String::new());
            for item in quoted(cell) {
                if item.ends_with(".rs") || item.ends_with(".sql") {
                    file = item;
                    let path = folders[column].join(item);
                    text = fs::read_to_string(path).unwrap_or_else(|_| {
                        mistakes.push(format!("{}: {column} has no file {item}", row[0]));
                        String::new()
                    });
                } else if !text.is_empty() && !defines(&text, item) {
                    mistakes.push(format!("{}: {file} of {column} has no function {item}", row[0]));
                }
            }
            if file.is_empty() && *cell != "–" {
                mistakes.push(format!("{}: {column} names no file", row[0]));
            }
        }
    }
    assert!(mistakes.is_empty(), "docs/where-a-rule-lives.md: {mistakes:#?}");
}

#[test]
fn every_module_of_the_conformance_suite_is_on_the_page() {
    let named: BTreeSet<&str> = rows().iter().flat_map(|row| quoted(row[COLUMNS - 1])).collect();
    // Helpers, and cases that concern all rules at once.
    let others = ["catalog.rs", "fleet.rs", "job_spec.rs", "mod.rs", "program.rs", "scale.rs", "snapshot.rs"];
    let others = others.into_iter().chain(["worker.rs", "world.rs"]);
    let known: BTreeSet<&str> = named.into_iter().chain(others).collect();
    for entry in fs::read_dir(root().join("crates/qo-testkit/src/conformance")).expect("a folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(known.contains(&*name), "no rule names the cases of {name}");
    }
}
