//! What servers tell in their handshakes.

use crate::{LEVEL, pb};
use qo_core::{Cause, Error, ErrorKind, Result};

/// What a client knows of its servers: they serve one namespace, so what holds for one holds for all.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The release of the server that answered last.
    pub version: String,
    /// The namespace, once a server has told it.
    pub namespace: Option<String>,
    /// A renewal costs so much that idle workers should renew seldom, says any of them.
    pub renewals_cost: bool,
    /// How much too early any of them may end a lease, in milliseconds.
    pub coarseness_ms: u64,
    /// Whether the server that answered last hears of changes.
    pub tells_changes: bool,
}

impl Told {
    /// Takes what a server tells; `Conflict` if it must get no calls.
    pub fn accept(&mut self, server: &str, reply: &pb::HandshakeReply) -> Result<()> {
        check_level(reply)?;
        if let (Some(ours), Some(theirs)) = (&self.namespace, &reply.namespace)
            && ours != theirs
        {
            let message = format!(
                "{server} serves another namespace than the server before it: name only servers of one store"
            );
            return Err(Error::new(ErrorKind::Conflict, message).with_cause(Cause::OtherNamespace));
        }
        if reply.namespace.is_some() {
            self.namespace.clone_from(&reply.namespace);
        }
        self.version.clone_from(&reply.version);
        self.renewals_cost |= reply.renewals_cost;
        self.coarseness_ms = self.coarseness_ms.max(reply.coarseness_ms);
        self.tells_changes = reply.tells_changes;
        Ok(())
    }
}

fn check_level(reply: &pb::HandshakeReply) -> Result<()> {
    let (least, most) = (reply.level_min, reply.level_max);
    if (least..=most).contains(&LEVEL) {
        return Ok(());
    }
    let theirs = &reply.version;
    let older = if most < LEVEL { "upgrade the server" } else { "upgrade this client" };
    let message = format!(
        "the server (qo {theirs}) speaks the levels {least} to {most} of the protocol, this release (qo {}) speaks \
         {LEVEL}: {older}",
        env!("CARGO_PKG_VERSION")
    );
    Err(Error::new(ErrorKind::Conflict, message))
}
