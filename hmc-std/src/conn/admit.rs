//! Admits pending connections that have sent their rank: each becomes a link, or the second connection of one.

use std::sync::Arc;

use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::ranks::{Admission, Identity};
use hmc_core::types::{ConnType, Incarnation, Rank};
use hmc_core::wire::hello::{Features, LinkToken};
use hmc_core::wire::reject::RejectReason;

use crate::base::lock::lock;
use crate::base::private_ranks::is_private;
use crate::io::listener::PeerAddr;
use crate::io::socket::Socket;
use crate::link::ctrl::CtrlState;
use crate::link::data::DataState;
use crate::link::{Link, LinkInit, LinkState};
use crate::node::inbox::{Inbox, SharedInbox};
use crate::node::membership::{Input, Output as Decision};
use crate::state::inner::SessionInner;
use crate::state::listeners::CameBy;
use crate::state::pending_conns::{Claim, Handshaking, flush_reject};
use crate::state::reconnect_info::ReconnectInfo;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::{DataPlaneParams, Side};

/// What the data plane of a link is made of.
pub(crate) struct DataPlaneInit {
    pub(crate) serial: u32,
    pub(crate) conn: ConnType,
    /// The link's second connection.
    pub(crate) socket: Arc<Socket>,
    pub(crate) peer: Rank,
    /// The peer's process, when it is one of this host.
    pub(crate) pid: Option<u32>,
    /// The peer says that it runs on this system.
    pub(crate) near: bool,
    pub(crate) features: Features,
    pub(crate) inbox: SharedInbox,
}

impl SessionInner {
    pub(crate) fn admission(&self, input: Input) -> std::result::Result<(), RejectReason> {
        if self.is_leaving() {
            return Err(RejectReason::ShuttingDown);
        }
        match self.update_membership(input) {
            Decision::Admission(admission) => reason(admission).map_or(Ok(()), Err),
            _ => Err(RejectReason::Busy),
        }
    }

    /// The rank by which this session knows a pending connection that claims `rank`.
    fn rank_for(
        &self,
        rank: Rank,
        incarnation: Incarnation,
        who: Identity,
    ) -> std::result::Result<Rank, RejectReason> {
        if rank != self.config.rank || !self.config.private_ranks {
            return self.admission(Input::Hello { rank, incarnation, who }).map(|()| rank);
        }
        if self.is_leaving() {
            return Err(RejectReason::ShuttingDown);
        }
        self.private_rank().ok_or(RejectReason::Busy)
    }

    pub(crate) fn admit(
        &self,
        p: &mut Handshaking,
        claim: Claim,
    ) -> std::result::Result<(), RejectReason> {
        let Claim { rank, incarnation, host, route, elsewhere, proven } = claim;
        let who = Identity { host: host.0, proven };
        // A process that was killed and started again may be faster than the report of its death.
        if let Some(old) = self.link(rank)
            && old.incarnation < incarnation
        {
            old.poll_ctrl(false);
        }
        let peer = self.rank_for(rank, incarnation, who)?;
        let serial = self.next_serial();
        let busy = |_| RejectReason::Busy;
        let token = self.token_for(serial).map_err(busy)?;
        let at = match p.source {
            PeerAddr::Tcp(_) => p.socket.own_address().map(|own| own.ip()),
            PeerAddr::Uds { .. } => None,
        };
        let endpoints = self.endpoints(Some(CameBy { listener: p.listener, at }), elsewhere);
        let ours = self.hello(&endpoints, self.next_incarnation(), Some(rank)).map_err(busy)?;
        p.control.accept(&ours, token, self.clock.now()).map_err(|_| RejectReason::Busy)?;
        let peer_listens = route.is_some();
        if is_private(peer) {
            // Neither end could tell by its rank whether the other dials already.
        } else if let Some(address) = route {
            let redial = lock(&self.registry).redials(rank, peer_listens, self.listens());
            let conn = ConnType::Auto;
            lock(&self.routes).insert(rank, ReconnectInfo { address, conn, redial });
        } else {
            lock(&self.routes).remove(&rank);
        }
        // The data plane comes with the second connection.
        let data = DataState::new(AnyDataPlane::none(), self.config.slots, false, true);
        self.open(p, serial, peer, incarnation, host == self.host, data);
        Ok(())
    }

    pub(crate) fn admit_cxx(
        &self,
        p: &mut Handshaking,
        rank: Rank,
    ) -> std::result::Result<(), RejectReason> {
        // Upstream knows no incarnations: a rank that died may come back.
        let incarnation = self.next_incarnation();
        let peer = self.rank_for(rank, incarnation, Identity::default())?;
        p.control.accept_cxx().map_err(|_| RejectReason::Busy)?;
        let data = DataState::new(AnyDataPlane::none(), 1, true, false);
        let serial = self.next_serial();
        self.open(p, serial, peer, incarnation, false, data);
        if let Some(link) = self.link_by_serial(serial) {
            link.check_ready();
        }
        Ok(())
    }

    pub(crate) fn new_inbox(&self) -> SharedInbox {
        let (messages, bytes) = (self.config.inbox_messages, self.config.inbox_bytes);
        Arc::new(std::sync::Mutex::new(Inbox::new(messages, bytes)))
    }

