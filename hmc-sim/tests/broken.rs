//! Broken transports must fail the suite. Each flaw here wraps the reference transport, and the case that is meant for it must
//! find it.

#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]

use hmc_core::range::{Extent, Side};
use hmc_core::region::WindowDesc;
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};
use hmc_sim::conformance::subjects::RefSubject;
use hmc_sim::conformance::transport::{Report, run};
use hmc_sim::reference::{RefPair, RefTransport};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The control: the wrapper itself is correct.
    None,
    /// Moves one byte less than it reports.
    OneByteShort,
    /// Moves one byte more than it was asked to.
    OneByteLong,
    /// Reports gets before their bytes moved.
    EarlyGet,
    /// Reports puts before their bytes moved.
    EarlyPut,
    /// Loses every seventh completion.
    Lost,
    /// Reports every seventh completion twice.
    Twice,
    /// Polls more than its buffer holds and drops the rest.
    DropsWhatDoesNotFit,
    /// Returns `Busy` for every fifth request, and executes it.
    BusyButAccepted,
    /// A refused access never returns its credit.
    LeaksCredit,
    /// Delivers the tag before the bytes.
    TagFirst,
    /// Delivers each tag twice.
    TagTwice,
    /// Delivers the tag of a refused put.
    TagOfRefused,
    /// Does not check the window's limit.
    IgnoresLimit,
    /// Does not check the window's rights.
    IgnoresAccess,
    /// Does not check the window's epoch.
    IgnoresEpoch,
    /// Does not check the window's name.
    IgnoresName,
    /// Continues after a revocation.
    IgnoresRevocation,
    /// Accepts any local key as the only one.
    IgnoresLocalKey,
    /// Reports refused accesses as done.
    ReportsRefusedAsDone,
    /// Returns `Withdrawn` and moves the bytes later.
    MovesAfterWithdrawn,
    /// Returns `Withdrawn` and completes the request.
    CompletesAfterWithdrawn,
    /// Returns `Running` and drops the request.
    RunningButGone,
    /// Moves the bytes of each put once more after its completion.
    MovesAgain,
    /// Drops the requests in flight when the peer dies.
    ForgetsAtDeath,
    /// Accepts requests to a dead peer.
    PostsToTheDead,
    /// Writes the bytes of a get of a dead peer after the get's completion.
    MovesAfterDeath,
    /// Reads the source of a put after its local completion.
    EarlyLocal,
    /// Withdraws all queued requests, of any operation.
    CancelsAll,
    /// Executes operations that it reports as unsupported.
    HidesCapability,
    /// Moves a span that leaves the region to its start.
    BendsLocalSpan,
    /// Completes an operation once, however many requests it has.
    OncePerOperation,
    /// Ignores requests without bytes, including their tags.
    SkipsEmpty,
}

/// Requests of the wrapper's own making carry this bit; the wrapper consumes their completions.
const HIDDEN: u32 = 1 << 31;

struct Broken {
    reference: RefTransport,
    flaw: Flaw,
    pair: RefPair,
    /// The whole of the target's region, with all rights: it bypasses the checks.
    whole: WindowDesc,
    /// Requests to be posted at the poll after the next.
    late: Vec<(u8, WorkRequest)>,
    /// Gets whose memory is written although the peer is dead.
    doomed: Vec<(u8, WorkRequest)>,
    /// Accepted and not completed.
    open: Vec<WorkRequest>,
    ready: Vec<Completion>,
    counted: u64,
    leaked: usize,
}

impl AsMut<RefTransport> for Broken {
    fn as_mut(&mut self) -> &mut RefTransport {
        &mut self.reference
    }
}

impl Broken {
    fn new(mut reference: RefTransport, pair: RefPair, flaw: Flaw) -> Self {
        let all = pair.target.slice(0, pair.target.extent.len()).expect("a region");
        let whole = reference.expose(all, Access::all()).expect("a place");
        Self {
            reference,
            flaw,
            pair,
            whole,
            late: Vec::new(),
            doomed: Vec::new(),
            open: Vec::new(),
            ready: Vec::new(),
            counted: 0,
            leaked: 0,
        }
    }

    fn every(&mut self, n: u64) -> bool {
        self.counted += 1;
        self.counted.is_multiple_of(n)
    }

