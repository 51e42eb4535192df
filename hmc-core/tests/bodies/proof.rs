//! A handshake in which both ends prove that they know one secret, with somebody between them who changes, replaces or
//! replays frames. A reader of the bytes says who may be believed.

use super::control::frame;
use super::script::Script;
use super::subject::Subject;
use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::io::{ControlEvent, ControlOutput};
use hmc_core::ctrl::state::ControlState;
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::{Asked, Endpoints, Features, Hello, HostId, LinkToken};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::proof::{Challenge, Proof, Role, TRANSCRIPT_BYTES, transcript};

/// Bytes of a script before those that are written over a frame.
pub const HEAD: usize = 6;
/// Where the kind of a message, and the features of a HELLO, lie in its frame.
const KIND: usize = 8;
const FEATURES: std::ops::Range<usize> = 17..21;

/// A secret of this script alone: what one script shows of it is worth nothing in another, since a search that compares
/// bytes would write what it read there into the next one.
fn secret(script: &[u8], which: u8) -> u64 {
    script.iter().fold(u64::from(which), |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29)
    })
}

/// A keyed hash that no attacker of these tests breaks by luck.
fn hash(key: u64, bytes: &[u8; TRANSCRIPT_BYTES]) -> Proof {
    let mut out = [0; 32];
    for (lane, to) in out.chunks_mut(8).enumerate() {
        let mut h = key ^ (lane as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for b in bytes {
            h = (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
        }
        to.copy_from_slice(&h.to_le_bytes());
    }
    Proof(out)
}

const ASKED: Asked = Asked::new([0; 16], 80, 7);

fn words() -> Hello<'static> {
    Hello {
        features: Features::CMA,
        job: 5,
        rank: Rank(2),
        incarnation: Incarnation(3),
        nonce: [1; 16],
        expected: Some(Rank(1)),
        host: HostId([2; 16]),
        heartbeat: Duration::from_millis(500),
        slots: 128,
        asked: &ASKED,
        proves: true,
        endpoints: Endpoints::EMPTY,
    }
}

fn sent(c: &mut ControlConn) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(out) = c.poll_output() {
        if let ControlOutput::Transmit(f) = out {
            all.extend_from_slice(f.as_bytes());
        }
    }
    all
}

/// What came of a frame that was handed in.
#[allow(clippy::large_enum_variant, reason = "one lives for a moment, on the stack of a test")]
enum Received {
    Hello([u8; TRANSCRIPT_BYTES], [u8; TRANSCRIPT_BYTES], bool),
    Challenge(Challenge),
    Proven,
    Else,
}

fn hand(c: &mut ControlConn, frame: &[u8], nonce: &[u8; 16]) -> Received {
    let Some((head, payload)) = frame.split_first_chunk::<8>() else { return Received::Else };
    let header = match Header::parse(head, c.frame_limit()) {
        Ok(header) => header,
        Err(e) => {
            c.malformed(e);
            return Received::Else;
        }
    };
    match c.receive(header, payload, Instant::ZERO) {
        Ok(Some(ControlEvent::HelloReceived(h))) => Received::Hello(
            transcript(Role::Acceptor, &h, Rank(1), nonce),
            transcript(Role::Dialer, &h, Rank(1), nonce),
            h.proves,
        ),
        Ok(Some(ControlEvent::Challenged(challenge))) => Received::Challenge(challenge),
        Ok(Some(ControlEvent::Proven)) => Received::Proven,
        _ => Received::Else,
    }
}

/// Somebody between the two.
struct Between<'a> {
    which: u8,
    how: u8,
    at: usize,
    bytes: &'a [u8],
}

impl Between<'_> {
    /// What becomes of the frame `which`; `seen` is an earlier frame, which may be sent back.
    fn pass(&self, which: u8, frame: &[u8], seen: &[u8]) -> Vec<u8> {
        let mut out = frame.to_vec();
        if self.which % 4 != which || out.len() <= KIND {
            return out;
        }
        let at = KIND + self.at % (out.len() - KIND);
        match self.how % 4 {
            0 => out[at..].iter_mut().zip(self.bytes).for_each(|(to, from)| *to ^= from),
            1 => out[at..].iter_mut().zip(self.bytes).for_each(|(to, from)| *to = *from),
            2 => return seen.to_vec(),
            _ => out = self.bytes.to_vec(),
        }
        out
    }
}

