//! The kinds of requests: counts, prices and faults are by kind.

use hyper::{Method, Request};

/// A kind of request, as a bill has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Writes an object.
    Put,
    /// Reads an object.
    Get,
    /// Asks about an object or the bucket.
    Head,
    /// Lists a page of names.
    List,
    /// Deletes an object, or up to a thousand.
    Delete,
}

impl Kind {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Put, Self::Get, Self::Head, Self::List, Self::Delete];

    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let about_object = request.uri().path().trim_matches('/').contains('/');
        match *request.method() {
            Method::GET if about_object => Self::Get,
            Method::GET => Self::List,
            Method::HEAD => Self::Head,
            Method::DELETE => Self::Delete,
            // `POST /bucket?delete` is the one POST that is answered.
            Method::POST => Self::Delete,
            _ => Self::Put,
        }
    }
}

/// How many requests came in, by kind; those that failed count too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Writes.
    pub put: u64,
    /// Reads.
    pub get: u64,
    /// Questions.
    pub head: u64,
    /// Pages of listings.
    pub list: u64,
    /// Deletions.
    pub delete: u64,
}

impl Requests {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.put + self.get + self.head + self.list + self.delete
    }

    pub(super) fn count(&mut self, kind: Kind) {
        *match kind {
            Kind::Put => &mut self.put,
            Kind::Get => &mut self.get,
            Kind::Head => &mut self.head,
            Kind::List => &mut self.list,
            Kind::Delete => &mut self.delete,
        } += 1;
    }
}
