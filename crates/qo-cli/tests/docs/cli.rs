//! The reference of the command line is what `--help` prints.

use crate::fixture::Here;
use crate::page::root;
use std::fmt::Write;
use std::fs;

const PAGE: &str = "docs/reference/cli.md";
/// As wide as the lines of the pages.
const COLUMNS: &str = "100";

const HEAD: &str = "\
# The command line

Every command, as `qo COMMAND --help` prints it. What `--json` prints is in [json.md](json.md), what exit codes mean in
[errors-and-exit-codes.md](errors-and-exit-codes.md), which settings flags have in [settings.md](settings.md).

This page is generated. A test compares it with the program; this writes it anew:

```sh
QO_REWRITE=1 cargo test -p qo-cli --test docs cli
```
";

fn help(here: &Here, command: &[&str]) -> String {
    let arguments = [command, &["--help"]].concat();
    let output = here.command(&arguments).env("COLUMNS", COLUMNS).output().expect("qo runs");
    assert!(output.status.success(), "{arguments:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    // The shipped command has no `bench`: it is a feature, which the tests build.
    let lines = text.trim_end().lines().map(str::trim_end).filter(|line| !line.starts_with("  bench  "));
    lines.collect::<Vec<_>>().join("\n")
}

/// The names below `Commands:`.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named = lines.take_while(|line| !line.is_empty()).filter(|line| {
        // A line that goes on has more than the two spaces of a name.
        line.starts_with("  ") && !line.starts_with("   ")
    });
    let names = named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

fn write(here: &Here, page: &mut String, command: &[&str]) {
    let help = help(here, command);
    let (level, name) = ("#".repeat(command.len().clamp(1, 2) + 1), [&["qo"], command].concat().join(" "));
    write!(page, "\n{level} {name}\n\n```text\n{help}\n```\n").expect("written");
    for inner in commands(&help) {
        write(here, page, &[command, &[&inner]].concat());
    }
}

#[test]
fn the_reference_of_the_command_line_is_what_help_prints() {
    let here = Here::new();
    let mut page = HEAD.to_owned();
    write(&here, &mut page, &[]);
    let file = root().join(PAGE);
    if std::env::var_os("QO_REWRITE").is_some() {
        fs::write(&file, &page).expect("written");
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    let differs = stored.lines().zip(page.lines()).find(|(stored, printed)| stored != printed);
    assert!(
        stored == page,
        "{PAGE} is not what --help prints; QO_REWRITE=1 writes it anew. First difference: {differs:?}"
    );
}
