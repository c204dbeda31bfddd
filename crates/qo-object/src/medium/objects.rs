//! Reading, creating, listing and deleting objects.

use super::Medium;
use crate::log::{Created, number_of, numbered};
use crate::object_error::{is_absent, is_denied, is_refused, refused, said, unavailable};
use futures::future::ready;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, path::Path};
use qo_core::{Error, ErrorKind, Result, Time};
use std::time::{Duration, SystemTime};

/// Objects that one request deletes, at most.
const DELETED_AT_ONCE: usize = 1_000;

impl Medium {
    /// The bytes of a record, if it is there. In a directory this reads on the calling thread.
    pub(crate) async fn read_record(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        match &self.directory {
            Some(directory) => directory.read(path.as_ref()),
            None => self.get(path).await,
        }
    }

    /// Creates a record unless there is one. In a directory this waits for the disk on the calling thread, so it is for
    /// the thread of a log alone; there it also sets the mark.
    pub(crate) async fn create_record(&self, path: &Path, number: u64, bytes: Vec<u8>) -> Created {
        let Some(directory) = &self.directory else { return self.create(path, bytes).await };
        if let Err(error) = directory.still_there() {
            return Created::Unknown(error.message().to_owned());
        }
        let created = directory.create_record(path.as_ref(), &bytes);
        if created == Created::Done {
            directory.mark(number);
        }
        created
    }

    pub(crate) async fn exists(&self, path: &Path) -> Result<bool> {
        if let Some(directory) = &self.directory {
            return directory.has(path.as_ref());
        }
        match self.objects.head(path).await {
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(unavailable(path, error)),
        }
    }

