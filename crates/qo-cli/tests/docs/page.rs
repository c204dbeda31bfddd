//! A page of the documentation: its marked blocks, its headings, its links.
//!
//! A marker is a comment on the line before a block of code:
//!
//! | marker | the block |
//! |---|---|
//! | `<!-- test -->` | runs: `sh` in a directory of the page's own, `sql` on the page's database |
//! | `<!-- shows -->` | is the output of the block that ran before it: each line is there, `…` stands for any text |

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// A marked block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Commands for a shell.
    Shell(String),
    /// Statements for PostgreSQL.
    Sql(String),
    /// Lines that the last block has printed.
    Shows(Vec<String>),
}

/// A page.
pub struct Page {
    /// Its path from the root of the repository.
    pub path: String,
    pub text: String,
}

impl Page {
    pub fn read(path: &str) -> Self {
        let text = fs::read_to_string(root().join(path));
        Self { path: path.to_owned(), text: text.unwrap_or_else(|error| panic!("{path}: {error}")) }
    }

    /// Every page of the repository.
    pub fn all() -> Vec<Self> {
        let mut paths = Vec::new();
        collect(&root(), &mut paths);
        paths.sort();
        let name = |path: PathBuf| path.strip_prefix(root()).expect("inside").display().to_string();
        paths.into_iter().map(|path| Self::read(&name(path))).collect()
    }

    /// The marked blocks, in their order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let shows = match line.trim() {
                "<!-- test -->" => false,
                "<!-- shows -->" => true,
                _ => continue,
            };
            let fence = lines.next().unwrap_or_default().trim().to_owned();
            let body: Vec<String> =
                lines.by_ref().take_while(|line| line.trim() != "```").map(str::to_owned).collect();
            blocks.push(match (fence.as_str(), shows) {
                ("```sh", false) => Block::Shell(body.join("\n")),
                ("```sql", false) => Block::Sql(body.join("\n")),
                ("```text" | "```json", true) => Block::Shows(body),
                _ => panic!("{}: a marker stands before {fence:?}", self.path),
            });
        }
        blocks
    }

    /// The text outside of blocks of code, with the numbers of its lines.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut fenced = false;
        self.text.lines().enumerate().filter_map(move |(index, line)| {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
                return None;
            }
            (!fenced).then_some((index + 1, line))
        })
    }

    /// The anchors of its headings, as GitHub makes them.
    pub fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (_, line) in self.prose() {
            let heading = line.trim_start_matches('#');
            if heading.len() == line.len() || !heading.starts_with(' ') {
                continue;
            }
            let anchor = anchor(heading.trim());
            let earlier = anchors.iter().filter(|other| **other == anchor).count();
            anchors.push(if earlier == 0 { anchor } else { format!("{anchor}-{earlier}") });
        }
        anchors
    }

    /// Its links: the line and the target of each.
    pub fn links(&self) -> Vec<(usize, String)> {
        // The text of a link may begin on an earlier line; its target stands on one line.
        let mut links = Vec::new();
        for (number, line) in self.prose() {
            let line = without_code(line);
            for (at, _) in line.match_indices("](") {
                let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
                links.push((number, target.to_owned()));
            }
        }
        links
    }
}

fn collect(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            collect(&path, pages);
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
}

/// A line with spaces in the place of what is in backquotes.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part.to_owned() } else { " ".repeat(part.len()) }).collect()
}

/// The anchor of a heading: its letters in lower case, `-` for each space, nothing else but `-` and `_`.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // Of a link, the text counts.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(&before.replacen('[', "", 1));
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    text.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn marked_blocks_anchors_and_links_are_read() {
    let text = "# A `page`, really\n## Twice\n## Twice\n<!-- test -->\n```sh\nqo x\n```\n<!-- shows -->\n```text\na … b\n```\n\
                ```sh\n# no heading [no](link)\n```\nsee [a](b.md#c) and `[no](link)`\n";
    let page = Page { path: "x.md".into(), text: text.into() };
    assert_eq!(page.blocks(), [Block::Shell("qo x".into()), Block::Shows(vec!["a … b".into()])]);
    assert_eq!(page.anchors(), ["a-page-really", "twice", "twice-1"]);
    assert_eq!(page.links(), [(15, "b.md#c".to_owned())]);
}
