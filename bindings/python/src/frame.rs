//! What a worker and a child process of it say to each other, over a socket: frames of JSON, each behind its length.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use tokio::io::{AsyncRead, AsyncReadExt};

/// A larger frame is no frame. A payload has at most 16 MiB, and as a JSON string at most six times that.
const LARGEST: u32 = 100 << 20;

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
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a frame is too large"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

fn checked(length: u32) -> io::Result<usize> {
    match usize::try_from(length) {
        Ok(bytes) if length <= LARGEST => Ok(bytes),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too large")),
    }
}

/// Reads a message; none at the end of the stream.
pub async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    let length = match stream.read_u32_le().await {
        Ok(length) => checked(length)?,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(Some(serde_json::from_slice(&frame)?))
}

/// Reads a message in a thread; none at the end of the stream.
pub fn read_blocking<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut frame = vec![0; checked(u32::from_le_bytes(length))?];
    stream.read_exact(&mut frame)?;
    Ok(Some(serde_json::from_slice(&frame)?))
}

/// Writes a message in a thread.
pub fn write_blocking(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&encode(message)?)
}
