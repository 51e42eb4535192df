//! A native handshake between two machines, with somebody between them who may change the bytes of
//! one frame. A second reader of HELLO and WELCOME, in plain numbers, says what must become of it.

use super::script::Script;
use super::subject::Subject;
use super::wire::last_reject;
use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::io::{CloseReason, ControlOutput};
use hmc_core::ctrl::state::ControlState;
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::advert::EndpointBlob;
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::{Asked, EndpointList, Features, Hello, HostId, LinkToken};
use hmc_core::wire::reject::RejectReason;

/// The rank of the acceptor.
const ACCEPTOR: u32 = 7;
/// Bytes of a script before what is written over a frame.
pub const HEAD: usize = 18;
/// Where the fields of a HELLO lie in its frame (the kind of the message is byte 8).
const MAGIC: usize = 9;
const RANK: usize = 21;
const JOB: usize = 25;
const EXPECTED: usize = 57;
const LIST: usize = 121;

fn number(frame: &[u8], at: usize, n: usize) -> u64 {
    frame[at..at + n].iter().rev().fold(0, |all, b| (all << 8) | u64::from(*b))
}

/// What the second reader says about a HELLO or WELCOME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Refused without a word.
    Bad,
    /// Refused with this code.
    Code(u16),
}

/// Who reads a frame.
#[derive(Clone, Copy)]
enum Reader {
    /// It looks at whom the dialer wants.
    Acceptor,
    /// It looks at who answers, if it wants somebody.
    Dialer(Option<u32>),
}

/// Checks a frame with a list of endpoints at `list`; `job` and `rank` are the reader's.
fn check(frame: &[u8], list: usize, job: u64, rank: u32, reader: Reader) -> Verdict {
    use Verdict::{Bad, Code, Good};
    if frame.len() > 8 + 512 || frame.len() < MAGIC + 6 || frame[MAGIC..MAGIC + 4] != *b"HMC2" {
        return Bad;
    }
    if number(frame, 13, 2) != 2 {
        return Code(1);
    }
    if frame.len() < LIST {
        return Bad;
    }
    if number(frame, 15, 2) != 0 {
        return Code(2);
    }
    if number(frame, RANK, 4) >= 4096 {
        return Code(7);
    }
    let expected = number(frame, EXPECTED, 4);
    if (expected >= 4096 && expected != u64::from(u32::MAX))
        || number(frame, 61, 2) > 1024
        || frame[63] > 8
        || frame[64] != 0
        || frame[115] > 1
        || frame[116..121] != [0; 5]
        || frame.len() < list
        || frame.len() - list > 383
    {
        return Bad;
    }
    let mut rest = &frame[list..];
    for _ in 0..frame[63] {
        let [_, a, b, content @ ..] = rest else { return Bad };
        let n = usize::from(*a) + (usize::from(*b) << 8);
        if n > content.len() {
            return Bad;
        }
        rest = &content[n..];
    }
    if !rest.is_empty() {
        return Bad;
    }
    if number(frame, JOB, 8) != job {
        return Code(3);
    }
    match reader {
        Reader::Dialer(Some(wanted)) if number(frame, RANK, 4) != u64::from(wanted) => Code(4),
        Reader::Acceptor if expected != u64::from(u32::MAX) && expected != u64::from(rank) => {
            Code(4)
        }
        Reader::Dialer(_) | Reader::Acceptor => Good,
    }
}

/// What stands between the two.
struct Between<'a> {
    which: u8,
    how: u8,
    at: usize,
    bytes: &'a [u8],
}

impl Between<'_> {
    /// Changes the payload of a frame behind the kind of its message; the header's length follows.
    fn pass(&self, which: u8, frame: &mut Vec<u8>) {
        if self.which != which || frame.len() <= MAGIC {
            return;
        }
        let at = MAGIC + self.at % (frame.len() - MAGIC);
        match self.how % 4 {
            0 => frame[at..].iter_mut().zip(self.bytes).for_each(|(to, from)| *to ^= from),
            1 => frame[at..].iter_mut().zip(self.bytes).for_each(|(to, from)| *to = *from),
            2 => frame.truncate(at),
            _ => frame.extend_from_slice(self.bytes),
        }
        let len = (frame.len() - 8) as u32;
        frame[4..8].copy_from_slice(&len.to_le_bytes());
    }
}

/// Frames that a machine wants to send, and how it ended.
fn outputs(c: &mut ControlConn) -> (Vec<u8>, Option<CloseReason>) {
    let (mut sent, mut end) = (Vec::new(), None);
    while let Some(out) = c.poll_output() {
        match out {
            ControlOutput::Transmit(f) => sent.extend_from_slice(f.as_bytes()),
            ControlOutput::Close(why) => end = Some(why),
            ControlOutput::WakeAt(_) => {}
        }
    }
    (sent, end)
}

/// Hands a frame over; what is wrong with its header counts as well.
fn hand(c: &mut ControlConn, frame: &[u8]) {
    let (head, payload) = frame.split_first_chunk::<8>().unwrap();
    match Header::parse(head, c.frame_limit()) {
        Ok(header) => drop(c.receive(header, payload, Instant::ZERO)),
        Err(e) => drop(c.malformed(e)),
    }
}

