//! People with a browser.

use super::client::{Answer, ask};
use super::{Rights, Stage, create};
use crate::stage::{PATIENCE, Served, block_on};
use qo_core::Scope::{Admin, Read};
use qo_core::{Bearer, MemoryStore, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

async fn stage() -> (Stage, Bearer) {
    let store = Arc::new(MemoryStore::new());
    let bearer = create(&*store, "ops", Rights { scopes: &[Read], ..Rights::default() }).await;
    create(&*store, "other", Rights { scopes: &[Admin], ..Rights::default() }).await;
    let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
    (Stage { store, served }, bearer)
}

async fn sign_in(stage: &Stage, token: &str, next: &str) -> Answer {
    let body = format!("token={token}&next={next}");
    ask(stage.served.address, "POST", "/login", &[FORM], &body).await
}

/// The cookie that an answer sets, as a browser sends it back.
fn cookie(answer: &Answer) -> String {
    let set = answer.header("set-cookie").expect("a cookie");
    set.split(';').next().expect("a pair").to_owned()
}

/// Whether the sign-in page knows the visitor, and what its form carries.
async fn form_token(stage: &Stage, cookie: &str) -> Option<String> {
    let page = ask(stage.served.address, "GET", "/login", &[("Cookie", cookie)], "").await;
    assert_eq!(page.status, 200, "{page:?}");
    let (_, rest) = page.body.split_once("name=\"form_token\" value=\"")?;
    rest.split('"').next().map(str::to_owned)
}

#[test]
fn a_person_signs_in_with_a_token_and_out_again() {
    block_on(async {
        let (stage, bearer) = stage().await;
        let wrong = sign_in(&stage, "qo_nonsense", "/jobs").await;
        assert!(wrong.status == 401 && wrong.header("set-cookie").is_none(), "{wrong:?}");
        assert!(!wrong.body.contains("nonsense"), "what was typed is not shown: {wrong:?}");
        let signed_in = sign_in(&stage, &bearer.secret_text(), "%2Fjobs%3Fa%3D1").await;
        assert_eq!((signed_in.status, signed_in.header("location")), (303, Some("/jobs?a=1")));
        let set = signed_in.header("set-cookie").expect("a cookie");
        assert!(set.contains("; HttpOnly") && set.contains("; SameSite=Strict"), "{set}");
        assert!(!set.contains(&bearer.secret_text()), "the cookie is not the token: {set}");
        let cookie = cookie(&signed_in);
        let form = form_token(&stage, &cookie).await.expect("known");
        for (cookie, form, due) in [
            (cookie.as_str(), "form_token=wrong", 403),
            (cookie.as_str(), "", 422),
            ("qo=0000", &format!("form_token={form}"), 403),
            (cookie.as_str(), &format!("form_token={form}"), 303),
        ] {
            let answer =
                ask(stage.served.address, "POST", "/logout", &[FORM, ("Cookie", cookie)], form).await;
            assert_eq!(answer.status, due, "{form}: {answer:?}");
        }
        assert_eq!(form_token(&stage, &cookie).await, None, "the cookie means nothing any more");
    });
}

#[test]
fn each_sign_in_has_forms_of_its_own() {
    block_on(async {
        let (stage, bearer) = stage().await;
        let first = cookie(&sign_in(&stage, &bearer.secret_text(), "/").await);
        let second = cookie(&sign_in(&stage, &bearer.secret_text(), "/").await);
        let forms = [form_token(&stage, &first).await, form_token(&stage, &second).await];
        assert!(forms.iter().all(Option::is_some) && forms[0] != forms[1], "{forms:?}");
    });
}

#[test]
fn signing_in_leads_to_this_server_alone() {
    block_on(async {
        let (stage, bearer) = stage().await;
        for next in ["https%3A%2F%2Fevil", "%2F%2Fevil", "%2F%5Cevil", ""] {
            let answer = sign_in(&stage, &bearer.secret_text(), next).await;
            assert_eq!(answer.header("location"), Some("/"), "{next}");
        }
    });
}

#[test]
fn a_page_without_a_token_leads_to_the_sign_in() {
    block_on(async {
        let (stage, _) = stage().await;
        let person = [("Accept", "text/html")];
        let answer = ask(stage.served.address, "GET", "/login?next=/x", &person, "").await;
        assert!(answer.status == 200 && answer.body.contains("value=\"/x\""), "{answer:?}");
        let missing = ask(stage.served.address, "GET", "/nothing-here", &person, "").await;
        assert_eq!(missing.status, 404);
    });
}

#[test]
fn a_sign_in_ends_with_its_token_within_five_seconds() {
    block_on(async {
        let (stage, bearer) = stage().await;
        let cookie = cookie(&sign_in(&stage, &bearer.secret_text(), "/").await);
        assert!(form_token(&stage, &cookie).await.is_some());
        stage.store.revoke_token(bearer.id(), "test".into()).await.expect("revoked");
        let began = Instant::now();
        while form_token(&stage, &cookie).await.is_some() {
            assert!(began.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

#[test]
fn guessing_tokens_is_slowed_down() {
    block_on(async {
        let (stage, bearer) = stage().await;
        let mut told = None;
        for _ in 0..200 {
            let answer = sign_in(&stage, "qo_nonsense", "/").await;
            if answer.status == 429 {
                told = answer.header("retry-after").map(str::to_owned);
                break;
            }
        }
        assert!(told.is_some_and(|seconds| seconds.parse::<u64>().is_ok_and(|seconds| seconds > 0)));
        let header = format!("Bearer {}", super::bearer().secret_text());
        let shown = [("Authorization", header.as_str())];
        assert_eq!(ask(stage.served.address, "GET", "/login", &shown, "").await.status, 429);
        let good = sign_in(&stage, &bearer.secret_text(), "/").await;
        assert_eq!(good.status, 303, "a good token is let in all the same: {good:?}");
    });
}
