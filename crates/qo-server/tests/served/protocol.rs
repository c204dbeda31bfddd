//! What the protocol promises to clients in other languages, of any release.

use crate::stage::{Served, block_on};
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use qo_core::{Error, ErrorKind, MemoryStore};
use qo_wire::{methods, pb, status};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

/// The protocol as lines of text, sorted: `Message.field = number type`, `rpc Method Request -> Reply`.
fn described() -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(pb::DESCRIPTORS).expect("descriptors");
    let mut lines = BTreeSet::new();
    for file in set.file.iter().filter(|file| file.package() == "qo.v1") {
        for message in &file.message_type {
            describe(message, &mut lines);
        }
        for values in &file.enum_type {
            for value in &values.value {
                lines.insert(format!("enum {}.{} = {}", values.name(), value.name(), value.number()));
            }
        }
        for method in file.service.iter().flat_map(|service| &service.method) {
            let stream = |is: bool| if is { "stream " } else { "" };
            let (asks, answers) = (stream(method.client_streaming()), stream(method.server_streaming()));
            let (asked, answer) = (method.input_type(), method.output_type());
            lines.insert(format!("rpc {} {asks}{asked} -> {answers}{answer}", method.name()));
        }
    }
    lines
}

fn describe(message: &DescriptorProto, lines: &mut BTreeSet<String>) {
    lines.insert(format!("message {}", message.name()));
    for field in &message.field {
        let mut line = format!("field {}.{} = {}", message.name(), field.name(), field.number());
        let label = match (field.label(), field.proto3_optional()) {
            (Label::Repeated, _) => " repeated",
            (_, true) => " optional",
            _ if field.oneof_index.is_some() => " oneof",
            _ => "",
        };
        let kind = match field.r#type() {
            Type::Message | Type::Enum => field.type_name().to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        write!(line, "{label} {kind}").expect("a text");
        lines.insert(line);
    }
    message.nested_type.iter().for_each(|nested| describe(nested, lines));
}

/// `QO_REWRITE=1` accepts additions. What is gone or has another number or type stays a failure: such a change needs
/// another package, `qo.v2`.
#[test]
fn the_protocol_only_ever_grows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../qo-wire/proto/qo/v1/described.txt");
    let now = described();
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let before: BTreeSet<String> = written.lines().map(str::to_owned).collect();
    let gone: Vec<_> = before.difference(&now).collect();
    assert!(gone.is_empty(), "clients that exist need these lines of {path}: {gone:#?}");
    if std::env::var_os("QO_REWRITE").is_some() {
        let text: String = now.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(path, text).expect("it is written");
        return;
    }
    let added: Vec<_> = now.difference(&before).collect();
    assert!(added.is_empty(), "new; write the file anew with QO_REWRITE=1: {added:#?}");
}

#[test]
fn every_method_says_whether_it_changes_something() {
    let set = FileDescriptorSet::decode(pb::DESCRIPTORS).expect("descriptors");
    let services = set.file.iter().flat_map(|file| &file.service);
    let described: BTreeSet<&str> =
        services.flat_map(|service| &service.method).map(|method| method.name()).collect();
    let listed: BTreeSet<&str> = methods::METHODS.iter().map(|method| method.name).collect();
    assert_eq!((listed.len(), &listed), (methods::METHODS.len(), &described));
}

#[test]
fn every_kind_of_error_has_a_status_of_its_own() {
    let kinds = [
        ErrorKind::Invalid,
        ErrorKind::NotFound,
        ErrorKind::Conflict,
        ErrorKind::LimitReached,
        ErrorKind::Fenced,
        ErrorKind::Unavailable,
        ErrorKind::Unknown,
        ErrorKind::Data,
        ErrorKind::Internal,
    ];
    let codes: BTreeSet<i32> = kinds.iter().map(|kind| status::code(*kind).into()).collect();
    assert_eq!(codes.len(), kinds.len());
    for kind in kinds {
        let error = Error::new(kind, "why");
        assert_eq!(status::error(&status::status(&error, 4_096)).map(|error| error.kind()), Some(kind));
    }
}

#[test]
fn a_plain_client_gets_small_errors_and_a_heartbeat() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        let url = format!("http://{}", served.address);
        let channel =
            tonic::transport::Endpoint::from_shared(url).expect("a url").connect().await.expect("it answers");
        let mut client = pb::queue_client::QueueClient::new(channel);
        let mut wrong = pb::Configuration::default();
        for n in 0..150 {
            wrong.queue_priorities.insert(format!("a-queue-with-a-long-name-{n}"), 0);
        }
        let refused = client.configure(wrong).await.expect_err("refused");
        assert!(refused.details().len() <= qo_wire::limits::ERROR_BYTES, "{}", refused.details().len());
        assert_eq!(status::error(&refused).map(|error| error.kind()), Some(ErrorKind::Invalid));
        let bad = pb::WorkRequest { session: "nobody".into(), claim: None };
        let bad = status::error(&client.work(bad).await.expect_err("refused")).expect("an error of qo");
        assert_eq!(bad.message(), "session: \"nobody\": must be a UUID");

        let session = "00000000-0000-4000-8000-000000000001".to_owned();
        let open = pb::OpenSessionRequest {
            session: session.clone(),
            worker: "w".into(),
            queues: vec![],
            tasks: vec!["mail".into()],
            owner: None,
            lease_ms: 30_000,
            permits: 2,
        };
        client.open_session(open).await.expect("a session");
        let job = "0198c0de-0000-7000-8000-000000000001".to_owned();
        let new = pb::NewJob { id: job.clone(), task: "mail".into(), ..pb::NewJob::default() };
        client.submit(pb::SubmitRequest { jobs: vec![new] }).await.expect("accepted");
        let claim = Some(pb::Claim { max: 1, ..pb::Claim::default() });
        let ask = pb::ExchangeRequest {
            session: session.clone(),
            number: 1,
            claim,
            ..pb::ExchangeRequest::default()
        };
        let reply = client.exchange(ask).await.expect("a reply").into_inner();
        assert_eq!((reply.claimed.len(), reply.claimed[0].queue.as_str()), (1, "default"));
        let beat = |number, capacity| pb::HeartbeatRequest {
            session: session.clone(),
            number,
            task_id: Some(job.clone()),
            worker_id: "w".into(),
            available_capacity: capacity,
            max_capacity: 2,
            memory_usage: Some(0.62),
        };
        assert!(!client.heartbeat(beat(2, 1)).await.expect("alive").into_inner().must_stop);
        let workers = client.list_workers(pb::ListWorkersRequest {}).await.expect("workers");
        let shown = workers.into_inner().message().await.expect("a worker").expect("one");
        assert_eq!((shown.memory_percent, shown.free_permits), (Some(62), 1));
        client.cancel(pb::JobIds { jobs: vec![job.clone()] }).await.expect("asked to stop");
        let told = client.heartbeat(beat(3, 1)).await.expect("alive").into_inner();
        assert!(told.must_stop && told.stop.len() == 1);
    });
}
