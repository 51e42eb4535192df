//! The peer's windows whose pages could not be mapped here, by index: their bytes use the stream.

use std::fmt;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::types::Rank;
use hmc_core::wire::data::DataKind;
use hmc_core::wire::held;

use crate::base::error::Error;

/// How many places there can be.
const PLACES: usize = held::of_data(DataKind::Region).count();

/// The newest window of each place that was not mapped. There are as many places as a peer has windows, whatever it sends.
#[derive(Debug, Default)]
pub(super) struct Unmapped {
    places: Vec<Option<Window>>,
    warned: bool,
}

#[derive(Debug)]
struct Window {
    id: WindowId,
    epoch: Epoch,
    why: String,
}

impl Unmapped {
    /// Notes a window and why it is not mapped. Warns of the first only: the peer decides how many there are.
    pub(super) fn note(&mut self, peer: Rank, id: WindowId, epoch: Epoch, why: &Error) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(peer = peer.0, error = %why, "a window is not mapped: its bytes go through a socket");
        }
        let index = usize::from(id.index());
        if index >= PLACES {
            return;
        }
        if index >= self.places.len() {
            self.places.resize_with(index.saturating_add(1), || None);
        }
        if let Some(place) = self.places.get_mut(index) {
            *place = Some(Window { id, epoch, why: why.to_string() });
        }
    }

    /// Whether that window is one of them.
    pub(super) fn has(&self, id: WindowId, epoch: Epoch) -> bool {
        let place = self.places.get(usize::from(id.index())).and_then(Option::as_ref);
        place.is_some_and(|w| w.id == id && w.epoch == epoch)
    }

    /// The place of a window has none any more.
    pub(super) fn free(&mut self, id: WindowId) {
        if let Some(place) = self.places.get_mut(usize::from(id.index())) {
            *place = None;
        }
    }

    /// Says in words which there are.
    pub(super) fn tell(&self, each: &mut dyn FnMut(fmt::Arguments<'_>)) {
        for w in self.places.iter().flatten() {
            let place = w.id.index();
            let why = &w.why;
            each(format_args!(
                "window {place} of the peer is not mapped here ({why}): its bytes go through a socket"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};

    use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
    use hmc_core::wire::hello::Features;
    use hmc_mem::os::fd_passing::send_fd;
    use hmc_mem::os::io::IoOutcome;
    use hmc_mem::os::memfd::Mapping;
    use hmc_mem::os::words::{PAGE_BYTES, PeerWords};

    use hmc_core::transport::{DataCloseReason, DataPlane as _, PeerWindows as _, Progress as _};

    use super::super::{LIFE_ID, Offer, PAGE_ID, ShmDataPlane};
    use super::*;
    use crate::node::inbox::Inbox;
    use crate::transport::stream::{StreamDataPlane, StreamSetup};

    fn plane(socket: UnixStream) -> ShmDataPlane {
        socket.set_nonblocking(true).unwrap();
        let stream = StreamDataPlane::new(StreamSetup {
            socket: Arc::new(OwnedFd::from(socket).into()),
            peer: Rank(1),
            local: true,
            near: true,
            pid: None,
            cma: false,
            batched_acks: true,
            generations: true,
            gathers: true,
            windows: 8,
            inbox: Arc::new(Mutex::new(Inbox::new(16, 4096))),
        });
        ShmDataPlane::new(stream, None, Features::empty()).unwrap()
    }

    /// A window's announcement whose descriptor has no pages.
    fn bad_window(place: u64, epoch: u32) -> Offer {
        let mut frame = DataFrame::new(DataKind::Region, 0);
        frame.window = WindowId(place);
        frame.epoch = Epoch(epoch);
        frame.total = 4096;
        frame.addr = 4096;
        Offer { frame, fd: File::open("/dev/null").unwrap().into() }
    }

    fn degraded(plane: &ShmDataPlane) -> Vec<String> {
        let mut all = Vec::new();
        plane.degraded(&mut |what| all.push(what.to_string()));
        all
    }

    fn send(from: &mut ShmDataPlane, to: &mut ShmDataPlane, offer: Offer) {
        from.stream.offer(offer);
        from.stream.flush();
        while to.poll_peer(true) {}
    }

    #[test]
    fn bad_windows_take_a_place_each_and_are_explained() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (plane(a), plane(b));
        for n in 0..1000u32 {
            send(&mut far, &mut near, bad_window(u64::from(n % 3), n + 1));
        }
        assert_eq!(near.stream.close_reason(), None);
        assert_eq!(near.unmapped.places.len(), 3);
        assert!(near.is_settled(WindowId(0), Epoch(1000)), "the newest of its place");
        assert!(!near.is_settled(WindowId(0), Epoch(997)), "an older one");
        let told = degraded(&near);
        let of_windows = told.iter().filter(|t| t.contains("is not mapped here")).count();
        assert_eq!(of_windows, 3, "{told:?}");
        assert!(told.iter().any(|t| t.contains("process_vm_readv")), "{told:?}");
    }

    /// A window whose pages can be mapped.
    fn good_window(place: u64, epoch: u32) -> Offer {
        let fd = Mapping::create(4096).unwrap().fd().unwrap().try_clone_to_owned().unwrap();
        Offer { fd, ..bad_window(place, epoch) }
    }

    /// A frame whose descriptor came here and was dropped for lack of space.
    fn send_dropped(from: &UnixStream, to: &mut ShmDataPlane, offer: &Offer) {
        to.stream.lose_descriptor();
        (&*from).write_all(&offer.frame.emit()).unwrap();
        while to.poll_peer(true) {}
    }

    #[test]
    fn a_window_without_a_descriptor_here_is_reached_through_the_stream() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut near = plane(near);
        send_dropped(&far, &mut near, &bad_window(7, 1));
        assert_eq!(near.stream.close_reason(), None);
        assert!(near.is_settled(WindowId(7), Epoch(1)));
        let told = degraded(&near);
        assert!(told.iter().any(|t| t.contains("window 7") && t.contains("ulimit -n")), "{told:?}");
        // What was dropped is its frame's alone.
        (&far).write_all(&bad_window(8, 1).frame.emit()).unwrap();
        while near.poll_peer(true) {}
        assert!(matches!(near.stream.close_reason(), Some(DataCloseReason::Protocol(_))));
    }

    /// A peer that sends a window before the gates of its windows cannot be entered: its bytes go through the stream.
    #[test]
    fn a_window_that_comes_before_the_gates_is_not_mapped() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut near = plane(a);
        let Offer { frame, fd } = good_window(3, 1);
        assert!(send_fd(&b, fd, &frame.emit()).is_ok());
        while near.poll_peer(true) {}
        assert_eq!(near.stream.close_reason(), None);
        assert!(
            near.mapped_window(WindowId(3)).is_none() && near.is_settled(WindowId(3), Epoch(1))
        );
    }

    #[test]
    fn a_link_ends_without_the_pages_that_it_needs() {
        for id in [PAGE_ID, LIFE_ID] {
            let (near, far) = UnixStream::pair().unwrap();
            let mut near = plane(near);
            send_dropped(&far, &mut near, &bad_window(id.0, 0));
            let down = near.stream.close_reason();
            assert_eq!(down, Some(DataCloseReason::NoDescriptor));
            assert!(down.unwrap().to_string().contains("ulimit -n"));
        }
    }

    /// Without the life page a put could be a success after its target's end; without the page of words no window has a gate.
    #[test]
    fn a_link_ends_if_a_page_that_it_needs_cannot_be_mapped() {
        for id in [PAGE_ID, LIFE_ID] {
            let (near, far) = UnixStream::pair().unwrap();
            let mut near = plane(near);
            let Offer { frame, fd } = bad_window(id.0, 0);
            assert!(send_fd(&far, fd, &frame.emit()).is_ok());
            while near.poll_peer(true) {}
            let down = near.stream.close_reason();
            assert_eq!(down, Some(DataCloseReason::NotMapped));
            assert!(!near.is_ready());
            let mut words = String::new();
            near.describe_close(down.unwrap(), &mut words).unwrap();
            assert!(words.starts_with(&format!("{}: the peer's memory has seals", down.unwrap())));
            assert_eq!(near.unmapped.places.len(), 0, "it is no window");
        }
    }

    #[test]
    fn of_windows_that_come_at_once_the_last_has_the_place() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut near = plane(a);
        let words = Mapping::create(PAGE_BYTES).unwrap();
        near.peer_page = Some(Arc::new(PeerWords::new(words).unwrap()));
        // Each message fills what is received at a time, so that the next is received in the same turn.
        let mut put = DataFrame::new(DataKind::Write, 1);
        (put.window, put.len, put.total) = (WindowId(9), 4096 - 112, 4096 - 112);
        put.flags = DataFlags::LAST;
        let offers = [good_window(3, 1), bad_window(4, 1), good_window(3, 2), good_window(4, 2)];
        for Offer { frame, fd } in offers {
            let message = [&frame.emit()[..], &put.emit(), &[0; 4096 - 112]].concat();
            assert!(matches!(send_fd(&b, fd, &message), Ok(IoOutcome::Bytes(4096))));
        }
        assert!(near.poll_peer(true));
        assert_eq!(near.stream.close_reason(), None);
        assert!(near.is_settled(WindowId(3), Epoch(2)));
        assert!(near.is_settled(WindowId(4), Epoch(2)));
        let told = degraded(&near);
        assert!(!told.iter().any(|t| t.contains("is not mapped here")), "{told:?}");
    }

    #[test]
    fn a_window_beyond_the_last_place_ends_the_connection() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (plane(a), plane(b));
        let place = u64::try_from(PLACES).unwrap();
        send(&mut far, &mut near, bad_window(place, 1));
        assert!(matches!(near.stream.close_reason(), Some(DataCloseReason::Protocol(_))));
    }
}
