//! Dialing: from an address to a ready link, on the caller's thread, within a deadline.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::ctrl::ranks::Identity;
use hmc_core::types::{ConnType, Rank};
use hmc_core::wire::reject::RejectReason;

use crate::base::address::Address;
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::base::private_ranks::{is_private, too_many};
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::conn::connector::{ConnectStep, Connector};
use crate::conn::dial_target::DialTarget;
use crate::conn::handshake::{Handshake, open, open_path, wait_for_answer};
use crate::io::rest_socket::RestSocket;
use crate::io::socket::Socket;
use crate::link::ctrl::CtrlState;
use crate::link::data::DataState;
use crate::link::{Link, LinkInit, LinkState, WaitScope};
use crate::node::membership::{Input, Output as Decision};
use crate::state::inner::SessionInner;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::registry;

impl SessionInner {
    /// Connects to `rank` at `address`. Returns when the link is ready.
    pub(crate) fn dial(
        &self,
        rank: Rank,
        address: &Address,
        conn: ConnType,
        until: WaitLimit,
    ) -> Result<Arc<Link>> {
        self.drive(&mut Connector::new(rank, address, conn, until.at), until)
    }

    /// Drives a wish to be connected to its end, on this thread. After a panic of a transport of the application the rank may be
    /// dialed again.
    pub(crate) fn drive(&self, connector: &mut Connector, until: WaitLimit) -> Result<Arc<Link>> {
        catch_unwind(AssertUnwindSafe(|| self.drive_on(connector, until))).unwrap_or_else(|panic| {
            if !self.origin.is_child() {
                connector.abandon(self);
            }
            resume_unwind(panic)
        })
    }

    fn drive_on(&self, connector: &mut Connector, until: WaitLimit) -> Result<Arc<Link>> {
        let (rank, claims) = (connector.rank(), connector.claims);
        loop {
            let need = match connector.advance(self)? {
                Ok(link) => return Ok(link),
                Err(need) => need,
            };
            match need {
                ConnectStep::Open(target) => {
                    let opened = match &target {
                        DialTarget::Address(address) => open(address, claims, until),
                        DialTarget::Path(path) => open_path(path, until),
                    };
                    match opened {
                        // Nothing else is tried then.
                        Err(e) if e.kind() == ErrorKind::Forked => return Err(e),
                        Err(e) if e.kind() == ErrorKind::Interrupted => {
                            connector.abandon(self);
                            return Err(e.with_peer(claims));
                        }
                        opened => connector.opened(self, opened.map(Socket::from))?,
                    }
                }
                ConnectStep::Receive => {
                    let answer =
                        connector.socket().map(|s| wait_for_answer(s, self.config.spin, until));
                    if let Some(Err(e)) = answer {
                        if e.kind() != ErrorKind::Forked {
                            connector.abandon(self);
                        }
                        return Err(e.with_peer(claims));
                    }
                }
                ConnectStep::Drive(link) => {
                    let open = |l: &Link| (l.state() != LinkState::Opening).then_some(());
                    // When the time has come, the next step says so.
                    if let Err(stop @ (WaitStopped::Interrupted | WaitStopped::Forked)) =
                        link.drive(WaitScope::Both, until, open)
                    {
                        // In a child the link is the parent's.
                        if stop != WaitStopped::Forked {
                            link.bye(clock::now());
                            link.close(false, "its dial was interrupted");
                        }
                        return Err(stop.error("connecting").with_peer(rank));
                    }
                }
                ConnectStep::Pause(at) => {
                    let nothing = |_: &Self| None::<()>;
                    let paused =
                        self.wait_for_event(until.with_deadline(at.min(until.at)), nothing);
                    if let Err(stop @ (WaitStopped::Interrupted | WaitStopped::Forked)) = paused {
                        if stop != WaitStopped::Forked {
                            connector.abandon(self);
                        }
                        return Err(stop.error("connecting").with_peer(rank));
                    }
                }
                ConnectStep::Event { by, taken } => {
                    let events = self.wait_for_event(until.with_deadline(by.min(until.at)), |s| {
                        let ready = s.link(rank).is_some_and(|l| l.is_ready_now());
                        (ready || lock(&s.registry).is_taken(rank) != taken).then_some(())
                    });
                    if let Err(stop @ (WaitStopped::Interrupted | WaitStopped::Forked)) = events {
                        if stop != WaitStopped::Forked {
                            connector.abandon(self);
                        }
                        return Err(stop.error("connecting").with_peer(rank));
                    }
                }
            }
        }
    }

