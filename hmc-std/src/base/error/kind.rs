//! The kinds of errors: whose fault each is, its status code, and what to do about it. One table.

use std::fmt;

use hmc_core::types::Status;

/// Whose fault an error is: who can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The caller: the call makes no sense, or comes at the wrong time. It fails again until the program changes.
    Caller,
    /// The peer: its process has ended, has refused, has withdrawn what the call needs, or does not keep to the protocol.
    Peer,
    /// This system: memory, limits, devices, libraries, or whoever should listen at an address.
    System,
    /// Nobody: the caller's own time or wish ended the call.
    Nobody,
}

impl Blame {
    /// The word for it, in lower case: `caller`, `peer`, `system`, `nobody`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Peer => "peer",
            Self::System => "system",
            Self::Nobody => "nobody",
        }
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Makes the enum, its documentation and its methods of the one table.
macro_rules! kinds {
    ($($(#[doc = $what:literal])+ $kind:ident: $blame:ident, $status:ident, $remedy:literal;)+) => {
        /// What went wrong. The kinds form four families, by who can do something about it ([`Blame`]). More kinds may come.
        ///
        /// The remedy is what [`ErrorKind::remedy`] returns; an [`Error`](crate::Error) may have one of its own.
        ///
        /// | kind | blame | status | remedy |
        /// | --- | --- | --- | --- |
        $(#[doc = concat!(
            "| [`", stringify!($kind), "`](ErrorKind::", stringify!($kind), ") | ", stringify!($blame), " | ",
            stringify!($status), " | ", $remedy, " |"
        )])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $what])+ $kind,)+
        }

        impl ErrorKind {
            /// All kinds, family by family.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Whose fault it is.
            #[must_use]
            pub const fn blame(self) -> Blame {
                match self {
                    $(Self::$kind => Blame::$blame,)+
                }
            }

            /// The status code of the C++ HMC for this kind.
            #[must_use]
            pub const fn status(self) -> Status {
                match self {
                    $(Self::$kind => Status::$status,)+
                }
            }

            /// What to do about it, whatever the case: a clause without a full stop.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$kind => $remedy,)+
                }
            }
        }
    };
}

