//! Every method of gRPC and every route of HTTP, for every kind of caller.
//!
//! The table names each method: a new one without a row fails the test.

use super::client::ask;
use super::{Rights, Stage, bearer, create, name, with_scope};
use crate::stage::{PATIENCE, Served, block_on};
use prost::Message;
use prost_types::FileDescriptorSet;
use qo_core::Scope::{Admin, Read, Submit, Work};
use qo_core::{Bearer, GroupRef, JobId, MemoryStore, NewJob, NewSession, Scope, SessionId, Store};
use qo_server::{Needs, Options};
use qo_wire::pb;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::timeout;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use uuid::Uuid;

const JOB: &str = "0198c0de-0000-7000-8000-000000000001";
const SESSION: &str = "00000000-0000-4000-8000-000000000001";

/// What a token that is bound to another queue gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Foreign {
    /// The call is refused.
    Refused,
    /// What it names is not there.
    NotFound,
    /// The session is another caller's.
    Fenced,
    /// It is not about queues, or what is foreign is left out of the answer: `queues` shows that.
    Answered,
}
use Foreign::{Answered, Fenced, NotFound, Refused};

/// A method, the scopes of which one is enough, what it asks, and what a token of another queue gets.
type Row = (&'static str, &'static [Scope], Vec<u8>, Foreign);

fn job() -> Vec<u8> {
    pb::JobRequest { job: JOB.into() }.encode_to_vec()
}

fn jobs() -> Vec<u8> {
    pb::JobIds { jobs: vec![JOB.into()] }.encode_to_vec()
}

fn exchange() -> Vec<u8> {
    pb::ExchangeRequest { session: SESSION.into(), number: 1, ..Default::default() }.encode_to_vec()
}

fn group() -> Vec<u8> {
    pb::GroupRequest { group: "api".into() }.encode_to_vec()
}

fn lease() -> String {
    Uuid::from_u128(7).to_string()
}

