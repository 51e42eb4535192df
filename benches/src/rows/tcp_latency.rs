//! A small put over TCP until it is acknowledged, against a bare blocking ping-pong.

use hmc_core::types::ConnType;

use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{interleave, timed};
use crate::reference::socket::PingPong;
use crate::row::{Row, SPINNING};

const BYTES: usize = 64;
const WARM_ROUNDS: u32 = 20;
const ROUNDS: u32 = 500;
/// Rounds of a sample in the self-test.
const FEW_ROUNDS: u32 = 100;

/// The row. The self-test uses its first line alone, with short samples.
pub(crate) struct TcpLatency {
    pub(crate) first_line_only: bool,
}

impl Row for TcpLatency {
    fn name(&self) -> &'static str {
        "tcp-latency"
    }

    fn unit(&self) -> &'static str {
        "us"
    }

    fn reference(&self) -> &'static str {
        "bare socket ping-pong of 64 bytes, blocking (and spinning), a round trip"
    }

    fn target(&self) -> &'static str {
        "<= 1.2"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut pair = context.pair(4096, ConnType::Tcp)?;
        let mut bare = PingPong::open(&mut pair.helper, None, BYTES)?;
        let rounds = if self.first_line_only { FEW_ROUNDS } else { ROUNDS };
        let remote = pair.remote()?;
        let range = pair.session.buffer().range(0, BYTES as u64).map_err(text)?;
        let put = || {
            let once = || remote.put(0, range).wait().map(drop).map_err(text);
            timed(WARM_ROUNDS, once)?;
            context.delay.timed(rounds, once)
        };
        let count = context.pick(15, 31);
        let mut sample = |spin| bare.sample(&mut pair.helper, spin, WARM_ROUNDS, rounds);
        let blocking = interleave(count, put, || sample(false))?;
        let first = Line::latency("tcp put 64 B, acknowledged", 1.0, &blocking, Some(1.2));
        if self.first_line_only {
            return Ok(vec![first]);
        }
        let spinning = interleave(count, put, || sample(true))?;
        let second = Line::latency("the same against sockets that spin", 1.0, &spinning, None);
        Ok(vec![first, second.noted(SPINNING)])
    }
}
