//! A record as bytes. The first line has the format, a checksum and the length; the second is the record in JSON, so
//! that an operator can read a namespace with a text editor.
//!
//! ```text
//! qo 1 5d8c2a10 00000000000000000342
//! {"number":42,"writer":"…","nonce":"…","after":"…","at":1800000000000,"events":[…]}
//! ```
//!
//! Invariant: each record names the nonce of the record before it. So a reader notices records of two different logs,
//! and records behind a gap, at the first one that does not follow.

use qo_core::{Cause, Error, ErrorKind, Event, NewJob, Result, Time, unreadable};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

/// The format that this release writes. It reads no other.
pub const LEVEL: u32 = 1;

/// What one writer decided in one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its place in the log, 1 for the first.
    pub number: u64,
    /// The process that wrote it.
    pub writer: Uuid,
    /// Tells this record from any other that was meant for the same number, so that a writer recognises a record of its
    /// own whose answer was lost.
    pub nonce: Uuid,
    /// The nonce of the record before this one; nil for the first.
    pub after: Uuid,
    /// Store time at which it was decided; none for a light client, which decides nothing and does not know the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// What happened, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// How many of the offers that waited its events begin with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub admitted: usize,
    /// Jobs that a light client submitted without knowing the state. Later records admit them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<NewJob>,
    /// Its writer goes on to write a snapshot: no other process needs to.
    #[serde(default, skip_serializing_if = "is_false")]
    pub snapshot: bool,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Record {
    /// The record as bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode(self)
    }

    /// Reads a record; `name` is what errors call it.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        decode(name, bytes)
    }

    /// Whether a worker may have something to do because of the record. A session that is only renewed, opened or ended
    /// does not count: an idle fleet would keep itself awake.
    pub(crate) fn is_work(&self) -> bool {
        let is_work = |event: &Event| {
            !matches!(
                event,
                Event::Ticked(_)
                    | Event::Renewed { .. }
                    | Event::Exchanged(_)
                    | Event::SessionOpened { .. }
                    | Event::SessionEnded(_)
                    | Event::SessionForgotten(_)
                    | Event::Registered(_)
                    | Event::Forgotten(_)
                    | Event::Archived(_)
            )
        };
        !self.offered.is_empty() || self.events.iter().any(is_work)
    }
}

/// The first line of every object that qo writes: format, checksum and length of what comes after it.
const FIRST_LINE: usize = "qo 1 00000000 00000000000000000000\n".len();

/// Encodes an object: a first line with its checksum, then values in JSON, one in each line.
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn new() -> Self {
        Self(vec![b' '; FIRST_LINE])
    }

    pub(crate) fn line(&mut self, value: &impl Serialize) -> Result<()> {
        if self.0.len() > FIRST_LINE {
            self.0.push(b'\n');
        }
        serde_json::to_writer(&mut self.0, value)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("it cannot be written: {error}")))
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let body = &self.0[FIRST_LINE..];
        let line = format!("qo {LEVEL} {:08x} {:020}\n", crc32fast::hash(body), body.len());
        self.0[..FIRST_LINE].copy_from_slice(line.as_bytes());
        self.0
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut encoder = Encoder::new();
    encoder.line(value)?;
    Ok(encoder.finish())
}

fn decode<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
    parse(name, body(name, bytes)?)
}

/// One value of an object.
pub(crate) fn parse<T: DeserializeOwned>(name: &str, line: &[u8]) -> Result<T> {
    serde_json::from_slice(line).or_else(|error| {
        let bad = || Error::new(ErrorKind::Data, format!("{name}: cannot be read: {error}"));
        // The checksum is right, so it was written like this. If one job cannot be read, that job alone fails.
        let read = unreadable::read_record(line).ok_or_else(bad)?;
        tracing::warn!("{name}: has a job that cannot be read: {error}");
        Ok(read)
    })
}

/// What comes after the first line, if the checksum is right.
pub(crate) fn body<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let bad = |what: &str| Error::new(ErrorKind::Data, format!("{name}: {what}"));
    let end =
        bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| bad("is torn: it has no first line"))?;
    let line =
        std::str::from_utf8(&bytes[..end]).map_err(|_| bad("is damaged: its first line is not text"))?;
    let body = &bytes[end + 1..];
    let mut words = line.split(' ');
    let (Some("qo"), Some(level), Some(sum), Some(length), None) =
        (words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("is damaged, or was not written by qo: its first line is not that of a record"));
    };
    if level != LEVEL.to_string() {
        let what = format!("has format {level}; this release of qo reads format {LEVEL}");
        return Err(bad(&what).with_cause(Cause::OtherFormat));
    }
    if length != format!("{:020}", body.len()) {
        let length = length.trim_start_matches('0');
        return Err(bad(&format!("is torn: it has {} bytes, {length} were written", body.len())));
    }
    if sum != format!("{:08x}", crc32fast::hash(body)) {
        return Err(bad("is damaged: its checksum does not match"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let events = vec![Event::Ticked(Time::from_millis(1_800_000_000_000))];
        let (writer, nonce, after) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let at = Some(Time::from_millis(1_800_000_000_000));
        Record {
            number: 42,
            writer,
            nonce,
            after,
            at,
            events,
            admitted: 0,
            offered: Vec::new(),
            snapshot: false,
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let bytes = record().encode().expect("encodes");
        assert_eq!(Record::decode("log/42", &bytes), Ok(record()));
    }

    #[test]
    fn a_record_cut_at_any_byte_is_damaged_and_named() {
        let bytes = record().encode().expect("encodes");
        for cut in 0..bytes.len() {
            let error = Record::decode("log/42", &bytes[..cut]).expect_err("torn");
            assert_eq!(error.kind(), ErrorKind::Data);
            assert!(error.message().starts_with("log/42: is "), "{error}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let bytes = record().encode().expect("encodes");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let error = Record::decode("log/42", &bytes).expect_err("damaged");
                assert_eq!(error.kind(), ErrorKind::Data, "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_record_of_a_newer_format_says_so() {
        let bytes = String::from_utf8(record().encode().expect("encodes")).expect("text");
        let error =
            Record::decode("log/42", bytes.replacen("qo 1", "qo 2", 1).as_bytes()).expect_err("newer");
        assert!(error.message().contains("has format 2; this release of qo reads format 1"), "{error}");
    }
}
