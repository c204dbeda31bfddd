//! `qo serve`

use crate::machine::{interrupted, open_as_many_files_as_allowed};
use crate::output::Screen;
use crate::place::Place;
use crate::trouble::{Done, INTERRUPTED, Trouble};
use clap::Args;
use qo_server::{Cidr, Options, Server, TlsFiles, bind_with};
use std::path::PathBuf;

/// Files that a server needs besides one for each connection.
const OTHER_FILES: u64 = 100;

/// Serve a store at one address, to workers and programs that have no credentials of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo serve                                            the configured store, at http://127.0.0.1:7700
  qo serve --listen 127.0.0.1:0 --store file:/var/qo  at a free port, which it prints
  qo serve --listen 0.0.0.0:7700 --tls-cert qo.crt --tls-key qo.key --allow-host qo.example.org
  qo worker --store http://127.0.0.1:7700 --task resize=./resize.sh
  QO_TOKEN_FILE=shop.token qo submit resize --store https://qo.example.org:7700

It speaks gRPC (package qo.v1, with health and reflection), and HTTP, on one port.
Without a token in the store, callers on this machine may do everything, and others nothing.
With one (qo token create), every call needs one, except /healthz, /readyz and signing in.
Beyond this machine it needs a token and TLS, or --insecure, as behind a proxy that does both.
The files of the certificate are read again when they change.
It sweeps: leases end and schedules fire also while no worker is connected.
Several may serve one store; name them all in the URL, and clients move on when one ends: http://127.0.0.1:7700,127.0.0.1:7701
The first Ctrl-C or SIGTERM drains: calls that run end within 10 s, no call begins. The second ends at once.")]
pub struct Serve {
    /// Where it listens; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700")]
    listen: String,
    /// The certificate, in PEM: calls are encrypted.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine also without TLS, and without a token while the store has none.
    #[arg(long)]
    insecure: bool,
    /// Let no caller do more than look.
    #[arg(long)]
    read_only: bool,
    /// A name that requests may be for, besides localhost and the address itself; more than one is possible.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// A proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; more than one is possible.
    #[arg(long, value_name = "CIDR", value_parser = proxy)]
    trusted_proxy: Vec<Cidr>,
    /// Most requests a second of one caller: a token, or an address without one.
    #[arg(long, value_name = "N", default_value_t = Options::default().calls_per_second, value_parser = clap::value_parser!(u32).range(1..))]
    calls_per_second: u32,
}

/// A proxy, as it is typed.
fn proxy(text: &str) -> Result<Cidr, String> {
    text.parse().map_err(|error: qo::Error| error.rule().to_owned())
}

impl Serve {
    /// How the server works.
    fn options(&mut self) -> Options {
        let tls = self.tls_cert.take().zip(self.tls_key.take());
        let host = self.listen.rsplit_once(':').map_or(self.listen.as_str(), |(host, _)| host).to_owned();
        let mut allow_hosts = std::mem::take(&mut self.allow_host);
        allow_hosts.push(host);
        Options {
            tls: tls.map(|(cert, key)| TlsFiles { cert, key }),
            insecure: self.insecure,
            read_only: self.read_only,
            allow_hosts,
            trusted_proxies: std::mem::take(&mut self.trusted_proxy),
            calls_per_second: self.calls_per_second,
            ..Options::default()
        }
    }

    /// Serves until it is told to stop.
    pub async fn run(mut self, place: &Place, screen: &mut Screen) -> Done {
        let options = self.options();
        let files = open_as_many_files_as_allowed();
        let needed = options.connections as u64 + OTHER_FILES;
        if files < needed {
            tracing::warn!(
                "this process may open {files} files, fewer than the {needed} for its {} connections; raise it with ulimit -n",
                options.connections
            );
        }
        // The address first: a taken port must not make a new namespace.
        let listener = bind_with(&self.listen, &options).await?;
        let store = place.open().await?;
        place.tell_hold(&store, screen).await?;
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let server = Server::new(listener, store, options)?;
        server.check().await?;
        screen.line(format_args!("serving {} at {scheme}://{}", place.shown(), server.address()))?;
        if self.insecure && !server.address().ip().is_loopback() {
            screen.warn("--insecure: calls and tokens can be read on the way, unless a proxy or the network encrypts them");
        }
        screen.flush()?;
        let stopper = server.stopper();
        let mut serving = tokio::spawn(server.run());
        let interrupt = interrupted();
        let done = tokio::select! {
            done = &mut serving => done,
            listening = interrupt => {
                listening?;
                tracing::info!("draining; a second signal ends at once");
                stopper.stop();
                tokio::select! {
                    done = &mut serving => done,
                    again = interrupted() => {
                        again?;
                        return Err(Trouble::Exit(INTERRUPTED));
                    }
                }
            }
        };
        match done {
            Ok(done) => Ok(done?),
            Err(panic) => Err(qo::Error::new(qo::ErrorKind::Internal, format!("the server: {panic}")).into()),
        }
    }
}
