//! Tokens: what a store keeps of them, and when they are gone.

use super::*;
use std::collections::BTreeSet;

fn by() -> AuditText {
    "ada@laptop".into()
}

fn new_token(id: &str, called: &str) -> NewToken {
    NewToken {
        id: id.parse().expect("an id"),
        name: name(called),
        hash: TokenHash::of(id),
        scopes: [Scope::Read].into(),
        queues: None,
        app: None,
        expires_at: None,
    }
}

/// The live tokens. A store behind a server tells no hash; any other store must tell the one that it was given.
async fn listed(world: &World) -> Vec<Token> {
    let tokens = world.store.tokens().await.expect("the tokens");
    let right = |token: &Token| token.hash.is_none_or(|hash| hash == TokenHash::of(token.id.as_str()));
    assert!(tokens.iter().all(right), "a hash is another one: {tokens:?}");
    tokens.into_iter().map(|token| Token { hash: None, ..token }).collect()
}

async fn names_of(world: &World) -> Vec<String> {
    listed(world).await.iter().map(|token| token.name.to_string()).collect()
}

async fn create(world: &World, token: NewToken) -> qo_core::Result<()> {
    world.store.create_token(token, by()).await
}

pub(super) async fn a_token_is_listed_as_it_was_created(world: &World) {
    let plain = new_token("aaaaaaa1", "a");
    let full = NewToken {
        scopes: Scope::ALL.into(),
        queues: Some([name("mail"), name("Video")].into()),
        app: Some(name("shop")),
        expires_at: Some(at(60_000)),
        ..new_token("0zzzzzz9", "b")
    };
    create(world, plain.clone()).await.expect("it is created");
    world.advance(7).await;
    create(world, full.clone()).await.expect("it is created");
    let expected = [Token::new(plain, at(0)), Token::new(full, at(7))];
    assert_eq!(listed(world).await, expected.map(|token| Token { hash: None, ..token }));
}

pub(super) async fn the_same_token_again_is_the_same_token(world: &World) {
    let queues: BTreeSet<_> = [name("q")].into();
    let token = NewToken { queues: Some(queues), expires_at: Some(at(9_000)), ..new_token("aaaaaaa1", "a") };
    create(world, token.clone()).await.expect("it is created");
    world.advance(1_000).await;
    create(world, token.clone()).await.expect("it is there");
    let expected = Token { hash: None, ..Token::new(token, at(0)) };
    assert_eq!(listed(world).await, [expected], "created when it was first");
}

pub(super) async fn another_token_with_its_id_or_name_is_a_conflict(world: &World) {
    let token = new_token("aaaaaaa1", "a");
    create(world, token.clone()).await.expect("it is created");
    let others = [
        NewToken { name: name("b"), ..token.clone() },
        NewToken { hash: TokenHash::of("another secret"), ..token.clone() },
        NewToken { scopes: [Scope::Read, Scope::Admin].into(), ..token.clone() },
        NewToken { queues: Some([name("q")].into()), ..token.clone() },
        NewToken { app: Some(name("shop")), ..token.clone() },
        NewToken { expires_at: Some(at(1_000)), ..token.clone() },
        new_token("bbbbbbb2", "a"),
    ];
    for other in others {
        refused(create(world, other).await, ErrorKind::Conflict);
    }
    assert_eq!(listed(world).await, [Token { hash: None, ..Token::new(token, at(0)) }]);
}

pub(super) async fn a_revoked_token_is_gone_and_its_name_is_free(world: &World) {
    let token = new_token("aaaaaaa1", "a");
    create(world, token.clone()).await.expect("it is created");
    create(world, new_token("bbbbbbb2", "b")).await.expect("it is created");
    world.store.revoke_token(token.id, by()).await.expect("it is there");
    assert_eq!(names_of(world).await, ["b"]);
    create(world, new_token("ccccccc3", "a")).await.expect("the name is free");
    assert_eq!(names_of(world).await, ["a", "b"]);
}

