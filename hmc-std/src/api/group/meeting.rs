//! How two members of one host agree on a channel, with the first messages that they exchange in a group: each exposes a window
//! and sends a notice with its name, then another that says whether it has the other's window mapped (docs/WIRE.md, 9). Both
//! members do so at the same message, in the order of their messages, so both use the channel from the same message on, or none.

use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::rndv::AbortReason;
use hmc_core::time::{Duration, Instant};
use hmc_core::types::Access;
use hmc_mem::os::mapped_window::MappedWindow;

use super::channel::{self, Channel, Reason, WINDOW_BYTES};
use super::flight::Flight;
use crate::api::peer::Peer;
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::memory::{ConnBuffer, HeapBytes, Span};
use crate::ops::window::Window;

/// Bytes of a notice.
const NOTICE_BYTES: usize = 16;
/// For how long a member waits for the descriptor of a window that a notice named. The descriptor was sent before the notice.
const DESCRIPTOR_NS: u64 = 50_000_000;

type Notice = [u8; NOTICE_BYTES];

/// Returns the first notice: the name of a window, if there is one.
fn notice_of(window: Option<(WindowId, Epoch)>) -> Notice {
    let mut notice = [0; NOTICE_BYTES];
    if let Some((id, epoch)) = window {
        let parts = id.0.to_le_bytes().into_iter().chain(epoch.0.to_le_bytes()).chain([1]);
        notice.iter_mut().zip(parts).for_each(|(to, byte)| *to = byte);
    }
    notice
}

