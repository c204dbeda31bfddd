//! The faults of a request: by dice, or because a test asked for one.

use super::request::{Kind, Requests};
use crate::random::Random;
use std::collections::VecDeque;
use std::time::Duration;

/// A fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 500 `InternalError`; nothing was done.
    Error,
    /// 503 `SlowDown`; nothing was done.
    SlowDown,
    /// 409 `ConditionalRequestConflict`; nothing was done. Only conditional writes get it.
    Conflict,
    /// The connection is reset, and nothing was done.
    ResetBefore,
    /// It was done, and the connection is reset before the answer.
    ResetAfter,
    /// Half of the answer's body, then the connection is closed.
    Truncated,
    /// It takes this much longer before it takes effect.
    Delay(Duration),
}

/// How often it happens, in percent of the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// [`Fault::Error`]
    pub error: u32,
    /// [`Fault::SlowDown`]
    pub slow_down: u32,
    /// [`Fault::Conflict`]
    pub conflict: u32,
    /// [`Fault::ResetBefore`]
    pub reset_before: u32,
    /// [`Fault::ResetAfter`]
    pub reset_after: u32,
    /// [`Fault::Truncated`]
    pub truncated: u32,
}

impl FaultRates {
    fn each(&self) -> [(Fault, u32); 6] {
        [
            (Fault::Error, self.error),
            (Fault::SlowDown, self.slow_down),
            (Fault::Conflict, self.conflict),
            (Fault::ResetBefore, self.reset_before),
            (Fault::ResetAfter, self.reset_after),
            (Fault::Truncated, self.truncated),
        ]
    }
}

/// The faults that are planned for the next requests, and how many requests have come.
pub(super) struct Plans {
    pub latency: Duration,
    pub rates: [FaultRates; Kind::ALL.len()],
    pub next: VecDeque<(Kind, Fault)>,
    pub requests: Requests,
    dice: Random,
}

impl Plans {
    pub fn new(dice: Random) -> Self {
        Self {
            latency: Duration::ZERO,
            rates: Default::default(),
            next: VecDeque::new(),
            requests: Requests::default(),
            dice,
        }
    }

    /// Counts a request and returns how long it takes and its fault.
    pub fn request(&mut self, kind: Kind, conditional: bool) -> (Duration, Option<Fault>) {
        self.requests.count(kind);
        let befalls = |fault: Fault| fault != Fault::Conflict || (kind == Kind::Put && conditional);
        let said = self.next.iter().position(|(next, fault)| *next == kind && befalls(*fault));
        let fault = match said.and_then(|at| self.next.remove(at)) {
            Some((_, fault)) => Some(fault),
            None => self.thrown(kind).filter(|fault| befalls(*fault)),
        };
        (self.latency, fault)
    }

    /// One roll decides, so that the rates are exact; together they can be 100 at most.
    fn thrown(&mut self, kind: Kind) -> Option<Fault> {
        let rates = self.rates[kind as usize];
        if rates == FaultRates::default() {
            return None;
        }
        let throw = self.dice.within(0..=99);
        let mut below = 0;
        rates.each().into_iter().find_map(|(fault, rate)| {
            below += u64::from(rate);
            (throw < below).then_some(fault)
        })
    }
}
