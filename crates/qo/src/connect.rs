//! From a URL to a store.

use crate::settings::without_password;
use qo_core::{Error, MemoryStore, Result, Store};
use qo_object::{Absent, Bucket, LogStore, Options, SlotObjects};
use std::path::PathBuf;
use std::sync::Arc;

/// Opens the namespace at a URL: `file:DIR`, `s3://bucket/prefix`, `postgres://…?schema=qo`, `http://host:port` for one
/// behind a `qo serve`, or `memory:` for one that ends with the process.
///
/// Calls to a server show the token of `QO_TOKEN`, or of the file that `QO_TOKEN_FILE` names; `QO_CA_FILE` names the
/// authorities of its certificate if they are not this machine's.
///
/// Several servers of one namespace are named in one URL, `http://a:7700,b:7700`: one is used, and the next one when it
/// fails.
///
/// A namespace that does not exist is made, in a directory or under the prefix of a bucket; with `?create=never` in the
/// URL the error is `Unavailable` instead. A bucket is never made. Nor is a PostgreSQL schema: [`crate::migrate::up`]
/// makes it, because workers need not have the right to.
///
/// `Invalid` if the URL is none of these, `NotFound` if there is no such schema or bucket, `Unavailable` if the place
/// cannot be used, `Conflict` if the schema is of another release, `Data` if what is stored there is damaged.
pub async fn connect(url: &str) -> Result<Arc<dyn Store>> {
    Ok(noted(url, open(url, Purpose::Work).await?))
}

/// Opens a namespace for a process that does little more than submit: the state is read only when a call needs it.
/// Every call works, and means the same as on what [`connect`] returns.
pub async fn connect_to_submit(url: &str) -> Result<Arc<dyn Store>> {
    Ok(noted(url, open(url, Purpose::Submit).await?))
}

fn noted(url: &str, opened: Opened) -> Arc<dyn Store> {
    if opened.has_made {
        tracing::info!("made a new namespace: {}", without_password(url));
    }
    opened.store
}

/// What a namespace is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Anything. The namespace is made if it does not exist.
    Work,
    /// Little more than submitting. The namespace is made if it does not exist.
    Submit,
    /// Looking at what is there. `NotFound` if there is no namespace.
    Look,
}

/// A namespace that was opened.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The namespace did not exist before: this call made it.
    pub has_made: bool,
}

/// Opens the namespace at a URL, and says whether this call made it.
pub async fn open(url: &str, purpose: Purpose) -> Result<Opened> {
    let absent = |may_make: bool| match purpose {
        Purpose::Look => Absent::NotFound,
        Purpose::Work | Purpose::Submit if may_make => Absent::Make,
        Purpose::Work | Purpose::Submit => Absent::Refuse,
    };
    let store: Arc<dyn Store> = match Place::parse(url)? {
        Place::Directory(Directory { path, may_make }) => {
            let options = Options { absent: absent(may_make), ..Options::default() };
            let store = match purpose {
                Purpose::Submit => LogStore::open_directory_to_submit(path, options).await?,
                Purpose::Work | Purpose::Look => LogStore::open_directory(path, options).await?,
            };
            return Ok(Opened { has_made: store.has_made(), store: Arc::new(store) });
        }
        Place::Bucket(bucket) => {
            let options = Options { absent: absent(bucket.may_make()), ..Options::bucket() };
            let store = match purpose {
                Purpose::Submit => LogStore::open_bucket_to_submit(&bucket, options).await?,
                Purpose::Work | Purpose::Look => LogStore::open_bucket(&bucket, options).await?,
            };
            return Ok(Opened { has_made: store.has_made(), store: Arc::new(store) });
        }
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => open_schema(&url).await?,
        #[cfg(feature = "http")]
        Place::Served(servers) => {
            Arc::new(qo_wire::RemoteStore::connect(&servers, crate::identity::of_process()?).await?)
        }
        Place::Memory => Arc::new(MemoryStore::new()),
    };
    Ok(Opened { store, has_made: false })
}

/// The directory that a URL names; none if it names something else, or nothing.
pub fn directory(url: &str) -> Option<PathBuf> {
    match Place::parse(url) {
        Ok(Place::Directory(directory)) => Some(directory.path),
        Ok(_) | Err(_) => None,
    }
}

/// Slots that are objects in the bucket at a URL: a limit for programs on a bare bucket, counted apart from the
/// namespace's. `Invalid` if the URL is not that of a bucket.
pub fn slot_objects(url: &str) -> Result<SlotObjects> {
    match Place::parse(url)? {
        Place::Bucket(bucket) => SlotObjects::in_bucket(&bucket),
        _ => {
            let rule =
                "slots that are objects need a bucket, as in s3://bucket/prefix; any store has shared ones";
            Err(Error::invalid("store", without_password(url), rule))
        }
    }
}

#[cfg(feature = "postgres")]
async fn open_schema(url: &qo_postgres::Url) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(qo_postgres::PostgresStore::open(url, qo_postgres::Options::default()).await?))
}

