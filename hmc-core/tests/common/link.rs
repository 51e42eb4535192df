//! Two ends of a control connection without a socket: words, outputs, handing frames over.

use super::{TOKEN, endpoints, hello};
use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::io::{CloseReason, ControlEvent, ControlOutput, Violation};
use hmc_core::ctrl::state::ControlState;
use hmc_core::time::Instant;
use hmc_core::types::Rank;
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::Hello;

/// The time in nanoseconds.
pub fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// What the dialer says about itself.
pub fn dialer_words() -> Hello<'static> {
    let list = endpoints();
    let h = hello(&list);
    Hello { job: 5, rank: Rank(2), expected: Some(Rank(1)), proves: false, ..h.detached() }
}

/// What the acceptor says about itself.
pub fn acceptor_words() -> Hello<'static> {
    Hello { rank: Rank(1), expected: Some(Rank(2)), ..dialer_words() }
}

/// A connection accepted at `now`.
pub fn acceptor(cxx: CxxPolicy, now: u64) -> ControlConn {
    ControlConn::accepted(&AcceptConfig { rank: Rank(1), job: 5, cxx }, at(now))
}

/// All outputs: frames to send, the last wake-up, the end.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Frames to send.
    pub frames: Vec<Vec<u8>>,
    /// The last wake-up.
    pub wake: Option<Instant>,
    /// The end.
    pub close: Option<CloseReason>,
}

/// Polls until there is nothing more.
pub fn outputs(c: &mut ControlConn) -> Outputs {
    let mut all = Outputs::default();
    while let Some(o) = c.poll_output() {
        assert!(all.close.is_none(), "nothing follows the end");
        match o {
            ControlOutput::Transmit(f) => all.frames.push(f.as_bytes().to_vec()),
            ControlOutput::WakeAt(t) => all.wake = Some(t),
            ControlOutput::Close(why) => all.close = Some(why),
        }
    }
    all
}

/// Hands a whole frame over.
pub fn hand<'a>(
    c: &mut ControlConn,
    frame: &'a [u8],
    now: u64,
) -> Result<Option<ControlEvent<'a>>, Violation> {
    let (head, payload) = frame.split_first_chunk::<8>().unwrap();
    match Header::parse(head, c.frame_limit()) {
        Ok(header) => c.receive(header, payload, at(now)),
        Err(e) => Err(c.malformed(e)),
    }
}

/// Two ends that are up at time `now`.
pub fn pair(a: &Hello<'_>, b: &Hello<'_>, now: u64) -> (ControlConn, ControlConn) {
    let mut d = ControlConn::dial(a, at(now)).unwrap();
    let mut l = acceptor(CxxPolicy::Refused, now);
    let first = outputs(&mut d).frames.remove(0);
    assert!(
        matches!(hand(&mut l, &first, now), Ok(Some(ControlEvent::HelloReceived(h))) if h == *a)
    );
    l.accept(b, TOKEN, at(now)).unwrap();
    let answer = outputs(&mut l).frames.remove(0);
    let got = hand(&mut d, &answer, now).unwrap().unwrap();
    assert!(matches!(got, ControlEvent::Connected(w) if w.hello == *b && w.token == TOKEN));
    assert_eq!((d.state(), l.state()), (ControlState::Ready, ControlState::Ready));
    outputs(&mut d);
    outputs(&mut l);
    (d, l)
}