/// Returns the second notice: whether the other member's window is mapped.
const fn answer_of(is_mapped: bool) -> Notice {
    let first = if is_mapped { 1 } else { 0 };
    [first, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Decodes a first notice. Returns `None` if no member sends it.
fn window_of(notice: Notice) -> Option<Option<(WindowId, Epoch)>> {
    let id = WindowId(u64::from_le_bytes(*notice.first_chunk()?));
    let epoch = Epoch(u32::from_le_bytes(*notice.get(8..)?.first_chunk()?));
    let window = Some((id, epoch)).filter(|_| notice.get(12) == Some(&1));
    (notice_of(window) == notice).then_some(window)
}

/// Decodes a second notice. Returns `None` if no member sends it.
fn is_mapped_of(notice: Notice) -> Option<bool> {
    [false, true].into_iter().find(|is_mapped| answer_of(*is_mapped) == notice)
}

/// Two members that are about to agree.
pub(super) struct Meeting<'m, 'a> {
    pub(super) peer: &'m Peer,
    by: Instant,
    ours: Option<(Window<ConnBuffer>, ConnBuffer)>,
    theirs: Option<Arc<MappedWindow>>,
    step: Step,
    /// The notice that is received, and the one that is sent.
    pub(super) notices: Vec<Flight<'m, 'a>>,
}

enum Step {
    Notices,
    /// Waits for the descriptor of the window, until that time.
    Mapping(WindowId, Epoch, Instant),
    Answers,
}

impl<'m> Meeting<'m, '_> {
    pub(super) fn begin(peer: &'m Peer, by: Instant) -> Result<Self> {
        let (step, notices) = (Step::Notices, Vec::with_capacity(2));
        let mut this = Self { peer, by, ours: None, theirs: None, step, notices };
        // A receive may take a place for a window, too: it goes first.
        this.expect()?;
        // Without a window the members use messages.
        this.ours = exposed(peer).ok().flatten();
        this.send(notice_of(this.ours.as_ref().map(|(window, _)| window.name())))?;
        Ok(this)
    }

    /// Begins to receive a notice.
    fn expect(&mut self) -> Result<()> {
        let Self { peer, by, .. } = *self;
        self.notices.clear();
        let space = span(peer, [0; NOTICE_BYTES])?;
        let receive = peer.recv_data(space).within(left(by)).start().map_err(Error::from)?;
        self.notices.push(Flight::of(peer, receive)?);
        Ok(())
    }

    /// Begins to send one.
    fn send(&mut self, notice: Notice) -> Result<()> {
        let Self { peer, by, .. } = *self;
        let sent = peer.send_data(span(peer, notice)?).within(left(by)).start();
        self.notices.push(Flight::of(peer, sent.map_err(Error::from)?)?);
        Ok(())
    }

    /// Returns what the other end sent, once both notices have arrived.
    fn notice(&mut self) -> Result<Option<Notice>> {
        for notice in &mut self.notices {
            if !notice.move_on()? {
                return Ok(None);
            }
        }
        let mut received = None;
        for notice in self.notices.drain(..) {
            let done = notice.into_memory()?;
            if received.is_none() {
                let mut bytes = [0; NOTICE_BYTES];
                done.memory.read_at(0, &mut bytes)?;
                received = Some((bytes, done.bytes));
            }
        }
        // A peer can send fewer bytes.
        let whole = received.filter(|(_, len)| usize::try_from(*len) == Ok(NOTICE_BYTES));
        whole.map_or_else(|| Err(violated(self.peer)), |(bytes, _)| Ok(Some(bytes)))
    }

    /// Returns the channel, or none, once both ends know. `waits`: the caller leads the link meanwhile, so the descriptor can be
    /// waited for.
    pub(super) fn move_on(&mut self, waits: bool) -> Result<Option<Option<Channel>>> {
        loop {
            match self.step {
                Step::Notices => {
                    let Some(notice) = self.notice()? else { return Ok(None) };
                    let Some(window) = window_of(notice) else { return Err(violated(self.peer)) };
                    let Some((id, epoch)) = window else {
                        self.answer()?;
                        continue;
                    };
                    let by = clock::now().after(Duration::from_nanos(DESCRIPTOR_NS));
                    self.step = Step::Mapping(id, epoch, by);
                }
                Step::Mapping(id, epoch, by) => {
                    let link = &self.peer.link;
                    if !link.data().is_settled(id, epoch) {
                        link.poll_data(false);
                        let is_settled = link.data().is_settled(id, epoch);
                        if !is_settled && waits && clock::now() < by {
                            return Ok(None);
                        }
                    }
                    self.theirs = link.data().mapped(id, epoch).filter(|w| Channel::fits(w));
                    self.answer()?;
                }
                Step::Answers => {
                    let Some(answer) = self.notice()? else { return Ok(None) };
                    let Some(is_mapped) = is_mapped_of(answer) else {
                        return Err(violated(self.peer));
                    };
                    let (ours, theirs) = (self.ours.is_some(), self.theirs.is_some());
                    let both = self.ours.take().zip(self.theirs.take()).filter(|_| is_mapped);
                    if both.is_none() {
                        let peer = self.peer.rank().0;
                        tracing::debug!(
                            peer,
                            has_place = ours,
                            has_mapped = theirs,
                            is_mapped_there = is_mapped,
                            "no windows for two members of a group: they use messages"
                        );
                    }
                    let channel = |((window, buffer), theirs)| {
                        Channel::new(window, buffer, theirs, self.peer)
                    };
                    return Ok(Some(both.map(channel)));
                }
            }
        }
    }

    fn answer(&mut self) -> Result<()> {
        self.step = Step::Answers;
        self.expect()?;
        self.send(answer_of(self.ours.is_some() && self.theirs.is_some()))
    }
}

impl Drop for Meeting<'_, '_> {
    fn drop(&mut self) {
        // The next group must not meet them.
        self.notices.iter_mut().for_each(|notice| notice.withdraw(AbortReason::Cancelled));
        // The other member may have concluded that there is a channel.
        if let (Step::Answers, Some(_), Some(theirs)) = (&self.step, &self.ours, &self.theirs)
            && !self.peer.shared.origin.is_child()
        {
            let is_late = clock::now() >= self.by;
            let why = if is_late { Reason::Late } else { Reason::GaveUp };
            channel::report_failure(self.peer, theirs, (0, 0), why);
        }
    }
}

#[cold]
fn violated(peer: &Peer) -> Error {
    let what = "the member sent no notice of a window at its first message of the group";
    Error::new(ErrorKind::Protocol, what).with_peer(peer.rank())
}

fn left(by: Instant) -> std::time::Duration {
    std::time::Duration::from_nanos(clock::left(by).as_nanos())
}

/// Exposes a window to the peer, which learns its name from the notice. Returns `None` if that took more than half of the places:
/// the others are for messages and the application. Windows that are kept for later messages have theirs there.
fn exposed(peer: &Peer) -> Result<Option<(Window<ConnBuffer>, ConnBuffer)>> {
    let kept = peer.link.with_rndv(|rndv| rndv.idle_windows());
    let used = peer.link.data().plane().windows().in_use().count().saturating_sub(kept);
    if used.saturating_add(1) > peer.shared.config.windows / 2 {
        return Ok(None);
    }
    let buffer = peer.shared.regions.allocate(WINDOW_BYTES)?.share()?;
    let window = peer.expose_unannounced(buffer.clone(), Access::all())?;
    Ok(Some((window, buffer)))
}

fn span(peer: &Peer, notice: Notice) -> Result<Span> {
    let region = peer.shared.regions.adopt(Box::new(HeapBytes::from(notice.to_vec())))?;
    region.take_all().map_err(|e| e.with_peer(peer.rank()))
}

#[cfg(test)]
mod tests {
    use hmc_core::region::{Epoch, WindowId};

    use super::{Meeting, NOTICE_BYTES, Step, answer_of, is_mapped_of, notice_of, window_of};
    use crate::api::group::channel::tests::Pair;
    use crate::base::clock;
    use hmc_core::time::Duration;

    /// One member knows that both answered yes, and the other one goes before it does.
    #[test]
    fn a_member_that_goes_before_it_has_the_answer_tells_the_other() {
        let pair = Pair::new("meeting");
        let by = clock::now().after(Duration::from_nanos(20_000_000_000));
        let begin = |peer| Meeting::begin(peer, by).expect("begun");
        let (mut goes, mut stays) = (begin(&pair.peers[0]), begin(&pair.peers[1]));
        while !matches!(goes.step, Step::Answers) {
            assert!(goes.move_on(true).expect("no answer yet").is_none() && clock::now() < by);
            std::thread::yield_now();
        }
        let channel = loop {
            match stays.move_on(true).expect("notices") {
                Some(channel) => break channel.expect("both answered yes"),
                None => assert!(clock::now() < by, "the answer comes"),
            }
            std::thread::yield_now();
        };
        assert!(!channel.has_failed());
        drop(goes);
        assert!(channel.has_failed());
    }

    /// Half-buffers of messages that have ended take places, which are not those that groups leave free.
    #[test]
    fn windows_that_are_kept_for_messages_leave_a_place_for_a_channel() {
        let pair = Pair::with("places", 16);
        let [first, second] = &pair.peers;
        let used = || second.link.data().plane().windows().in_use().count();
        let before = used();
        let mut into = [[0; 8192]; 8];
        std::thread::scope(|s| {
            for space in &mut into {
                s.spawn(|| second.recv_data(&mut space[..]).wait().expect("a message"));
            }
            // All have their places before the first message comes.
            let begun = clock::now();
            while used() < before + 8 {
                assert!(clock::now().since(begun) < Duration::from_nanos(20_000_000_000));
                std::thread::yield_now();
            }
            for _ in 0..8 {
                first.send_data(&[7; 8192]).wait().expect("a receive");
            }
        });
        assert_eq!(into, [[7; 8192]; 8]);
        assert!(used() >= 8, "they are kept");
        let by = clock::now().after(Duration::from_nanos(20_000_000_000));
        let meeting = Meeting::begin(second, by).expect("begun");
        assert!(meeting.ours.is_some(), "there is a place");
    }

    #[test]
    fn notices_are_the_documented_bytes() {
        let window = (WindowId(0x0807_0605_0403_0201), Epoch(0x0C0B_0A09));
        assert_eq!(notice_of(Some(window)), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 0, 0, 0]);
        assert_eq!(notice_of(None), [0; NOTICE_BYTES]);
        for window in [None, Some(window)] {
            assert_eq!(window_of(notice_of(window)), Some(window));
        }
        assert_eq!(answer_of(true), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer_of(false), [0; NOTICE_BYTES]);
        for is_mapped in [false, true] {
            assert_eq!(is_mapped_of(answer_of(is_mapped)), Some(is_mapped));
        }
    }

    #[test]
    fn other_bytes_are_no_notices() {
        let none = notice_of(None);
        let named = notice_of(Some((WindowId(0), Epoch(0))));
        for at in 0..NOTICE_BYTES {
            for byte in 1..=255 {
                let changed = |mut notice: super::Notice| {
                    notice.get_mut(at).into_iter().for_each(|b| *b = byte);
                    notice
                };
                let names = (at, byte) == (12, 1);
                assert_eq!(window_of(changed(none)).is_some(), names, "{byte} at {at}");
                assert_eq!(is_mapped_of(changed(none)).is_some(), (at, byte) == (0, 1));
                let has_name = at < 12 || names;
                assert_eq!(window_of(changed(named)).is_some(), has_name, "{byte} at {at}");
            }
        }
    }
}