/// A script of [`HEAD`] bytes (ranks, jobs, wishes, the decision, who changes what), then the bytes
/// that are written over the frame.
pub fn handshake(bytes: &[u8], subject: Subject) {
    let _ = run(bytes, subject);
}

/// How both ends came out.
pub fn class(bytes: &[u8]) -> String {
    run(bytes, Subject::Real)
}

fn run(bytes: &[u8], subject: Subject) -> String {
    let mut s = Script::new(bytes);
    let rank = u32::from(u16::from_le_bytes(s.array()));
    let job = u64::from(s.u8());
    let expected = match s.u8() % 3 {
        0 => None,
        1 => Some(Rank(ACCEPTOR)),
        _ => Some(Rank(ACCEPTOR + 1)),
    };
    let incarnation = Incarnation(u64::from(s.u8()));
    let beat = |n: u8| Duration::from_millis(u64::from(n) * 10);
    let heartbeat = beat(s.u8());
    let slots = u16::from_le_bytes(s.array());
    let features = Features::from_bits_truncate(u32::from(s.u8()));
    let (endpoints, size) = (s.u8() % 10, usize::from(s.u8()));
    let mut list = EndpointList::new();
    for kind in 0..endpoints {
        let _ = list.push(EndpointBlob { kind, bytes: &[kind; 255][..size] });
    }
    let hello = Hello {
        features,
        job,
        rank: Rank(rank),
        incarnation,
        nonce: [1; 16],
        expected,
        host: HostId([2; 16]),
        heartbeat,
        slots,
        asked: &Asked::ANY,
        proves: false,
        endpoints: list.endpoints(),
    };
    let (our_job, our_beat, decision) = (u64::from(s.u8()), beat(s.u8()), s.u8());
    let between = Between {
        which: s.u8() % 3,
        how: s.u8(),
        at: usize::from(u16::from_le_bytes(s.array())),
        bytes: s.rest(),
    };

    let mut dialer = ControlConn::dial(&hello, Instant::ZERO).unwrap();
    let (mut first, _) = outputs(&mut dialer);
    between.pass(1, &mut first);
    let verdict = check(&first, LIST, our_job, ACCEPTOR, Reader::Acceptor);
    // The broken acceptor does not care for jobs.
    let believed = match subject {
        Subject::Broken if first.len() >= LIST => number(&first, JOB, 8),
        _ => our_job,
    };
    let who = AcceptConfig { rank: Rank(ACCEPTOR), job: believed, cxx: CxxPolicy::Refused };
    let mut acceptor = ControlConn::accepted(&who, Instant::ZERO);
    hand(&mut acceptor, &first);
    let good = verdict == Verdict::Good;
    assert_eq!(acceptor.state() == ControlState::Deciding, good, "{verdict:?} of {first:02x?}");
    let ours = Hello {
        job: our_job,
        rank: Rank(ACCEPTOR),
        expected: Some(Rank(rank)),
        heartbeat: our_beat,
        ..hello
    };
    if good {
        let peer = acceptor.peer().copied().unwrap();
        assert_eq!(u64::from(peer.rank.0), number(&first, RANK, 4));
        assert_eq!(peer.incarnation.0, number(&first, 33, 8));
        if decision % 4 == 3 {
            acceptor.reject(RejectReason::Duplicate).unwrap();
        } else {
            acceptor.accept(&ours, LinkToken([9; 16]), Instant::ZERO).unwrap();
        }
    }
    let (mut answer, end) = outputs(&mut acceptor);
    assert_eq!(end.is_some(), acceptor.state() == ControlState::Closed);
    let refusal = last_reject(&answer);
    match verdict {
        Verdict::Code(code) => assert_eq!(refusal.map(|r| r.to_wire().0), Some(code)),
        Verdict::Bad => assert!(answer.is_empty(), "no answer to what is no hello"),
        Verdict::Good => assert_eq!(refusal.is_some(), decision % 4 == 3),
    }
    between.pass(2, &mut answer);
    let tampered = between.which == 2;
    if answer.is_empty() {
        dialer.eof();
    } else {
        hand(&mut dialer, &answer);
        if refusal.is_none() {
            let reader = Reader::Dialer(expected.map(|r| r.0));
            let want = check(&answer, LIST + 16, job, rank, reader);
            let up = dialer.state() == ControlState::Ready;
            assert_eq!(up, want == Verdict::Good, "{want:?} of {answer:02x?}");
            if up && between.which == 0 {
                assert_eq!(dialer.heartbeat(), acceptor.heartbeat(), "both beat alike");
            }
        } else {
            assert_eq!(dialer.state(), ControlState::Closed, "a refusal ends it");
        }
    }
    if !tampered && refusal.is_some() {
        assert_eq!(dialer.close_reason(), refusal.map(CloseReason::Refused));
    }
    let said = |c: &ControlConn| match c.close_reason() {
        Some(why) => format!("{why:?}"),
        None => format!("{:?}", c.state()),
    };
    format!("acceptor {}; dialer {}", said(&acceptor), said(&dialer))
}
