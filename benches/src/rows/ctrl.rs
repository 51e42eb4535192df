//! Control tags there and back, over UDS and TCP, against a bare ping-pong of 16 bytes.

use std::cell::RefCell;

use hmc_core::kinds::ConnType;

use super::Row;
use crate::context::{Context, Folder};
use crate::measure::{interleave, timed};
use crate::reference::socket::Stream;
use crate::report::Line;
use crate::{Res, text};

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
        "bare ping-pong of 16 bytes on the same kind of socket, blocking, a round trip"
    }

    fn target(&self) -> &'static str {
        "<= 1.2"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        Ok(vec![
            one(context, ConnType::Shm, "control tag ping-pong over UDS")?,
            one(context, ConnType::Tcp, "control tag ping-pong over TCP")?,
        ])
    }
}

fn one(context: &Context, via: ConnType, name: &str) -> Res<Line> {
    let mut duo = context.duo(4096, via)?;
    let folder = Folder::new(&std::env::temp_dir())?;
    let door = match via {
        ConnType::Tcp => "tcp".to_owned(),
        _ => folder.path().join("s").display().to_string(),
    };
    let address = duo.helper.ask(&format!("door {door}"))?;
    let mut stream = Stream::connect(&address)?;
    duo.helper.ask("accept")?;
    let peer = duo.peer.clone();
    let helper = RefCell::new(&mut duo.helper);
    let all = WARM_ROUNDS + ROUNDS;
    let pairs = interleave(
        context.pick(15, 31),
        || {
            helper.borrow_mut().tell(&format!("tags 1 0 {all}"))?;
            let round = || {
                peer.send_tag(5).map_err(text)?;
                peer.recv_tag().map(drop).map_err(text)
            };
            for _ in 0..WARM_ROUNDS {
                round()?;
            }
            let ns = context.delay.timed(ROUNDS, round)?;
            helper.borrow_mut().hear()?;
            Ok(ns)
        },
        || {
            helper.borrow_mut().tell(&format!("echo {BYTES} {all}"))?;
            let mut bytes = [1; BYTES];
            let mut round = || {
                stream.send(&bytes)?;
                stream.recv(&mut bytes)
            };
            for _ in 0..WARM_ROUNDS {
                round()?;
            }
            let ns = timed(ROUNDS, round)?;
            helper.borrow_mut().hear()?;
            Ok(ns)
        },
    )?;
    Ok(Line::latency(name, 1.0, &pairs, Some(1.2)))
}
