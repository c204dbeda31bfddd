//! Routes of HTTP: each path and method, and what its caller must be allowed to do.
//!
//! A route is declared once, here: the router serves it, the tests walk the list, and no handler runs unless its caller
//! may do what the route [`Needs`].

use crate::caller::Caller;
use crate::refusal::{Asked, Refusal};
use crate::shared::Shared;
use axum::Extension;
use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use axum::routing::{MethodFilter, on};
use qo_core::Scope;

/// What a caller must be allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: every caller gets an answer, also one without a token.
    Nothing,
    /// One scope.
    Scope(Scope),
    /// One of these scopes.
    OneOf(&'static [Scope]),
}

/// A path and a method that the server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with parameters as in `/jobs/{job}`.
    pub path: &'static str,
    /// What its caller must be allowed to do.
    pub needs: Needs,
}

/// The routes of one part of the server.
pub(crate) struct Routes {
    router: Router<Shared>,
    listed: Vec<Route>,
}

impl Routes {
    pub fn new() -> Self {
        Self { router: Router::new(), listed: Vec::new() }
    }

    /// Adds a route.
    pub fn add<T: 'static>(
        mut self,
        method: Method,
        path: &'static str,
        needs: Needs,
        handler: impl Handler<T, Shared>,
    ) -> Self {
        let Ok(filter) = MethodFilter::try_from(method.clone()) else { return self };
        let allowed = from_fn(
            move |caller: Caller, Extension(asked): Extension<Asked>, request: Request, next: Next| async move {
                let needed = match needs {
                    Needs::Scope(scope) => caller.need(scope),
                    Needs::OneOf(scopes) => caller.need_one_of(scopes),
                    Needs::Nothing => Ok(()),
                };
                match needed {
                    Ok(()) => next.run(request).await,
                    Err(error) => Refusal::from(error).into_response(&asked),
                }
            },
        );
        self.router = self.router.route(path, on(filter, handler).layer(allowed));
        self.listed.push(Route { method, path, needs });
        self
    }

    /// Adds the routes of another part.
    pub fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.listed.extend(other.listed);
        self
    }

    /// The list of what it serves.
    pub fn listed(self) -> Vec<Route> {
        self.listed
    }

    /// The router that serves it.
    pub fn finish(self, shared: Shared) -> Router {
        self.router.with_state(shared)
    }
}
