//! Events: queues of them behind a descriptor, and the wait for one.

use core::ffi::c_int;

use crate::object::{AsyncEvent, Element, EventCount};
use crate::state::{FakeIbv, lower, raise};
use crate::table::Id;

impl FakeIbv {
    /// Adds an asynchronous event to a context.
    pub(crate) fn raise_async(&mut self, context: Id, event: AsyncEvent) {
        let Some(c) = self.contexts.get_mut(context) else { return };
        c.events.push_back(event);
        if c.events.len() == 1 {
            raise(c.fd);
        }
    }

    /// Adds an asynchronous event to all contexts of a device.
    pub(crate) fn raise_async_all(&mut self, device: usize, event: AsyncEvent) {
        for c in self.contexts.values_mut().filter(|c| c.device == device) {
            c.events.push_back(event);
            if c.events.len() == 1 {
                raise(c.fd);
            }
        }
    }

    pub(crate) fn take_async(&mut self, context: Id) -> Option<AsyncEvent> {
        let c = self.contexts.get_mut(context)?;
        let event = c.events.pop_front()?;
        if c.events.is_empty() {
            lower(c.fd);
        }
        Some(event)
    }

    /// Removes the asynchronous events of a destroyed object that nobody got.
    pub(crate) fn forget_async(&mut self, context: Id, element: Element) {
        let Some(c) = self.contexts.get_mut(context) else { return };
        let before = c.events.len();
        c.events.retain(|e| e.element != element);
        if before != 0 && c.events.is_empty() {
            lower(c.fd);
        }
    }

    /// Counts of the asynchronous events of an object.
    pub(crate) fn async_count(&mut self, element: Element) -> Option<&mut EventCount> {
        match element {
            Element::Device | Element::Port(_) => None,
            Element::Cq(id) => self.cqs.get_mut(id).map(|x| &mut x.async_events),
            Element::Qp(id) => self.qps.get_mut(id).map(|x| &mut x.async_events),
            Element::Srq(id) => self.srqs.get_mut(id).map(|x| &mut x.async_events),
        }
    }

    /// Adds an event of a completion queue to its channel.
    pub(crate) fn notify(&mut self, cq: Id) {
        let Some(channel) = self.cqs.get(cq).and_then(|c| c.channel) else { return };
        let Some(channel) = self.channels.get_mut(channel) else { return };
        channel.events.push_back(cq);
        if channel.events.len() == 1 {
            raise(channel.fd);
        }
        self.counters.notifications += 1;
    }

    pub(crate) fn take_notification(&mut self, channel: Id) -> Option<Id> {
        let channel = self.channels.get_mut(channel)?;
        let cq = channel.events.pop_front()?;
        if channel.events.is_empty() {
            lower(channel.fd);
        }
        Some(cq)
    }

    /// Removes the events of a destroyed completion queue that nobody got.
    pub(crate) fn forget_notifications(&mut self, channel: Id, cq: Id) {
        let Some(channel) = self.channels.get_mut(channel) else { return };
        let before = channel.events.len();
        channel.events.retain(|c| *c != cq);
        if before != 0 && channel.events.is_empty() {
            lower(channel.fd);
        }
    }
}

/// Waits until a descriptor is readable, without the lock. Returns the errno of a wait that ended without.
pub(crate) fn wait(fd: c_int) -> Result<(), c_int> {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(libc::EBADF);
    }
    if flags & libc::O_NONBLOCK != 0 {
        return Err(libc::EAGAIN);
    }
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry of ours.
    match unsafe { libc::poll(&raw mut one, 1, -1) } {
        1 => Ok(()),
        _ => Err(libc::EINTR),
    }
}