    /// Returns a request for the same bytes that bypasses the checks, if the target has them.
    fn around(&self, work: &WorkRequest) -> Option<WorkRequest> {
        let offset = work.remote.span.offset().checked_add(RefPair::MARGIN)?;
        let remote = self.whole.slice(offset, work.remote.span.len()).ok()?;
        Some(WorkRequest { remote, ..*work })
    }

    fn resized(&self, work: &WorkRequest, len: u64) -> Option<WorkRequest> {
        let around = self.around(work)?;
        let offset = around.remote.span.offset();
        let remote = self.whole.slice(offset, len).ok()?;
        let local = self.pair.local.slice(work.local.span.offset(), len).ok()?;
        Some(WorkRequest { local, remote, ..*work })
    }

    fn hide(work: &WorkRequest) -> WorkRequest {
        let op = SlotId { generation: work.op.generation | HIDDEN, ..work.op };
        WorkRequest { op, ..*work }
    }

    /// Returns the request that a transport with this flaw posts instead.
    fn twist(&self, work: &WorkRequest) -> WorkRequest {
        let window = self.pair.window;
        let put = work.opcode != Opcode::Get;
        let named = work.remote.window == window.window && work.remote.epoch == window.epoch;
        let inside = window.extent.contains(work.remote.span);
        let needed = if put { Access::WRITE } else { Access::READ };
        let allowed = window.access.contains(needed);
        let len = work.local.span.len();
        let other = match self.flaw {
            Flaw::OneByteShort if named && allowed && inside && len != 0 => {
                self.resized(work, len - 1)
            }
            Flaw::OneByteLong if named && allowed && inside && len != 0 => {
                self.resized(work, len + 1)
            }
            Flaw::IgnoresLimit if named && allowed => self.around(work),
            Flaw::IgnoresAccess if named && inside => self.around(work),
            Flaw::IgnoresRevocation if named && inside && allowed => self.around(work),
            Flaw::IgnoresEpoch if work.remote.window == window.window => {
                let mut work = *work;
                work.remote.epoch = window.epoch;
                Some(work)
            }
            Flaw::IgnoresName => {
                let mut work = *work;
                work.remote.window = window.window;
                Some(work)
            }
            Flaw::BendsLocalSpan if !self.pair.local.extent.contains(work.local.span) => {
                let local = self.pair.local.slice(0, len).ok();
                local.map(|local| WorkRequest { local, ..*work })
            }
            Flaw::SkipsEmpty if len == 0 => Some(WorkRequest { opcode: Opcode::Put, ..*work }),
            Flaw::IgnoresLocalKey => {
                let mut work = *work;
                work.local.key = self.pair.local.key;
                Some(work)
            }
            _ => None,
        };
        other.unwrap_or(*work)
    }

    fn post_late(&mut self) {
        for (wait, _) in &mut self.late {
            *wait = wait.saturating_sub(1);
        }
        for (wait, work) in &mut self.doomed {
            *wait = wait.saturating_sub(1);
            if *wait == 0
                && let Some(bytes) = self.reference.local_mut().get_mut(work.local)
            {
                bytes.fill(0xEE);
            }
        }
        self.doomed.retain(|(wait, _)| *wait != 0);
        while let Some(at) = self.late.iter().position(|(wait, _)| *wait == 0) {
            let (_, work) = self.late.swap_remove(at);
            // A request that is refused even now is dropped: it is hidden.
            let _ = self.reference.post(&Self::hide(&work));
        }
    }

    fn take(&mut self, completion: Completion) {
        let Completion { op, mut result } = completion;
        if op.generation & HIDDEN != 0 {
            return;
        }
        let Some(at) = self.open.iter().position(|w| w.op == op) else {
            return;
        };
        let work = self.open.swap_remove(at);
        let len = work.local.span.len();
        match (self.flaw, &result) {
            (Flaw::OneByteShort | Flaw::OneByteLong, Ok(_)) => result = Ok(len),
            (Flaw::ReportsRefusedAsDone, Err(Failure::Window(_))) => result = Ok(len),
            (Flaw::LeaksCredit, Err(_)) => self.leaked += 1,
            (Flaw::TagOfRefused, Err(Failure::Window(_))) => {
                let tag = WorkRequest { opcode: work.opcode, ..work };
                self.late.extend(self.resized(&tag, 0).map(|w| (1, w)));
            }
            (Flaw::MovesAgain, Ok(_)) => self.late.push((3, work)),
            (Flaw::ForgetsAtDeath, Err(Failure::PeerDead)) => return,
            (Flaw::MovesAfterDeath, Err(Failure::PeerDead)) if work.opcode == Opcode::Get => {
                self.doomed.push((3, work));
            }
            (Flaw::OncePerOperation, _) if self.open.iter().any(|w| w.op == op) => return,
            _ => {}
        }
        if self.flaw == Flaw::Lost && self.every(7) {
            return;
        }
        self.ready.push(Completion { op, result });
        if self.flaw == Flaw::Twice && self.every(7) {
            self.ready.push(Completion { op, result });
        }
    }
}

