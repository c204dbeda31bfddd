//! Every page, on an empty store and on one with something of everything.

use super::visitor::Visitor;
use super::world::{SESSION, WILD, job, world};
use crate::stage::{PATIENCE, block_on};
use qo_core::{MemoryStore, Store};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// The pages that need no name.
const PAGES: [&str; 9] =
    ["/", "/groups", "/queues", "/workers", "/jobs", "/workflows", "/schedules", "/audit", "/tokens"];

/// What is so on every page, whatever the store holds.
fn check(path: &str, body: &str) {
    let lower = body.to_lowercase();
    assert!(!lower.contains(" style=") && !lower.contains("<style"), "{path}: a style that is inline");
    assert!(!lower.contains("<img src=x"), "{path}: text became HTML");
    assert!(!lower.contains("javascript:"), "{path}: a script in a link");
    let scripts = lower.matches("<script").count();
    assert_eq!(
        (scripts, lower.matches("<script src=\"/assets/page-").count()),
        (1, 1),
        "{path}: a foreign script"
    );
    for tag in lower.split('<').filter(|tag| tag.starts_with(|c: char| c.is_ascii_alphabetic())) {
        let tag = tag.split('>').next().unwrap_or_default();
        assert!(
            !tag.split('"').step_by(2).flat_map(|name| name.split(' ')).any(|name| name.starts_with("on")),
            "{path}: a handler that is inline: {tag}"
        );
    }
    assert!(lower.contains("<html lang=\"en\">") && lower.contains("<main id=\"main\""), "{path}");
    assert!(!lower.contains("://"), "{path}: something from elsewhere");
}

#[test]
fn every_page_of_an_empty_store_says_what_to_do_next() {
    block_on(async {
        let visitor = Visitor::of(Arc::new(MemoryStore::new())).await;
        for path in PAGES {
            let page = visitor.page(path).await;
            check(path, &page.body);
            assert!(path == "/audit" || page.body.contains("class=\"empty\""), "{path}: {}", page.body);
        }
        for command in ["qo submit", "qo worker", "qo token create"] {
            let pages = [visitor.page("/").await.body, visitor.page("/tokens").await.body].concat();
            assert!(pages.contains(command), "{command}");
        }
    });
}

#[test]
fn every_page_shows_wild_texts_as_text() {
    block_on(async {
        let world = world().await;
        let visitor = Visitor::of(world.store.clone()).await;
        let wild_group = "/groups/api%2F%3C%2Fpre%3E%3C%2Ftd%3E%3Cscript%3Ealert(%22qo%22)%3C%2Fscript%3E%3Cimg%20src%3Dx%20onerror%3D'alert(1)'%3E%26amp%3B";
        let mut paths: Vec<String> = PAGES.map(String::from).into();
        paths.extend((1..=8).map(|n| format!("/jobs/{}", job(n).0)));
        paths.extend(
            [
                "cluster",
                "resize",
                "mail",
                "queue%3Aslow",
                "api%2F*",
                "api%2F..%2F..%2F%3Fx%3D%3Cb%3E%23",
                "unknown",
            ]
            .map(|group| format!("/groups/{group}")),
        );
        paths.extend([
            wild_group.to_owned(),
            "/workflows/import".into(),
            format!("/workers/{}", SESSION.0),
            format!("/workers/{}", uuid::Uuid::nil()),
            "/jobs?state=failed&queue=default&task=step&id=019a8a5e".into(),
            "/jobs?from=2020-01-01T00:00&before=2099-01-01T00:00&state=live".into(),
            "/groups?prefix=api%2F".into(),
            "/groups?prefix=%3Cscript%3E".into(),
        ]);
        for path in &paths {
            check(path, &visitor.page(path).await.body);
        }
        let escaped =
            WILD.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        for path in [wild_group, &format!("/jobs/{}", job(7).0)] {
            assert!(visitor.page(path).await.body.contains(&escaped), "{path}");
        }
    });
}

