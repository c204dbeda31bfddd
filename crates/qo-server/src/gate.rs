//! What every request passes before a handler sees it, and what every answer carries.
//!
//! 1. The name that it is for must be the server's own: 421.
//! 2. A page of another site may change nothing: 403.
//! 3. Its body may be neither packed (415) nor too large (413), and its parts must follow one another.
//! 4. The token that it shows must be live: 401. Once the store has tokens, callers on this machine need one, too.
//! 5. Its caller may not ask too often: 429.
//!
//! The answer carries the id of the request, what browsers may do with it, and ends with the token of its caller.

use crate::caller::Caller;
use crate::guarded::Guarded;
use crate::guarded::owners::Owners;
use crate::origin::{self, Names};
use crate::peer::{self, Cidr, Peer};
use crate::rate::{Counted, Rates};
use crate::refusal::{Asked, Refusal};
use crate::request_id::RequestIds;
use crate::rights::{Rights, no_token};
use crate::sign_in::Visits;
use crate::tokens::{Live, LiveTokens};
use crate::{Options, body, random};
use axum::Extension;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use qo_core::{Bearer, Result, Store};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::Instrument;

/// Most bytes of a request to `/api`.
const API_BODY: usize = 16 << 20;
/// Most bytes of any other request that is no call of gRPC: those have limits of their own.
const OTHER_BODY: usize = 64 << 10;
/// How long an answer may take to begin. A caller may ask to wait for 60 s.
const ANSWER: Duration = Duration::from_secs(75);

/// What every request passes.
pub(crate) struct Gate {
    store: Arc<dyn Store>,
    /// The live tokens.
    pub tokens: Arc<LiveTokens>,
    owners: Arc<Owners>,
    /// People who have signed in.
    pub visits: Visits,
    rates: Rates,
    names: Names,
    proxies: Vec<Cidr>,
    local: Arc<Rights>,
    form_token: Arc<str>,
    ids: RequestIds,
    is_https: bool,
    is_insecure: bool,
}

/// What is known of a caller.
struct Known {
    rights: Arc<Rights>,
    form_token: Arc<str>,
    live: Option<Arc<Live>>,
}

/// What a request shows of its caller.
enum Shown {
    Nothing,
    Token(Bearer),
    Cookie(String),
    /// A header that holds no token.
    Nonsense,
}

impl Gate {
    pub fn new(
        store: Arc<dyn Store>,
        tokens: Arc<dyn Store>,
        names: Names,
        options: &Options,
    ) -> Result<Self> {
        Ok(Self {
            tokens: Arc::new(LiveTokens::new(tokens, options.read_only)),
            owners: Arc::new(Owners::new(Arc::clone(&store))),
            visits: Visits::default(),
            rates: Rates::new(options.calls_per_second, options.wrong_tokens_per_second),
            names,
            proxies: options.trusted_proxies.clone(),
            local: Arc::new(Rights::local(options.read_only)),
            form_token: random::secret()?.into(),
            ids: RequestIds::new()?,
            is_https: options.tls.is_some(),
            is_insecure: options.insecure,
            store,
        })
    }

