//! An asynchronous event that was read from a device.

use std::mem::MaybeUninit;

use super::device::Device;
use super::event::{EventScope, EventType};
use super::sys::{ibv_async_event, ibv_cq};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// This completion queue, or a queue pair whose completions it takes.
    Queue(*mut ibv_cq),
    /// The port of this number.
    Port(u8),
    /// The device.
    Device,
    /// Something that HMC does not make, or does not know.
    Other,
}

/// An event. The drop acknowledges it: libibverbs does not destroy its object before.
pub(super) struct AsyncEvent<'d> {
    device: &'d Device,
    raw: ibv_async_event,
}

impl<'d> AsyncEvent<'d> {
    /// Takes the next event of a device. Does not wait for one.
    pub(super) fn take(device: &'d Device) -> Option<Self> {
        // In a forked child they are the parent's.
        if device.library().is_inherited() {
            return None;
        }
        let mut raw = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open; it writes the event if it returns 0.
        let got = unsafe { (device.api().ibv_get_async_event)(device.context(), raw.as_mut_ptr()) };
        if got != 0 {
            return None;
        }
        // SAFETY: zeroed, then written: a number, and a pointer that may be null.
        let raw = unsafe { raw.assume_init() };
        Some(Self { device, raw })
    }

    /// Its kind.
    pub(super) fn kind(&self) -> EventType {
        EventType(self.raw.event_type)
    }

    /// What it is about.
    pub(super) fn subject(&self) -> Subject {
        match self.kind().scope() {
            // SAFETY: the member that is valid for events of this scope.
            EventScope::CompletionQueue => Subject::Queue(unsafe { self.raw.element.cq }),
            EventScope::QueuePair => {
                // SAFETY: as above.
                let qp = unsafe { self.raw.element.qp };
                // SAFETY: the queue pair is not destroyed before the event is acknowledged; its queue never changes.
                let cq = unsafe { (*qp).send_cq };
                Subject::Queue(cq)
            }
            EventScope::Port => {
                // SAFETY: as above.
                let number = unsafe { self.raw.element.port_num };
                u8::try_from(number).map_or(Subject::Other, Subject::Port)
            }
            EventScope::Device => Subject::Device,
            _ => Subject::Other,
        }
    }
}

impl Drop for AsyncEvent<'_> {
    fn drop(&mut self) {
        // SAFETY: read in `take`, acknowledged once.
        unsafe { (self.device.api().ibv_ack_async_event)(&mut self.raw) };
    }
}
