//! Bugs planted on purpose, to prove that the simulated world finds bugs. Compiled only with `--cfg hmc_mutants`.
//!
//! The list was fixed before the world's checks were tuned; each entry names the class of fault that it stands for.
//! One is switched on at run time for all sessions of the process. Never part of a build that anybody uses.

use core::sync::atomic::{AtomicU8, Ordering};

static ACTIVE: AtomicU8 = AtomicU8::new(0);

macro_rules! mutants {
    (
        simulated { $($(#[$doc:meta])* $name:ident = $number:literal, $class:literal;)* }
        attacked { $($(#[$attacked_doc:meta])* $attacked:ident = $attacked_number:literal, $attacked_class:literal;)* }
    ) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mutant {
            $($(#[$doc])* $name = $number,)*
            $($(#[$attacked_doc])* $attacked = $attacked_number,)*
        }

        /// Those that the simulated world has to find, with the class of fault each stands for.
        pub const ALL: &[(Mutant, &str)] = &[$((Mutant::$name, $class),)*];

        /// Those in code that the simulated world replaces or does not reach: `cargo xtask attack` finds them.
        pub const ATTACKED: &[(Mutant, &str)] = &[$((Mutant::$attacked, $attacked_class),)*];

        /// The one of that name.
        #[must_use]
        pub fn named(name: &str) -> Option<Mutant> {
            match name {
                $(stringify!($name) => Some(Mutant::$name),)*
                $(stringify!($attacked) => Some(Mutant::$attacked),)*
                _ => None,
            }
        }
    };
}

mutants! {
    simulated {
    /// A window is exposed one byte longer than was asked.
    SpanOffByOne = 1, "access outside the window";
    /// A window is found by its place alone: neither the random part of its name nor its epoch is compared.
    SkipEpoch = 2, "stale epoch";
    /// A window's rights are not compared.
    SkipAccess = 3, "access without the right";
    /// A window that is being revoked, or was, is still served.
    ServeRevoked = 4, "late access after a revoke";
    /// The rest of a frame in flight is written although its window was revoked meanwhile.
    WriteAfterRevoke = 5, "late write after the fence";
    /// A completion is brought to its place whatever its generation, and a withdrawn operation still gets one.
    SkipGeneration = 6, "stale completion";
    /// Every 64th completion is thrown away.
    DropCompletion = 7, "lost completion";
    /// An operation's deadline is never looked at.
    SkipDeadline = 8, "hang without a deadline";
    /// A failed operation counts as fenced at once.
    FenceAtFailure = 9, "memory freed before its fence";
    /// A cancelled operation counts as withdrawn although it has begun.
    CancelIsFence = 10, "cancel taken for a fence";
    /// A put is acknowledged when its header came.
    AckBeforeBytes = 11, "success before it is true";
    /// A notification is delivered before its bytes.
    NotifyBeforeBytes = 12, "tag overtakes its bytes";
    /// Each frame of a long put is taken from the start of its source.
    SameChunkAgain = 13, "wrong content of later chunks";
    /// Each frame of a long put lands at the start of its target.
    ChunkAtStart = 14, "wrong place of later chunks";
    /// Payload that came in several pieces loses one byte between two.
    ShortReadLosesByte = 15, "partial read";
    /// What did not fit into the socket is forgotten.
    ShortWriteForgotten = 16, "partial write";
    /// A get is answered from the start of the window.
    GetFromStart = 17, "wrong source of a get";
    /// One part of a batch is not waited for.
    BatchForgetsPart = 18, "incomplete batch";
    /// Operations stay as they are when their link dies.
    DeathForgetsOps = 19, "operations of a dead peer hang";
    /// A peer's silence is not noticed.
    IgnoreSilence = 20, "half-open connection";
    /// A pending connection with a live peer's rank replaces it.
    EvictOnDuplicate = 21, "duplicate rank evicts";
    /// An earlier life of a peer is accepted after a later one, and in its place.
    AcceptStaleLife = 22, "stale incarnation";
    /// A lost peer is never dialed again.
    NeverRedial = 23, "no recovery after healing";
    /// A message that finds the inbox full is dropped.
    DropWhenFull = 24, "lost message";
    /// A message overtakes the one before it.
    ReorderMessages = 25, "messages out of order";
    /// A control frame whose header came in two pieces is skipped.
    SplitHeaderLost = 26, "frame cut between reads";
    /// A goodbye is answered although operations are under way.
    ByeForgetsOps = 27, "shutdown loses operations";
    /// A handshake that gets no answer is waited for without end.
    HandshakeWithoutDeadline = 28, "silent listener";
    /// An acknowledgement names one request fewer than were executed.
    AckOneTooFew = 29, "miscounted acknowledgement";
    /// A transport tells each completion twice.
    TellTwice = 30, "duplicate completion";
    /// The end of the data connection ends the link: what the control connection has received is not read.
    DataEndDropsMail = 31, "frames unread at a death";
    /// A message counts as sent although the system has not taken all of it.
    SentTooEarly = 32, "message lost with its sender";
    /// A rank whose holder ended is kept for it without end, whatever was proved.
    ClaimLocksRank = 33, "rank locked by a claim";
    /// Answers are queued behind bytes that wait for the peer to read.
    AnswersPileUp = 34, "flood of replies";
    /// Each window that a peer takes back is owed an answer of its own.
    EachRevokeOwed = 35, "flood of revocations";
    /// An unproven connection that finds all places taken is closed.
    NewcomerGoes = 36, "kept out by silent connections";
    /// More than four unproven connections of one address are closed.
    FewOfAnAddress = 37, "many connections of one address";
    /// A dial that was closed before an answer is not tried again.
    DialOnce = 38, "closed for want of places";
    /// A session that ends gives back memory that its peers may still read or write.
    EndForgetsUnfenced = 39, "session ends under copies";
    /// A window is opened with a count of nobody inside, although a refused peer may be about to leave.
    OpenSetsCount = 40, "reopened under a refused peer";
    }
    attacked {
    /// Spans of two regions join if their regions have the same place, each in its session.
    JoinAnyRegion = 46, "one byte under two spans";
    /// The session of an operation's name is not compared.
    ForeignOperations = 47, "operation of another session";
    /// Calls in a forked child go on.
    ForkedCallsPass = 48, "fork";
    /// The addresses of memory are not reserved in a forked child.
    ForkReservesNothing = 49, "other memory under an old view";
    /// A process on loopback that promises no proof needs none.
    BelieveWithoutProof = 50, "rank without a proof";
    /// A target looks at the initiator's life before no piece of a copy.
    CopyWithoutLook = 51, "copy into another program";
    /// The endpoint that a dialer asked for is not compared with its own.
    AnyEndpoint = 52, "data for another job";
    /// A panic of a waker is not caught.
    WakerPanicEscapes = 53, "lost thread";
    /// Wakers run on the session's thread.
    WakersOnThread = 54, "waker blocks the session";
    /// The end of a session waits for its thread, wherever it is called.
    JoinItself = 55, "session waits for itself";
    /// The mark that the kernel leaves at the end of a process is not read.
    IgnoreMark = 56, "success after the end of the peer";
    /// The last frame of a get's answer may come early.
    AnswerEndsEarly = 57, "success before it is true";
    /// A malformed data frame is passed over.
    PassMalformed = 58, "malformed frame";
    /// A token opens its link as often as it is shown.
    TokenStays = 59, "second data connection";
    /// The dialect of the C++ HMC is accepted by every listener.
    UpstreamAlways = 60, "dialect that was not asked for";
    /// Addresses beyond loopback need no wish.
    ExposeUnasked = 61, "exposure to other machines";
    /// A folder of control sockets may be open to other users.
    AnyFolder = 62, "open folder of sockets";
    /// The secret may be readable by other users.
    AnySecret = 63, "readable secret";
    /// Processes of other users may connect to a local socket.
    AnyUser = 64, "process of another user";
    /// Storage for a frame is taken at once, whatever has come of it.
    GrowAtOnce = 65, "memory for announced bytes";
    /// A connection that says nothing is kept.
    KeepSilent = 66, "silent connection";
    /// A transport that is not there gives way to another.
    FallBack = 67, "silent fallback";
    /// A dialer believes an acceptor whatever that shows as its proof.
    BelieveAcceptor = 68, "false acceptor";
    /// More than four unproven connections of one address are closed, and a dialer that was closed does not dial again.
    TurnManyAway = 69, "many connections at once";
    }
}

/// Switches one on, or all off.
pub fn activate(mutant: Option<Mutant>) {
    // Relaxed: set before the sessions start.
    ACTIVE.store(mutant.map_or(0, |m| m as u8), Ordering::Relaxed);
}

/// Whether it is on.
#[inline]
#[must_use]
pub fn is(mutant: Mutant) -> bool {
    ACTIVE.load(Ordering::Relaxed) == mutant as u8
}
