//! What a worker and a child process of it say to each other, over a socket: frames of JSON, each behind its length.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// A larger frame is no frame. A payload has at most 16 MiB, and as a JSON string at most six times that.
const LARGEST: u32 = 100 << 20;
/// How much is read at once.
const CHUNK: usize = 8 << 10;

/// A job for a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The task's place among those of the worker.
    pub task: usize,
    /// The task's name.
    pub name: String,
    /// The payload, JSON.
    pub payload: String,
    /// The job's id.
    pub job: String,
    /// The queue.
    pub queue: String,
    /// The group.
    pub group: String,
    /// The key.
    pub key: Option<String>,
    /// 1 for the first try.
    pub attempt: u32,
    /// The try after which the job fails for good.
    pub max_attempts: u32,
    /// The fence token.
    pub token: u64,
    /// The trace that the job belongs to.
    #[serde(default)]
    pub traceparent: Option<String>,
    /// The end of the lease in store time, as milliseconds since 1970.
    pub lease_until_ms: i64,
}

/// From the worker to a child. The end of the stream means: no more jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToChild {
    /// Run a job.
    Run(Box<Run>),
    /// The job must stop, and why.
    Stop(String),
    /// The lease was renewed until then.
    Lease(i64),
}

/// From a child to the worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromChild {
    /// It can take jobs of these tasks.
    Ready(Vec<String>),
    /// It cannot, and why.
    Failed(String),
    /// The job has ended: a word, a text, and seconds.
    Done(String, String, Option<f64>),
    /// How far the job is.
    Progress(f64, String),
    /// The job has logged this.
    Log(String),
}

/// A message as a frame.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - 4).ok().filter(|length| *length <= LARGEST);
    frame[..4].copy_from_slice(&length.ok_or_else(too_large)?.to_le_bytes());
    Ok(frame)
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a frame is too large")
}

/// Bytes that were read, on their way to messages.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// How many of them were taken already.
    taken: usize,
}

impl Inbox {
    /// Room for the next read. What was taken is forgotten.
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken > CHUNK {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.reserve(CHUNK);
        &mut self.bytes
    }

    /// The next message, if it is there whole.
    pub fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let left = &self.bytes[self.taken..];
        let Some((length, rest)) = left.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length);
        if length > LARGEST {
            return Err(too_large());
        }
        let length = usize::try_from(length).map_err(|_| too_large())?;
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(frame)?;
        self.taken += 4 + length;
        Ok(Some(message))
    }
}

/// Writes a message in a thread.
pub fn write_blocking(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&encode(message)?)
}
