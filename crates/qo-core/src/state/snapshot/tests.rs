use super::*;
use crate::{Command, LeaseId, Watch, decide, decide_watching};
use uuid::Uuid;

const HOUR_MS: u64 = 3_600_000;
const NOON: Time = Time::from_millis(1_800_000_000_000);

/// A process that has watched every lease for so many milliseconds.
struct Watched(u64);

impl Watch for Watched {
    fn left_ms(&self, granted: Time, until: Time) -> u64 {
        until.ms_since(granted).saturating_sub(self.0)
    }
}

fn do_at(state: &mut State, at: Time, command: Command) {
    decide(state, at, &command).expect("decided");
}

/// A worker that has lived for two days, and a program that has held a slot for as long.
fn long_lived() -> State {
    let mut state = State::new();
    let name = |text: &str| Name::parse("name", text).expect("a name");
    let session = SessionId(Uuid::from_u128(1));
    let new = NewSession {
        id: session,
        worker: name("w"),
        queues: Vec::new(),
        tasks: vec![name("t")],
        lease_ms: HOUR_MS,
        permits: 1,
        owner: None,
    };
    do_at(&mut state, NOON, Command::OpenSession(new));
    let (id, group) = (LeaseId(Uuid::from_u128(2)), GroupRef::Group(name("g")));
    do_at(&mut state, NOON, Command::AcquireSlots(SlotRequest::new(id, group, name("p"), HOUR_MS)));
    for half in 1..=96 {
        let at = NOON.plus_ms(half * HOUR_MS / 2);
        do_at(&mut state, at, Command::Exchange(crate::Exchange::renew(session, half)));
        do_at(&mut state, at, Command::ExtendSlots { lease: id, token: FenceToken(1), lease_ms: HOUR_MS });
    }
    state
}

fn as_an_older_release(row: SnapshotRow) -> SnapshotRow {
    match row {
        SnapshotRow::Session(session) => {
            SnapshotRow::Session(Box::new(SessionSnapshot { renewed_at: None, ..*session }))
        }
        SnapshotRow::Program { request, token, since, lease_until, .. } => {
            SnapshotRow::Program { request, token, since, renewed_at: None, lease_until }
        }
        row => row,
    }
}

#[test]
fn leases_of_an_older_releases_snapshot_end_once_they_were_watched() {
    let state = long_lived();
    let mut restored = State::restore(state.snapshot().map(as_an_older_release)).expect("restored");
    let later = restored.now().plus_ms(10 * HOUR_MS);
    decide_watching(&mut restored, later, &Command::Sweep, &Watched(HOUR_MS - 1)).expect("swept");
    assert_eq!((restored.workers().len(), restored.program_by_id.len()), (1, 1), "not watched for a lease");
    decide_watching(&mut restored, later, &Command::Sweep, &Watched(HOUR_MS)).expect("swept");
    assert_eq!((restored.workers().len(), restored.program_by_id.len()), (0, 1), "the session is over");
    let day = Watched(caps::LEASE_MAX_MS);
    decide_watching(&mut restored, later, &Command::Sweep, &day).expect("swept");
    assert_eq!(restored.program_by_id.len(), 0, "no lease is longer than a day");
}

#[test]
fn a_snapshot_of_this_release_says_when_leases_were_renewed() {
    let state = long_lived();
    let restored = State::restore(state.snapshot()).expect("restored");
    let renewed = |state: &State| {
        let sessions = state.sessions.iter().map(|(_, session)| session.row.renewed_at);
        sessions.chain(state.programs.iter().map(|(_, program)| program.renewed_at)).collect::<Vec<_>>()
    };
    assert_eq!(renewed(&restored), renewed(&state));
}