    /// Creates an object unless there is one.
    pub(crate) async fn create(&self, path: &Path, bytes: Vec<u8>) -> Created {
        if let Err(error) = self.still_there() {
            return Created::Unknown(error.message().to_owned());
        }
        let once = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.objects.put_opts(path, bytes.into(), once).await {
            Ok(_) => Created::Done,
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Created::Exists
            }
            Err(error) if is_denied(&error) => Created::Refused(unavailable(path, error)),
            Err(error) if is_refused(&error) => {
                Created::Refused(refused(self.place.as_deref().unwrap_or("store"), &error))
            }
            Err(error) => Created::Unknown(said(&error)),
        }
    }

    /// Writes an object, whether there is one or not. It may fail without notice, so nothing may depend on it.
    pub(crate) async fn replace(&self, path: &Path, bytes: Vec<u8>) {
        if let Err(error) = self.objects.put(path, bytes.into()).await {
            tracing::debug!("{path}: {}", said(&error));
        }
    }

    /// Writes an object, whether there is one or not. A crash of the machine may undo that.
    pub(crate) async fn write(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        self.still_there()?;
        self.unsynced.put(path, bytes.into()).await.map_err(|error| unavailable(path, error))?;
        Ok(())
    }

    /// The bytes of an object, if it is there.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        Ok(self.get_stamped(path).await?.map(|(bytes, _)| bytes))
    }

    /// The bytes of an object, if it is there, and the time that the store stamped on it.
    pub(crate) async fn get_stamped(&self, path: &Path) -> Result<Option<(Vec<u8>, Time)>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unavailable(path, error)),
        };
        let stamp = stamp(&found.meta);
        match found.bytes().await {
            Ok(bytes) => Ok(Some((bytes.to_vec(), stamp))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(unavailable(path, error)),
        }
    }

    /// The time that the store stamped on an object, if it is there.
    pub(crate) async fn written_at(&self, path: &Path) -> Result<Option<Time>> {
        match self.objects.head(path).await {
            Ok(meta) => Ok(Some(stamp(&meta))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(unavailable(path, error)),
        }
    }

    /// The names in a folder, in order.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<Path>> {
        Ok(self.list_aged(folder).await?.into_iter().map(|(path, _)| path).collect())
    }

    /// The names in a folder, in order, each with the time that the store stamped on the object.
    pub(crate) async fn list_aged(&self, folder: &str) -> Result<Vec<(Path, Time)>> {
        if let Some(directory) = &self.directory {
            let files = directory.files(folder).await?.into_iter();
            let objects = files.filter(|(name, _)| !is_staged(name)).filter_map(|(name, written)| {
                Some((Path::parse(format!("{folder}/{name}")).ok()?, time_of(written)))
            });
            let mut aged: Vec<_> = objects.collect();
            aged.sort();
            return Ok(aged);
        }
        let folder = Path::from(folder);
        let listing = self.objects.list(Some(&folder)).try_collect::<Vec<_>>().await;
        let listing = match listing {
            Ok(listing) => listing,
            Err(error) if is_absent(&error) => Vec::new(),
            Err(error) => return Err(unavailable(&folder, error)),
        };
        let mut aged: Vec<_> =
            listing.into_iter().map(|meta| (meta.location.clone(), stamp(&meta))).collect();
        aged.sort();
        Ok(aged)
    }

    /// The numbers of the numbered objects in a folder, in no order, if one call lists them all at no cost; else none.
    pub(crate) async fn numbers_at_once(&self, folder: &str) -> Result<Option<Vec<u64>>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        // Names alone: a folder may hold very many files, and their metadata would cost a call each.
        let names = directory.names(folder).await?.into_iter();
        Ok(Some(names.filter_map(|name| number_of(&Path::from(format!("{folder}/{name}")))).collect()))
    }

    /// The numbers of the numbered objects of a folder that are listed after `number`, in order. A listing may be late.
    pub(crate) fn numbers_after(&self, folder: &str, number: u64) -> BoxStream<'static, Result<u64>> {
        let (folder, offset) = (Path::from(folder), numbered(folder, number));
        let listing = self.objects.list_with_offset(Some(&folder), &offset);
        let numbers = listing.filter_map(move |meta| {
            ready(match meta {
                Ok(meta) => number_of(&meta.location).map(Ok),
                Err(error) => Some(Err(unavailable(&folder, error))),
            })
        });
        numbers.boxed()
    }

    /// Deletes files that killed processes had begun to write to a folder of a directory, if they are over. `is_over`
    /// gets the number of the object that the file was to become, if it has one, and the time that is stamped on it.
    pub(crate) async fn clear_staged(
        &self,
        folder: &str,
        is_over: impl Fn(Option<u64>, Time) -> bool,
    ) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let staged = directory.files(folder).await?.into_iter().filter(|(name, _)| is_staged(name));
        let over = staged.filter(|(name, written)| {
            let object = name.rsplit_once('#').map(|(object, _)| Path::from(format!("{folder}/{object}")));
            is_over(object.as_ref().and_then(number_of), time_of(*written))
        });
        directory.remove_all(over.map(|(name, _)| format!("{folder}/{name}")).collect()).await
    }

    /// Deletes an object, if it is there.
    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        match self.objects.delete(path).await {
            Ok(()) => Ok(()),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(unavailable(path, error)),
        }
    }

    /// Deletes objects, in order. In a directory that is one call off the log's thread: a busy log leaves its thread to
    /// no other task for long, and files would come faster than they go.
    pub(crate) async fn delete_all(&self, paths: Vec<Path>) -> Result<()> {
        if let Some(directory) = &self.directory {
            return directory.remove_all(paths.iter().map(ToString::to_string).collect()).await;
        }
        // The pages go in order. A gap within a page that failed heals with the next sweep.
        for page in paths.chunks(DELETED_AT_ONCE) {
            let page: Vec<_> = page.iter().cloned().map(Ok).collect();
            let mut gone = self.objects.delete_stream(futures::stream::iter(page).boxed());
            while let Some(deleted) = gone.next().await {
                match deleted {
                    Err(error) if !is_absent(&error) => {
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            format!("sweeping: {}", said(&error)),
                        ));
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Waits until every record that can be seen is on the disk: another process's record shows before it is synced.
    pub(crate) async fn sync(&self) -> Result<()> {
        match &self.directory {
            Some(directory) => directory.sync("log").await,
            None => Ok(()),
        }
    }
}

/// Whether a file is still being written: it has the name of the object that it is to become, `#` and a number. It is
/// no object yet.
fn is_staged(name: &str) -> bool {
    let number = name.split_once('#').map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(crate) fn time_of(written: SystemTime) -> Time {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    Time::from_millis(match written.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => ms(after),
        Err(before) => -ms(before.duration()),
    })
}

fn stamp(meta: &ObjectMeta) -> Time {
    Time::from_millis(meta.last_modified.timestamp_millis())
}
