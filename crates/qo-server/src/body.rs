//! Bodies that do not last for ever: a request's must go on, a stream's ends with the token of its caller.

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// How long the next part of a request may take.
const NEXT_PART: Duration = Duration::from_secs(30);

/// A request's body, whose parts must follow one another.
pub(crate) fn paced(body: Body) -> Body {
    match body.size_hint().exact() {
        Some(0) => body,
        _ => Body::new(Paced { body, waits: None }),
    }
}

struct Paced {
    body: Body,
    /// Runs while a part is waited for.
    waits: Option<Pin<Box<Sleep>>>,
}

/// A part of a body did not come in time.
#[derive(Debug)]
struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the next part of the body did not come within {NEXT_PART:?}")
    }
}

impl std::error::Error for TooSlow {}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.waits = None;
            return Poll::Ready(frame);
        }
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(NEXT_PART)));
        ready!(waits.as_mut().poll(context));
        Poll::Ready(Some(Err(axum::Error::new(TooSlow))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body that ends when `gone` does. A body of a known length needs no such end.
pub(crate) fn until(body: Body, gone: impl Future<Output = ()> + Send + 'static) -> Body {
    match body.size_hint().exact() {
        Some(_) => body,
        None => Body::new(Until { body, gone: Box::pin(gone) }),
    }
}

struct Until {
    body: Body,
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The caller's token is not live any more.
#[derive(Debug)]
struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the caller's token is not live any more")
    }
}

impl std::error::Error for Gone {}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        ready!(self.gone.as_mut().poll(context));
        Poll::Ready(Some(Err(axum::Error::new(Gone))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    /// A body of which nothing comes.
    struct Stuck;

    impl HttpBody for Stuck {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_which_nothing_comes_is_given_up() {
        let refused = to_bytes(paced(Body::new(Stuck)), 100).await.expect_err("it never ends");
        assert!(refused.to_string().contains("did not come within"), "{refused}");
        let whole = to_bytes(paced(Body::from("all of it")), 100).await.expect("a body");
        assert_eq!(whole, "all of it");
    }

    #[tokio::test]
    async fn a_stream_ends_when_its_token_is_gone() {
        let (revoke, revoked) = tokio::sync::oneshot::channel::<()>();
        let stream = until(Body::new(Stuck), async { revoked.await.unwrap_or_default() });
        let read = tokio::spawn(to_bytes(stream, 100));
        revoke.send(()).expect("it is read");
        assert!(read.await.expect("no panic").is_err());
    }
}
