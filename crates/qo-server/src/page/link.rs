//! Addresses of pages. Names and keys stand in them as one segment or value, percent-encoded.

use qo_core::{GroupRef, JobId, SessionId};
use std::fmt::{Display, Write};

/// A text as one segment of a path, or as a value of a query.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(encoded, "%{byte:02X}").ok();
        }
    }
    encoded
}

/// A path with a query of the values that are there.
pub fn query<K: AsRef<str>, V: AsRef<str>>(path: &str, values: impl IntoIterator<Item = (K, V)>) -> String {
    let mut link = path.to_owned();
    let mut separator = '?';
    for (key, value) in values {
        if !value.as_ref().is_empty() {
            write!(link, "{separator}{}={}", key.as_ref(), encoded(value.as_ref())).ok();
            separator = '&';
        }
    }
    link
}

/// A group's page. The whole reference is one segment, so a key may hold anything.
pub fn group(group: &GroupRef) -> String {
    format!("/groups/{}", encoded(&group.to_string()))
}

/// A job's page.
pub fn job(job: JobId) -> String {
    format!("/jobs/{}", job.0)
}

/// A worker's page.
pub fn worker(session: SessionId) -> String {
    format!("/workers/{}", session.0)
}

/// A workflow's page.
pub fn workflow(workflow: impl Display) -> String {
    format!("/workflows/{}", encoded(&workflow.to_string()))
}

/// The jobs that one field of the filter picks.
pub fn jobs(field: &str, value: impl Display) -> String {
    query("/jobs", [(field, value.to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wild_key_stays_in_its_segment() {
        let wild: GroupRef = "api/../?x=<b>&#%".parse().expect("a group");
        assert_eq!(group(&wild), "/groups/api%2F..%2F%3Fx%3D%3Cb%3E%26%23%25");
        assert_eq!(query("/jobs", [("key", "a b&c"), ("queue", "")]), "/jobs?key=a%20b%26c");
    }
}