pub(super) async fn an_expired_token_is_gone_and_its_name_is_free(world: &World) {
    let brief = NewToken { expires_at: Some(at(1_000)), ..new_token("aaaaaaa1", "a") };
    create(world, brief.clone()).await.expect("it is created");
    world.advance(999).await;
    assert_eq!(names_of(world).await, ["a"]);
    world.advance(1).await;
    assert_eq!(names_of(world).await, [""; 0]);
    refused(world.store.revoke_token(brief.id, by()).await, ErrorKind::NotFound);
    create(world, new_token("bbbbbbb2", "a")).await.expect("the name is free");
    create(world, new_token("aaaaaaa1", "again")).await.expect("so is the id");
    assert_eq!(names_of(world).await, ["a", "again"]);
}

pub(super) async fn an_unknown_or_revoked_token_is_not_found(world: &World) {
    let token = new_token("aaaaaaa1", "a");
    let error = refused(world.store.revoke_token(token.id, by()).await, ErrorKind::NotFound);
    assert!(error.message().contains("aaaaaaa1"), "{error}");
    create(world, token.clone()).await.expect("it is created");
    world.store.revoke_token(token.id, by()).await.expect("it is there");
    refused(world.store.revoke_token(token.id, by()).await, ErrorKind::NotFound);
}

pub(super) async fn a_bad_token_is_invalid(world: &World) {
    let token = new_token("aaaaaaa1", "a");
    let many: BTreeSet<_> = (0..=caps::TOKEN_QUEUES).map(|n| name(&format!("q{n}"))).collect();
    let most: BTreeSet<_> = many.iter().skip(1).cloned().collect();
    let bad = [
        (NewToken { scopes: BTreeSet::new(), ..token.clone() }, "scopes"),
        (NewToken { queues: Some(BTreeSet::new()), ..token.clone() }, "queues"),
        (NewToken { queues: Some(many), ..token.clone() }, "queues"),
        (NewToken { expires_at: Some(Time::from_millis(-1)), ..token.clone() }, "expires_at"),
        (NewToken { expires_at: Some(Time::from_millis(caps::TIME_MS + 1)), ..token.clone() }, "expires_at"),
    ];
    for (bad, field) in bad {
        let error = refused(create(world, bad).await, ErrorKind::Invalid);
        assert!(error.message().starts_with(field), "{field}: {error}");
    }
    assert_eq!(names_of(world).await, [""; 0]);
    create(world, NewToken { queues: Some(most), ..token }).await.expect("so many queues are fine");
}

pub(super) async fn a_token_that_has_expired_already_is_invalid(world: &World) {
    world.advance(1_000).await;
    for ms in [0, 999, 1_000] {
        let late = NewToken { expires_at: Some(at(ms)), ..new_token("aaaaaaa1", "a") };
        let error = refused(create(world, late).await, ErrorKind::Invalid);
        assert!(error.message().starts_with("expires_at"), "{error}");
    }
    let brief = NewToken { expires_at: Some(at(1_001)), ..new_token("aaaaaaa1", "a") };
    create(world, brief).await.expect("it is live for a moment");
}

pub(super) async fn there_are_at_most_a_thousand_live_tokens(world: &World) {
    let numbered = |n: usize| new_token(&format!("{n:08}"), &format!("token-{n}"));
    for n in 1..caps::TOKENS {
        create(world, numbered(n)).await.expect("there is room");
    }
    let brief = NewToken { expires_at: Some(at(1_000)), ..numbered(0) };
    create(world, brief).await.expect("it is the last one");
    refused(create(world, numbered(caps::TOKENS)).await, ErrorKind::Invalid);
    create(world, numbered(7)).await.expect("it is one of them");
    world.advance(1_000).await;
    create(world, numbered(caps::TOKENS)).await.expect("an expired one does not count");
    refused(create(world, numbered(caps::TOKENS + 1)).await, ErrorKind::Invalid);
    assert_eq!(listed(world).await.len(), caps::TOKENS);
}

pub(super) async fn tokens_are_listed_by_name(world: &World) {
    for (id, called) in [("ccccccc3", "b"), ("aaaaaaa1", "c.x"), ("bbbbbbb2", "B"), ("ddddddd4", "c-x")] {
        create(world, new_token(id, called)).await.expect("it is created");
    }
    assert_eq!(names_of(world).await, ["B", "b", "c-x", "c.x"]);
}
