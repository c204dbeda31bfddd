//! What a command does as an operator, recorded in the audit log of the store.

use crate::machine::operator;
use qo::core::{Deed, Operator};
use qo::{Error, Store};

/// The store in the hands of the user who runs this command. A server records by itself, under the name of the token.
pub fn by_hand(store: &dyn Store) -> Operator<'_> {
    match store.is_served() {
        true => Operator::recorded_elsewhere(store),
        false => Operator::new(store, operator(), missed),
    }
}

fn missed(deed: &Deed, error: &Error) {
    tracing::warn!("done, but not in the audit log: {} {}: {error}", deed.what, deed.on);
}
