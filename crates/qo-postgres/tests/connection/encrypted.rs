//! TLS: which connections are encrypted, and which servers are believed.

use crate::fixtures::{RUNTIME, connect};
use crate::server::Server;
use crate::stage::{again, namespace, options, server, until};
use qo_core::{Cause, ErrorKind, Store};
use qo_postgres::{PostgresStore, Url};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A certificate authority, and files of what it signs.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let authority = Self { issuer, folder: tempfile::tempdir().expect("a folder") };
        authority.write("root.crt", &authority.issuer.pem());
        authority
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        fs::write(&file, content).expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
        file
    }

    fn root(&self) -> String {
        Path::join(self.folder.path(), "root.crt").display().to_string()
    }

    /// A certificate for a host or a role, and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("it signs").pem(), key.serialize_pem())
    }
}

/// Which roles come in how.
const RULES: &str = "hostnossl all encrypted all reject\nhostssl all plain all reject\n\
    hostssl all certified all cert\nhost all all all trust\n";

/// A server with a certificate for `localhost`, and a namespace in it.
async fn secured(by: &Authority) -> Server {
    let mut server = Server::new().await;
    namespace(&server.url(), "encrypted").await;
    let owner = connect(&server.url()).await;
    for role in ["encrypted", "plain", "certified"] {
        owner.batch_execute(&format!("CREATE ROLE {role} LOGIN SUPERUSER")).await.expect("a role");
    }
    show(&server, by);
    server.write("pg_hba.conf", RULES);
    server.set("ssl = on\nssl_ca_file = 'server.root'");
    server.stop(Signal::INT);
    server.start().await;
    server
}

/// The server shows a certificate that this authority signs, once it reads its files again.
fn show(server: &Server, by: &Authority) {
    let (certificate, key) = by.sign("localhost");
    server.write("server.crt", &certificate);
    server.write("server.key", &key);
    server.write("server.root", &by.issuer.pem());
}

/// The URL of a role, host and parameters.
fn url(server: &Server, role: &str, host: &str, parameters: &str) -> String {
    let url = server.url().replace("postgres@127.0.0.1", &format!("{role}@{host}"));
    let tail = if parameters.is_empty() { String::new() } else { format!("&{parameters}") };
    format!("{url}?schema=encrypted&application_name=here{tail}")
}

/// What becomes of a connection: its version of TLS, `plain`, or the kind of the error and its text.
async fn outcome(server: &Server, url: &str) -> String {
    let opened = async {
        let store = PostgresStore::open(&Url::parse(url)?, options(1)).await?;
        store.now().await.map(|_| store)
    };
    let store = match opened.await {
        Ok(store) => store,
        Err(error) => return format!("{:?}: {}", error.kind(), error.message()),
    };
    let query = "SELECT string_agg(DISTINCT coalesce(version, 'plain'), ', ')
        FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'here'";
    let owner = connect(&server.url()).await;
    let found: Option<String> = owner.query_one(query, &[]).await.expect("a look").get(0);
    // The next case must not find the connections of this one.
    drop(store);
    let ended = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'here'";
    until("its connections end", async || owner.query_one(ended, &[]).await.expect("a look").get(0)).await;
    found.unwrap_or_default()
}

