//! What the texts of the repository must not say.

use std::fs;
use std::path::{Path, PathBuf};

/// Texts that people read: pages and sources.
const ENDINGS: [&str; 5] = ["md", "rs", "sql", "toml", "py"];
/// Folders that hold no text of qo.
const LEFT_OUT: [&str; 3] = ["target", "node_modules", "results"];

/// Phrases that promise something. What is there is described, and what is not there is in `docs/not-yet.md`.
const PROMISES: [&str; 6] = ["comes with", "will come", "to come", "not yet", "later version", "coming soon"];

/// Where such a phrase is right, and why.
const ALLOWED: [(&str, &str, &str); 7] = [
    ("docs/not-yet.md", "", "the page of what is not there"),
    ("crates/qo-testkit/tests/proof/prose.rs", "", "it names the phrases"),
    ("crates/qo-core/src/state/mod.rs", "the event to come", "about an event, not about qo"),
    ("crates/qo-object/src/bucket.rs", "comes with a reason", "about an answer of a server"),
    ("crates/qo-postgres/src/call.rs", "for its end to come", "about a transaction"),
    ("crates/qo-postgres/tests/connection/failover.rs", "nothing more will come", "about jobs"),
    ("docs/adr/0012-alone-and-beside-others.md", "A limit that comes with a job", "about a job's limit"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a repository")
}

/// Every text of the repository: its path from the root, and what it says.
fn texts() -> Vec<(String, String)> {
    let (root, mut folders, mut texts) = (root(), vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let is_text = path.extension().is_some_and(|end| ENDINGS.iter().any(|ending| end == *ending));
            if path.is_dir() && !name.starts_with('.') && !LEFT_OUT.contains(&&*name) {
                folders.push(path);
            } else if is_text {
                let place = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
                texts.push((place, fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    texts.sort();
    assert!(texts.len() > 300, "the repository was found: {}", texts.len());
    texts
}

/// Whether a line makes a promise. To be told to come back is none.
fn promises(line: &str) -> bool {
    let line = line.to_lowercase().replace("to come back", "").replace("to come later", "");
    let is_whole = |at: usize, phrase: &str| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        [before, after].into_iter().flatten().all(|next| !next.is_alphanumeric())
    };
    PROMISES.iter().any(|phrase| line.match_indices(phrase).any(|(at, phrase)| is_whole(at, phrase)))
}

#[test]
fn no_text_promises_what_is_not_there() {
    let is_allowed =
        |place: &str, line: &str| ALLOWED.iter().any(|(file, part, _)| *file == place && line.contains(part));
    let mut stale = Vec::new();
    for (place, text) in texts() {
        let lines = text.lines().enumerate().filter(|(_, line)| promises(line) && !is_allowed(&place, line));
        stale.extend(lines.map(|(number, line)| format!("{place}:{}: {}", number + 1, line.trim())));
    }
    assert!(stale.is_empty(), "say what is there, or enter it in docs/not-yet.md: {stale:#?}");
}

#[test]
fn a_phrase_is_a_promise_only_as_a_whole() {
    for line in ["(to come: a server)", "It will come.", "| comes with the first store |", "Not yet"] {
        assert!(promises(line), "{line}");
    }
    for line in ["callers are told to come back later", "welcomes without", "into comet", "become"] {
        assert!(!promises(line), "{line}");
    }
}

const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");
const WORDS_THAT_NEED_NO_ENTRY: &str = "Words of type names that mean what they mean anywhere:";
const TYPES_THAT_ARE_NO_WORDS: &str = "Types that are no words of their own:";

/// Every type that a crate exports at its root.
fn exported_types(library: &str) -> Vec<String> {
    let mut types = Vec::new();
    for exported in library.split("pub use ").skip(1) {
        let statement = exported.split(';').next().expect("a statement");
        let words = statement.split(|next: char| !next.is_alphanumeric() && next != '_');
        let is_type = |word: &&str| {
            word.starts_with(|first: char| first.is_ascii_uppercase())
                && word.contains(|next: char| next.is_lowercase())
        };
        types.extend(words.filter(is_type).map(str::to_owned));
    }
    types
}

/// `FenceToken` as `fence` and `token`.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for next in name.chars() {
        match words.last_mut() {
            Some(word) if !next.is_uppercase() => word.push(next),
            _ => words.push(next.to_lowercase().to_string()),
        }
    }
    words
}

/// The words of the glossary that are in bold, in lower case, each on its own.
fn entries() -> Vec<String> {
    let bold = GLOSSARY.split("**").skip(1).step_by(2);
    bold.flat_map(|entry| entry.split([' ', '_']).map(|word| word.trim_matches('`').to_lowercase())).collect()
}

/// The paragraph of the glossary that begins with this.
fn paragraph(start: &str) -> &'static str {
    let (_, rest) = GLOSSARY.split_once(start).expect("a list");
    rest.split("\n\n").next().expect("a paragraph")
}

#[test]
fn every_exported_type_is_made_of_words_of_the_glossary() {
    let types = [include_str!("../../../qo-core/src/lib.rs"), include_str!("../../../qo/src/lib.rs")]
        .map(exported_types);
    let types: Vec<String> = types.into_iter().flatten().collect();
    assert!(types.len() > 100, "the types were found: {types:?}");
    let entries = entries();
    let plain: Vec<&str> = paragraph(WORDS_THAT_NEED_NO_ENTRY)
        .split([',', '.', '\n'])
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let no_words: Vec<&str> = paragraph(TYPES_THAT_ARE_NO_WORDS).split('`').skip(1).step_by(2).collect();
    // A word may be in the plural there, or here.
    let has_entry = |word: &str| {
        let plural = format!("{word}s");
        entries.iter().any(|entry| *entry == word || *entry == plural || format!("{entry}s") == word)
    };
    let mut missing = Vec::new();
    for name in types.iter().filter(|name| !no_words.contains(&&***name)) {
        let unknown = words_of(name).into_iter().filter(|word| !has_entry(word) && !plain.contains(&&**word));
        missing.extend(unknown.map(|word| format!("{word} (of {name})")));
    }
    assert!(missing.is_empty(), "docs/glossary.md does not know {missing:#?}");
    let gone: Vec<_> = no_words.iter().filter(|name| types.iter().all(|known| known != *name)).collect();
    assert!(gone.is_empty(), "docs/glossary.md lists types that are not exported: {gone:?}");
    let used: Vec<String> = types.iter().flat_map(|name| words_of(name)).collect();
    let idle: Vec<_> = plain.iter().filter(|word| used.iter().all(|used| used != *word)).collect();
    assert!(idle.is_empty(), "docs/glossary.md lists words that no type has: {idle:?}");
}

/// Longest name of a function: a test's name is a plain sentence, and one that is longer says more than one thing.
const LONGEST_NAME: usize = 70;
/// Words that do not name the actor.
const WITHOUT_ACTOR: [&str; 9] =
    ["who", "whoever", "him", "his", "somebody", "nobody", "anybody", "everybody", "vain"];

/// The names of all functions in a source.
fn functions(source: &str) -> impl Iterator<Item = &str> {
    let is_name = |next: char| next.is_alphanumeric() || next == '_';
    let starts = source.match_indices("fn ").filter(move |(at, _)| !source[..*at].ends_with(is_name));
    starts
        .map(move |(at, start)| source[at + start.len()..].split(|next| !is_name(next)).next().unwrap_or(""))
}

#[test]
fn no_function_has_a_name_that_is_too_long_or_names_no_actor() {
    let (mut names, mut bad) = (0, Vec::new());
    for (place, source) in texts().iter().filter(|(place, _)| place.ends_with(".rs")) {
        for name in functions(source) {
            names += 1;
            if name.len() > LONGEST_NAME || name.split('_').any(|word| WITHOUT_ACTOR.contains(&word)) {
                bad.push(format!("{place}: {name}"));
            }
        }
    }
    assert!(names > 3_000, "the functions were found: {names}");
    assert!(bad.is_empty(), "at most {LONGEST_NAME} characters, and the actor is named: {bad:#?}");
}
