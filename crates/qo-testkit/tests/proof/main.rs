//! The small proofs of the testkit, in one program: linking a program takes longer than running most of them.
//!
//! | module | what it proves |
//! |---|---|
//! | `checkers` `concurrent` `fables…` `liars` | the checkers find what breaks a guarantee, and nothing else |
//! | `generator` `once_different` `toy` | scripts of commands reach every rule; the toy decides by them |
//! | `faulty` `bucket` `servers` | the servers and stores that fail do so as they say |
//! | `guarantees` `where_a_rule_lives` `prose` `workspace` | the pages name what exists; crates depend one way |

mod bucket;
mod checkers;
mod concurrent;
mod fable;
mod fables;
mod fables_order;
mod fables_views;
mod faulty;
mod flawed;
mod generator;
mod guarantees;
mod liars;
mod once_different;
mod prose;
mod racers;
mod scene;
mod servers;
mod toy;
mod where_a_rule_lives;
mod workspace;