    fn open(
        &self,
        p: &mut Handshaking,
        serial: u32,
        peer: Rank,
        incarnation: Incarnation,
        near: bool,
        data: DataState,
    ) {
        self.reactor.unwatch_socket(&p.socket);
        let acceptor =
            AcceptConfig { rank: self.config.rank, job: self.config.job, cxx: CxxPolicy::Refused };
        let spare = ControlConn::accepted(&acceptor, self.clock.now());
        let control = std::mem::replace(&mut p.control, spare);
        let framer = std::mem::replace(&mut p.framer, CtrlState::new_framer());
        let link = Link::new(LinkInit {
            dialed: false,
            session: self.id,
            serial,
            peer,
            incarnation,
            near,
            choices: Vec::new(),
            spin: self.config.spin,
            reactor: Arc::clone(&self.reactor),
            owner: self.owner(),
            ctrl: CtrlState::new(Arc::clone(&p.socket), control, framer),
            data,
            data_socket: None,
            inbox: self.new_inbox(),
        });
        self.publish(&link);
        link.ctrl().send_answers(self.clock.now());
        self.watch(&link);
    }

    /// The second connection of a link that was accepted before.
    pub(crate) fn admit_channel(
        &self,
        p: &mut Handshaking,
        rank: Rank,
        token: &LinkToken,
        channel: u8,
    ) -> std::result::Result<(), RejectReason> {
        let serial = lock(&self.tokens).take(token).ok_or(RejectReason::BadToken)?;
        let link = self.link_by_serial(serial).ok_or(RejectReason::BadToken)?;
        if !self.may_claim(link.peer, rank) || link.state() != LinkState::Opening {
            return Err(RejectReason::BadToken);
        }
        let domain = self.domains.of_endpoint(channel).filter(|domain| {
            domain.is_active()
                && match p.source {
                    PeerAddr::Uds { .. } => domain.side() != Side::Remote,
                    PeerAddr::Tcp(_) => domain.side() != Side::Local,
                }
        });
        // Not over this kind of connection.
        let domain = domain.ok_or(RejectReason::WrongEndpoint)?;
        let conn = domain.kind();
        let pid = match p.source {
            PeerAddr::Uds { pid } => Some(pid),
            PeerAddr::Tcp(_) => None,
        };
        let features = link.ctrl().machine.features();
        let plane = self
            .new_data_plane(DataPlaneInit {
                serial,
                conn,
                socket: Arc::clone(&p.socket),
                peer: rank,
                pid,
                near: link.near,
                features,
                inbox: link.inbox_handle(),
            })
            .map_err(|e| {
                tracing::warn!(peer = rank.0, error = %e, "no data plane for a peer that asked for one");
                // It has opened nothing: the peer may go on with it by another kind.
                lock(&self.tokens).insert(*token, serial);
                if link.state() != LinkState::Opening {
                    lock(&self.tokens).remove(serial);
                }
                RejectReason::Busy
            })?;
        if domain.side() == Side::Local {
            p.socket.let_descriptors_in();
        }
        p.control.accept_attach().map_err(|_| RejectReason::Busy)?;
        self.reactor.unwatch_socket(&p.socket);
        flush_reject(p);
        link.choose(conn, "the peer dialed it".into());
        if let Some(route) = lock(&self.routes).get_mut(&rank) {
            // Should it be lost: as the peer wanted it.
            route.conn = conn;
        }
        if !link.attach(Arc::clone(&p.socket), plane) {
            return Err(RejectReason::BadToken);
        }
        if let Err(e) = self.announce_buffer(&link) {
            link.close(false, &format!("its window could not be offered: {e}"));
            return Ok(());
        }
        self.watch(&link);
        link.check_ready();
        Ok(())
    }

    /// The data plane on a connected socket.
    pub(crate) fn new_data_plane(
        &self,
        way: DataPlaneInit,
    ) -> crate::base::error::Result<AnyDataPlane> {
        let DataPlaneInit { serial, conn, socket, peer, pid, near, features, inbox } = way;
        self.domains.find(conn)?.data_plane(DataPlaneParams {
            serial,
            socket,
            peer,
            pid,
            near,
            features,
            inbox,
            windows: self.config.windows,
            cma: self.config.cma,
            life: self.life.as_deref(),
        })
    }
}

/// Why a admission is a refusal, if it is.
fn reason(admission: Admission) -> Option<RejectReason> {
    match admission {
        Admission::Accept | Admission::Replace => None,
        Admission::Duplicate => Some(RejectReason::Duplicate),
        // It may try again when our own dial has come to nothing.
        Admission::Crossing => Some(RejectReason::Busy),
        Admission::Kept => Some(RejectReason::Kept),
        Admission::Stale { seen } => Some(RejectReason::Stale { seen }),
        Admission::BadRank { limit } => Some(RejectReason::BadRank { limit }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, RejectReason, reason};
    use hmc_core::types::Incarnation;

    #[test]
    fn each_refusal_of_a_pending_conn_has_its_own_reason() {
        let (seen, limit) = (Incarnation(7), 9);
        for (admission, why) in [
            (Admission::Accept, None),
            (Admission::Replace, None),
            (Admission::Duplicate, Some(RejectReason::Duplicate)),
            (Admission::Crossing, Some(RejectReason::Busy)),
            (Admission::Kept, Some(RejectReason::Kept)),
            (Admission::Stale { seen }, Some(RejectReason::Stale { seen })),
            (Admission::BadRank { limit }, Some(RejectReason::BadRank { limit })),
        ] {
            assert_eq!(reason(admission), why);
        }
    }
}
