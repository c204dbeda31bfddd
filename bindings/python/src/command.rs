//! The command line, in a Python process.

use pyo3::prelude::*;
use pyo3::types::PyString;
use qo_cli::{Host, Outcome};
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs a command line. Returns its exit code; or, for a worker of a Python app, what the command line says, as JSON.
///
/// `own` is the command that starts this command line again, `guard` the executable that guards programs.
#[pyfunction]
pub fn main(
    py: Python<'_>,
    arguments: Vec<OsString>,
    own: Vec<OsString>,
    guard: Option<PathBuf>,
) -> PyResult<Py<PyAny>> {
    let host = Host { python: true, own_command: Some(own), guard };
    match py.detach(|| qo_cli::main(arguments, host)) {
        Outcome::Exit(code) => Ok(code.into_pyobject(py)?.into_any().unbind()),
        Outcome::Python(worker) => {
            let said = serde_json::to_string(&worker)
                .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
            Ok(PyString::new(py, &said).into_any().unbind())
        }
    }
}

/// Prints an error, which is JSON, as a command prints it. Returns the exit code for it.
#[pyfunction]
pub fn report(error: &str) -> u8 {
    let error =
        serde_json::from_str(error).unwrap_or_else(|_| qo::Error::new(qo::ErrorKind::Internal, error));
    qo_cli::report(error)
}

/// Writes the lines that are still queued.
#[pyfunction]
pub fn finish_logging(py: Python<'_>) {
    py.detach(qo_cli::finish_logging);
}