/// A HELLO, less what a proof does not cover.
fn covered(hello: &[u8]) -> Vec<u8> {
    let mut out = hello.to_vec();
    out.get_mut(FEATURES).into_iter().flatten().for_each(|b| *b = 0);
    out
}

/// A script of [`HEAD`] bytes (two keys; who changes which frame, how and where), then the bytes that are written.
pub fn proof(bytes: &[u8], subject: Subject) {
    let _ = run(bytes, subject);
}

/// How both ends came out.
pub fn class(bytes: &[u8]) -> String {
    run(bytes, Subject::Real)
}

fn run(bytes: &[u8], subject: Subject) -> String {
    let mut s = Script::new(bytes);
    let (dialers, acceptors) = (secret(bytes, s.u8()), secret(bytes, s.u8()));
    let between = Between {
        which: s.u8(),
        how: s.u8(),
        at: usize::from(u16::from_le_bytes(s.array())),
        bytes: s.rest(),
    };
    let nonce = [9; 16];
    let words = words();
    let mut dialer = ControlConn::dial(&words, Instant::ZERO).unwrap();
    let who = AcceptConfig { rank: Rank(1), job: 5, cxx: CxxPolicy::Refused };
    let mut acceptor = ControlConn::accepted(&who, Instant::ZERO);

    let hello = sent(&mut dialer);
    let hello_heard = between.pass(1, &hello, &[]);
    let mut proven = false;
    let (mut challenge, mut challenge_frame) = (Vec::new(), Vec::new());
    if let Received::Hello(ours, theirs, true) = hand(&mut acceptor, &hello_heard, &nonce) {
        let said = Challenge { rank: Rank(1), nonce, proof: hash(acceptors, &ours) };
        acceptor.challenge(&said, hash(acceptors, &theirs)).unwrap();
        challenge = sent(&mut acceptor);
        challenge_frame = between.pass(2, &challenge, &hello);
    }
    let received = hand(&mut dialer, &challenge_frame, &nonce);
    if let Received::Challenge(said) = received {
        let of = |role| hash(dialers, &transcript(role, &words, said.rank, &said.nonce));
        // The broken dialer believes whatever it is shown.
        let must = if subject == Subject::Broken { said.proof } else { of(Role::Acceptor) };
        let believed = dialer.prove(&must, of(Role::Dialer)).unwrap();
        let is_sound = dialers == acceptors
            && challenge_frame == challenge
            && covered(&hello_heard) == covered(&hello);
        assert_eq!(believed, is_sound, "an acceptor that does not know the secret is not believed");
        let answer = sent(&mut dialer);
        let answer_heard = between.pass(3, &answer, &challenge);
        if !answer_heard.is_empty() {
            proven = matches!(hand(&mut acceptor, &answer_heard, &nonce), Received::Proven);
        }
        assert_eq!(
            proven,
            is_sound && answer_heard == answer,
            "a dialer that does not know it either"
        );
    }
    // Nobody is connected who was not proven: a WELCOME that comes too early ends it.
    let state = dialer.state();
    let token = LinkToken([9; 16]);
    let early = ControlMessage::Welcome(hmc_core::wire::hello::Welcome {
        hello: Hello { rank: Rank(1), ..words },
        token,
    });
    let _ = hand(&mut dialer, &frame(&early), &nonce);
    assert_eq!(dialer.state() == ControlState::Ready, state == ControlState::AwaitWelcome);
    let said = |c: &ControlConn| match c.close_reason() {
        Some(why) => format!("{why:?}"),
        None => format!("{:?}", c.state()),
    };
    format!("proven {proven}; acceptor {}; dialer {}", said(&acceptor), said(&dialer))
}
