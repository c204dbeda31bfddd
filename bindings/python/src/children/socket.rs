//! The worker's end of the socket to a child.

use crate::frame::{self, FromChild, Inbox, ToChild};
use std::io;
use tokio::io::Interest;

/// The worker's end of the socket. It never waits for a child that does not read.
pub struct Socket {
    stream: tokio::net::UnixStream,
    inbox: Inbox,
    /// What the child has not taken yet, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
}

impl Socket {
    pub fn new(stream: tokio::net::UnixStream) -> Self {
        Self { stream, inbox: Inbox::default(), outgoing: Vec::new(), sent: 0 }
    }

    /// The next message of the child; none when it has closed its end. Writes meanwhile what is left to write. May be
    /// dropped and called again.
    pub async fn next(&mut self) -> Option<FromChild> {
        loop {
            if let Some(message) = self.inbox.next().ok()? {
                return Some(message);
            }
            let interest = match self.is_flushed() {
                true => Interest::READABLE,
                false => Interest::READABLE.add(Interest::WRITABLE),
            };
            let ready = self.stream.ready(interest).await.ok()?;
            if ready.is_writable() {
                self.flush();
            }
            if ready.is_readable() && !self.read()? {
                return None;
            }
        }
    }

    /// Says something, as soon as the child takes it.
    pub fn say(&mut self, message: &ToChild) {
        // A payload that is too large for a frame would be too large for the store.
        if let Ok(frame) = frame::encode(message) {
            self.outgoing.extend_from_slice(&frame);
        }
        self.flush();
    }

    pub fn is_flushed(&self) -> bool {
        self.sent == self.outgoing.len()
    }

    /// Writes what the child takes now.
    fn flush(&mut self) {
        while !self.is_flushed() {
            match self.stream.try_write(&self.outgoing[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The child is gone; its end is noticed elsewhere.
                Err(_) => break,
            }
        }
        self.outgoing.clear();
        self.sent = 0;
    }

    /// Reads what is there. Whether more may come; none after an error.
    fn read(&mut self) -> Option<bool> {
        match self.stream.try_read_buf(self.inbox.room()) {
            Ok(0) => Some(false),
            Ok(_) => Some(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(true),
            Err(_) => None,
        }
    }

    /// A message that a child said before it ended.
    pub fn left(&mut self) -> Option<FromChild> {
        loop {
            if let Some(message) = self.inbox.next().ok()? {
                return Some(message);
            }
            match self.stream.try_read_buf(self.inbox.room()) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return None,
            }
        }
    }
}
