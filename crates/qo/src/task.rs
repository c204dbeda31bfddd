//! A task as a constant: its name and what its jobs take and return, in one place for client and worker.
//!
//! ```
//! use qo::{Client, Context, Failure, Task, Worker};
//!
//! const RESIZE: Task<(String, u32), u64> = Task::new("resize");
//!
//! async fn resize((image, width): (String, u32), _: Context) -> Result<u64, Failure> {
//!     Ok(image.len() as u64 * u64::from(width))
//! }
//!
//! # async fn example(store: std::sync::Arc<dyn qo::Store>) -> qo::Result<()> {
//! let worker = Worker::builder(store.clone()).task(RESIZE, resize).build()?;
//! let client = Client::new(store);
//! let job = client.submit(RESIZE, &("cat.png".to_owned(), 640)).await?;
//! let bytes = RESIZE.output(&client, job).await?; // A u64: the task says so.
//! # Ok(())
//! # }
//! ```
//!
//! Another payload does not compile:
//!
//! ```compile_fail
//! # const RESIZE: qo::Task<(String, u32), u64> = qo::Task::new("resize");
//! # fn example(client: qo::Client) {
//! let submit = client.submit(RESIZE, &"cat.png");
//! # }
//! ```

use crate::Client;
use qo_core::{JobId, Result};
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

/// A task: its name, the type of its payload and that of its output. See [the module](self).
pub struct Task<In: ?Sized, Out = ()> {
    name: &'static str,
    types: PhantomData<fn(&In) -> Out>,
}

impl<In: ?Sized, Out> Task<In, Out> {
    /// The task of that name. The name is checked when a job is submitted or a worker is built.
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<In: ?Sized, Out: DeserializeOwned> Task<In, Out> {
    /// Waits until a job of this task has succeeded and returns its output, as [`Client::wait_for`] does.
    pub async fn output(&self, client: &Client, job: JobId) -> Result<Out> {
        client.wait_for(job).await
    }
}

impl<In: ?Sized, Out> Clone for Task<In, Out> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<In: ?Sized, Out> Copy for Task<In, Out> {}

impl<In: ?Sized, Out> fmt::Debug for Task<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.name).finish()
    }
}

/// The name of a task whose payload may be an `In`: a [`Task`] of that type, or any text.
pub trait Accepts<In: ?Sized> {
    /// The task's name.
    fn task_name(&self) -> &str;
}

/// A task whose output may be an `Out`: a [`Task`] of that type, or any text.
pub trait Returns<Out> {}

impl<In: ?Sized, Out> Accepts<In> for Task<In, Out> {
    fn task_name(&self) -> &str {
        self.name
    }
}

impl<In: ?Sized, Out> Returns<Out> for Task<In, Out> {}

impl<In: ?Sized, T: AsRef<str> + ?Sized> Accepts<In> for &T {
    fn task_name(&self) -> &str {
        self.as_ref()
    }
}

impl<Out, T: AsRef<str> + ?Sized> Returns<Out> for &T {}
