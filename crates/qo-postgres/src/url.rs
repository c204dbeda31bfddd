//! Where a namespace is: a connection string with a schema.

use crate::tls::TlsSettings;
use percent_encoding::percent_decode_str;
use qo_core::{Error, Result};
use std::fmt;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

/// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?schema=SCHEMA&notify=off`. Everything but these two is libpq's.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// How to connect.
    pub(crate) config: Config,
    /// The schema. Defaults to `qo`.
    pub(crate) schema: String,
    /// Whether to listen for changes. Defaults to true.
    pub(crate) notify: bool,
    /// Whether and how the connection is encrypted.
    pub(crate) tls: TlsSettings,
}

/// The schema of a URL that names none.
const DEFAULT_SCHEMA: &str = "qo";

impl Url {
    /// Reads a URL. The password is shown in no error.
    pub fn parse(url: &str) -> Result<Self> {
        let (rest, query) = url.rsplit_once('?').unwrap_or((url, ""));
        let (mut schema, mut notify, mut kept) = (DEFAULT_SCHEMA, true, Vec::new());
        let mut tls = TlsSettings::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("schema", name)) => schema = name,
                Some(("notify", "on")) => notify = true,
                Some(("notify", "off")) => notify = false,
                Some(("notify", other)) => return Err(Error::invalid("notify", other, "must be on or off")),
                Some((name, value)) if tls.take(name, &percent_decode_str(value).decode_utf8_lossy())? => {}
                _ => kept.push(pair),
            }
        }
        tls.check()?;
        check_schema(schema)?;
        let plain = if kept.is_empty() { rest.into() } else { format!("{rest}?{}", kept.join("&")) };
        let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            let why =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Error::invalid(
                "store",
                "postgres://…",
                format_args!("must be a PostgreSQL connection string: {why}"),
            )
        })?;
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        if config.get_application_name().is_none() {
            config.application_name("qo");
        }
        // Of several servers only one can write, and which one may change.
        let said = kept.iter().any(|pair| pair.starts_with("target_session_attrs="));
        if hosts(&config) > 1 && !said {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Self { config, schema: schema.into(), notify, tls })
    }

    /// The schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// How to connect within a time, and that time. It is divided among several hosts, so that a dead one leaves time
    /// for the others; a `connect_timeout` in the URL is for each host.
    pub(crate) fn within(&self, patience: Duration) -> (Config, Duration) {
        let (mut config, hosts) = (self.config.clone(), hosts(&self.config));
        match config.get_connect_timeout().copied() {
            Some(each) => (config, each * hosts),
            None => {
                config.connect_timeout(patience / hosts);
                (config, patience)
            }
        }
    }
}

fn hosts(config: &Config) -> u32 {
    let hosts = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
    u32::try_from(hosts).unwrap_or(u32::MAX)
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration shows no password either.
        f.debug_struct("Url").field("config", &self.config).field("schema", &self.schema).finish()
    }
}

/// A schema's name needs no quotes: people will type it.
fn check_schema(schema: &str) -> Result<()> {
    let mut bytes = schema.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    let rest = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !first || !rest || schema.len() > 63 || schema.starts_with("pg_") {
        let rule = "must match [a-z_][a-z0-9_]{0,62} and not begin with pg_";
        return Err(Error::invalid("schema", schema, rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Mode;

    #[test]
    fn the_schema_is_ours_and_the_rest_is_libpqs() {
        let url = Url::parse("postgres://me@db:5433/shop?schema=jobs&connect_timeout=3").expect("a url");
        assert_eq!((url.schema(), url.config.get_dbname()), ("jobs", Some("shop")));
        assert_eq!(url.config.get_connect_timeout().map(|time| time.as_secs()), Some(3));
        assert_eq!(Url::parse("postgres://me@db/shop").expect("a url").schema(), "qo");
    }

    #[test]
    fn tls_is_preferred_and_said_in_the_words_of_libpq() {
        let mode =
            |query: &str| Url::parse(&format!("postgres://me@db/shop{query}")).map(|url| url.tls.mode());
        assert_eq!(mode(""), Ok(Mode::Prefer));
        assert_eq!(mode("?sslrootcert=system"), Ok(Mode::VerifyFull));
        let modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
        let all = [Mode::Disable, Mode::Allow, Mode::Prefer, Mode::Require, Mode::VerifyCa, Mode::VerifyFull];
        assert_eq!(modes.map(|name| mode(&format!("?schema=jobs&sslmode={name}"))), all.map(Ok));
    }

    #[test]
    fn of_several_hosts_the_writable_one_is_meant_and_each_gets_its_time() {
        let url = Url::parse("postgres://me@a,b:5433/shop").expect("a url");
        assert_eq!(url.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let patience = Duration::from_secs(5);
        let (config, longest) = url.within(patience);
        assert_eq!((config.get_connect_timeout(), longest), (Some(&(patience / 2)), patience));
        let said = "postgres://me@a,b/shop?target_session_attrs=any&connect_timeout=3";
        let said = Url::parse(said).expect("a url");
        assert_eq!(said.config.get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(said.within(patience).1, Duration::from_secs(6));
        let one = Url::parse("postgres://me@a/shop").expect("a url");
        assert_eq!(one.config.get_target_session_attrs(), TargetSessionAttrs::Any);
    }

    #[test]
    fn a_bad_url_says_what_is_wrong_and_keeps_the_password_to_itself() {
        for (url, part) in [
            ("postgres://me:secret@db:port/shop", "connection string"),
            ("postgres://me:secret@db/shop?schema=Jobs", "schema: \"Jobs\""),
            ("postgres://me:secret@db/shop?schema=pg_jobs", "pg_"),
            ("postgres://me:secret@db/shop?sslmode=on", "sslmode: \"on\": must be disable, allow"),
            ("postgres://me:secret@db/shop?sslmode=require&sslrootcert=system", "verify-full"),
            ("postgres://me:secret@db/shop?sslnegotiation=direct", "needs sslmode=require"),
            ("postgres://me:secret@db/shop?sslcrl=/etc/crl", "is not supported"),
            (
                "postgres://me:secret@db/shop?ssl_min_protocol_version=TLSv1.3&ssl_max_protocol_version=TLSv1.2",
                "TLSv1.3",
            ),
        ] {
            let error = Url::parse(url).expect_err(url).to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
        }
        let url = Url::parse("postgres://me:secret@db/shop").expect("a url");
        assert!(!format!("{url:?}").contains("secret"));
    }
}
