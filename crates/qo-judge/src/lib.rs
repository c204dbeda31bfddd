//! Judges jobs by their own records.
//!
//! A job writes a line when it begins and a line when it ends. From these lines alone follow how many ran at once, how
//! often each job ran, in which order the steps of a workflow ran, and what was lost. The store is not asked: what it
//! says about itself proves nothing.
//!
//! 1. Jobs write [`Line`]s with a [`Pen`], or a program turns its own records into lines.
//! 2. A [`Diary`] combines the lines of each fence token into a [`Run`] and finds contradictions.
//! 3. A [`Case`] says what was submitted, which limits were in force, and what was done to the workers.
//! 4. [`Verdict::of`] compares the two.
//!
//! `qo demo` and three test suites share this judge (`attack` of qo-cli, `chaos` and `processes` of qo). It is a crate
//! because `qo demo` ships in the binary, and nothing that ships may depend on qo-testkit. It depends on no crate of
//! qo: a mistake in the rule book cannot become a mistake of its judge.

mod case;
mod diary;
mod line;
mod pen;
mod run;
mod verdict;

pub use case::{Case, Change, Claimed, Job, Limit, OpenRuns, Promise, Reach, Stop};
pub use diary::Diary;
pub use line::{Line, What};
pub use pen::{Pen, Running, now_ns};
pub use run::{End, Run};
pub use verdict::{Jobs, Kept, Phase, Recovery, Verdict, Violation, Workflows};