impl Transport for Broken {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        match self.flaw {
            Flaw::HidesCapability => self.reference.caps().difference(Caps::GET),
            _ => self.reference.caps(),
        }
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if self.open.len() + self.leaked >= 24 {
            return Err(PostErrorKind::Busy);
        }
        let twisted = self.twist(work);
        let get = work.opcode == Opcode::Get;
        let early = match self.flaw {
            Flaw::EarlyGet => get,
            Flaw::EarlyPut => work.opcode == Opcode::Put,
            Flaw::EarlyLocal => work.when == CompleteWhen::Local,
            _ => false,
        };
        let empty = self.resized(work, 0);
        match (self.flaw, work.opcode) {
            _ if early => {
                // Checked at once, moved later.
                self.late.push((2, twisted));
                self.ready.push(Completion { op: work.op, result: Ok(work.local.span.len()) });
                return Ok(());
            }
            (Flaw::TagFirst, Opcode::PutNotify { .. }) => {
                let tag = empty.unwrap_or(*work);
                self.reference.post(&Self::hide(&tag))?;
                self.reference.post(&WorkRequest { opcode: Opcode::Put, ..*work })?;
            }
            (Flaw::TagTwice, Opcode::PutNotify { .. }) => {
                self.reference.post(work)?;
                self.late.extend(empty.map(|w| (2, w)));
            }
            (Flaw::PostsToTheDead, _) => match self.reference.post(work) {
                Err(PostErrorKind::Disconnected) => {
                    self.ready.push(Completion { op: work.op, result: Err(Failure::PeerDead) });
                    return Ok(());
                }
                other => other?,
            },
            _ => self.reference.post(&twisted)?,
        }
        if self.flaw == Flaw::BusyButAccepted && self.every(5) {
            return Err(PostErrorKind::Busy);
        }
        self.open.push(*work);
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let blank = Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };
        // One at a time unless the flaw needs more, so that the order is visible.
        let mut some = [blank; 8];
        let limit = if self.flaw == Flaw::DropsWhatDoesNotFit { 8 } else { 1 };
        let n = self.reference.poll(&mut some[..limit]);
        for completion in &some[..n] {
            self.take(*completion);
        }
        self.post_late();
        let n = out.len().min(self.ready.len());
        for (to, from) in out.iter_mut().zip(self.ready.drain(..n)) {
            *to = from;
        }
        if self.flaw == Flaw::DropsWhatDoesNotFit {
            self.ready.clear();
        }
        n
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        if self.ready.iter().any(|c| c.op == op) {
            return CancelOutcome::Running;
        }
        let at = self.open.iter().position(|w| w.op == op);
        match (self.flaw, at) {
            (Flaw::CancelsAll, _) => {
                for work in self.open.drain(..) {
                    self.reference.cancel(work.op);
                }
                CancelOutcome::Withdrawn
            }
            (Flaw::CompletesAfterWithdrawn, _) => CancelOutcome::Withdrawn,
            (Flaw::RunningButGone, Some(_)) => {
                self.reference.cancel(op);
                CancelOutcome::Running
            }
            (Flaw::MovesAfterWithdrawn, Some(at)) => {
                self.late.push((3, self.open.swap_remove(at)));
                self.reference.cancel(op)
            }
            (_, Some(at)) => {
                self.open.swap_remove(at);
                self.reference.cancel(op)
            }
            (_, None) => CancelOutcome::Withdrawn,
        }
    }
}

