//! A bucket: S3, or another server that speaks its protocol and writes conditionally.
//!
//! The URL says where: `s3://bucket/prefix`, and after a `?` what differs from AWS: `endpoint`, `region`, `path_style`,
//! `allow_http`; with `create=never` no namespace is made. It never holds credentials. They come from the environment
//! (`AWS_ACCESS_KEY_ID` …), from a [profile](crate::profile), or from the machine's role.
//!
//! The process that makes a namespace [tries the server out](probe), and refuses one that does not write conditionally.

mod probe;

use crate::connector::CountingConnector;
use crate::format::{self, Absent};
use crate::log::Log;
use crate::object_error::{are_credentials_bad, in_full, is_absent, said};
use crate::profile::{Profile, Variables};
use crate::traffic::Traffic;
use futures::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig};
use object_store::{path::Path, prefix::PrefixStore};
use qo_core::{Error, ErrorKind, Result};
use reqwest::Url;
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::time::Instant;

/// Timeouts of a request, of a read that gets no bytes, and of a new connection. The lease of a session is 30 s; a
/// snapshot may be large.
const REQUEST: Duration = Duration::from_secs(120);
const STANDSTILL: Duration = Duration::from_secs(20);
const CONNECT: Duration = Duration::from_secs(4);
/// Retries of a request that the server refuses for now, with exponential backoff.
const RETRIES: RetryConfig = RetryConfig {
    backoff: BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_secs(2),
        base: 2.0,
    },
    max_retries: 6,
    retry_timeout: Duration::from_secs(10),
};
/// Where a bucket is, and how to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    name: String,
    prefix: Path,
    endpoint: Option<String>,
    region: Option<String>,
    path_style: bool,
    allow_http: bool,
    may_make: bool,
}

impl Bucket {
    /// Reads a URL. `Invalid` if it is not one of a bucket.
    ///
    /// ```
    /// use qo_object::Bucket;
    /// let bucket = Bucket::parse("s3://jobs/eu/mail?region=eu-central-1").unwrap();
    /// assert_eq!(bucket.to_string(), "s3://jobs/eu/mail");
    /// ```
    pub fn parse(url: &str) -> Result<Self> {
        let refused = |rule: String| Error::invalid("store", shown(url), rule);
        let parsed = Url::parse(url).map_err(|_| refused(SHAPE.into()))?;
        let name = parsed.host_str().filter(|name| parsed.scheme() == "s3" && !name.is_empty());
        let name = name.ok_or_else(|| refused(SHAPE.into()))?.to_owned();
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.port().is_some() {
            return Err(Error::invalid(
                "store",
                format!("s3://{name}"),
                "must have no credentials and no port",
            ));
        }
        let prefix = Path::from_url_path(parsed.path()).map_err(|error| refused(error.to_string()))?;
        let mut bucket = Self {
            name,
            prefix,
            endpoint: None,
            region: None,
            path_style: true,
            allow_http: false,
            may_make: true,
        };
        for (key, value) in parsed.query_pairs() {
            let flag = || match &*value {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(refused(format!("{key} must be true or false"))),
            };
            match &*key {
                "endpoint" => bucket.endpoint = Some(value.into_owned()),
                "region" => bucket.region = Some(value.into_owned()),
                "path_style" => bucket.path_style = flag()?,
                "allow_http" => bucket.allow_http = flag()?,
                "create" if value == "never" => bucket.may_make = false,
                "create" => return Err(refused("create must be never".into())),
                _ => {
                    let rule = format!(
                        "{key} is not known: there are endpoint, region, path_style, allow_http and create"
                    );
                    return Err(refused(rule));
                }
            }
        }
        Ok(bucket)
    }

    /// Whether a namespace is made where there is none: not if the URL says `create=never`.
    pub fn may_make(&self) -> bool {
        self.may_make
    }

    /// The objects under the prefix, by a client of their own; `traffic` counts its requests.
    pub fn objects(&self, traffic: &Arc<Traffic>) -> Result<Arc<dyn ObjectStore>> {
        self.objects_with(traffic, &|name| std::env::var(name).ok())
    }

