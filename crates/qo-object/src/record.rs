//! A record as bytes. The first line says what it is and proves that it is whole; the second is the record in JSON, so that
//! a person with a text editor can read a namespace.
//!
//! ```text
//! qo 1 5d8c2a10 342
//! {"number":42,"writer":"…","nonce":"…","at":1800000000000,"events":[…]}
//! ```

use qo_core::{Error, ErrorKind, Event, Result, Time};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

/// The format that this release writes. It reads no other.
pub const LEVEL: u32 = 1;

/// What one writer decided in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its place in the log, 1 for the first.
    pub number: u64,
    /// The process that wrote it.
    pub writer: Uuid,
    /// Tells this record from any other that was meant for the same place: a write whose answer was lost is found
    /// again by it.
    pub nonce: Uuid,
    /// Store time at which it was decided.
    pub at: Time,
    /// What happened, in order.
    pub events: Vec<Event>,
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
}

/// A first line with format, checksum and length, and then the value in JSON.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    let body = serde_json::to_vec(value)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("a record cannot be written: {error}")))?;
    let mut bytes = format!("qo {LEVEL} {:08x} {}\n", crc32fast::hash(&body), body.len()).into_bytes();
    bytes.extend(body);
    Ok(bytes)
}

pub(crate) fn decode<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
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
        return Err(bad(&format!("has format {level}; this release reads {LEVEL}")));
    }
    if length != body.len().to_string() {
        return Err(bad(&format!("is torn: it has {} bytes, {length} were written", body.len())));
    }
    if sum != format!("{:08x}", crc32fast::hash(body)) {
        return Err(bad("is damaged: its checksum does not match"));
    }
    serde_json::from_slice(body).map_err(|error| bad(&format!("cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let events = vec![Event::Ticked(Time::from_millis(1_800_000_000_000))];
        let at = Time::from_millis(1_800_000_000_000);
        Record { number: 42, writer: Uuid::from_u128(1), nonce: Uuid::from_u128(2), at, events }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let bytes = record().encode().expect("encodes");
        assert_eq!(Record::decode("log/42", &bytes), Ok(record()));
    }

    #[test]
    fn a_record_cut_at_any_byte_is_bad_data_and_is_named() {
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
        assert!(error.message().contains("has format 2; this release reads 1"), "{error}");
    }
}
