//! TLS: who is believed, what is served, and how a certificate changes.

use super::bearer;
use crate::stage::{PATIENCE, Served, block_on};
use qo_core::{ErrorKind, MemoryStore, Store};
use qo_server::{Options, Server, TlsFiles, bind, bind_with};
use qo_wire::{Addresses, RemoteStore};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An authority that signs certificates of servers.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// Writes a new certificate of localhost, and its key.
    fn write(&self, directory: &Path) -> TlsFiles {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        let files = files(directory);
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
        std::fs::write(&files.cert, certificate.pem()).expect("written");
        files
    }
}

fn files(directory: &Path) -> TlsFiles {
    TlsFiles { cert: directory.join("qo.crt"), key: directory.join("qo.key") }
}

fn directory() -> TempDir {
    TempDir::new().expect("a directory")
}

async fn serve(files: TlsFiles) -> Served {
    let options = Options { tls: Some(files), sweep_every: PATIENCE * 1_000, ..Options::default() };
    Served::start_with(Arc::new(MemoryStore::new()), options).await
}

async fn connect(
    served: &Served,
    scheme: &str,
    authorities: Option<Vec<u8>>,
) -> qo_core::Result<RemoteStore> {
    let addresses =
        Addresses::parse(&format!("{scheme}://localhost:{}", served.address.port())).expect("a url");
    let options = qo_wire::Options { authorities, deadline: PATIENCE, ..qo_wire::Options::default() };
    RemoteStore::connect(&addresses, options).await
}

#[test]
fn calls_are_encrypted_and_only_the_right_authority_is_believed() {
    block_on(async {
        let (authority, other) = (Authority::new(), Authority::new());
        let directory = directory();
        let served = serve(authority.write(directory.path())).await;
        let store = connect(&served, "https", Some(authority.pem())).await.expect("believed");
        store.now().await.expect("an answer");
        for authorities in [Some(other.pem()), None] {
            let refused = connect(&served, "https", authorities).await.expect_err("not believed");
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        }
        let plain = connect(&served, "http", None).await.expect_err("it speaks TLS alone");
        assert_eq!(plain.kind(), ErrorKind::Unavailable, "{plain}");
    });
}

#[test]
fn a_new_certificate_counts_and_a_bad_one_changes_nothing() {
    block_on(async {
        let (first, second) = (Authority::new(), Authority::new());
        let directory = directory();
        let served = serve(first.write(directory.path())).await;
        let kept = connect(&served, "https", Some(first.pem())).await.expect("believed");
        let files = files(directory.path());
        let mut other = KeyPair::generate().expect("a key").serialize_pem();
        // Of another length, so that the change is seen whatever the clock of the file system.
        other.push('\n');
        std::fs::write(&files.key, other).expect("written");
        let began = Instant::now();
        // Longer than a look at the files takes.
        while began.elapsed() < Duration::from_millis(2_500) {
            connect(&served, "https", Some(first.pem())).await.expect("the old pair stays");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        second.write(directory.path());
        let began = Instant::now();
        while connect(&served, "https", Some(second.pem())).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "the new pair is read");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(connect(&served, "https", Some(first.pem())).await.is_err());
        kept.now().await.expect("a connection that is open goes on");
    });
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_at_the_start() {
    block_on(async {
        let authority = Authority::new();
        let directory = directory();
        let start = async |files: &TlsFiles| {
            let options = Options { tls: Some(files.clone()), ..Options::default() };
            let listener = bind("127.0.0.1:0").await.expect("a port");
            Server::new(listener, Arc::new(MemoryStore::new()), options).err().expect("refused")
        };
        let files = files(directory.path());
        let missing = start(&files).await;
        assert!(missing.kind() == ErrorKind::Invalid && missing.message().contains("tls-cert"), "{missing}");
        authority.write(directory.path());
        std::fs::write(&files.key, KeyPair::generate().expect("a key").serialize_pem()).expect("written");
        let mismatch = start(&files).await;
        assert!(
            mismatch.kind() == ErrorKind::Invalid && mismatch.message().contains("tls-key"),
            "{mismatch}"
        );
        std::fs::write(&files.cert, "no certificate").expect("written");
        let nonsense = start(&files).await;
        assert_eq!(nonsense.kind(), ErrorKind::Invalid, "{nonsense}");
    });
}

#[test]
fn a_server_listens_beyond_this_machine_only_with_tls_and_a_token() {
    block_on(async {
        let plain = Options::default();
        let refused = bind_with("0.0.0.0:0", &plain).await.expect_err("no TLS");
        assert!(refused.message().contains("--tls-cert"), "{refused}");
        let directory = directory();
        let encrypted = Options { tls: Some(Authority::new().write(directory.path())), ..Options::default() };
        let store = Arc::new(MemoryStore::new());
        let start = async |options: &Options| {
            let listener = bind_with("0.0.0.0:0", options).await.expect("a port");
            Server::new(listener, Arc::clone(&store) as Arc<dyn Store>, options.clone()).expect("a server")
        };
        let refused = start(&encrypted).await.run().await.expect_err("no token");
        assert!(refused.message().contains("qo token create"), "{refused}");
        let open = Options { insecure: true, ..Options::default() };
        start(&open).await.check().await.expect("it was said so");
        super::with_scope(&*store, qo_core::Scope::Admin).await;
        start(&encrypted).await.check().await.expect("TLS and a token");
    });
}

#[test]
fn a_token_goes_to_another_machine_only_encrypted() {
    block_on(async {
        let connect = async |url: &str, insecure: bool| {
            let addresses = Addresses::parse(url).expect("a url");
            let token = Some(bearer());
            let deadline = Duration::from_millis(300);
            let options = qo_wire::Options { token, insecure, deadline, ..qo_wire::Options::default() };
            RemoteStore::connect(&addresses, options).await.expect_err("there is no server").kind()
        };
        // An address of no machine, as RFC 5737 has it.
        assert_eq!(connect("http://localhost:1,192.0.2.1:7700", false).await, ErrorKind::Invalid);
        assert_eq!(connect("http://192.0.2.1:7700", true).await, ErrorKind::Unavailable);
        assert_eq!(connect("https://192.0.2.1:7700", false).await, ErrorKind::Unavailable);
        assert_eq!(connect("http://127.0.0.1:1", false).await, ErrorKind::Unavailable);
    });
}
