//! Every relative link leads somewhere.

use crate::page::{Page, root};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn every_relative_link_of_every_page_resolves() {
    let pages = Page::all();
    assert!(pages.len() > 20, "the pages are found");
    let anchors: BTreeMap<_, _> =
        pages.iter().map(|page| (root().join(&page.path), page.anchors())).collect();
    let mut broken = Vec::new();
    for page in &pages {
        let here = root().join(&page.path);
        for (line, target) in page.links() {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match file {
                "" => here.clone(),
                file => here.parent().unwrap_or(Path::new("/")).join(file),
            };
            let leads = match file.canonicalize() {
                Err(_) => false,
                Ok(_) if anchor.is_empty() => true,
                Ok(file) if has_line(&file, anchor) => true,
                Ok(file) => anchors.get(&file).is_some_and(|all| all.iter().any(|one| one == anchor)),
            };
            if !leads {
                broken.push(format!("{}:{line}: {target}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// Whether an anchor is that of a line, `L40`, and the file has so many.
fn has_line(file: &Path, anchor: &str) -> bool {
    let number = anchor.strip_prefix('L').and_then(|number| number.parse::<usize>().ok());
    let lines = || std::fs::read_to_string(file).map_or(0, |text| text.lines().count());
    number.is_some_and(|number| (1..=lines()).contains(&number))
}

/// A reader who starts at the index finds every page of the documentation.
#[test]
fn the_index_leads_to_every_page_of_the_documentation() {
    let index = Page::read("docs/README.md");
    let linked: Vec<_> = index.links().into_iter().map(|(_, target)| target).collect();
    for page in Page::all().iter().filter(|page| page.path.starts_with("docs/")) {
        let name = page.path.trim_start_matches("docs/");
        let is_record = name.starts_with("adr/") || name == "README.md";
        let is_linked = linked.iter().any(|target| target.split('#').next() == Some(name));
        assert!(is_record || is_linked, "docs/README.md has no link to {name}");
    }
}
