//! Every text that the core writes: each says what happened, with its numbers, and none is empty.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_core::ctrl::io::{CloseReason, CommandError, Frame, Violation};
use hmc_core::ctrl::state::{Command, ControlState, InvalidCommand, UnexpectedMessage};
use hmc_core::queue::QueueError;
use hmc_core::range::{Extent, RangeError, Side};
use hmc_core::slots::{Full, SlotId, Stale};
use hmc_core::transport::PostErrorKind;
use hmc_core::types::{ConnType, Incarnation, Rank};
use hmc_core::window::{ExposeError, StaleGeneration, WindowFault};
use hmc_core::wire::cursor::{WireError, WireErrorKind};
use hmc_core::wire::message::{ControlKind, ControlMessage};
use hmc_core::wire::reject::RejectReason;
use hmc_core::work::Failure;

/// Each text is the one beside it.
fn check<T: std::fmt::Display>(texts: &[(T, &str)]) {
    for (value, want) in texts {
        assert_eq!(value.to_string(), *want);
    }
}

fn range() -> RangeError {
    Extent::new(10).span(Side::Remote, 8, 4).unwrap_err()
}

const STALE: Stale = Stale { op: SlotId { index: 3, generation: 9 } };
const UNEXPECTED: UnexpectedMessage =
    UnexpectedMessage { state: ControlState::Ready, got: ControlKind::Hello };
const MISUSE: InvalidCommand =
    InvalidCommand { state: ControlState::Closed, command: Command::Bye };

#[test]
fn errors_of_the_wire() {
    let texts = [
        (WireErrorKind::Truncated { missing: 3 }, "3 bytes are missing"),
        (WireErrorKind::Trailing { extra: 2 }, "2 bytes too many"),
        (WireErrorKind::TooLong { len: 9, limit: 8 }, "a length of 9 bytes exceeds the limit of 8"),
        (WireErrorKind::NoSpace { missing: 4 }, "the buffer is 4 bytes too small"),
        (WireErrorKind::UnknownType(9), "unknown frame type 9"),
        (WireErrorKind::UnknownFlags(0x80), "unknown flags 0x0080"),
        (WireErrorKind::UnknownKind(7), "unknown kind 7"),
        (WireErrorKind::Magic(*b"HTTP"), "not an HMC hello (it starts with [48, 54, 54, 50])"),
        (WireErrorKind::Version { theirs: 4 }, "the peer speaks version 4, this end version 2"),
        (WireErrorKind::Mandatory { unknown: 2 }, "the peer requires unknown abilities 0x0002"),
        (WireErrorKind::Value { field: "rank", value: 4096 }, "rank must not be 0x1000"),
    ];
    check(&texts);
    check(&[(WireErrorKind::Range(range()), range().to_string().as_str())]);
}

#[test]
fn refusals() {
    check(&[
        (RejectReason::Version { ours: 1 }, "it speaks version 1, this process version 2"),
        (RejectReason::Mandatory { unknown: 4 }, "it does not know abilities 0x0004"),
        (RejectReason::WrongJob, "it belongs to another job"),
        (RejectReason::WrongRank { ours: Rank(2) }, "it has rank 2"),
        (RejectReason::Duplicate, "a live process holds this rank"),
        (
            RejectReason::Stale { seen: Incarnation(5) },
            "this life is over (life 5 of the rank was seen)",
        ),
        (
            RejectReason::BadRank { limit: 4096 },
            "the rank must be below 4096 and not the acceptor's own",
        ),
        (RejectReason::Busy, "it cannot take another peer now"),
        (RejectReason::BadToken, "no link has this token"),
        (RejectReason::ShuttingDown, "it is leaving"),
        (
            RejectReason::NotAuthorised,
            "this process did not prove that it belongs to the same user",
        ),
        (
            RejectReason::WrongEndpoint,
            "it does not listen at the address that this process asked for",
        ),
        (
            RejectReason::Kept,
            "the rank is kept for the process that held it, which has ended: for 10 s against processes that proved as much, and permanently against those that proved less; use another rank, or come again after that",
        ),
        (RejectReason::Unknown { code: 99, detail: 7 }, "reason 99 (7)"),
    ]);
}

