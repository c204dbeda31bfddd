//! The calls of the store as HTTP and JSON, under `/api/v1`.

use crate::route::Routes;

pub(crate) fn routes() -> Routes {
    Routes::new()
}
