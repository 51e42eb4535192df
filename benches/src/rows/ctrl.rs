//! Control tags there and back, over UDS and TCP, against a bare ping-pong of 16 bytes.

use hmc_std::{Message, want};
use std::cell::RefCell;

use hmc_core::types::ConnType;

use crate::context::{Context, Folder};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{interleave, timed};
use crate::reference::socket::PingPong;
use crate::row::{Row, SPINNING};

const BYTES: usize = 16;
const WARM_ROUNDS: u32 = 20;
const ROUNDS: u32 = 500;

/// The row.
pub(crate) struct Ctrl;

impl Row for Ctrl {
    fn name(&self) -> &'static str {
        "ctrl"
    }

    fn unit(&self) -> &'static str {
        "us"
    }

    fn reference(&self) -> &'static str {
        "bare ping-pong of 16 bytes on the same kind of socket, blocking (and spinning), a round trip"
    }

    fn target(&self) -> &'static str {
        "<= 1.2"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut lines = one(context, ConnType::Shm, "UDS")?;
        lines.extend(one(context, ConnType::Tcp, "TCP")?);
        Ok(lines)
    }
}

fn one(context: &Context, via: ConnType, socket: &str) -> Res<Vec<Line>> {
    let mut pair = context.pair(4096, via)?;
    let folder = Folder::new(&std::env::temp_dir())?;
    let path = (via == ConnType::Shm).then(|| folder.path().join("s"));
    let mut bare = PingPong::open(&mut pair.helper, path.as_deref(), BYTES)?;
    let peer = pair.peer.clone();
    let helper = RefCell::new(&mut pair.helper);
    let tags = || {
        helper.borrow_mut().send(&format!("tags 1 0 {}", WARM_ROUNDS + ROUNDS))?;
        let round = || {
            peer.send(Message::Tag(5)).wait().map_err(text)?;
            peer.recv(want::Tag).wait().map(drop).map_err(text)
        };
        timed(WARM_ROUNDS, round)?;
        let ns = context.delay.timed(ROUNDS, round)?;
        helper.borrow_mut().receive()?;
        Ok(ns)
    };
    let count = context.pick(15, 31);
    let mut sample = |spin| bare.sample(*helper.borrow_mut(), spin, WARM_ROUNDS, ROUNDS);
    let blocking = interleave(count, tags, || sample(false))?;
    let spinning = interleave(count, tags, || sample(true))?;
    Ok(vec![
        Line::latency(format!("control tag ping-pong over {socket}"), 1.0, &blocking, Some(1.2)),
        Line::latency(format!("the same against {socket} sockets that spin"), 1.0, &spinning, None)
            .noted(SPINNING),
    ])
}