const ANY: &[Scope] = &Scope::ALL;

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let filter = Some(pb::JobFilter { queue: Some("mail".into()), ..Default::default() });
    let submit = pb::NewJob { id: Uuid::from_u128(9).to_string(), task: "send".into(), queue: Some("mail".into()), ..Default::default() };
    let open = pb::OpenSessionRequest { session: Uuid::from_u128(5).to_string(), worker: "w".into(), queues: vec!["mail".into()], tasks: vec!["send".into()], lease_ms: 30_000, permits: 1, ..Default::default() };
    let beat = pb::HeartbeatRequest { session: SESSION.into(), number: 1, worker_id: "w".into(), ..Default::default() };
    let slots = pb::AcquireSlotsRequest { lease: lease(), group: "queue:mail".into(), holder: "p".into(), lease_ms: 1_000, ..Default::default() };
    let limits = [("queue:mail".to_owned(), 3)].into();
    vec![
        ("Handshake", ANY, pb::HandshakeRequest { level: 1, version: "test".into() }.encode_to_vec(), Answered),
        ("Now", ANY, vec![], Answered),
        ("Submit", &[Submit], pb::SubmitRequest { jobs: vec![submit] }.encode_to_vec(), Refused),
        ("Cancel", &[Admin], jobs(), Answered),
        ("Retry", &[Admin], jobs(), Answered),
        ("ChangeMatching", &[Admin], pb::ChangeMatchingRequest { change: pb::Change::Cancel.into(), filter: filter.clone(), limit: 10, ..Default::default() }.encode_to_vec(), Refused),
        ("GetJob", &[Read, Submit], job(), NotFound),
        ("ListJobs", &[Read], pb::ListJobsRequest { filter, limit: 10, ..Default::default() }.encode_to_vec(), Refused),
        ("Explain", &[Read, Submit], job(), NotFound),
        ("OpenSession", &[Work], open.encode_to_vec(), Refused),
        ("Exchange", &[Work], exchange(), Fenced),
        ("Fetch", &[Work], exchange(), Fenced),
        ("Work", &[Work], pb::WorkRequest { session: SESSION.into(), claim: None }.encode_to_vec(), Fenced),
        ("Heartbeat", &[Work], beat.encode_to_vec(), Fenced),
        ("CloseSession", &[Work], pb::CloseSessionRequest { session: SESSION.into() }.encode_to_vec(), Fenced),
        ("Watch", ANY, vec![], Answered),
        ("Sweep", &[Work], vec![], Answered),
        ("KeepLog", &[Work], pb::KeepLogRequest { token: 1, log: "x".into() }.encode_to_vec(), Fenced),
        ("GetLog", &[Read], pb::LogRequest { token: 1 }.encode_to_vec(), Answered),
        ("SetLimit", &[Admin], pb::SetLimitRequest { group: "api".into(), limit: 3 }.encode_to_vec(), Refused),
        ("UnsetLimit", &[Admin], group(), Refused),
        ("PauseQueue", &[Admin], pb::PauseQueueRequest { queue: "mail".into(), paused: true }.encode_to_vec(), Refused),
        ("ListGroups", &[Read], pb::ListGroupsRequest { limit: 10, ..Default::default() }.encode_to_vec(), Refused),
        ("GetGroup", &[Read], group(), Refused),
        ("ReleaseSlot", &[Admin], pb::ReleaseSlotRequest { group: "api".into(), slot: 1 }.encode_to_vec(), Refused),
        ("ListQueues", &[Read], vec![], Answered),
        ("ListWorkers", &[Read], vec![], Answered),
        ("ListOver", &[Read], vec![], Refused),
        ("AcquireSlots", &[Work], slots.encode_to_vec(), Refused),
        ("ExtendSlots", &[Work], pb::ExtendSlotsRequest { lease: lease(), token: 1, lease_ms: 1_000 }.encode_to_vec(), Fenced),
        ("ReturnSlots", &[Work], pb::ReturnSlotsRequest { lease: lease(), token: 1 }.encode_to_vec(), Fenced),
        ("Register", &[Work], pb::RegisterRequest { tasks: vec![pb::TaskOptions { task: "send".into(), ..Default::default() }] }.encode_to_vec(), Answered),
        ("Configure", &[Work], pb::Configuration { limits, ..Default::default() }.encode_to_vec(), Refused),
        ("ListConfigurations", &[Read], vec![], Refused),
        ("ListPushes", &[Read], vec![], Refused),
        ("GetWorkflow", &[Read], pb::WorkflowRequest { workflow: "w".into() }.encode_to_vec(), Refused),
        ("ListWorkflows", &[Read], pb::ListWorkflowsRequest { limit: 10, ..Default::default() }.encode_to_vec(), Refused),
        ("SteerWorkflow", &[Admin], pb::SteerWorkflowRequest { workflow: "w".into(), action: pb::SteerAction::Cancel.into(), step: 0 }.encode_to_vec(), Refused),
        ("ListSchedules", &[Read], vec![], Answered),
        ("EnableSchedule", &[Admin], pb::EnableScheduleRequest { schedule: "s".into(), enabled: true }.encode_to_vec(), Refused),
        ("TriggerSchedule", &[Admin], pb::TriggerScheduleRequest { schedule: "s".into(), job: JOB.into() }.encode_to_vec(), Refused),
        ("CreateToken", &[Admin], pb::CreateTokenRequest { token: "aaaa0000".into(), name: "x".into(), hash: vec![7; 32], scopes: vec![pb::Scope::Read.into()], by: "me".into(), ..Default::default() }.encode_to_vec(), Refused),
        ("RevokeToken", &[Admin], pb::RevokeTokenRequest { token: "zzzz9999".into(), by: "me".into() }.encode_to_vec(), Refused),
        ("ListTokens", &[Admin], vec![], Refused),
        ("Record", &[Admin], pb::Deed { by: "me".into(), what: "x".into(), on: "y".into(), ..Default::default() }.encode_to_vec(), Refused),
        ("ListAudit", &[Admin], pb::ListAuditRequest { limit: 10, ..Default::default() }.encode_to_vec(), Refused),
    ]
}

