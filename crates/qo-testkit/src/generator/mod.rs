//! Random commands that make sense, and the comparison of two stores.
//!
//! A [`Script`] is a list of symbolic [`Step`]s ("settle the second job that this worker holds"), so that it still
//! makes sense when proptest removes steps. Running it on a store gives a [`Transcript`]: every answer, and every few
//! steps all views. Two stores are equal if their transcripts are.

mod bad;
mod beyond;
mod call;
mod compare;
mod context;
mod crowd;
mod flow;
mod junk;
mod line;
mod meaning;
mod pool;
mod script;
mod step;
mod strategy;
mod views;

pub use bad::{bad_commands, something_to_lose, survives};
pub use call::call;
pub use compare::{answer_alike, equal, minimal};
pub use crowd::crowds;
pub use flow::flows;
pub use junk::{bad_json, text_survives};
pub use line::lines;
pub use script::{Entry, Script, Seen, Transcript};
pub use step::{BulkSpec, ConfigurationSpec, ProgramPick, ScheduleSpec, SlotSpec};
pub use step::{
    ExchangeStep, JobSpec, Number, OutcomeSpec, Owner, Pick, SessionSpec, SettleSpec, Step, TaskSpec,
    TokenSpec, Whose,
};
pub use strategy::{scripts, steps};
pub use views::{Views, look};
