//! Panics on request.
//!
//! A panic is a mistake in Rust, and none is known. So that the tests can show that one loses no job, the extension panics
//! where they ask it to, once.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a panic can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a call of a client, on a thread of the runtime.
    Call,
    /// In a call of Python's, on its thread.
    Argument,
    /// Where a worker calls a handler.
    Handler,
    /// Where jobs are handed to the event loop.
    Take,
    /// Where a job is handed to a thread.
    Next,
    /// Where outcomes come back.
    Done,
    /// Where a job is given to a child process.
    Child,
}

const PLACES: [(&str, Place); 7] = [
    ("call", Place::Call),
    ("argument", Place::Argument),
    ("handler", Place::Handler),
    ("take", Place::Take),
    ("next", Place::Next),
    ("done", Place::Done),
    ("child", Place::Child),
];

/// The place that panics next, by its number; too large for none.
static NEXT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Lets the extension panic when it comes to a place the next time; `none` takes that back.
#[pyfunction]
#[pyo3(name = "_panic_at")]
pub fn panic_at(place: &str) -> PyResult<()> {
    let found = PLACES.iter().find(|(name, _)| *name == place);
    if found.is_none() && place != "none" {
        return Err(PyValueError::new_err(format!("there is no place {place}")));
    }
    NEXT.store(found.map_or(usize::MAX, |(_, place)| *place as usize), Ordering::SeqCst);
    Ok(())
}

/// Panics if this place was asked for.
pub fn here(place: Place) {
    let asked = place as usize;
    if NEXT.load(Ordering::Relaxed) == asked
        && NEXT.compare_exchange(asked, usize::MAX, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    {
        panic!("a test asked for a panic here: {place:?}");
    }
}
