//! A small put over TCP until it is acknowledged, against a bare blocking ping-pong.

use std::cell::RefCell;

use hmc_core::kinds::ConnType;

use super::Row;
use crate::context::Context;
use crate::measure::{interleave, timed};
use crate::reference::socket::Stream;
use crate::report::Line;
use crate::{Res, text};

const BYTES: usize = 64;
const WARM_ROUNDS: u32 = 20;
const ROUNDS: u32 = 500;

/// The row.
pub(crate) struct TcpLatency;

impl Row for TcpLatency {
    fn name(&self) -> &'static str {
        "tcp-latency"
    }

    fn unit(&self) -> &'static str {
        "us"
    }

    fn reference(&self) -> &'static str {
        "bare socket ping-pong of 64 bytes, blocking, a round trip"
    }

    fn target(&self) -> &'static str {
        "<= 1.2"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut duo = context.duo(4096, ConnType::Tcp)?;
        let address = duo.helper.ask("door tcp")?;
        let mut stream = Stream::connect(&address)?;
        duo.helper.ask("accept")?;
        let peer = duo.peer.clone();
        let helper = RefCell::new(&mut duo.helper);
        let pairs = interleave(
            context.pick(15, 31),
            || {
                for _ in 0..WARM_ROUNDS {
                    peer.put(0, 0, BYTES as u64).map_err(text)?;
                }
                context.delay.timed(ROUNDS, || peer.put(0, 0, BYTES as u64).map_err(text))
            },
            || {
                helper.borrow_mut().tell(&format!("echo {BYTES} {}", WARM_ROUNDS + ROUNDS))?;
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
        Ok(vec![Line::latency("tcp put 64 B, acknowledged", 1.0, &pairs, Some(1.2))])
    }
}