    fn objects_with(&self, traffic: &Arc<Traffic>, variable: Variables<'_>) -> Result<Arc<dyn ObjectStore>> {
        install_cryptography();
        // An empty variable counts as unset.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let variable: Variables<'_> = &variable;
        let endpoint =
            ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].into_iter().find_map(variable);
        // Key, secret and token come from one place: the environment if it has a key, as in other tools, else the
        // profile.
        let profile = match variable("AWS_ACCESS_KEY_ID") {
            Some(key) => Profile {
                access_key_id: Some(key),
                secret_access_key: variable("AWS_SECRET_ACCESS_KEY"),
                session_token: variable("AWS_SESSION_TOKEN"),
                ..Profile::default()
            },
            None => Profile::read(variable)?,
        };
        let endpoint = self.endpoint.clone().or(endpoint).or(profile.endpoint);
        let region = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().find_map(variable);
        let region = self.region.clone().or(region).or(profile.region);
        let options = ClientOptions::new()
            .with_timeout(REQUEST)
            .with_read_timeout(STANDSTILL)
            .with_connect_timeout(CONNECT)
            .with_allow_http(self.may_speak_plainly(endpoint.as_deref(), variable)?);
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.name)
            .with_retry(RETRIES)
            .with_client_options(options)
            .with_http_connector(CountingConnector {
                traffic: Arc::clone(traffic),
                host: host_of(endpoint.as_deref()),
            })
            .with_virtual_hosted_style_request(!self.path_style);
        for key in ROLE_KEYS {
            if let Some(value) = variable(key)
                && let Ok(key) = key.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
            {
                builder = builder.with_config(key, value);
            }
        }
        for (key, value) in [
            (AmazonS3ConfigKey::Endpoint, endpoint),
            (AmazonS3ConfigKey::Region, region),
            (AmazonS3ConfigKey::AccessKeyId, profile.access_key_id),
            (AmazonS3ConfigKey::SecretAccessKey, profile.secret_access_key),
            (AmazonS3ConfigKey::Token, profile.session_token),
        ] {
            if let Some(value) = value {
                builder = builder.with_config(key, value);
            }
        }
        let objects =
            builder.build().map_err(|error| Error::new(ErrorKind::Invalid, format!("{self}: {error}")))?;
        Ok(if self.prefix.as_ref().is_empty() {
            Arc::new(objects)
        } else {
            Arc::new(PrefixStore::new(objects, self.prefix.clone()))
        })
    }

    /// Whether requests may go without TLS: to this machine, or if the URL or the environment allows it.
    fn may_speak_plainly(&self, endpoint: Option<&str>, variable: Variables<'_>) -> Result<bool> {
        let Some(endpoint) = endpoint else { return Ok(false) };
        let refused = |rule| Error::invalid("endpoint", shown(endpoint), rule);
        let url = Url::parse(endpoint).map_err(|_| refused("must be a URL, as in https://s3.example.com"))?;
        match url.scheme() {
            "https" => Ok(false),
            "http" => {
                let host = url.host_str().unwrap_or_default();
                let is_here = host == "localhost" || host.starts_with("127.") || host == "[::1]";
                let is_allowed = self.allow_http || variable("AWS_ALLOW_HTTP").as_deref() == Some("true");
                if is_here || is_allowed {
                    return Ok(true);
                }
                Err(refused("must be https, unless the store's URL says allow_http=true"))
            }
            _ => Err(refused("must be http or https")),
        }
    }

    /// How long each of so many small requests takes, one after the other.
    pub async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        let objects = self.objects(&Arc::default())?;
        self.check(&*objects).await?;
        let mut times = Vec::new();
        for _ in 0..count {
            let asked = Instant::now();
            match objects.head(&Path::from("clock/now")).await {
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(self.explained(&error)),
            }
            times.push(asked.elapsed());
        }
        Ok(times)
    }

    /// Deletes every object below the prefix, whatever it is. `Invalid` if there is no prefix: a whole bucket is not
    /// deleted.
    pub async fn clear(&self) -> Result<()> {
        if self.prefix.as_ref().is_empty() {
            return Err(Error::invalid("store", self, "must have a prefix: a whole bucket is not deleted"));
        }
        let log = Log::new(self.objects(&Arc::default())?);
        let names = log
            .medium()
            .object_store()
            .list(None)
            .map_ok(|object| object.location)
            .try_collect::<Vec<_>>()
            .await;
        log.medium().delete_all(names.map_err(|error| self.explained(&error))?).await
    }

    /// Makes the namespace if there is none, in a bucket whose server can be relied upon. Returns whether this process
    /// made it.
    pub(crate) async fn prepare(&self, log: &Log, absent: Absent) -> Result<bool> {
        let absent = if absent == Absent::Make && !self.may_make { Absent::Refuse } else { absent };
        if self.check(log.medium().object_store()).await?
            || !format::is_to_be_made(log, absent, &self.to_string()).await?
        {
            return Ok(false);
        }
        self.probe(log.medium().object_store()).await?;
        format::make(log).await
    }

    /// Whether there is a namespace in the bucket. If the bucket cannot be used at all, the error says what an operator
    /// can do.
    pub(crate) async fn check(&self, objects: &dyn ObjectStore) -> Result<bool> {
        // A listing, because servers give a reason when they refuse one.
        match objects.list_with_delimiter(Some(&Path::from("format"))).await {
            Ok(found) => Ok(!found.objects.is_empty()),
            Err(error) => Err(self.explained(&error)),
        }
    }

    /// What an error means to a process that opens the bucket.
    fn explained(&self, error: &object_store::Error) -> Error {
        let (in_full, why) = (in_full(error), said(error));
        // That is the metadata service of a cloud, or a proxy in its place; the bucket was not asked.
        if in_full.contains("169.254.") {
            let what = format!(
                "{self}: no credentials were found: qo looked for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
                 environment, for a profile (AWS_PROFILE, else `default`) in ~/.aws/credentials and ~/.aws/config, and \
                 for a role of this machine"
            );
            return Error::new(ErrorKind::Unavailable, what);
        }
        let is_refused = in_full.contains("403 Forbidden") || in_full.contains("401 Unauthorized");
        let (kind, what) = match () {
            () if in_full.contains("<Code>NoSuchBucket</Code>") => {
                (ErrorKind::NotFound, "there is no such bucket".to_owned())
            }
            () if are_credentials_bad(error) => {
                (ErrorKind::Unavailable, "the credentials are not accepted".to_owned())
            }
            () if is_refused => {
                let what = format!(
                    "the credentials may not do this; they need s3:GetObject, s3:PutObject and s3:DeleteObject on {self}/*, \
                     and s3:ListBucket on s3://{}",
                    self.name
                );
                (ErrorKind::Invalid, what)
            }
            () => (ErrorKind::Unavailable, "the bucket cannot be reached".to_owned()),
        };
        Error::new(kind, format!("{self}: {what}: {why}"))
    }
}

