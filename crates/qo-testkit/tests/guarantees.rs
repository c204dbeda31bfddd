//! `docs/guarantees.md` and `docs/promises.md` name tests and sabotage that exist.

use qo_testkit::{conformance, museum};
use std::collections::BTreeSet;

fn cases() -> BTreeSet<&'static str> {
    conformance::cases().iter().map(|case| case.name).collect()
}

/// What a line has in `code`.
fn in_code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_of_guarantees_names_only_what_exists() {
    let page = include_str!("../../../docs/guarantees.md");
    let cases = cases();
    let flaws: BTreeSet<String> = museum().iter().map(|exhibit| format!("{:?}", exhibit.flaw)).collect();
    let (mut tests, mut sabotage) = (0, 0);
    for line in page.lines() {
        for name in in_code(line) {
            if line.starts_with("- tests:") {
                assert!(cases.contains(name), "there is no case {name}");
                tests += 1;
            } else if line.starts_with("- sabotage:") {
                assert!(flaws.contains(name), "there is no exhibit {name}");
                sabotage += 1;
            }
        }
    }
    assert!(tests >= 25 && sabotage >= 20, "the page was not read: {tests} tests, {sabotage} exhibits");
}

#[test]
fn the_page_of_promises_has_a_case_that_exists_for_every_promise() {
    let page = include_str!("../../../docs/promises.md");
    let cases = cases();
    let (mut promises, mut named) = (0, BTreeSet::new());
    for line in page.lines().filter(|line| line.starts_with("| ") && *line != "| promise | cases |") {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [promise, proof] = cells[..] else { panic!("not a promise and its cases: {line}") };
        let mut here = in_code(proof).peekable();
        let elsewhere = ["unit tests", "tests of", "simulated fleets"];
        let is_elsewhere = elsewhere.iter().any(|where_to| proof.contains(where_to));
        assert!(here.peek().is_some() || is_elsewhere, "nothing proves: {promise}");
        for name in here {
            assert!(cases.contains(name), "there is no case {name}");
            named.insert(name);
        }
        promises += 1;
    }
    assert!(
        promises >= 100 && named.len() >= 200,
        "the page was not read: {promises}, {} cases",
        named.len()
    );
}

/// Links of a page to a line: [`TEXT`](FILE#LNUMBER), as the text, the file and the range of the number in the page.
fn line_links(page: &str) -> Vec<(String, String, std::ops::Range<usize>)> {
    let mut links = Vec::new();
    for (at, _) in page.match_indices(".rs#L") {
        let file = page[..at].rfind("](").expect("a link has a text") + 2;
        let text_end = file - 3;
        let text = page[..text_end].rfind("[`").expect("the text is code") + 2;
        let number = at + ".rs#L".len();
        let end = number + page[number..].find(')').expect("a link has an end");
        links.push((page[text..text_end].to_owned(), page[file..at + 3].to_owned(), number..end));
    }
    links
}

/// With QO_REWRITE=1 in the environment the test puts the right numbers in.
#[test]
fn links_of_the_readme_to_a_line_go_to_the_line_that_they_name() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("README.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let mut rewritten = page.clone();
    let links = line_links(&page);
    assert!(links.len() >= 8, "the links were not found: {links:?}");
    for (text, file, number) in links.iter().rev() {
        let source =
            std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let places: Vec<usize> = source
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains(text))
            .map(|(at, _)| at + 1)
            .collect();
        let at = *places.first().unwrap_or_else(|| panic!("{file} has no line with `{text}`"));
        rewritten.replace_range(number.clone(), &at.to_string());
    }
    if std::env::var_os("QO_REWRITE").is_some() {
        std::fs::write(&path, &rewritten).expect("the page can be written");
    }
    assert_eq!(page, rewritten, "some lines have moved: run this test with QO_REWRITE=1");
}
