//! The claim: which job is next, and may it run?

use super::Flaw;
use super::state::{Counted, Holding, Job, Place, Session, Toy};
use qo_core::{Claim, ClaimedJob, FenceToken, GroupRef, JobState, Prefetch, PrefetchedJob, SessionId, caps};
use std::collections::{BTreeMap, BTreeSet};

impl Toy {
    /// Walks the line and starts what may run, until there is enough; then walks it again and claims ahead of time, if
    /// the exchange asks for that.
    pub fn claim(&mut self, session: SessionId, claim: &Claim) -> (Vec<ClaimedJob>, Vec<PrefetchedJob>) {
        let mut given = Vec::new();
        self.take(session, claim, None, &mut given);
        let started = given.len();
        let Some(prefetch) = &claim.prefetch else { return (given, Vec::new()) };
        self.take(session, claim, Some(prefetch), &mut given);
        let claim_until = self.now.plus_ms(prefetch.lease_ms);
        let ahead = given.split_off(started).into_iter().map(|job| PrefetchedJob { job, claim_until });
        (given, ahead.collect())
    }

    /// One walk. What the walk before it gave counts too.
    fn take(
        &mut self,
        session: SessionId,
        claim: &Claim,
        ahead: Option<&Prefetch>,
        given: &mut Vec<ClaimedJob>,
    ) {
        let counted = match ahead {
            None if self.flaw != Flaw::ClaimHoldsSlots => Counted::Running,
            _ => Counted::Claimed,
        };
        let mut kept: Vec<(GroupRef, u32)> = Vec::new();
        let used_before = self.used_by_group();
        for at in self.walk() {
            let bytes: usize = given.iter().map(|job| job.payload.as_str().len()).sum();
            let enough = match ahead {
                None => given.len() >= claim.max as usize,
                Some(prefetch) => self.claimed_by(session).len() >= prefetch.buffer as usize,
            };
            if enough || bytes >= caps::CLAIM_BYTES {
                break;
            }
            let me = self.session(session).expect("it was just renewed");
            let job = &self.jobs[at];
            if !me.serves_queue(job) || self.is_paused_for(job, me) {
                continue;
            }
            if !me.serves(job) {
                match self.flaw {
                    Flaw::MissingHandlerBlocks => break,
                    Flaw::UnknownTaskDiscarded => self.finish(at, JobState::Failed),
                    _ => {}
                }
                continue;
            }
            if self.flaw == Flaw::FutureDateBlocks && !job.is_due(self.now) {
                break;
            }
            let from_queue = given.iter().filter(|c| c.queue == job.new.queue).count();
            if self.is_paused_for(job, me)
                || claim.max_claim_batch.is_some_and(|most| from_queue >= most as usize)
            {
                continue;
            }
            if self.flaw == Flaw::RaiseWakesNoJob && job.met_full.is_some() {
                continue;
            }
            let is_big = |(group, slots): &(GroupRef, u32)| *slots >= 2 && self.limit(group).is_some();
            if ahead.is_some() && job.needs().iter().any(is_big) {
                continue;
            }
            if let Some(full) = self.first_full_group(job, session, &used_before, counted) {
                match self.flaw {
                    Flaw::RaiseWakesNoJob => self.jobs[at].met_full = Some(full),
                    Flaw::FullGroupBlocks => break,
                    Flaw::SlotsOneByOne => self.leak_slots_before(at, &full),
                    _ => {}
                }
                continue;
            }
            if self.is_held_back(job, &mut kept, counted) {
                continue;
            }
            given.push(match ahead {
                None => self.start(at, session),
                Some(prefetch) => self.claim_ahead(at, session, prefetch.lease_ms),
            });
        }
    }

    /// The jobs in line in claim order, as places in the list of jobs.
    fn walk(&self) -> Vec<usize> {
        let future_too = self.flaw == Flaw::FutureDateBlocks;
        let pending = |job: &Job| self.is_in_line(job) || future_too && job.state == JobState::Pending;
        let mut walk: Vec<usize> = (0..self.jobs.len()).filter(|&at| pending(&self.jobs[at])).collect();
        if future_too {
            walk.sort_by_key(|&at| {
                let (queue, priority, _, acceptance) = self.claim_order(&self.jobs[at]);
                (queue, priority, acceptance)
            });
        } else {
            walk.sort_by_key(|&at| self.claim_order(&self.jobs[at]));
        }
        walk
    }

