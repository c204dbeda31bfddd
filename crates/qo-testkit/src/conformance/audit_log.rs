//! The audit log: what operators did, newest first.

use super::*;

fn deed(on: &str) -> Deed {
    Deed::new("ada@laptop", "set limit", on)
}

async fn record(world: &World, deed: Deed) {
    world.store.record(deed).await.expect("it is recorded");
}

async fn entries(world: &World) -> Vec<AuditEntry> {
    world.store.audit(None, caps::PAGE).await.expect("a page")
}

pub(super) async fn what_is_recorded_is_listed_newest_first(world: &World) {
    assert_eq!(entries(world).await, []);
    let first = Deed { before: Some("3".into()), after: Some("10".into()), ..deed("resize/ada") };
    record(world, first.clone()).await;
    world.advance(1_500).await;
    record(world, deed("cluster")).await;
    record(world, Deed::new("", "", "")).await;
    let expected = [
        AuditEntry { number: 3, at: at(1_500), deed: Deed::new("", "", "") },
        AuditEntry { number: 2, at: at(1_500), deed: deed("cluster") },
        AuditEntry { number: 1, at: at(0), deed: first },
    ];
    assert_eq!(entries(world).await, expected);
}

pub(super) async fn the_audit_log_is_read_page_by_page(world: &World) {
    for n in 1..=5 {
        record(world, deed(&format!("group-{n}"))).await;
    }
    let page = async |before, limit| {
        let page = world.store.audit(before, limit).await.expect("a page");
        page.iter().map(|entry| entry.number).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2).await, [5, 4]);
    assert_eq!(page(Some(4), 2).await, [3, 2]);
    assert_eq!(page(Some(2), 2).await, [1]);
    assert_eq!((page(Some(1), 2).await, page(Some(0), 2).await), (vec![], vec![]));
    assert_eq!(page(Some(u64::MAX), 1).await, [5]);
}

pub(super) async fn creating_and_revoking_a_token_is_recorded_in_the_same_step(world: &World) {
    let token = NewToken {
        id: "ab12cd34".parse().expect("an id"),
        name: name("ci"),
        hash: TokenHash::of("secret"),
        scopes: [Scope::Admin, Scope::Read].into(),
        queues: Some([name("mail"), name("b")].into()),
        app: Some(name("shop")),
        expires_at: None,
    };
    world.store.create_token(token.clone(), "ada".into()).await.expect("it is created");
    world.advance(9).await;
    world.store.revoke_token(token.id, "bob".into()).await.expect("it is there");
    let rights = || Some(AuditText::from("read, admin; queues b, mail; app shop"));
    let created = Deed { after: rights(), ..Deed::new("ada", "create token", "ci (ab12cd34)") };
    let revoked = Deed { before: rights(), ..Deed::new("bob", "revoke token", "ci (ab12cd34)") };
    let expected = [
        AuditEntry { number: 2, at: at(9), deed: revoked },
        AuditEntry { number: 1, at: at(0), deed: created },
    ];
    assert_eq!(entries(world).await, expected, "the log keeps the name of a token that is gone");
    let many: Vec<_> = (0..caps::TOKEN_QUEUES).map(|n| name(&format!("queue-with-a-name-{n}"))).collect();
    let wide = NewToken { queues: Some(many.into_iter().collect()), ..token };
    world.store.create_token(wide.clone(), "ada".into()).await.expect("it is created");
    let said = entries(world).await[0].deed.after.clone();
    assert_eq!(said, Some(Token::new(wide, at(0)).rights().into()), "a long list is cut");
}

pub(super) async fn a_refused_or_repeated_creation_is_not_recorded(world: &World) {
    let token = NewToken {
        id: "ab12cd34".parse().expect("an id"),
        name: name("ci"),
        hash: TokenHash::of("secret"),
        scopes: [Scope::Read].into(),
        queues: None,
        app: None,
        expires_at: None,
    };
    world.store.create_token(token.clone(), "ada".into()).await.expect("it is created");
    world.store.create_token(token.clone(), "bob".into()).await.expect("it is there");
    let other = NewToken { hash: TokenHash::of("other"), ..token.clone() };
    refused(world.store.create_token(other, "ada".into()).await, ErrorKind::Conflict);
    let unknown = "zzzzzzz9".parse().expect("an id");
    refused(world.store.revoke_token(unknown, "ada".into()).await, ErrorKind::NotFound);
    let by: Vec<_> = entries(world).await.into_iter().map(|entry| entry.deed.by).collect();
    assert_eq!(by, ["ada".into()]);
}

pub(super) async fn a_long_or_wild_text_is_recorded_cut_and_clean(world: &World) {
    let long = "ü".repeat(caps::AUDIT_BYTES);
    let wild =
        Deed { after: Some(long.as_str().into()), ..Deed::new("a\0b", "\u{1b}[2J", "päth/\u{85}'\"\\") };
    record(world, wild).await;
    let [entry] = entries(world).await.try_into().expect("one entry");
    let cut = "ü".repeat(caps::AUDIT_BYTES / 2);
    let expected = Deed {
        after: Some(cut.as_str().into()),
        ..Deed::new("a\u{fffd}b", "\u{fffd}[2J", "päth/\u{fffd}'\"\\")
    };
    assert_eq!(entry.deed, expected);
}

pub(super) async fn a_page_of_the_audit_log_of_no_or_too_many_rows_is_invalid(world: &World) {
    for limit in [0, caps::PAGE + 1, usize::MAX] {
        invalid(world.store.audit(None, limit).await, "limit", &limit.to_string());
    }
}

pub(super) async fn concurrent_records_have_numbers_without_gaps(world: &World) {
    let all = (0..20).map(|n| world.store.record(deed(&format!("group-{n}"))));
    for recorded in join_all(all).await {
        recorded.expect("it is recorded");
    }
    let entries = entries(world).await;
    assert_eq!(
        entries.iter().map(|entry| entry.number).collect::<Vec<_>>(),
        (1..=20).rev().collect::<Vec<_>>()
    );
    let on: BTreeSet<_> = entries.iter().map(|entry| entry.deed.on.to_string()).collect();
    assert_eq!(on.len(), 20, "each is there once");
}

pub(super) async fn what_operators_did_changes_no_other_view(world: &World) {
    world.submit(job("t")).await;
    let worker = world.worker("w1", ["t"]).await;
    worker.claim_one().await;
    let before = world.snapshot().await;
    record(world, deed("t")).await;
    assert_eq!(world.snapshot().await, before);
}