fn report(flaw: Flaw) -> Report {
    run(|| RefSubject::new(move |reference, pair| Broken::new(reference, pair, flaw)))
}

#[test]
fn the_wrapper_itself_is_correct() {
    report(Flaw::None).assert_all_passed();
}

/// The case that is meant for the flaw must find it.
#[track_caller]
fn caught(flaw: Flaw, by: &str) {
    let report = report(flaw);
    let failed: Vec<_> = report.failed().map(|(name, _)| name).collect();
    assert!(failed.contains(&by), "{flaw:?} was to be caught by {by}, and was by {failed:?}");
    println!("{flaw:?}: {failed:?}");
}

macro_rules! caught {
    ($($test:ident: $flaw:ident by $case:literal;)+) => {
        $(#[test] fn $test() { caught(Flaw::$flaw, $case); })+
    };
}

caught! {
    one_byte_short: OneByteShort by "put_moves_exactly_the_bytes";
    one_byte_short_get: OneByteShort by "get_moves_exactly_the_bytes";
    one_byte_long: OneByteLong by "put_moves_exactly_the_bytes";
    early_get: EarlyGet by "get_moves_exactly_the_bytes";
    early_put: EarlyPut by "put_moves_exactly_the_bytes";
    lost: Lost by "many_in_flight";
    twice: Twice by "one_completion_each";
    drops_what_does_not_fit: DropsWhatDoesNotFit by "poll_into_nothing";
    drops_all_but_one: DropsWhatDoesNotFit by "poll_one_at_a_time";
    busy_but_accepted: BusyButAccepted by "busy_has_no_effect";
    leaks_credit: LeaksCredit by "no_credit_is_lost";
    tag_first: TagFirst by "notify_follows_its_bytes";
    tag_twice: TagTwice by "every_tag_once";
    tag_of_refused: TagOfRefused by "refused_notify_is_silent";
    ignores_limit: IgnoresLimit by "out_of_window";
    ignores_access: IgnoresAccess by "wrong_access";
    ignores_epoch: IgnoresEpoch by "stale_epoch";
    ignores_name: IgnoresName by "unknown_window";
    ignores_revocation: IgnoresRevocation by "revoked_window_refuses";
    revocation_without_fence: IgnoresRevocation by "revoke_is_a_fence";
    ignores_local_key: IgnoresLocalKey by "unknown_local_region";
    reports_refused_as_done: ReportsRefusedAsDone by "out_of_window";
    moves_after_withdrawn: MovesAfterWithdrawn by "cancel_puts";
    moves_after_withdrawn_get: MovesAfterWithdrawn by "cancel_gets";
    completes_after_withdrawn: CompletesAfterWithdrawn by "cancel_puts";
    running_but_gone: RunningButGone by "cancel_puts";
    moves_again: MovesAgain by "quiet_after_completion";
    forgets_at_death: ForgetsAtDeath by "death_completes_everything";
    posts_to_the_dead: PostsToTheDead by "death_completes_everything";
    moves_after_death: MovesAfterDeath by "no_touch_after_death";
    early_local: EarlyLocal by "local_completion";
    cancels_all: CancelsAll by "cancel_of_what_is_over";
    hides_capability: HidesCapability by "capabilities_are_honest";
    bends_local_span: BendsLocalSpan by "foreign_local_span";
    once_per_operation: OncePerOperation by "requests_share_an_operation";
    skips_empty: SkipsEmpty by "zero_length";
}

/// The bypass of the checks stays within the target's own region, including margins.
#[test]
fn the_way_around_is_real() {
    let mut reference = RefTransport::default();
    let pair = reference.pair(64, 64, Access::READ).expect("memory");
    let broken = Broken::new(reference, pair, Flaw::IgnoresLimit);
    let beyond = Extent::new(200).span(Side::Remote, 60, 10).expect("in 200");
    let mut work = WorkRequest {
        op: SlotId { index: 0, generation: 1 },
        opcode: Opcode::Put,
        when: CompleteWhen::Visible,
        local: pair.local.slice(0, 10).expect("in the region"),
        remote: pair.window.slice(0, 10).expect("in the window"),
    };
    work.remote.span = beyond;
    let around = broken.around(&work).expect("within the region");
    assert_eq!(around.remote.span.offset(), 60 + RefPair::MARGIN);
}