    /// Connects to a node of the C++ HMC, on the control plane only. Its HELLO has no answer, so
    /// this returns when the words were sent.
    pub(crate) fn dial_cxx(
        &self,
        rank: Rank,
        address: &Address,
        until: WaitLimit,
    ) -> Result<Arc<Link>> {
        self.check_exposure(address)?;
        let claims = rank;
        let rank = if rank == self.config.rank && self.config.private_ranks {
            self.private_rank().ok_or_else(too_many)?
        } else {
            rank
        };
        if !is_private(rank) && self.update_membership(Input::Dial { rank }) == Decision::No {
            return Err(self.refusal(rank, RejectReason::Duplicate));
        }
        let made = open(address, claims, until).and_then(|fd| {
            let control = ControlConn::dial_cxx(self.config.rank, rank, clock::now())
                .map_err(|e| Error::new(ErrorKind::InvalidConfig, e.to_string()))?;
            let mut talk = Handshake::new(fd.into(), control);
            talk.flush()?;
            Ok(talk)
        });
        let talk = match made {
            Ok(talk) => talk,
            Err(e) => {
                self.update_membership(Input::DialFailed { rank });
                return Err(e.with_peer(rank));
            }
        };
        let incarnation = self.next_incarnation();
        if !is_private(rank) {
            // Another process may have taken the rank meanwhile, or it is kept for one that has proved itself.
            let welcome = Input::Welcome { rank, incarnation, who: Identity::default() };
            if let Err(why) = self.admission(welcome) {
                self.update_membership(Input::DialFailed { rank });
                return Err(self.refusal(claims, why));
            }
        }
        self.update_membership(Input::Linked { rank });
        let link = Link::new(LinkInit {
            dialed: true,
            session: self.id,
            serial: self.next_serial(),
            peer: rank,
            incarnation,
            near: false,
            choices: Vec::new(),
            spin: self.config.spin,
            reactor: Arc::clone(&self.reactor),
            owner: self.owner(),
            ctrl: CtrlState::new(talk.socket, talk.control, talk.framer),
            data: DataState::new(AnyDataPlane::none(), 1, true, false),
            data_socket: None,
            inbox: self.new_inbox(),
        });
        self.publish(&link);
        self.watch(&link);
        link.check_ready();
        Ok(link)
    }

    /// The link of this session to itself. Threads that ask for it at the same time get one link.
    pub(crate) fn dial_self(&self) -> Result<Arc<Link>> {
        let rank = self.config.rank;
        let _making = lock(&self.making_own_link);
        if let Some(link) = self.link(rank) {
            return Ok(link);
        }
        if self.is_leaving() {
            return Err(Error::new(ErrorKind::Closed, "this session is shutting down"));
        }
        let inbox = self.new_inbox();
        let plane = registry::loopback(self.config.windows, Arc::clone(&inbox));
        let control = ControlConn::dial_cxx(rank, rank, clock::now())
            .map_err(|e| Error::new(ErrorKind::InvalidConfig, e.to_string()))?;
        // A socket that never says anything stands for the control connection.
        let socket = RestSocket::socket()?;
        let link = Link::new(LinkInit {
            dialed: true,
            session: self.id,
            serial: self.next_serial(),
            peer: rank,
            incarnation: self.next_incarnation(),
            near: true,
            choices: Vec::new(),
            spin: self.config.spin,
            reactor: Arc::clone(&self.reactor),
            owner: self.owner(),
            ctrl: CtrlState::new(socket, control, CtrlState::new_framer()),
            data: DataState::new(plane, self.config.slots, true, true),
            data_socket: None,
            inbox,
        });
        link.choose(ConnType::Loopback, "this session itself".into());
        self.publish(&link);
        self.announce_buffer(&link)?;
        link.check_ready();
        Ok(link)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::time::Duration;

    use hmc_core::types::ConnType;

    use crate::api::session::Session;
    use crate::base::error::{Error, Result};
    use crate::transport::data_plane::AnyDataPlane;
    use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};

    const LONG: Duration = Duration::from_secs(10);
    const PANICKING: ConnType = ConnType::Custom("panicking");

    struct Panicking;

    impl Domain for Panicking {
        fn kind(&self) -> ConnType {
            PANICKING
        }

        fn endpoint(&self) -> u8 {
            128
        }

        fn side(&self) -> Side {
            Side::Remote
        }

        fn unfit(&self, _peer: &PeerFacts<'_>, _by_name: bool) -> Option<String> {
            panic!("for a test")
        }

        fn fit(&self) -> &'static str {
            "never"
        }

        fn data_plane(&self, _params: DataPlaneParams<'_>) -> Result<AnyDataPlane> {
            Err(Error::config("no link is made"))
        }
    }

    #[test]
    fn threads_that_first_ask_for_the_sessions_own_peer_share_one_link() {
        const THREADS: usize = 4;
        for round in 0..200 {
            let session = Session::builder(3).buffer(64).start().expect("a session");
            let together = Barrier::new(THREADS);
            let ask = || {
                together.wait();
                let peer = session.peer(3).expect("its own");
                assert!(peer.is_connected(), "round {round}");
                peer.link.serial
            };
            let serials: Vec<_> = std::thread::scope(|s| {
                let asking: Vec<_> = (0..THREADS).map(|_| s.spawn(ask)).collect();
                asking.into_iter().map(|thread| thread.join().expect("it asks")).collect()
            });
            let first = serials.first();
            assert!(serials.iter().all(|s| Some(s) == first), "round {round}: {serials:?}");
        }
    }

    #[test]
    fn a_rank_can_be_dialed_again_after_a_panic_of_a_transport() {
        let target = Session::builder(1).buffer(64).tcp("127.0.0.1:0").start().expect("a target");
        let source = Session::builder(0).buffer(64).transport(Panicking).start().expect("a source");
        let at = target.info().listeners.remove(0).address().clone();
        let dial = || source.connect(&at).rank(1).over(PANICKING).within(LONG).wait().map(drop);
        assert!(catch_unwind(AssertUnwindSafe(dial)).is_err(), "the panic goes on");
        let peer = source
            .connect(&at)
            .rank(1)
            .over(ConnType::Tcp)
            .within(LONG)
            .wait()
            .expect("nobody else dials");
        peer.buffer().expect("connected").put(0, &[0; 64]).wait().expect("connected");
    }
}
