//! Processes that meet over control connections: the machines of the crate, and around them a driver that does
//! what drivers do, in any order. See `explore_handshake.rs`.

use super::explore::{Edge, Model, Pool};
use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::io::{ControlEvent, ControlOutput};
use hmc_core::ctrl::ranks::{Admission, Identity, RankEntry, RankTable};
use hmc_core::ctrl::state::ControlState as Ctrl;
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::{Asked, Endpoints, Features, Hello, HostId, LinkToken};
use hmc_core::wire::reject::RejectReason;
use std::collections::HashMap;

const NOW: Instant = Instant::ZERO;
const RANKS: usize = 3;

/// A bug that can be planted in what is around the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A pending connection with the rank of a live peer is accepted.
    EvictOnDuplicate,
    /// A pending connection of an ended incarnation is accepted.
    TakeTheStale,
    /// The end of a dial that was refused is not reported to the table.
    ForgetTheRefusal,
    /// A process answers with the life it was born in, whatever it said since.
    AnswerWithTheFirstLife,
}

/// What the processes are, and how much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The rank of each process; each has an identity of its own.
    pub(crate) ranks: &'static [u32],
    pub(crate) dials: u8,
    pub(crate) cuts: u8,
    pub(crate) restarts: u8,
    pub(crate) byes: u8,
    pub(crate) bug: Bug,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Proc {
    up: bool,
    table: u16,
    /// The life that it last spoke of.
    life: u8,
    /// The life in which it began.
    born: u8,
    dials: u8,
    /// The highest life of each rank that was let in here, and whose it was.
    top: [(u8, u8); RANKS],
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct End {
    open: bool,
    control: u16,
    /// What is on its way to this end.
    inbox: Vec<u16>,
    /// The life of the peer, when this end counts the connection as its link.
    link: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Conn {
    procs: [u8; 2],
    cut: bool,
    /// The dialer's, then the acceptor's.
    ends: [End; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    procs: Vec<Proc>,
    conns: Vec<Conn>,
    cuts: u8,
    restarts: u8,
    byes: u8,
}

/// Calls of a rank table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Op {
    Admit(Rank, u8, Identity),
    Welcome(Rank, u8, Identity),
    Dial(Rank),
    DialFailed(Rank),
    Died(Rank, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Input {
    Poll,
    Receive(u16),
    Accept(u8, u8, Rank),
    Reject,
    Abort,
    Bye,
}

#[derive(Clone, Debug)]
enum Received {
    Hello((Rank, u8, Identity)),
    Welcome((Rank, u8, Identity)),
    Bye,
    Nothing,
}

#[derive(Clone, Debug)]
struct Done {
    control: u16,
    sent: Vec<u16>,
    received: Result<Received, String>,
    state: Ctrl,
}

const fn of_host(host: [u8; 16]) -> Identity {
    Identity { host, proven: true }
}

pub(crate) struct HandshakeModel {
    calls: HashMap<(u16, Op), (u16, Admission)>,
    done: HashMap<(u16, Input), Done>,
    plan: Plan,
    pub(crate) tables: Pool<RankTable<[RankEntry; RANKS]>>,
    pub(crate) controls: Pool<ControlConn>,
    frames: Pool<Vec<u8>>,
}

impl HandshakeModel {
    pub(crate) fn new(plan: Plan) -> Self {
        let (calls, done) = (HashMap::new(), HashMap::new());
        Self { calls, done, plan, tables: Pool::new(), controls: Pool::new(), frames: Pool::new() }
    }

    fn rank(&self, p: u8) -> Rank {
        Rank(self.plan.ranks[usize::from(p)])
    }

    fn who(p: u8) -> Identity {
        of_host([p + 1; 16])
    }

    fn hello(&self, p: u8, life: u8, expected: Rank) -> Hello<'static> {
        Hello {
            features: Features::empty(),
            job: 1,
            rank: self.rank(p),
            incarnation: Incarnation(u64::from(life)),
            nonce: [0; 16],
            expected: Some(expected),
            host: HostId(Self::who(p).host),
            heartbeat: Duration::ZERO,
            slots: 1,
            asked: &Asked::ANY,
            proves: false,
            endpoints: Endpoints::EMPTY,
        }
    }

    /// A call of a process's rank table. Each is made once for each distinct table.
    fn table(&mut self, w: &mut World, p: u8, call: Op) -> Admission {
        let proc = &mut w.procs[usize::from(p)];
        let tables = &mut self.tables;
        let (next, admission) =
            *self.calls.entry((proc.table, call)).or_insert_with_key(|(id, call)| {
                let mut r = tables.get(*id);
                let life = |n: u8| Incarnation(u64::from(n));
                let of = |yes: bool| if yes { Admission::Accept } else { Admission::Duplicate };
                let admission = match *call {
                    Op::Admit(rank, n, who) => r.admit(rank, life(n), who, Instant::ZERO),
                    Op::Welcome(rank, n, who) => r.admit_welcome(rank, life(n), who, Instant::ZERO),
                    Op::Dial(rank) => of(r.dial(rank)),
                    Op::DialFailed(rank) => {
                        r.dial_failed(rank);
                        Admission::Accept
                    }
                    Op::Died(rank, n) => of(r.mark_dead(rank, life(n), Instant::ZERO)),
                };
                (tables.put(r), admission)
            });
        proc.table = next;
        admission
    }

    /// One input to a machine, then outputs until there are none. Each is tried once.
    fn control(&mut self, id: u16, input: Input) -> Done {
        if let Some(done) = self.done.get(&(id, input)) {
            return done.clone();
        }
        let mut c = self.controls.get(id);
        let mut received = Ok(Received::Nothing);
        match input {
            Input::Poll => {}
            Input::Receive(frame) => {
                let bytes = self.frames.get(frame);
                let (head, payload) = bytes.split_first_chunk::<8>().unwrap();
                let header = Header::parse(head, c.frame_limit()).unwrap();
                let peer = |h: &Hello<'_>| (h.rank, h.incarnation.0 as u8, of_host(h.host.0));
                received = match c.receive(header, payload, NOW) {
                    Ok(Some(ControlEvent::HelloReceived(h))) => Ok(Received::Hello(peer(&h))),
                    Ok(Some(ControlEvent::Connected(m))) => Ok(Received::Welcome(peer(&m.hello))),
                    Ok(Some(ControlEvent::PeerBye)) => Ok(Received::Bye),
                    Ok(_) => Ok(Received::Nothing),
                    Err(v) => Err(v.to_string()),
                };
            }
            Input::Accept(p, life, to) => {
                let ours = self.hello(p, life, to);
                c.accept(&ours, LinkToken([0; 16]), NOW).unwrap();
            }
            Input::Reject => c.reject(RejectReason::Duplicate).unwrap(),
            Input::Abort => c.abort(),
            Input::Bye => c.bye(NOW, NOW).unwrap(),
        }
        let mut sent = Vec::new();
        while let Some(out) = c.poll_output() {
            if let ControlOutput::Transmit(f) = out {
                sent.push(self.frames.put(f.as_bytes().to_vec()));
            }
        }
        let state = c.state();
        let done = Done { control: self.controls.put(c), sent, received, state };
        self.done.insert((id, input), done.clone());
        done
    }

    /// The same for one end of a connection: what it sends goes to the other end.
    fn drive(&mut self, conn: &mut Conn, side: usize, input: Input) -> Done {
        let done = self.control(conn.ends[side].control, input);
        conn.ends[side].control = done.control;
        if !conn.cut && conn.ends[1 - side].open {
            conn.ends[1 - side].inbox.extend(&done.sent);
        }
        done
    }

    /// This end is closed: its socket is closed, and the table records a link's end.
    fn close(&mut self, w: &mut World, at: usize, side: usize) {
        let conn = &mut w.conns[at];
        let (p, q) = (conn.procs[side], conn.procs[1 - side]);
        let end = &mut conn.ends[side];
        end.open = false;
        end.inbox.clear();
        end.control = 0;
        let rank = self.rank(q);
        if let Some(life) = end.link.take() {
            self.table(w, p, Op::Died(rank, life));
        } else if side == 0 && self.plan.bug != Bug::ForgetTheRefusal {
            self.table(w, p, Op::DialFailed(rank));
        }
    }

    /// The owner's part: it decides about a pending connection, takes an answer, answers BYE.
    fn receive(&mut self, w: &mut World, at: usize, side: usize) -> Result<(), String> {
        let (p, q) = (w.conns[at].procs[side], w.conns[at].procs[1 - side]);
        let frame = w.conns[at].ends[side].inbox.remove(0);
        let mut done = self.drive(&mut w.conns[at], side, Input::Receive(frame));
        match done.received {
            Ok(Received::Hello((rank, life, who))) => {
                let admission = self.table(w, p, Op::Admit(rank, life, who));
                let admission = match (self.plan.bug, admission) {
                    (Bug::EvictOnDuplicate, Admission::Duplicate) => Admission::Replace,
                    (Bug::TakeTheStale, Admission::Stale { .. }) => Admission::Replace,
                    _ => admission,
                };
                if admission.accepted() {
                    self.admitted(w, p, q, life)?;
                    let incarnation = self.reply_incarnation(w, p);
                    w.procs[usize::from(p)].life += 1;
                    w.conns[at].ends[side].link = Some(life);
                    done = self.drive(&mut w.conns[at], side, Input::Accept(p, incarnation, rank));
                } else {
                    done = self.drive(&mut w.conns[at], side, Input::Reject);
                }
            }
            Ok(Received::Welcome((rank, life, who))) => {
                if self.table(w, p, Op::Welcome(rank, life, who)).accepted() {
                    w.conns[at].ends[side].link = Some(life);
                } else {
                    done = self.drive(&mut w.conns[at], side, Input::Abort);
                }
            }
            Ok(Received::Bye) => done = self.drive(&mut w.conns[at], side, Input::Bye),
            Ok(Received::Nothing) => {}
            Err(v) => return Err(format!("process {p} received nonsense from {q}: {v}")),
        }
        if done.state == Ctrl::Closed {
            self.close(w, at, side);
        }
        self.check_links(w)
    }

    /// The incarnation in which a process answers: a new one.
    fn reply_incarnation(&self, w: &World, p: u8) -> u8 {
        let proc = &w.procs[usize::from(p)];
        if self.plan.bug == Bug::AnswerWithTheFirstLife { proc.born } else { proc.life + 1 }
    }

    /// A pending connection was accepted: it must be of a later incarnation than all before, and the same as before.
    fn admitted(&mut self, w: &mut World, p: u8, q: u8, life: u8) -> Result<(), String> {
        let rank = self.rank(q).0 as usize;
        let (top, whose) = w.procs[usize::from(p)].top[rank];
        if top != 0 && whose != q + 1 {
            return Err(format!("process {p} let {q} take a rank that belongs to {}", whose - 1));
        }
        if life <= top {
            return Err(format!("process {p} let life {life} of {q} in after life {top}"));
        }
        w.procs[usize::from(p)].top[rank] = (life, q + 1);
        Ok(())
    }

    fn check_links(&self, w: &World) -> Result<(), String> {
        for p in 0..w.procs.len() as u8 {
            for rank in 0..RANKS as u32 {
                let links = w.conns.iter().flat_map(|c| {
                    [0, 1].map(|side| {
                        let mine = c.procs[side] == p && c.ends[side].link.is_some();
                        usize::from(mine && self.rank(c.procs[1 - side]).0 == rank)
                    })
                });
                if links.sum::<usize>() > 1 {
                    return Err(format!("process {p} has two live links to rank {rank}"));
                }
            }
        }
        Ok(())
    }

    /// Steps that begin something.
    fn begin(&mut self, s: &World, out: &mut Vec<Edge<World>>) {
        let n = s.procs.len() as u8;
        for p in 0..n {
            for q in 0..n {
                if self.rank(q) == self.rank(p) {
                    continue;
                }
                if !s.procs[usize::from(p)].up || s.procs[usize::from(p)].dials == 0 {
                    continue;
                }
                let mut w = s.clone();
                let rank = self.rank(q);
                w.procs[usize::from(p)].dials -= 1;
                if !w.procs[usize::from(q)].up || !self.table(&mut w, p, Op::Dial(rank)).accepted()
                {
                    continue;
                }
                let proc = &mut w.procs[usize::from(p)];
                proc.life += 1;
                let hello = self.hello(p, proc.life, rank);
                let who = AcceptConfig { rank, job: 1, cxx: CxxPolicy::Refused };
                let theirs = self.controls.put(ControlConn::accepted(&who, NOW));
                let ours = self.controls.put(ControlConn::dial(&hello, NOW).unwrap());
                let end = |control| End { open: true, control, inbox: Vec::new(), link: None };
                let mut conn = Conn { procs: [p, q], cut: false, ends: [end(ours), end(theirs)] };
                self.drive(&mut conn, 0, Input::Poll);
                w.conns.push(conn);
                out.push((format!("{p} dials {q}"), w));
            }
            if s.procs[usize::from(p)].up && s.restarts > 0 {
                let mut w = s.clone();
                w.restarts -= 1;
                for c in &mut w.conns {
                    for side in 0..2 {
                        if c.procs[side] == p {
                            c.ends[side] =
                                End { open: false, control: 0, inbox: vec![], link: None };
                        }
                    }
                }
                w.procs[usize::from(p)].up = false;
                out.push((format!("{p} crashes"), w));
            }
            if !s.procs[usize::from(p)].up {
                let mut w = s.clone();
                let fresh =
                    self.tables.put(RankTable::new(self.rank(p), [RankEntry::EMPTY; RANKS]));
                let proc = &mut w.procs[usize::from(p)];
                (proc.up, proc.table, proc.top) = (true, fresh, Default::default());
                proc.life += 1;
                proc.born = proc.life;
                out.push((format!("{p} starts again"), w));
            }
        }
    }
}

impl Model for HandshakeModel {
    type State = World;

    fn start(&mut self) -> World {
        // Number 0 stands for no machine.
        let who = AcceptConfig { rank: Rank(9), job: 0, cxx: CxxPolicy::Refused };
        assert_eq!(self.controls.put(ControlConn::accepted(&who, NOW)), 0);
        let plan = self.plan;
        let procs = (0..plan.ranks.len() as u8).map(|p| Proc {
            up: true,
            table: self.tables.put(RankTable::new(self.rank(p), [RankEntry::EMPTY; RANKS])),
            life: 1,
            born: 1,
            dials: plan.dials,
            top: Default::default(),
        });
        let procs = procs.collect();
        let Plan { cuts, restarts, byes, .. } = plan;
        World { procs, conns: Vec::new(), cuts, restarts, byes }
    }

    fn steps(&mut self, s: &World, out: &mut Vec<Edge<World>>) -> Result<(), String> {
        self.begin(s, out);
        for at in 0..s.conns.len() {
            let conn = &s.conns[at];
            let [d, a] = conn.procs;
            if !conn.cut && s.cuts > 0 && conn.ends.iter().all(|e| e.open) {
                let mut w = s.clone();
                w.cuts -= 1;
                w.conns[at].cut = true;
                w.conns[at].ends.iter_mut().for_each(|e| e.inbox.clear());
                out.push((format!("the connection {d}-{a} is lost"), w));
            }
            for side in 0..2 {
                let end = &conn.ends[side];
                let me = conn.procs[side];
                if !end.open {
                    continue;
                }
                if !end.inbox.is_empty() {
                    let mut w = s.clone();
                    self.receive(&mut w, at, side)
                        .map_err(|why| format!("{me} hears {d}-{a}: {why}"))?;
                    out.push((format!("{me} hears {d}-{a}"), w));
                } else if conn.cut || !conn.ends[1 - side].open {
                    let mut w = s.clone();
                    self.close(&mut w, at, side);
                    out.push((format!("{me} learns of the end of {d}-{a}"), w));
                }
                let state = self.control(end.control, Input::Poll).state;
                if side == 0 && state == Ctrl::AwaitWelcome {
                    let mut w = s.clone();
                    self.close(&mut w, at, side);
                    out.push((format!("{me} gives the dial {d}-{a} up"), w));
                }
                if s.byes > 0 && state == Ctrl::Ready && end.link.is_some() {
                    let mut w = s.clone();
                    w.byes -= 1;
                    self.drive(&mut w.conns[at], side, Input::Bye);
                    out.push((format!("{me} says goodbye on {d}-{a}"), w));
                }
            }
        }
        for (_, w) in out.iter_mut() {
            w.conns.retain(|c| c.ends.iter().any(|e| e.open));
            w.conns.sort();
        }
        Ok(())
    }

    fn is_fault(name: &str) -> bool {
        name.ends_with(" is lost") || name.ends_with(" crashes")
    }

    /// Every process is up, every connection a link at both ends, and whoever is alone could dial and would
    /// be let in: nobody is shut out for ever.
    fn is_settled(&mut self, s: &World) -> bool {
        let linked = |c: &Conn| !c.cut && c.ends.iter().all(|e| e.link.is_some());
        if !s.procs.iter().all(|p| p.up) || !s.conns.iter().all(linked) {
            return false;
        }
        let n = s.procs.len() as u8;
        (0..n).all(|p| (0..n).all(|q| self.rank(p) == self.rank(q) || self.could_meet(s, p, q)))
    }
}

impl HandshakeModel {
    /// Whether `p` has a link to the rank of `q`, or could have one to `q` by dialing now. A rank that two
    /// claim belongs to whom it was given first.
    fn could_meet(&mut self, s: &World, p: u8, q: u8) -> bool {
        let has = |a: u8, rank: Rank| {
            s.conns.iter().any(|c| {
                (0..2).any(|side| c.procs[side] == a && self.rank(c.procs[1 - side]) == rank)
            })
        };
        let (ours, theirs) = (self.rank(p), self.rank(q));
        let doubled = |r: Rank| self.plan.ranks.iter().filter(|x| **x == r.0).count() > 1;
        if has(p, theirs) || has(q, ours) || doubled(ours) || doubled(theirs) {
            return true;
        }
        let mut w = s.clone();
        let (next, answer) = (s.procs[usize::from(p)].life + 1, self.reply_incarnation(s, q));
        self.table(&mut w, p, Op::Dial(theirs)).accepted()
            && self.table(&mut w, q, Op::Admit(ours, next, Self::who(p))).accepted()
            && self.table(&mut w, p, Op::Welcome(theirs, answer, Self::who(q))).accepted()
    }
}