/// A URL without credentials and query, which may hold secrets.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let place = place.split(['?', '#']).next().unwrap_or_default();
    if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") }
}

fn host_of(endpoint: Option<&str>) -> Option<String> {
    Url::parse(endpoint?).ok()?.host_str().map(str::to_owned)
}

const SHAPE: &str = "must name a bucket, as in s3://bucket/prefix";

/// Variables that name a machine's role.
const ROLE_KEYS: [&str; 8] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
];

impl std::fmt::Display for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}", self.name)?;
        if !self.prefix.as_ref().is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

/// Chooses the cryptography of TLS, once.
fn install_cryptography() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The application may have chosen already.
        rustls::crypto::ring::default_provider().install_default().ok();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_bucket_and_its_options() {
        let bucket = Bucket::parse(
            "s3://jobs/eu/mail?endpoint=http://127.0.0.1:9000&region=eu-central-1&path_style=false&allow_http=true",
        )
        .expect("a bucket");
        let due = Bucket {
            name: "jobs".into(),
            prefix: Path::from("eu/mail"),
            endpoint: Some("http://127.0.0.1:9000".into()),
            region: Some("eu-central-1".into()),
            path_style: false,
            allow_http: true,
            may_make: true,
        };
        assert_eq!(bucket, due);
        assert_eq!(bucket.to_string(), "s3://jobs/eu/mail", "without its options");
        let plain = Bucket::parse("s3://jobs").expect("a bucket");
        assert_eq!(plain.to_string(), "s3://jobs");
        assert_eq!(Bucket::parse("s3://jobs/").expect("a bucket"), plain);
    }

    #[test]
    fn a_bad_url_is_explained_without_its_credentials() {
        for (url, named) in [
            ("s3:jobs", "must name a bucket"),
            ("s3://", "must name a bucket"),
            ("s3://jobs?bucket=x", "bucket is not known"),
            ("s3://jobs?path_style=yes", "path_style must be true or false"),
            ("s3://key:geheim@jobs", "must have no credentials"),
            ("s3://key:ge/geheim@jobs", "must name a bucket"),
            ("s3://jobs?secret_access_key=geheim", "secret_access_key is not known"),
        ] {
            let error = Bucket::parse(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.message().contains(named), "{error}");
            assert!(!error.message().contains("geheim"), "{error}");
        }
    }

    #[test]
    fn plain_http_needs_this_machine_or_permission() {
        let plainly = |url: &str, endpoint: &str| {
            Bucket::parse(url).expect("a bucket").may_speak_plainly(Some(endpoint), &|_| None)
        };
        assert_eq!(plainly("s3://jobs", "https://s3.example.com"), Ok(false));
        assert_eq!(plainly("s3://jobs", "http://127.0.0.1:9000"), Ok(true));
        assert_eq!(plainly("s3://jobs?allow_http=true", "http://s3.example.com"), Ok(true));
        let error = plainly("s3://jobs", "http://s3.example.com").expect_err("over the net");
        assert!(error.message().contains("allow_http=true"), "{error}");
        assert_eq!(plainly("s3://jobs", "s3.example.com").expect_err("no URL").kind(), ErrorKind::Invalid);
    }
}
