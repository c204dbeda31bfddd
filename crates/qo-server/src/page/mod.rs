//! The page for people, at `/`.

use crate::route::Routes;

pub(crate) fn routes() -> Routes {
    Routes::new()
}
