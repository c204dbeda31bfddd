//! What people and programs write to qo, wherever they write it: on the command line, in a file, in a request.
//!
//! | module | what it holds |
//! |---|---|
//! | [`job`](JobText) | a job as a JSON object, with the names of the options of `qo submit` |
//! | [`fields`](Fields) | a JSON object whose mistakes are named: the field, the value, the rule |
//! | [`moment`](Moment) | moments: with an offset, on a clock, or from now |
//! | `duration` | lengths of time: `250ms`, `1h30m` |
//! | `nearest` | did you mean …? |
//! | `word` | names, keys, groups, ids and states; the error is the rule |

mod duration;
pub mod fields;
mod job;
mod moment;
mod nearest;
pub mod word;

pub use duration::{parse_ms, show_ms};
pub use fields::Fields;
pub use job::{JobText, NAMES, new_id};
pub use moment::{Moment, Past, Zone};
pub use nearest::nearest;