/// Messages as bytes.
#[derive(Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        use prost::bytes::BufMut;
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        use prost::bytes::Buf;
        buffer.advance(buffer.remaining());
        Ok(Some(()))
    }
}

/// Calls a method and returns the code of its answer.
async fn call(channel: &Channel, row: &Row, headers: &[(&'static str, &str)]) -> Code {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.expect("a connection");
    let mut request = Request::new(row.2.clone());
    for (name, value) in headers {
        request.metadata_mut().insert(*name, value.parse().expect("a header"));
    }
    let path = format!("/qo.v1.Queue/{}", row.0).parse().expect("a path");
    let answer =
        timeout(PATIENCE, grpc.server_streaming(request, path, Bytes)).await.expect("an answer in time");
    match answer {
        Err(status) => status.code(),
        // A stream of wake-ups has begun.
        Ok(_) if row.0 == "Watch" => Code::Ok,
        Ok(answer) => answer.into_inner().message().await.map_or_else(|status| status.code(), |_| Code::Ok),
    }
}

fn showing(bearer: &Bearer) -> String {
    format!("Bearer {}", bearer.secret_text())
}

/// A store with a job, a session of another caller, and every kind of token.
struct Cast {
    stage: Stage,
    channel: Channel,
    foreign_host: Channel,
    all: Bearer,
    only: Vec<(Scope, Bearer)>,
    bound: Bearer,
    /// What callers show that are not let in.
    refused: Vec<(&'static str, Option<String>)>,
}

async fn cast() -> Cast {
    let store = Arc::new(MemoryStore::new());
    let all = create(&*store, "all", Rights { scopes: &[Admin], ..Rights::default() }).await;
    let bound =
        create(&*store, "bound", Rights { scopes: &[Admin], queues: &["video"], ..Rights::default() }).await;
    let mut only = Vec::new();
    for scope in Scope::ALL {
        only.push((scope, with_scope(&*store, scope).await));
    }
    let revoked = create(&*store, "revoked", Rights { scopes: &[Admin], ..Rights::default() }).await;
    store.revoke_token(revoked.id(), "test".into()).await.expect("revoked");
    let soon = qo_core::Time::from_millis(store.now().await.expect("now").as_millis() + 20);
    let expired =
        create(&*store, "expired", Rights { scopes: &[Admin], expires_at: Some(soon), ..Rights::default() })
            .await;
    let started = std::time::Instant::now();
    while store.tokens().await.expect("tokens").iter().any(|token| token.id == expired.id()) {
        assert!(started.elapsed() < PATIENCE, "it expires");
        tokio::task::yield_now().await;
    }
    let job = NewJob { queue: name("mail"), ..NewJob::new(JobId(JOB.parse().expect("an id")), name("send")) };
    store.submit(vec![job]).await.expect("stored");
    store.set_limit(GroupRef::Group(name("api")), 2).await.expect("set");
    let session = NewSession {
        id: SessionId(SESSION.parse().expect("an id")),
        worker: name("w"),
        queues: vec![name("mail")],
        tasks: vec![name("send")],
        lease_ms: 3_600_000,
        permits: 1,
        owner: Some(revoked.id()),
    };
    store.open_session(session).await.expect("a session");
    // Far more wrong tokens than a server bears from one address.
    let options =
        Options { wrong_tokens_per_second: 1_000_000, sweep_every: PATIENCE * 1_000, ..Options::default() };
    let served = Served::start_with(Arc::clone(&store) as Arc<dyn Store>, options).await;
    let url = |host: &str| format!("http://{host}:{}", served.address.port());
    let endpoint = || Endpoint::from_shared(url("127.0.0.1")).expect("a url");
    let channel = endpoint().connect().await.expect("it listens");
    let evil = endpoint().origin(url("evil.example").parse().expect("an address"));
    let foreign_host = evil.connect().await.expect("it listens");
    let altered = Bearer::parse(&flipped(&all.secret_text())).expect("a token with another secret");
    let refused = vec![
        ("no token", None),
        ("malformed", Some("Bearer qo_nonsense".to_owned())),
        ("another scheme", Some(format!("Basic {}", all.secret_text()))),
        ("unknown", Some(showing(&bearer()))),
        ("wrong secret", Some(showing(&altered))),
        ("revoked", Some(showing(&revoked))),
        ("expired", Some(showing(&expired))),
    ];
    Cast { stage: Stage { store, served }, channel, foreign_host, all, only, bound, refused }
}

/// The same token with another last character.
fn flipped(text: &str) -> String {
    let (rest, last) = text.split_at(text.len() - 1);
    format!("{rest}{}", if last == "A" { "B" } else { "A" })
}

#[test]
fn every_method_of_grpc_answers_each_caller_as_specified() {
    let set = FileDescriptorSet::decode(pb::DESCRIPTORS).expect("descriptors");
    let services = set.file.iter().flat_map(|file| &file.service);
    let described: BTreeSet<&str> =
        services.flat_map(|service| &service.method).map(|method| method.name()).collect();
    let rows = rows();
    let listed: BTreeSet<&str> = rows.iter().map(|row| row.0).collect();
    assert_eq!((rows.len(), &listed), (described.len(), &described), "each method has one row");
    block_on(async {
        let cast = cast().await;
        let all = showing(&cast.all);
        let right = [("authorization", all.as_str())];
        for row in &rows {
            for (who, shows) in &cast.refused {
                let headers: Vec<_> = shows.iter().map(|shows| ("authorization", shows.as_str())).collect();
                assert_eq!(
                    call(&cast.channel, row, &headers).await,
                    Code::Unauthenticated,
                    "{}: {who}",
                    row.0
                );
            }
            for (scope, bearer) in &cast.only {
                let code = call(&cast.channel, row, &[("authorization", &showing(bearer))]).await;
                let may = row.1.contains(scope) || *scope == Admin;
                let is_refused = code == Code::PermissionDenied;
                assert!(
                    code != Code::Unauthenticated && is_refused != may,
                    "{}: only {scope}: {code:?}",
                    row.0
                );
            }
            let code = call(&cast.channel, row, &[("authorization", &showing(&cast.bound))]).await;
            let as_due = match row.3 {
                Refused => code == Code::PermissionDenied,
                NotFound => code == Code::NotFound,
                Fenced => code == Code::FailedPrecondition,
                Answered => !matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::Internal),
            };
            assert!(as_due, "{}: another queue: {code:?}", row.0);
            let code = call(&cast.channel, row, &right).await;
            let is_refused = matches!(code, Code::Unauthenticated | Code::PermissionDenied);
            assert!(!is_refused && code != Code::Internal, "{}: right: {code:?}", row.0);
            let origin = [right[0], ("origin", "http://evil.example")];
            assert_eq!(
                call(&cast.channel, row, &origin).await,
                Code::PermissionDenied,
                "{}: cross-site",
                row.0
            );
            assert_eq!(
                call(&cast.foreign_host, row, &right).await,
                Code::InvalidArgument,
                "{}: foreign Host",
                row.0
            );
        }
        for service in
            ["/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"]
        {
            let mut grpc = tonic::client::Grpc::new(cast.channel.clone());
            grpc.ready().await.expect("a connection");
            let path = service.parse().expect("a path");
            let refused = grpc.server_streaming(Request::new(vec![]), path, Bytes).await.map(drop);
            assert_eq!(refused.map_err(|status| status.code()), Err(Code::Unauthenticated), "{service}");
        }
    });
}

#[test]
fn every_route_of_http_answers_each_caller_as_specified() {
    block_on(async {
        let cast = cast().await;
        let server = cast.stage.served.address;
        let routes = qo_server::listed();
        assert!(routes.iter().any(|route| route.needs == Needs::Nothing), "{routes:?}");
        for route in routes {
            let (method, path) = (route.method.as_str(), filled(route.path));
            let shown = format!("{method} {path}");
            let with = async |headers: &[(&str, &str)]| ask(server, method, &path, headers, "").await;
            let all = showing(&cast.all);
            for (who, shows) in &cast.refused {
                let headers: Vec<_> = shows.iter().map(|shows| ("Authorization", shows.as_str())).collect();
                let answer = with(&headers).await;
                match route.needs {
                    Needs::Nothing => assert_ne!(answer.status, 403, "{shown}: {who}"),
                    Needs::Scope(_) | Needs::OneOf(_) => {
                        assert_eq!(answer.status, 401, "{shown}: {who}: {answer:?}");
                        assert!(answer.header("www-authenticate").is_some(), "{shown}: {who}: {answer:?}");
                    }
                }
                let id = answer.header("x-request-id").expect("an id");
                assert!(id.len() == 16 && !answer.body.contains("qo_"), "{shown}: {who}: {answer:?}");
            }
            for (scope, bearer) in &cast.only {
                let answer = with(&[("Authorization", &showing(bearer))]).await;
                let may = match route.needs {
                    Needs::Nothing => true,
                    Needs::Scope(needed) => needed == *scope || *scope == Admin,
                    Needs::OneOf(needed) => needed.contains(scope) || *scope == Admin,
                };
                assert_ne!(answer.status, 401, "{shown}: only {scope}");
                assert!(may || answer.status == 403, "{shown}: only {scope}: {answer:?}");
            }
            let answer = with(&[("Authorization", &all)]).await;
            assert!(!matches!(answer.status, 0 | 401 | 421), "{shown}: right: {answer:?}");
            let csp = answer.header("content-security-policy").unwrap_or_default();
            assert!(csp.contains("frame-ancestors 'none'") && !csp.contains("unsafe"), "{shown}: {answer:?}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{shown}");
            assert_eq!(answer.header("access-control-allow-origin"), None, "{shown}");
            if !matches!(method, "GET" | "HEAD") {
                for foreign in
                    [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site"), ("Origin", "null")]
                {
                    let answer = with(&[("Authorization", &all), foreign]).await;
                    assert_eq!(answer.status, 403, "{shown}: {foreign:?}: {answer:?}");
                }
            }
            let answer = with(&[("Authorization", &all), ("Host", "evil.example")]).await;
            assert_eq!(answer.status, 421, "{shown}: foreign Host: {answer:?}");
        }
    });
}

/// A path with something in place of its parameters.
fn filled(path: &str) -> String {
    let part = |part: &str| if part.starts_with('{') { "x".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[test]
fn without_tokens_callers_on_this_machine_may_do_everything() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        let endpoint = Endpoint::from_shared(format!("http://{}", served.address)).expect("a url");
        let channel = endpoint.connect().await.expect("it listens");
        // From the first token on every caller needs one.
        for row in rows().into_iter().filter(|row| row.0 != "CreateToken") {
            let code = call(&channel, &row, &[]).await;
            let is_refused = matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::Internal);
            assert!(!is_refused, "{}: {code:?}", row.0);
        }
    });
}

#[test]
fn a_server_that_only_shows_lets_no_caller_change_anything() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let options = Options { read_only: true, sweep_every: PATIENCE * 1_000, ..Options::default() };
        let served = Served::start_with(Arc::clone(&store) as Arc<dyn Store>, options.clone()).await;
        let endpoint =
            |served: &Served| Endpoint::from_shared(format!("http://{}", served.address)).expect("a url");
        let open = endpoint(&served).connect().await.expect("it listens");
        let admin = showing(&create(&*store, "ops", Rights { scopes: &[Admin], ..Rights::default() }).await);
        let again = Served::start_with(Arc::clone(&store) as Arc<dyn Store>, options).await;
        let closed = endpoint(&again).connect().await.expect("it listens");
        for row in rows() {
            for (channel, headers) in [(&open, vec![]), (&closed, vec![("authorization", admin.as_str())])] {
                // The first server learns of the token at some moment of this loop.
                let code = call(channel, &row, &headers).await;
                let is_refused = matches!(code, Code::PermissionDenied | Code::Unauthenticated);
                assert!(is_refused || row.1.contains(&Read), "{}: {code:?}", row.0);
            }
        }
        assert_eq!(store.tokens().await.expect("tokens").len(), 1);
        assert!(store.workers().await.expect("workers").is_empty());
    });
}