    fn is_paused_for(&self, job: &Job, session: &Session) -> bool {
        let paused = if self.flaw == Flaw::PauseSeenLate { &session.pauses_seen } else { &self.paused };
        paused.contains(&job.new.queue)
    }

    /// The first of a job's groups that lacks room for it.
    fn first_full_group(
        &self,
        job: &Job,
        session: SessionId,
        used_before: &BTreeMap<GroupRef, u64>,
        counted: Counted,
    ) -> Option<GroupRef> {
        let lacks_room = |(group, slots): &(GroupRef, u32)| {
            let limit = match self.flaw {
                Flaw::LimitForNewJobsOnly => job.limits_at_submit.get(group).copied().flatten(),
                _ => self.limit(group),
            };
            let ignored = match self.flaw {
                Flaw::ZeroIsUnlimited => limit == Some(0),
                Flaw::KeyLimitIgnored => {
                    matches!(group, GroupRef::Key(..))
                        && self.limit(&GroupRef::Group(job.group.clone())).is_some()
                }
                Flaw::ExtraLimitsIgnored => job.new.limits.contains_key(group),
                _ => false,
            };
            let used = || match self.flaw {
                Flaw::BatchCheckedOnce => used_before.get(group).copied().unwrap_or(0),
                Flaw::LimitPerWorker => self.used_if(group, |h| h.session == session),
                Flaw::RestartForgetsHolders => self.used_if(group, |h| h.token.0 > self.token_at_last_open),
                Flaw::CapacityByInsertOrder => {
                    self.sum(group, |other| other.is_live() && other.acceptance < job.acceptance)
                }
                _ => self.used_wrongly(group),
            };
            let used = || used() + self.claimed(group, counted);
            !ignored && limit.is_some_and(|limit| used() + u64::from(*slots) > u64::from(limit))
        };
        job.needs().into_iter().find(lacks_room).map(|(group, _)| group)
    }

    /// Slots in use, as counted by a store that misses some holders.
    fn used_if(&self, group: &GroupRef, counts: impl Fn(&Holding) -> bool) -> u64 {
        let of_jobs = self.sum(group, |job| job.holding.as_ref().is_some_and(&counts));
        of_jobs + self.used_by_programs(group)
    }

    /// Slots in use, as counted by a store that leaks or frees twice.
    fn used_wrongly(&self, group: &GroupRef) -> u64 {
        self.used(group).saturating_add_signed(self.wrong.get(group).copied().unwrap_or(0))
    }

    fn used_by_group(&self) -> BTreeMap<GroupRef, u64> {
        if self.flaw != Flaw::BatchCheckedOnce {
            return BTreeMap::new();
        }
        let groups: BTreeSet<GroupRef> =
            self.jobs.iter().flat_map(Job::needs).map(|(group, _)| group).collect();
        groups.into_iter().map(|group| (group.clone(), self.used(&group))).collect()
    }

    /// The flaw `SlotsOneByOne`: what was taken before the full group stays taken.
    fn leak_slots_before(&mut self, at: usize, full: &GroupRef) {
        for (group, slots) in self.jobs[at].needs().into_iter().take_while(|(group, _)| group != full) {
            *self.wrong.entry(group).or_default() += i64::from(slots);
        }
    }

    /// Whether slots that a job could have are kept for big jobs ahead of it. Slots that were kept once stay kept until
    /// the end of the claim; a job that finds its slots kept already keeps nothing more.
    fn is_held_back(&self, job: &Job, kept: &mut Vec<(GroupRef, u32)>, counted: Counted) -> bool {
        let kept_already = job.needs().iter().any(|(group, slots)| {
            let left = self.free(group, counted).saturating_sub(u64::from(*slots));
            kept.iter().any(|(at, need)| at == group && left < u64::from(*need))
        });
        if kept_already {
            return true;
        }
        let before = kept.len();
        for (group, slots) in job.needs() {
            let first = self.reserved_for(self.claim_order(job), &group, slots, counted);
            kept.extend(first.map(|big| (group.clone(), big.need(&group))));
        }
        kept.len() > before
    }

