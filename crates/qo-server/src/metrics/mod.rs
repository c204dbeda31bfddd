//! Numbers for monitoring, at `/metrics`.

use crate::route::Routes;

pub(crate) fn routes() -> Routes {
    Routes::new()
}
