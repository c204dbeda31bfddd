//! A directory as a medium.

use super::*;
use uuid::Uuid;

#[tokio::test]
async fn a_ring_wakes_every_process_that_listens() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("a/b/store");
    let (rings, hears) = (Directory::open(&path).expect("made"), Directory::open(&path).expect("there"));
    let rung = Arc::new(Notify::new());
    let _watcher = hears.listen(Arc::clone(&rung)).expect("this kernel tells");
    for _ in 0..3 {
        rings.ring();
        rung.notified().await;
    }
}

#[test]
fn a_write_intent_shows_until_it_is_dropped() {
    let above = tempfile::tempdir().expect("a temporary directory");
    let open = || Directory::open(&above.path().join("store")).expect("made");
    let (mine, theirs, me) = (open(), open(), Uuid::from_u128(7));
    assert!(!theirs.has_intent(me));
    for _ in 0..2 {
        let wanting = mine.lock_intent(me).expect("the lock is free");
        assert!(theirs.has_intent(me));
        assert!(!theirs.has_intent(Uuid::from_u128(8)), "another writer");
        drop(wanting);
        assert!(!theirs.has_intent(me));
    }
}

#[test]
fn a_mark_only_grows_and_a_damaged_one_does_not_count() {
    let above = tempfile::tempdir().expect("a temporary directory");
    let path = above.path().join("store");
    let directory = Directory::open(&path).expect("made");
    assert_eq!(directory.marked(), 0);
    for (number, due) in [(7, 7), (12, 12), (9, 12)] {
        directory.mark(number);
        assert_eq!(directory.marked(), due);
    }
    let whole = std::fs::read(path.join("mark")).expect("readable");
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(path.join("mark"), damaged).expect("damaged");
        assert_eq!(directory.marked(), 0, "byte {at}");
    }
}

#[test]
fn a_directory_that_is_gone_or_replaced_is_noticed() {
    let above = tempfile::tempdir().expect("a temporary directory");
    let (path, aside) = (above.path().join("store"), above.path().join("aside"));
    let directory = Directory::open(&path).expect("made");
    directory.still_there().expect("it is there");
    std::fs::rename(&path, &aside).expect("moved");
    let error = directory.still_there().expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    Directory::open(&path).expect("made");
    assert_eq!(directory.still_there().expect_err("it is another one").kind(), ErrorKind::Data);
    std::fs::remove_dir_all(&path).expect("removed");
    std::fs::rename(&aside, &path).expect("moved back");
    directory.still_there().expect("it is there again");
}

#[test]
fn a_place_where_no_directory_can_be_made_is_unavailable() {
    let error = Directory::open(Path::new("/proc/nowhere/store")).expect_err("nothing can be made there");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn a_place_without_rights_is_invalid_and_names_the_rights() {
    // Not even root makes anything there.
    for path in ["/sys/qo", "/sys/kernel/qo/store"] {
        let error = Directory::open(Path::new(path)).expect_err("nothing can be made there");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.message().contains(path) && error.message().contains(NEEDS_RIGHTS), "{error}");
    }
}

#[test]
fn a_refused_record_is_invalid_and_not_unknown() {
    let above = tempfile::tempdir().expect("a temporary directory");
    let path = above.path().join("store");
    let directory = Directory::open(&path).expect("made");
    // A file system where not even root can write.
    std::fs::remove_dir(path.join("log")).expect("removed");
    std::os::unix::fs::symlink("/sys/kernel", path.join("log")).expect("linked");
    let created = directory.create_record("log/00000000000000000001", b"x");
    let Created::Refused(error) = created else { panic!("{created:?}") };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn a_file_in_the_way_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("notes.txt");
    std::fs::write(&file, "mine").expect("written");
    for path in [file.clone(), file.join("below")] {
        let error = Directory::open(&path).expect_err("a file is in the way");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("notes.txt is a file: a store is a directory"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(file).expect("still there"), "mine");
}