    /// The first big job ahead of a place in line for which slots of a group are kept, so that the job at that place
    /// may not take its slots there. Called for groups that have room for that job.
    pub fn reserved_for(&self, place: Place, group: &GroupRef, slots: u32, counted: Counted) -> Option<&Job> {
        let limit = self.limit(group).filter(|_| self.flaw != Flaw::BigJobStarved).unwrap_or(0);
        let left = self.free(group, counted).saturating_sub(u64::from(slots));
        let too_few_left_for = |big: &&Job| {
            let need = big.need(group);
            need >= 2
                && need <= limit
                && left < u64::from(need)
                && self.claim_order(big) < place
                && self.is_in_line(big)
                && self.could_run_but_for(big, group, counted)
        };
        self.jobs.iter().filter(too_few_left_for).min_by_key(|big| self.claim_order(big))
    }

    fn free(&self, group: &GroupRef, counted: Counted) -> u64 {
        let used = || self.used(group) + self.claimed(group, counted);
        self.limit(group).map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(used()))
    }

    /// Whether slots of `group` are all that a big job may lack (for a slot of its key, its group's too), and a worker
    /// serves it.
    fn could_run_but_for(&self, big: &Job, group: &GroupRef, counted: Counted) -> bool {
        let of_key = matches!(group, GroupRef::Key(name, _) if *name == big.group);
        let spared =
            |other: &GroupRef| other == group || of_key && *other == GroupRef::Group(big.group.clone());
        let room_elsewhere = self.flaw == Flaw::BlockedBigJobReserves
            || big
                .needs()
                .iter()
                .all(|(other, slots)| spared(other) || self.has_room(other, *slots, counted));
        let busy =
            |session: &Session| self.flaw == Flaw::BusyWorkerServesNothing && session.free_permits == 0;
        let serves = |session: &&Session| !session.draining && session.serves(big) && !busy(session);
        let served = self.sessions.iter().any(|session| serves(&session));
        let served = served || self.flaw == Flaw::UnservedBigJobReserves;
        room_elsewhere && served && !self.paused.contains(&big.new.queue)
    }

    /// Gives a job to a session, with all its slots, under the next token.
    pub fn start(&mut self, at: usize, session: SessionId) -> ClaimedJob {
        let worker = self.session(session).expect("it claims").new.worker.clone();
        let token = match (self.next_token(), self.flaw) {
            (_, Flaw::TokenPerJob) => FenceToken(self.jobs[at].attempts.len() as u64 + 1),
            (token, _) => token,
        };
        let claimed = self.as_claimed(at, token);
        self.count_acquired(&self.jobs[at].needs());
        let job = &mut self.jobs[at];
        job.state = JobState::Running;
        let timeout_ms = claimed.timeout_ms;
        job.holding = Some(Holding {
            session,
            worker,
            token,
            since: self.now,
            timeout_ms,
            progress: job.last_progress.take(),
        });
        claimed
    }

    /// What a worker gets to know of a job.
    pub fn as_claimed(&self, at: usize, token: FenceToken) -> ClaimedJob {
        let job = &self.jobs[at];
        let task = self.tasks.get(&job.new.task);
        ClaimedJob {
            id: job.new.id,
            token,
            attempt: job.attempts_used + 1,
            max_attempts: job.new.max_attempts,
            queue: job.new.queue.clone(),
            task: job.new.task.clone(),
            group: job.group.clone(),
            key: job.new.key.clone(),
            payload: job.new.payload.clone(),
            timeout_ms: job.new.timeout_ms.or(task.and_then(|task| task.timeout_ms)),
            retry: job.new.retry.or(task.and_then(|task| task.retry)).unwrap_or_default(),
            traceparent: job.new.traceparent,
            due_at: Some(job.run_at),
        }
    }
}