#[test]
fn ends_of_connections() {
    let wire = WireError { at: 4, kind: WireErrorKind::UnknownType(9) };
    let unexpected = "the peer sent Hello in state Ready";
    check(&[
        (Violation::Wire(wire), "byte 4: unknown frame type 9"),
        (Violation::Unexpected(UNEXPECTED), unexpected),
        (
            Violation::WrongJob { theirs: 6, ours: 5 },
            "it belongs to job 0x6, this process to job 0x5",
        ),
        (
            Violation::WrongRank { wanted: Rank(1), found: Rank(2) },
            "rank 1 was wanted and rank 2 is there",
        ),
    ]);
    let upstream = Violation::CxxRefused { rank: Rank(7) }.to_string();
    assert!(upstream.contains('7'), "{upstream}");
    check(&[
        (CloseReason::Orderly, "both ends said goodbye"),
        (
            CloseReason::Refused(RejectReason::WrongJob),
            "the peer refused the connection: it belongs to another job",
        ),
        (
            CloseReason::Rejected(RejectReason::BadToken),
            "the connection was refused: no link has this token",
        ),
        (CloseReason::HelloDeadline, "no complete HELLO came in time"),
        (CloseReason::FrameDeadline, "a frame was begun and not finished in time"),
        (CloseReason::Silent, "the peer was silent for too long"),
        (CloseReason::DrainDeadline, "the peer did not answer the goodbye in time"),
        (CloseReason::Eof, "the peer closed the connection without goodbye"),
        (
            CloseReason::Violation(Violation::Unexpected(UNEXPECTED)),
            "the peer broke the protocol: the peer sent Hello in state Ready",
        ),
        (CloseReason::Aborted, "the connection was ended on this side"),
    ]);
    check(&[
        (CommandError::Misuse(MISUSE), "Bye makes no sense in state Closed"),
        (CommandError::Wire(wire), "byte 4: unknown frame type 9"),
    ]);
    let frame = Frame::of(&ControlMessage::Tag(0x5EC2E7)).unwrap();
    assert_eq!(format!("{frame:?}"), "Frame(16 bytes)", "its bytes may hold a secret");
}

#[test]
fn failures_of_transfers() {
    check(&[
        (
            Failure::Window(WindowFault::Revoked),
            "the peer refused the access: the window was revoked",
        ),
        (Failure::PeerDead, "the peer is gone"),
        (Failure::DeadlineExceeded, "the deadline passed"),
        (Failure::Cancelled, "cancelled"),
        (Failure::UnknownRegion, "the local region is not registered"),
        (Failure::Unsupported, "the transport cannot do this with this memory"),
        (Failure::Transport(-5), "transport error -5"),
    ]);
    check(&[
        (WindowFault::Unknown, "no such window"),
        (WindowFault::StaleEpoch, "the window was exposed anew; fetch its description again"),
        (WindowFault::Revoked, "the window was revoked"),
        (WindowFault::Access, "the window does not allow this access"),
    ]);
    assert_eq!(WindowFault::OutOfWindow(range()).to_string(), range().to_string());
    let stale = StaleGeneration { block: 12, expected: 4, found: 5 };
    assert_eq!(stale.to_string(), "block 12 of the window has generation 5, not 4");
    assert_eq!(WindowFault::StaleGeneration(stale).to_string(), stale.to_string());
    check(&[(
        ExposeError::Full { limit: 8 },
        "all 8 windows towards this peer are in use; revoke one first",
    )]);
    let full = "all 4 operations of this work queue are in use; wait for one first";
    let stale = "operation 3.9 is over: it was waited for, or given up";
    check(&[(Full { limit: 4 }, full)]);
    check(&[(STALE, stale)]);
    check::<QueueError<PostErrorKind>>(&[
        (QueueError::Full { limit: 4 }, full),
        (QueueError::Busy, "the transport is full; make progress first"),
        (
            QueueError::Length { local: 1, remote: 2 },
            "the local range has 1 bytes and the remote one 2; both must be equally long",
        ),
        (QueueError::Transport(PostErrorKind::Other), "the transport refused: Other"),
    ]);
}

#[test]
fn ends_of_messages() {
    use hmc_core::rndv::{AbortReason, RndvError, RndvId, Violation};
    check(&[
        (AbortReason::Cancelled, "cancelled"),
        (AbortReason::DeadlineExceeded, "the deadline passed"),
        (
            AbortReason::TooLong { capacity: 9 },
            "the message is longer than the 9 bytes of space for it",
        ),
        (AbortReason::Failed, "a transfer of its bytes failed"),
        (AbortReason::Closing, "it is leaving"),
        (AbortReason::Unknown { code: 9, detail: 1 }, "reason 9"),
    ]);
    check(&[
        (RndvError::Here(AbortReason::Cancelled), "cancelled"),
        (RndvError::There(AbortReason::Closing), "ended by the peer: it is leaving"),
        (RndvError::Failed(Failure::Transport(-5)), "transport error -5"),
        (RndvError::PeerDead, "the peer is gone"),
    ]);
    check(&[
        (
            Violation::Number { want: RndvId(1), got: RndvId(2) },
            "message 2 was offered when 1 was next",
        ),
        (Violation::TooMany { limit: 8 }, "more than 8 messages are under way"),
        (Violation::Unknown { id: RndvId(4) }, "there is no message 4"),
        (Violation::NotNow, "a note of a message came that may not come now"),
        (
            Violation::Sequence { want: 1, got: 3 },
            "piece 3 of a message came when it was the turn of 1",
        ),
        (Violation::Target { len: 8, area: 7 }, "7 bytes of space for a message of 8 bytes"),
    ]);
}

#[test]
fn names() {
    check(&[
        (ConnType::Auto, "auto"),
        (ConnType::Loopback, "loopback"),
        (ConnType::Shm, "shm"),
        (ConnType::Tcp, "tcp"),
        (ConnType::Ucx, "ucx"),
        (ConnType::Rdma, "rdma"),
        (ConnType::Custom("mine"), "mine"),
    ]);
    check(&[(Side::Local, "local"), (Side::Remote, "remote")]);
    check(&[(Rank(7), "7")]);
}