    async fn answer(
        &self,
        asked: &Asked,
        peer: Peer,
        mut request: Request,
        next: Next,
    ) -> Result<Response, Refusal> {
        let host = origin::host(&request).unwrap_or_default();
        if !self.names.has(host, peer) {
            let message = "Host: must be localhost, a loopback address, or a name that the server was given with --allow-host";
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, message));
        }
        if origin::is_foreign(&request, host, self.is_https) {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "a page of another site may change nothing here",
            ));
        }
        if !asked.is_grpc() {
            request = bounded(request)?;
        }
        let from = peer::caller(peer, request.headers(), &self.proxies);
        let Known { rights, form_token, live } = self.identify(request.headers(), asked, from)?;
        let counted = rights.token().map_or(Counted::Address(from), Counted::Token);
        self.rates.request(counted).map_err(Refusal::too_often)?;
        if asked.is_grpc() {
            rights.known()?;
        }
        let (store, owners, tokens) =
            (Arc::clone(&self.store), Arc::clone(&self.owners), Arc::clone(&self.tokens));
        let guarded = Guarded::new(store, Arc::clone(&rights), owners, tokens, asked.id);
        request.extensions_mut().insert(Caller::new(guarded, rights, form_token));
        let request = request.map(body::paced);
        let answering = async {
            match asked.is_grpc() {
                true => Ok(next.run(request).await),
                false => timeout(ANSWER, next.run(request))
                    .await
                    .map_err(|_| Refusal::new(StatusCode::GATEWAY_TIMEOUT, "there was no answer in time")),
            }
        };
        let response = match &live {
            // A request may wait for a job for a minute: a token that is revoked meanwhile ends it.
            Some(live) => tokio::select! {
                biased;
                response = answering => response?,
                () = Arc::clone(&self.tokens).gone(Arc::clone(live)) => {
                    return Err(no_token("the token is unknown, revoked or expired").into());
                }
            },
            None => answering.await?,
        };
        Ok(match live {
            Some(live) => response.map(|body| body::until(body, Arc::clone(&self.tokens).gone(live))),
            None => response,
        })
    }

    /// Finds out who calls. A caller that is not known goes on without rights, except to handlers that need none.
    fn identify(&self, headers: &HeaderMap, asked: &Asked, from: IpAddr) -> Result<Known, Refusal> {
        let known = |rights, live| Known { rights, form_token: Arc::clone(&self.form_token), live };
        let unknown = |why| Ok(known(Arc::new(Rights::none(why)), None));
        let any = match self.tokens.any() {
            Ok(any) => any,
            Err(error) => return unknown(error),
        };
        if !any && (from.is_loopback() || self.is_insecure) {
            return Ok(known(Arc::clone(&self.local), None));
        }
        let (wrong, hint) = match shown(headers, asked) {
            Shown::Token(bearer) => match self.tokens.borne_by(&bearer) {
                Some(live) => return Ok(known(Arc::clone(live.rights()), Some(live))),
                None => (true, "the token is unknown, revoked or expired"),
            },
            Shown::Cookie(cookie) => match self.visits.of(&cookie, &self.tokens) {
                Some((live, form_token)) => {
                    return Ok(Known { rights: Arc::clone(live.rights()), form_token, live: Some(live) });
                }
                None => (false, "the sign-in is over: sign in again"),
            },
            Shown::Nothing => {
                (false, "a token is needed: as Authorization: Bearer, or in QO_TOKEN or QO_TOKEN_FILE")
            }
            Shown::Nonsense => {
                (true, "Authorization: must be Bearer and a token, as qo token create prints it")
            }
        };
        if wrong {
            self.rates.wrong(from).map_err(Refusal::too_often)?;
        }
        unknown(no_token(hint))
    }

    /// The token that a person types in to sign in, if it is live. Wrong ones are counted.
    pub fn signs_in(&self, text: &str, from: IpAddr) -> Result<Option<Arc<Live>>, Refusal> {
        self.tokens.any()?;
        let live = Bearer::parse(text.trim()).ok().and_then(|bearer| self.tokens.borne_by(&bearer));
        if live.is_none() {
            self.rates.wrong(from).map_err(Refusal::too_often)?;
        }
        Ok(live)
    }

    /// Where a request comes from, and whether by HTTPS.
    pub fn came(&self, peer: Peer, headers: &HeaderMap) -> (IpAddr, bool) {
        let is_https = self.is_https || peer::came_by_https(peer, headers, &self.proxies);
        (peer::caller(peer, headers, &self.proxies), is_https)
    }
}

/// Guards a handler, and labels its answer.
pub(crate) async fn guard(
    State(gate): State<Arc<Gate>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let asked = Asked::of(&request, gate.ids.next());
    request.extensions_mut().insert(asked.clone());
    let span = tracing::info_span!("request", id = %asked.id);
    let answer = gate.answer(&asked, peer, request, next).instrument(span);
    let mut response = match answer.await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(&asked),
    };
    label(response.headers_mut(), &asked);
    response
}

/// Refuses a body that is packed or too large.
fn bounded(mut request: Request) -> Result<Request, Refusal> {
    if origin::is_packed(request.headers()) {
        let message = "Content-Encoding: must not be set: bodies are read as they are";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let most = if request.uri().path().starts_with("/api/") { API_BODY } else { OTHER_BODY };
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|length| length > most as u64) {
        let message = format!("the body must have at most {most} bytes");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    // A body that does not say how long it is, is read up to the same limit.
    DefaultBodyLimit::max(most).apply(&mut request);
    Ok(request)
}

/// What a request shows of its caller. A token in a URL is none: URLs are logged.
fn shown(headers: &HeaderMap, asked: &Asked) -> Shown {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    match (all.next(), all.next()) {
        (Some(only), None) => {
            let bearer = only.to_str().ok().and_then(|value| {
                let (scheme, token) = value.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| Bearer::parse(token.trim()).ok())?
            });
            bearer.map_or(Shown::Nonsense, Shown::Token)
        }
        (Some(_), Some(_)) => Shown::Nonsense,
        (None, _) if asked.is_grpc() => Shown::Nothing,
        (None, _) => Visits::cookie(headers).map_or(Shown::Nothing, Shown::Cookie),
    }
}

/// What a browser may do with an answer.
const LABELS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Not no-referrer: with it a browser sends the form of a page with the Origin "null".
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src \
         'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
];

fn label(headers: &mut HeaderMap, asked: &Asked) {
    if let Ok(id) = HeaderValue::from_str(&asked.id.to_string()) {
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    if asked.is_grpc() {
        return;
    }
    for (name, value) in LABELS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // A handler of a file that never changes says so itself.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
