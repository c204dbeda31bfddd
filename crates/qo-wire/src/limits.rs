//! How large a message may be. Every number follows from the caps of qo-core: a message that the rules allow always
//! fits, and a larger one is refused before it is read.

use qo_core::caps;

/// A field's tag and length, at most.
const FIELD: usize = 6;
/// A field that is a number, at most.
const NUMBER: usize = 12;
/// A name.
const NAME: usize = caps::NAME_BYTES + FIELD;
/// A key.
const KEY: usize = caps::KEY_BYTES + FIELD;
/// A UUID as text.
const ID: usize = 36 + FIELD;
/// `GROUP/KEY` and a number beside it.
const SLOTS: usize = NAME + KEY + NUMBER + 2 * FIELD;
/// A backoff.
const RETRY: usize = 4 * NUMBER + FIELD;
/// An error of one item: a message and a rule, each with a value that is cut, and a path.
const ERROR: usize = 4 << 10;

/// A job as it is submitted, without its payload: task, queue, group, workflow, two keys, extra limits, numbers.
const NEW_JOB: usize = ID + 4 * NAME + 2 * KEY + caps::EXTRA_LIMITS * SLOTS + 10 * NUMBER + RETRY + 2 * FIELD;
/// A settle, without its output and error text.
const SETTLE: usize = ID + 3 * NUMBER + 3 * FIELD;
/// A claimed job, without its payload.
const CLAIMED: usize = ID + 3 * NAME + KEY + 6 * NUMBER + RETRY + 3 * FIELD;
/// A schedule, without its payload.
const SCHEDULE: usize = 2 * (caps::CRON_BYTES + FIELD) + 3 * NAME + 5 * NUMBER + 2 * FIELD;
/// An attempt, as it is remembered.
const ATTEMPT: usize = caps::ERROR_BYTES + NAME + ID + 6 * NUMBER + 2 * FIELD;
/// A job in a listing. What cannot be read of it is told in a few sentences.
const JOB_VIEW: usize = NEW_JOB + 2 * (NAME + ID + 5 * NUMBER + caps::NOTE_BYTES) + 8 * NUMBER + ERROR;

const SUBMIT: usize = caps::SUBMIT_BYTES + caps::SUBMIT_JOBS * NEW_JOB;
const EXCHANGE: usize = caps::SETTLE_BYTES
    + caps::SETTLES * SETTLE
    + caps::CLAIM as usize * SETTLE
    + caps::PROGRESS * (SETTLE + caps::NOTE_BYTES)
    + ID
    + 8 * NUMBER;
const CONFIGURATION: usize =
    caps::SUBMIT_BYTES + caps::CONFIGURED * (SLOTS + NAME + NUMBER + NAME + SCHEDULE) + NAME + 5 * NUMBER;
const SESSION: usize = 2 * caps::SERVED * NAME + ID + NAME + 2 * NUMBER;
const REGISTER: usize = caps::SERVED * (3 * NAME + 3 * NUMBER + RETRY);

/// A claim stops once its payloads have that many bytes together: the last one may pass it. Jobs that start and jobs
/// that are claimed ahead of time each have one.
const GRANTED: usize = 2 * (caps::CLAIM_BYTES + caps::PAYLOAD_BYTES + caps::CLAIM as usize * CLAIMED);
const EXCHANGED: usize = GRANTED + (caps::SETTLES + caps::CLAIM as usize) * ERROR + caps::SETTLES * SETTLE;
const JOB_DETAIL: usize = JOB_VIEW + 2 * caps::PAYLOAD_BYTES + caps::ATTEMPTS_KEPT * ATTEMPT;
/// A list of jobs, with what a person may want to see of each.
const PAGE: usize = caps::PAGE * JOB_VIEW;
const OUTCOMES: usize = caps::SUBMIT_JOBS * ERROR;

const fn largest<const N: usize>(sizes: [usize; N]) -> usize {
    let (mut most, mut at) = (0, 0);
    while at < N {
        if sizes[at] > most {
            most = sizes[at];
        }
        at += 1;
    }
    most
}

/// The largest request: a server reads no more of a message.
pub const REQUEST_BYTES: usize = largest([SUBMIT, EXCHANGE, CONFIGURATION, SESSION, REGISTER]);

/// The largest reply, or message of a stream: a client reads no more of a message.
pub const REPLY_BYTES: usize = largest([EXCHANGED, JOB_DETAIL, PAGE, OUTCOMES, CONFIGURATION, SESSION]);

/// Most bytes of an error in a status that every client can read: many HTTP/2 libraries take 8 KiB of trailers.
pub const ERROR_BYTES: usize = 4 << 10;

/// Most bytes of an error in a status for a client that asks for more, with [`ERROR_BYTES_HEADER`].
pub const ERROR_BYTES_MOST: usize = 256 << 10;

/// The header of a request that says how many bytes of an error the client can read.
pub const ERROR_BYTES_HEADER: &str = "qo-error-bytes";

/// Most bytes of headers and trailers that [`RemoteStore`](crate::RemoteStore) reads: an error in base64, and the rest.
pub(crate) const TRAILER_BYTES: u32 = (ERROR_BYTES_MOST / 3 * 4 + (32 << 10)) as u32;

/// How much of a message is under way before its reader has read it. HTTP/2 begins with 64 KiB, which would make a
/// call with a few large payloads wait for many round trips.
pub const STREAM_WINDOW: u32 = 2 << 20;

/// The same for all calls of a connection together.
pub const CONNECTION_WINDOW: u32 = 8 << 20;
