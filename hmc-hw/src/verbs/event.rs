//! Asynchronous events of a device: `ibv_event_type`.
//!
//! Values and texts are those of libibverbs 44.0 to 65.0. An unknown number is never fatal: a later kernel may send
//! events that are not in any list.

use core::fmt;

use super::sys;

/// The kind of an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventType(pub u32);

/// The object that an event is about, which `ibv_async_event` has in its `element`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventScope {
    /// A completion queue.
    CompletionQueue,
    /// A queue pair.
    QueuePair,
    /// A shared receive queue.
    SharedReceiveQueue,
    /// A work queue, which HMC never makes.
    WorkQueue,
    /// A port of the device, by its number.
    Port,
    /// The device as a whole.
    Device,
    /// Not known.
    Unknown,
}

/// What an event means for its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventEffect {
    /// The object has failed and stays so.
    Failed,
    /// Something has changed: attributes of a port are read again.
    Changed,
    /// For information.
    Info,
}

/// `IBV_EVENT_DEVICE_SPEED_CHANGE`, of rdma-core 65; earlier headers lack it.
const DEVICE_SPEED_CHANGE: u32 = 20;

/// An event, its name, its text in libibverbs.
const NAMES: [(u32, &str, &str); 21] = [
    (sys::IBV_EVENT_CQ_ERR, "CQ_ERR", "CQ error"),
    (sys::IBV_EVENT_QP_FATAL, "QP_FATAL", "local work queue catastrophic error"),
    (sys::IBV_EVENT_QP_REQ_ERR, "QP_REQ_ERR", "invalid request local work queue error"),
    (sys::IBV_EVENT_QP_ACCESS_ERR, "QP_ACCESS_ERR", "local access violation work queue error"),
    (sys::IBV_EVENT_COMM_EST, "COMM_EST", "communication established"),
    (sys::IBV_EVENT_SQ_DRAINED, "SQ_DRAINED", "send queue drained"),
    (sys::IBV_EVENT_PATH_MIG, "PATH_MIG", "path migrated"),
    (sys::IBV_EVENT_PATH_MIG_ERR, "PATH_MIG_ERR", "path migration request error"),
    (sys::IBV_EVENT_DEVICE_FATAL, "DEVICE_FATAL", "local catastrophic error"),
    (sys::IBV_EVENT_PORT_ACTIVE, "PORT_ACTIVE", "port active"),
    (sys::IBV_EVENT_PORT_ERR, "PORT_ERR", "port error"),
    (sys::IBV_EVENT_LID_CHANGE, "LID_CHANGE", "LID change"),
    (sys::IBV_EVENT_PKEY_CHANGE, "PKEY_CHANGE", "P_Key change"),
    (sys::IBV_EVENT_SM_CHANGE, "SM_CHANGE", "SM change"),
    (sys::IBV_EVENT_SRQ_ERR, "SRQ_ERR", "SRQ catastrophic error"),
    (sys::IBV_EVENT_SRQ_LIMIT_REACHED, "SRQ_LIMIT_REACHED", "SRQ limit reached"),
    (sys::IBV_EVENT_QP_LAST_WQE_REACHED, "QP_LAST_WQE_REACHED", "last WQE reached"),
    (sys::IBV_EVENT_CLIENT_REREGISTER, "CLIENT_REREGISTER", "client reregistration"),
    (sys::IBV_EVENT_GID_CHANGE, "GID_CHANGE", "GID table change"),
    (sys::IBV_EVENT_WQ_FATAL, "WQ_FATAL", "WQ fatal"),
    (DEVICE_SPEED_CHANGE, "DEVICE_SPEED_CHANGE", "Device link speed change"),
];