/// Where a namespace is.
pub(crate) enum Place {
    Directory(Directory),
    Bucket(Box<Bucket>),
    #[cfg(feature = "postgres")]
    Postgres(Box<qo_postgres::Url>),
    #[cfg(feature = "http")]
    Served(qo_wire::Addresses),
    Memory,
}

/// A directory, as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// Whether a namespace is made if it does not exist: not with `create=never`.
    pub(crate) may_make: bool,
}

impl Directory {
    /// Reads what comes after `file:`. The path is taken literally, with two exceptions: `~/` is the home directory, as
    /// in a shell; after `//` RFC 8089 has a host, which must be empty or `localhost`. The last `?` begins the
    /// parameters, if no `/` comes after it.
    pub(crate) fn parse(rest: &str) -> std::result::Result<Self, String> {
        Self::parse_at(rest, std::env::var_os("HOME").map(PathBuf::from))
    }

    /// The path and the parameters. A `?` in the name of a directory above is part of the path: parameters have no `/`.
    pub(crate) fn parts(rest: &str) -> (&str, &str) {
        rest.rsplit_once('?').filter(|(_, query)| !query.contains('/')).unwrap_or((rest, ""))
    }

    fn parse_at(rest: &str, home: Option<PathBuf>) -> std::result::Result<Self, String> {
        let (path, query) = Self::parts(rest);
        let mut may_make = true;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("create", "never") => may_make = false,
                ("create", _) => return Err("create must be never".into()),
                (name, _) => return Err(format!("{name} is not known: there is create")),
            }
        }
        let path = match path.strip_prefix("//") {
            None => path,
            Some(there) => match there.split_once('/') {
                Some(("" | "localhost", _)) => there.strip_prefix("localhost").unwrap_or(there),
                _ => {
                    let host = there.split('/').next().unwrap_or_default();
                    return Err(format!(
                        "{host} is not this machine: write file:{there} for a path that begins here, file:///… for another"
                    ));
                }
            },
        };
        let path = match path.strip_prefix('~') {
            None => PathBuf::from(path),
            Some(below) if below.is_empty() || below.starts_with('/') => {
                let home = home.filter(|home| home.is_absolute());
                let home = home.ok_or("~ is not known: HOME is not set")?;
                home.join(below.trim_start_matches('/'))
            }
            Some(below) => {
                let name = below.split('/').next().unwrap_or_default();
                return Err(format!(
                    "~{name} is not known: write the path, or file:./~{below} if it is called so"
                ));
            }
        };
        if path.as_os_str().is_empty() {
            return Err("must name a directory, as in file:.qo".into());
        }
        Ok(Self { path, may_make })
    }
}

impl Place {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        let refused = |rule: &str| Err(Error::invalid("store", without_password(url), rule));
        match scheme {
            "file" => Directory::parse(rest).map(Self::Directory).or_else(|rule| refused(&rule)),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" if rest.starts_with("//") => {
                Ok(Self::Postgres(Box::new(qo_postgres::Url::parse(url)?)))
            }
            #[cfg(not(feature = "postgres"))]
            "postgres" | "postgresql" => {
                refused("this build of qo has no PostgreSQL: add the feature postgres")
            }
            "s3" => Ok(Self::Bucket(Box::new(Bucket::parse(url)?))),
            "memory" => Ok(Self::Memory),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                refused("must be a connection string, as in postgres://user@host/database?schema=qo")
            }
            #[cfg(feature = "http")]
            "http" | "https" => {
                qo_wire::Addresses::parse(url).map(Self::Served).or_else(|error| refused(error.rule()))
            }
            #[cfg(not(feature = "http"))]
            "http" | "https" => refused("this build of qo opens no servers: add the feature http"),
            _ => refused("must be file:DIR, s3://bucket/prefix, postgres://…, http://host:port or memory:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_url_is_a_path_with_a_home_a_host_and_parameters() {
        let home = || Some(PathBuf::from("/home/ann"));
        for (rest, path, may_make) in [
            (".qo", ".qo", true),
            ("/var/qo?create=never", "/var/qo", false),
            ("///var/qo", "/var/qo", true),
            ("//localhost/var/qo", "/var/qo", true),
            ("~/jobs", "/home/ann/jobs", true),
            ("~", "/home/ann", true),
            ("./~/jobs", "./~/jobs", true),
        ] {
            let due = Directory { path: path.into(), may_make };
            assert_eq!(Directory::parse_at(rest, home()), Ok(due), "{rest}");
        }
        for (rest, said) in [
            ("", "must name a directory"),
            ("?create=never", "must name a directory"),
            ("x?create=maybe", "create must be never"),
            ("x?mode=ro", "mode is not known: there is create"),
            ("//db/qo", "db is not this machine"),
            ("//db", "db is not this machine"),
            ("~bob/jobs", "~bob is not known"),
        ] {
            let refused = Directory::parse_at(rest, home()).expect_err(rest);
            assert!(refused.contains(said), "{rest}: {refused}");
        }
        assert!(Directory::parse_at("~/x", None).expect_err("no home").contains("HOME"));
    }
}
