//! The documentation says what is so: its commands run, its references are complete, its links lead somewhere.
//!
//! | module | what it checks |
//! |---|---|
//! | `page` | reads a page: marked blocks, headings, links |
//! | `run` | every marked block of every page runs, and shows what the page says |
//! | `cli` | `docs/reference/cli.md` is what `--help` prints; `QO_REWRITE=1` writes it anew |
//! | `json` | `docs/reference/json.md` has every field of every `--json`, and no other |
//! | `links` | every relative link of every page resolves, anchors included |

mod cli;
#[path = "../command_line/fixture.rs"]
#[allow(dead_code)]
mod fixture;
mod json;
mod links;
mod page;
mod run;