impl EventType {
    /// Returns the name without `IBV_EVENT_`, or `None` for an unknown number.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, ..)| *number == self.0).map(|(_, name, _)| *name)
    }

    /// Returns the text of `ibv_event_type_str`, or `None` for an unknown number.
    #[must_use]
    pub fn text(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, ..)| *number == self.0).map(|(.., text)| *text)
    }

    /// Returns the object that it is about. Only that member of `element` is valid.
    #[must_use]
    pub const fn scope(self) -> EventScope {
        match self.0 {
            sys::IBV_EVENT_CQ_ERR => EventScope::CompletionQueue,
            sys::IBV_EVENT_QP_FATAL..=sys::IBV_EVENT_PATH_MIG_ERR
            | sys::IBV_EVENT_QP_LAST_WQE_REACHED => EventScope::QueuePair,
            sys::IBV_EVENT_DEVICE_FATAL | DEVICE_SPEED_CHANGE => EventScope::Device,
            sys::IBV_EVENT_PORT_ACTIVE..=sys::IBV_EVENT_SM_CHANGE
            | sys::IBV_EVENT_CLIENT_REREGISTER
            | sys::IBV_EVENT_GID_CHANGE => EventScope::Port,
            sys::IBV_EVENT_SRQ_ERR | sys::IBV_EVENT_SRQ_LIMIT_REACHED => {
                EventScope::SharedReceiveQueue
            }
            sys::IBV_EVENT_WQ_FATAL => EventScope::WorkQueue,
            _ => EventScope::Unknown,
        }
    }

    /// Returns what it means for its object. An unknown event is for information, as is a path migration that was refused: the queue
    /// pair goes on by the path that it has.
    #[must_use]
    pub const fn effect(self) -> EventEffect {
        match self.0 {
            sys::IBV_EVENT_CQ_ERR
            | sys::IBV_EVENT_QP_FATAL
            | sys::IBV_EVENT_QP_REQ_ERR
            | sys::IBV_EVENT_QP_ACCESS_ERR
            | sys::IBV_EVENT_DEVICE_FATAL
            | sys::IBV_EVENT_SRQ_ERR
            | sys::IBV_EVENT_WQ_FATAL => EventEffect::Failed,
            sys::IBV_EVENT_PORT_ACTIVE..=sys::IBV_EVENT_SM_CHANGE
            | sys::IBV_EVENT_CLIENT_REREGISTER
            | sys::IBV_EVENT_GID_CHANGE
            | DEVICE_SPEED_CHANGE => EventEffect::Changed,
            _ => EventEffect::Info,
        }
    }

    /// Returns what the reader of an error can do about it, or `None` if nothing has to be done.
    #[must_use]
    pub const fn remedy(self) -> Option<&'static str> {
        Some(match self.0 {
            sys::IBV_EVENT_CQ_ERR => {
                "more completions came than the queue has entries, or the device failed: connect again, with fewer \
                 operations in flight"
            }
            sys::IBV_EVENT_QP_FATAL | sys::IBV_EVENT_SRQ_ERR | sys::IBV_EVENT_WQ_FATAL => {
                "the device failed: see the kernel log (`dmesg`), then connect again"
            }
            sys::IBV_EVENT_QP_REQ_ERR | sys::IBV_EVENT_QP_ACCESS_ERR => {
                "the peer sent a request that this end does not allow: a window that was revoked, or another version of \
                 HMC; connect again"
            }
            sys::IBV_EVENT_DEVICE_FATAL => {
                "the device failed or was removed: see the kernel log (`dmesg`), reset it or choose another device"
            }
            sys::IBV_EVENT_PORT_ERR => {
                "the port is down: look at its cable and switch, and at `ibv_devinfo` or `rdma link`; operations go on \
                 if it comes back before they time out"
            }
            sys::IBV_EVENT_LID_CHANGE
            | sys::IBV_EVENT_PKEY_CHANGE
            | sys::IBV_EVENT_SM_CHANGE
            | sys::IBV_EVENT_CLIENT_REREGISTER
            | sys::IBV_EVENT_GID_CHANGE => {
                "the port has another address: connections that fail from now on have to be made again"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self.name()) {
            (Some(text), Some(name)) => write!(f, "{text} ({name}, event {})", self.0)?,
            _ => write!(f, "unknown event {}", self.0)?,
        }
        self.remedy().map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventType({}: {})", self.0, self.name().unwrap_or("unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::{EventEffect, EventScope, EventType, NAMES, sys};

    #[test]
    fn numbers_are_in_order_and_have_names_and_texts() {
        for (at, (number, name, text)) in (0_u32..).zip(NAMES) {
            let event = EventType(at);
            assert_eq!((number, event.name(), event.text()), (at, Some(name), Some(text)));
            let shown = event.to_string();
            assert!(shown.starts_with(&format!("{text} ({name}, event {at})")), "{shown}");
        }
    }

    #[test]
    fn elements_are_those_of_the_header() {
        use EventScope::{CompletionQueue, Device, Port, QueuePair, SharedReceiveQueue, WorkQueue};
        let scopes = [
            CompletionQueue,
            QueuePair,
            QueuePair,
            QueuePair,
            QueuePair,
            QueuePair,
            QueuePair,
            QueuePair,
            Device,
            Port,
            Port,
            Port,
            Port,
            Port,
            SharedReceiveQueue,
            SharedReceiveQueue,
            QueuePair,
            Port,
            Port,
            WorkQueue,
            Device,
        ];
        for (number, scope) in (0_u32..).zip(scopes) {
            assert_eq!(EventType(number).scope(), scope, "{:?}", EventType(number));
        }
    }

    #[test]
    fn an_unknown_event_is_never_fatal() {
        for unknown in [21, 22, 1000, u32::MAX] {
            let event = EventType(unknown);
            assert_eq!(event.scope(), EventScope::Unknown);
            assert_eq!(event.effect(), EventEffect::Info);
            assert_eq!((event.name(), event.text(), event.remedy()), (None, None, None));
            assert_eq!(event.to_string(), format!("unknown event {unknown}"));
            assert_eq!(format!("{event:?}"), format!("EventType({unknown}: unknown)"));
        }
    }

    #[test]
    fn each_failure_has_a_remedy() {
        let mut failures = 0;
        for event in (0..21).map(EventType) {
            match event.effect() {
                EventEffect::Failed => {
                    failures += 1;
                    assert!(event.to_string().contains("): "), "{event}");
                }
                EventEffect::Changed => assert_ne!(event.scope(), EventScope::QueuePair),
                EventEffect::Info => assert_eq!(event.remedy(), None, "{event}"),
            }
        }
        assert_eq!(failures, 7);
        let refused = EventType(sys::IBV_EVENT_PATH_MIG_ERR);
        assert_eq!(refused.effect(), EventEffect::Info, "the connection goes on by its path");
    }
}