kinds! {
    /// A range exceeds its limit ([`Error::range`](crate::Error::range) has the numbers). Nothing was written.
    Range: Caller, InvalidConfig, "keep the offset and the length within the limit";
    /// Two lengths that have to be equal, or one that has to be a multiple, are not
    /// ([`Error::limit`](crate::Error::limit) has the numbers).
    Length: Caller, InvalidConfig, "use memory of the length that the call needs";
    /// An argument or a setting makes no sense.
    InvalidConfig: Caller, InvalidConfig, "correct the argument or the setting";
    /// No peer, operation, region or window of that name.
    NotFound: Caller, NotFound, "connect to the peer, or register or expose the memory, before it is used";
    /// The result was taken before, or the object is of a link that is over.
    Stale: Caller, NotFound, "take a result once, and use objects of the present connection";
    /// The memory or the group is in use by an operation, a window or another thread.
    Busy: Caller, Error, "wait for what uses it, or revoke its window";
    /// A table or queue of this session is full ([`Error::limit`](crate::Error::limit) has the numbers, if they are known).
    Full: Caller, Error, "wait for something of this kind to end, or release some";
    /// This transport or dialect cannot do it.
    Unsupported: Caller, Unsupport, "connect by a transport that can do it; `explain` says which one is in use";
    /// The process forked; the child may not use the parent's session.
    Forked: Caller, Error, "start a new session in the child";
    /// The peer died, hung up or fell silent.
    PeerDead: Peer, Error, "connect to it again once it runs again";
    /// The peer said goodbye, or this session is shutting down.
    Closed: Peer, Error, "connect again; if this session was shut down, start another one";
    /// Another process already has this rank.
    DuplicateRank: Peer, Error, "choose another rank, or end the process that has this one";
    /// The peer refused the connection for another reason.
    Refused: Peer, Error, "look at the peer's own messages for the reason";
    /// Refused because nothing proves who the peer is.
    NoCredentials: Peer, InvalidConfig, "connect over a local socket, share the secret, or allow insecure peers";
    /// The peer speaks another version.
    Version: Peer, Error, "use the same release at both ends";
    /// The peer broke the protocol, or sent a message of another kind than was asked for.
    Protocol: Peer, Error, "check that the right program listens at that address, and in the same release";
    /// The window was revoked.
    Revoked: Peer, Error, "ask the peer to expose its memory again";
    /// The window was exposed again.
    StaleEpoch: Peer, Error, "find the window again by its label";
    /// The window does not allow this access.
    Access: Peer, Error, "ask the peer to expose the window with this right";
    /// The memory cannot be given back: a peer may still touch it ([`Error::limit`](crate::Error::limit) has the numbers if a
    /// limit refused the call).
    Quarantined: Peer, Error, "wait until the peer goes on or its process ends";
    /// Not enough memory ([`Error::limit`](crate::Error::limit) has the numbers, if they are known).
    NoSpace: System, Error, "free memory or ask for less";
    /// A limit of the system was reached: descriptors, locked memory, threads
    /// ([`Error::limit`](crate::Error::limit) has the numbers, if they are known).
    SystemLimit: System, Error, "raise the limit, or use less of what it limits";
    /// This machine, or the address, does not have it.
    Unavailable: System, Unsupport, "start or install what is missing; `hmc doctor` lists what this machine has";
    /// The operating system or a device failed.
    Io: System, Error, "look up the cause that the error has as its source, and the log of the system";
    /// A deadline passed. The operation may still hold its memory; see [`crate::Failed`].
    DeadlineExceeded: Nobody, Timeout, "wait longer, or find out what the peer waits for";
    /// The caller withdrew the operation.
    Cancelled: Nobody, Error, "start it again if it is still wanted";
    /// The caller asked, by its interrupt hook ([`crate::session::SessionBuilder::interrupt`]).
    Interrupted: Nobody, Error, "call again if it is still wanted";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use hmc_core::types::Status;

    use super::{Blame, ErrorKind};
    use crate::base::error::Error;

    #[test]
    fn each_kind_has_one_place_with_blame_status_and_remedy() {
        let mut seen = HashSet::new();
        for kind in ErrorKind::ALL {
            assert!(seen.insert(kind), "{kind:?} stands once");
            let e = Error::new(*kind, "x");
            assert_eq!((e.kind(), e.blame(), e.status()), (*kind, kind.blame(), kind.status()));
            assert_eq!(e.remedy(), kind.remedy());
            let remedy = kind.remedy();
            assert!(
                remedy.len() > 10 && !remedy.ends_with('.') && !remedy.contains('|'),
                "{remedy}"
            );
            assert!(remedy.starts_with(char::is_lowercase), "{remedy}");
        }
        assert_eq!(seen.len(), 27);
    }

    #[test]
    fn families_and_status_codes_stay() {
        use ErrorKind as K;
        let of = |blame| ErrorKind::ALL.iter().filter(|k| k.blame() == blame).count();
        let families = [Blame::Caller, Blame::Peer, Blame::System, Blame::Nobody];
        assert_eq!(families.map(of), [9, 11, 4, 3]);
        assert_eq!(families.map(|b| b.to_string()), ["caller", "peer", "system", "nobody"]);
        let statuses: [(&[K], Status); 4] = [
            (&[K::Range, K::Length, K::InvalidConfig, K::NoCredentials], Status::InvalidConfig),
            (&[K::NotFound, K::Stale], Status::NotFound),
            (&[K::DeadlineExceeded], Status::Timeout),
            (&[K::Unavailable, K::Unsupported], Status::Unsupport),
        ];
        let stated = |k: &K| statuses.iter().find(|(kinds, _)| kinds.contains(k)).map(|(_, s)| *s);
        for kind in K::ALL {
            assert_eq!(kind.status(), stated(kind).unwrap_or(Status::Error), "{kind:?}");
        }
        let (nobody, peer, system) = (Blame::Nobody, Blame::Peer, Blame::System);
        for (kind, blame) in
            [(K::Interrupted, nobody), (K::Quarantined, peer), (K::NoSpace, system)]
        {
            assert_eq!(kind.blame(), blame, "{kind:?}");
        }
    }
}