#[test]
fn sslmode_means_what_it_means_to_libpq() {
    RUNTIME.block_on(async {
        let (right, wrong) = (Authority::new(), Authority::new());
        let server = secured(&right).await;
        let (certificate, key) = right.sign("certified");
        let certificate = right.write("certified.crt", &certificate).display().to_string();
        let key = right.write("certified.key", &key).display().to_string();
        let open_key = right.write("open.key", &fs::read_to_string(&key).expect("a key"));
        fs::set_permissions(&open_key, Permissions::from_mode(0o644)).expect("it is ours");
        let (root, other) =
            (format!("sslrootcert={}", right.root()), format!("sslrootcert={}", wrong.root()));
        let identity = format!("sslcert={certificate}&sslkey={key}");
        let cases: Vec<(&str, &str, String, &str)> = vec![
            ("postgres", "localhost", String::new(), "TLSv1.3"),
            ("postgres", "localhost", "sslmode=disable".into(), "plain"),
            ("postgres", "localhost", "sslmode=allow".into(), "plain"),
            ("encrypted", "localhost", "sslmode=allow".into(), "TLSv1.3"),
            ("encrypted", "localhost", "sslmode=disable".into(), "Invalid: PostgreSQL: pg_hba.conf rejects"),
            ("plain", "localhost", "sslmode=prefer".into(), "plain"),
            ("plain", "localhost", "sslmode=require".into(), "Invalid: PostgreSQL: pg_hba.conf rejects"),
            ("postgres", "localhost", "sslmode=prefer&".to_owned() + &other, "plain"),
            ("postgres", "localhost", "sslmode=require".into(), "TLSv1.3"),
            ("postgres", "localhost", "sslmode=require&sslsni=0".into(), "TLSv1.3"),
            ("postgres", "localhost", "sslmode=require&ssl_max_protocol_version=TLSv1.2".into(), "TLSv1.2"),
            ("postgres", "localhost", "sslmode=require&".to_owned() + &root, "TLSv1.3"),
            (
                "postgres",
                "localhost",
                "sslmode=require&".to_owned() + &other,
                "Invalid: PostgreSQL: no TLS to",
            ),
            ("postgres", "127.0.0.1", "sslmode=verify-ca&".to_owned() + &root, "TLSv1.3"),
            (
                "postgres",
                "127.0.0.1",
                "sslmode=verify-ca&".to_owned() + &other,
                "Invalid: PostgreSQL: no TLS to",
            ),
            ("postgres", "localhost", "sslmode=verify-full&".to_owned() + &root, "TLSv1.3"),
            (
                "postgres",
                "127.0.0.1",
                "sslmode=verify-full&".to_owned() + &root,
                "Invalid: PostgreSQL: no TLS to",
            ),
            (
                "postgres",
                "localhost",
                "sslmode=verify-full&".to_owned() + &other,
                "Invalid: PostgreSQL: no TLS to",
            ),
            (
                "postgres",
                "localhost",
                "sslmode=verify-full&sslrootcert=/nothing".into(),
                "Invalid: sslrootcert: ",
            ),
            (
                "certified",
                "localhost",
                "sslmode=require".into(),
                "Invalid: PostgreSQL: connection requires a valid client",
            ),
            ("certified", "localhost", "sslmode=require&".to_owned() + &identity, "TLSv1.3"),
            (
                "certified",
                "localhost",
                format!("sslcert={certificate}&sslkey={}", open_key.display()),
                "Invalid: sslkey: ",
            ),
            ("certified", "localhost", format!("sslcert={key}&sslkey={key}"), "Invalid: sslcert: "),
        ];
        for (role, host, parameters, expected) in cases {
            let url = url(&server, role, host, &parameters);
            let found = outcome(&server, &url).await;
            let is_right =
                found == expected || (expected.starts_with("Invalid") && found.starts_with(expected));
            assert!(is_right, "{role} at {host} with {parameters}: {found}");
        }
    });
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_demanded() {
    RUNTIME.block_on(async {
        let url = namespace(&server(), "unencrypted").await;
        let open = async |mode: &str| {
            let url = Url::parse(&format!("{url}&sslmode={mode}")).expect("a url");
            PostgresStore::open(&url, options(1)).await.map(drop)
        };
        assert_eq!(open("prefer").await, Ok(()));
        let error = open("require").await.expect_err("it cannot");
        assert_eq!((error.kind(), error.cause()), (ErrorKind::Invalid, Some(Cause::Refused)));
        assert!(error.message().contains("server does not support TLS"), "{error}");
    });
}

#[test]
fn certificates_can_be_replaced_while_a_store_is_open() {
    RUNTIME.block_on(async {
        let (old, new) = (Authority::new(), Authority::new());
        let server = secured(&old).await;
        let parameters = format!("sslmode=verify-full&sslrootcert={}", old.root());
        let url = Url::parse(&url(&server, "postgres", "localhost", &parameters)).expect("a url");
        let store = PostgresStore::open(&url, options(1)).await.expect("it opens");
        let owner = connect(&server.url()).await;
        let cut = async || {
            let cut =
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'here'";
            owner.batch_execute(cut).await.expect("they are cut");
        };
        show(&server, &new);
        owner.batch_execute("SELECT pg_reload_conf()").await.expect("it is told");
        let refused = async || {
            cut().await;
            store.now().await.is_err_and(|error| error.message().contains("no TLS to the server"))
        };
        until("the new certificate is not believed", refused).await;
        // The store reads the file again when it connects.
        fs::copy(new.root(), old.root()).expect("replaced");
        again(|| store.now()).await;
    });
}