#[test]
fn the_overview_says_what_holds_jobs_back() {
    block_on(async {
        let world = world().await;
        let visitor = Visitor::of(world.store.clone()).await;
        let page = visitor.page("/").await.body;
        for said in [
            "resize</b></a> is full: 1 of 1 taken",
            "mail</b></a> is held by limit 0",
            "slow</b></a> is paused: 1 job in line",
            "1 of 1 slots taken",
            "worker-1",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
    });
}

#[test]
fn a_job_page_explains_and_shows_payload_error_and_log() {
    block_on(async {
        let world = world().await;
        let visitor = Visitor::of(world.store.clone()).await;
        let waiting = visitor.page(&format!("/jobs/{}", world.waiting.0)).await.body;
        assert!(
            waiting.contains("Group resize is full: its slot is taken. It is number 1 in line."),
            "{waiting}"
        );
        let running = visitor.page(&format!("/jobs/{}", world.running.0.0)).await.body;
        assert!(running.contains("value=\"40\"") && running.contains("class=\"log\""), "{running}");
        assert!(running.contains("data-pace=\"1000\""), "it follows the log");
        let failed = visitor.page(&format!("/jobs/{}", world.failed.0)).await.body;
        assert!(
            failed.contains("class=\"error\"") && failed.contains("<title>step failed · qo</title>"),
            "{failed}"
        );
        let raw = visitor.page(&format!("/jobs/{}/payload", world.failed.0)).await;
        assert_eq!(raw.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(raw.header("x-content-type-options"), Some("nosniff"));
        assert!(raw.body.contains("<script>"), "as it is, as text");
        let log = format!("/jobs/{}/logs/{}", world.running.0.0, world.running.1.0);
        assert_eq!(visitor.page(&log).await.body, WILD);
        let foreign = format!("/jobs/{}/logs/{}", world.waiting.0, world.running.1.0);
        assert_eq!(visitor.get(&foreign).await.status, 404, "the log of another job");
    });
}

#[test]
fn a_page_that_is_not_there_says_so() {
    block_on(async {
        let visitor = Visitor::of(Arc::new(MemoryStore::new())).await;
        for (path, status) in [
            (format!("/jobs/{}", job(1).0), 404),
            ("/jobs/nonsense".into(), 400),
            ("/jobs?state=wild".into(), 400),
            ("/jobs?queue=%3Cscript%3E".into(), 400),
            ("/workers/nonsense".into(), 400),
            ("/workflows/nothing".into(), 404),
            ("/groups/a%20b".into(), 400),
            ("/actions/nothing".into(), 404),
            ("/assets/page-0.css".into(), 404),
        ] {
            let answer = visitor.get(&path).await;
            assert_eq!(answer.status, status, "{path}");
            assert!(!answer.body.contains("<script>"), "{path}: {}", answer.body);
        }
    });
}

#[test]
fn pages_are_never_kept_and_their_files_are_kept_for_long() {
    block_on(async {
        let visitor = Visitor::of(Arc::new(MemoryStore::new())).await;
        let page = visitor.page("/").await;
        let policy = page.header("content-security-policy").expect("a policy").to_owned();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("cache-control"), Some("no-store"));
        for (at, kind) in [("/assets/page-", "text/css"), ("/assets/icon-", "image/svg+xml")] {
            let (_, rest) = page.body.split_once(&format!("href=\"{at}")).expect(at);
            let name = rest.split_once('"').expect("it ends").0;
            let asset = visitor.page(&format!("{at}{name}")).await;
            assert!(asset.header("content-type").expect("a kind").starts_with(kind));
            assert!(asset.header("cache-control").expect("how long").contains("immutable"));
        }
    });
}

#[test]
fn jobs_and_groups_are_shown_page_by_page() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let jobs =
            (0..120).map(|n| qo_core::NewJob::new(job(n), super::world::name(&format!("task-{n:03}"))));
        store.submit(jobs.collect()).await.expect("a call");
        let visitor = Visitor::of(store).await;
        for (path, row, pages) in
            [("/jobs", "<tr id=\"job-", [50, 50, 20]), ("/groups", "<tr id=\"group-", [100, 22, 0])]
        {
            let mut next = path.to_owned();
            for rows in pages {
                if rows == 0 {
                    break;
                }
                let body = visitor.page(&next).await.body;
                assert_eq!(body.matches(row).count(), rows, "{next}");
                next = match body.split_once("\" rel=\"next\"") {
                    Some((before, _)) => {
                        before.rsplit_once("href=\"").expect("a link").1.replace("&amp;", "&")
                    }
                    None => String::new(),
                };
            }
            assert_eq!(next, "", "{path}: the last page has no next one");
        }
        let found = visitor.page("/groups?prefix=task-11").await.body;
        assert_eq!(found.matches("<tr id=\"group-task-11").count(), 10);
        assert_eq!(found.matches("<tr id=\"group-").count(), 10, "{found}");
    });
}

#[test]
fn an_open_page_is_told_of_a_change() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let visitor = Visitor::of(store.clone()).await;
        let mut stream = visitor.open("/live").await;
        let mut heard = String::new();
        let mut until = async |said: &str| {
            while !heard.contains(said) {
                let mut bytes = [0; 1024];
                let read =
                    timeout(PATIENCE, stream.read(&mut bytes)).await.expect("it speaks").expect("bytes");
                assert!(read > 0, "it ended: {heard}");
                heard.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        };
        until("event: ready").await;
        store.set_limit("resize".parse().expect("a group"), 2).await.expect("a limit");
        // Browsers pass over an event without data.
        until("event: changed\ndata: now").await;
    });
}
