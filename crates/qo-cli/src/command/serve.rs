//! `qo serve`

use crate::machine::{interrupted, open_as_many_files_as_allowed};
use crate::output::Screen;
use crate::place::Place;
use crate::trouble::{Done, INTERRUPTED, Trouble};
use clap::Args;
use qo_server::{Options, Server, bind};

/// Files that a server needs besides one for each connection.
const OTHER_FILES: u64 = 100;

/// Serve a store at one address, to workers and programs that have no credentials of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo serve                                            the configured store, at http://127.0.0.1:7700
  qo serve --listen 127.0.0.1:0 --store file:/var/qo  at a free port, which it prints
  qo worker --store http://127.0.0.1:7700 --task resize=./resize.sh
  qo submit resize --store http://127.0.0.1:7700

It speaks gRPC (package qo.v1, with health and reflection), and answers /healthz and /readyz over HTTP, on one port.
It listens on this machine alone, because it has neither tokens nor TLS.
It sweeps: leases end and schedules fire also while no worker is connected.
Several may serve one store; name them all in the URL, and clients move on when one ends: http://127.0.0.1:7700,127.0.0.1:7701
The first Ctrl-C or SIGTERM drains: calls that run end within 10 s, no call begins. The second ends at once.")]
pub struct Serve {
    /// Where it listens; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700")]
    listen: String,
}

impl Serve {
    /// Serves until it is told to stop.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let options = Options::default();
        let files = open_as_many_files_as_allowed();
        let needed = options.connections as u64 + OTHER_FILES;
        if files < needed {
            tracing::warn!(
                "this process may open {files} files, fewer than the {needed} for its {} connections; raise it with ulimit -n",
                options.connections
            );
        }
        // The address first: a taken port must not make a new namespace.
        let listener = bind(&self.listen).await?;
        let store = place.open().await?;
        place.tell_hold(&store, screen).await?;
        let server = Server::new(listener, store, options)?;
        screen.line(format_args!("serving {} at http://{}", place.shown(), server.address()))?;
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
