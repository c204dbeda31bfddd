//! What a program wrote to stdout, as a job's output.
//!
//! | stdout | output |
//! |---|---|
//! | nothing but white space | `null` |
//! | JSON | that |
//! | any other text in UTF-8 | a string, without white space around it |
//! | anything else | `{"base64": "…"}`, with every byte of it; [`bytes`] gives them back |

use crate::failure::Failure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use qo_core::{Json, caps};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of stdout is kept: as much as an output may have, white space around it, and one byte more, which shows
/// that it is too long.
const HEAD_BYTES: usize = caps::PAYLOAD_BYTES + 16;

/// The beginning of what a program wrote to stdout.
#[derive(Debug, Default)]
pub(super) struct Head(Vec<u8>);

impl Head {
    pub async fn read(&mut self, pipe: Option<&mut (impl AsyncRead + Unpin)>) {
        let Some(pipe) = pipe else { return };
        let mut chunk = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = pipe.read(&mut chunk).await {
            // Read everything: a full pipe would block the program.
            let room = HEAD_BYTES - self.0.len();
            self.0.extend_from_slice(&chunk[..bytes.min(room)]);
        }
    }

    pub fn output(&self) -> Result<Json, Failure> {
        let most = caps::PAYLOAD_BYTES;
        if self.0.len() == HEAD_BYTES {
            return Err(Failure::fail(format_args!("output: stdout must have at most {most} bytes")));
        }
        let Ok(text) = std::str::from_utf8(&self.0) else { return self.base64() };
        let text = text.trim();
        if text.len() > most {
            return Err(Failure::fail(format_args!("output: stdout must have at most {most} bytes")));
        }
        if text.is_empty() {
            return Ok(Json::null());
        }
        Json::parse("output", text)
            .or_else(|_| Json::parse("output", &serde_json::Value::from(text).to_string()))
            .map_err(|error| Failure::fail(error.message()))
    }

    fn base64(&self) -> Result<Json, Failure> {
        let refused = |error: &dyn std::fmt::Display| Failure::fail(format_args!("output: {error}"));
        let binary = Binary { base64: STANDARD.encode(&self.0).into() };
        let json = serde_json::to_string(&binary).map_err(|error| refused(&error))?;
        let (most, bytes) = (caps::PAYLOAD_BYTES, self.0.len());
        if json.len() > most {
            return Err(refused(&format_args!(
                "stdout is not UTF-8 and is stored as base64, which has {} bytes for {bytes} and must have at most {most}",
                json.len()
            )));
        }
        Json::parse("output", &json).map_err(|error| Failure::fail(error.message()))
    }
}

/// Bytes that are not UTF-8, as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Binary<'a> {
    #[serde(borrow)]
    base64: Cow<'a, str>,
}

/// The bytes of a program's output that is not text: `{"base64": "…"}`. None for any other output. None also for an
/// output of that shape whose bytes are text: the program wrote that JSON itself.
pub fn bytes(output: &Json) -> Option<Vec<u8>> {
    // Serde reads a struct from an array, too.
    let object = Some(output.as_str()).filter(|json| json.trim_start().starts_with('{'))?;
    let binary: Binary<'_> = serde_json::from_str(object).ok()?;
    let bytes = STANDARD.decode(&*binary.base64).ok()?;
    std::str::from_utf8(&bytes).is_err().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(written: impl Into<Vec<u8>>) -> Result<Json, Failure> {
        Head(written.into()).output()
    }

    #[test]
    fn an_output_is_json_if_it_can_be_else_a_string() {
        for (written, json) in [
            ("", "null"),
            (" \n", "null"),
            ("{\"a\": 1}\n", "{\"a\": 1}"),
            ("7", "7"),
            ("done\n", "\"done\""),
            ("two\nlines\n", "\"two\\nlines\""),
        ] {
            let json = Json::parse("output", json).expect("JSON");
            assert_eq!((output(written), bytes(&json)), (Ok(json), None));
        }
        assert!(matches!(output(vec![b'x'; HEAD_BYTES]), Err(Failure::Fail { .. })));
    }

    #[test]
    fn an_output_that_is_no_text_keeps_every_byte() {
        for written in [&b"\xff"[..], b"\"\xff", b" \xff\0\xfe\n", b"gr\xc3", &[0x80; 1_000]] {
            let json = output(written).expect("an output");
            assert_eq!(bytes(&json).as_deref(), Some(written), "{}", json.as_str());
        }
        assert_eq!(output(*b"\xff").expect("an output").as_str(), "{\"base64\":\"/w==\"}");
    }

    #[test]
    fn json_that_only_looks_like_bytes_stays_json() {
        for written in [
            "{\"base64\": \"aGk=\"}",
            "{\"base64\": \"/w==\", \"a\": 1}",
            "{\"base64\": \"!\"}",
            "[\"/w==\"]",
        ] {
            assert_eq!(bytes(&output(written).expect("an output")), None, "{written}");
        }
    }

    #[test]
    fn the_cap_of_an_output_that_is_no_text_is_on_its_base64() {
        let most = (caps::PAYLOAD_BYTES - "{\"base64\":\"\"}".len()) / 4 * 3;
        assert!(output(vec![0xff; most]).is_ok());
        let Err(Failure::Fail { error }) = output(vec![0xff; most + 1]) else { panic!("too much") };
        assert!(error.contains("base64") && error.contains(&(most + 1).to_string()), "{error}");
    }
}
