//! Random collectives that several processes do together, each with the same seed, and compare with what they must give.

use std::future::IntoFuture as _;
use std::time::Duration;

use hmc_sim::rng::Rng;
use hmc_std::{Element, Exchange, Group, Reduce, Session};

use crate::executor::block_on;

const KIB: usize = 1 << 10;
/// Lengths around that of a ring, and longer ones.
const LENGTHS: [usize; 7] =
    [1, 70_001, 256 * KIB, 256 * KIB + 1, 1 << 20, (1 << 20) + 5, 5 * KIB * KIB + 123];

/// The byte at `at` of what member `from` sends to `to` in a round.
fn byte(round: usize, (from, to): (usize, usize), at: usize) -> u8 {
    (at / 251 + at + 31 * from + 7 * to + 13 * round) as u8
}

fn block(round: usize, between: (usize, usize), len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(round, between, at)).collect()
}

fn compare(what: &str, round: usize, got: &[u8], expected: &[u8]) -> Result<(), String> {
    match got.iter().zip(expected).position(|(a, b)| a != b) {
        None if got.len() == expected.len() => Ok(()),
        at => Err(format!("{what}, round {round}: of {} bytes, {at:?} is wrong", got.len())),
    }
}

/// Does `rounds` collectives as a member of `group`; the others do the same. A member waits for some, and polls others.
///
/// # Errors
/// What failed, or which byte is wrong.
pub fn run(group: &Group, seed: u64, rounds: usize) -> Result<(), String> {
    let (me, n) = (group.position(), group.len());
    let mut rng = Rng::new(seed);
    for round in 0..rounds {
        let len = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
        let (kind, root) = (rng.below(4), rng.below(n as u64) as usize);
        let polls = rng.below(8) as usize;
        let finish = |request: hmc_std::Request<hmc_std::request::Collective<'_>>| {
            let done = if polls == me { block_on(request.into_future()) } else { request.wait() };
            done.map_err(|e| format!("kind {kind}, {len} bytes, round {round}: {e}"))
        };
        match kind {
            0 => {
                let expected = block(round, (root, 0), len);
                let mut bytes = if me == root { expected.clone() } else { vec![0xEE; len] };
                finish(group.broadcast(root, &mut bytes))?;
                compare("broadcast", round, &bytes, &expected)?;
            }
            1 => {
                let send: Vec<u8> = (0..n).flat_map(|to| block(round, (me, to), len)).collect();
                let expected: Vec<u8> =
                    (0..n).flat_map(|from| block(round, (from, me), len)).collect();
                let mut recv = vec![0xEE; n * len];
                finish(group.alltoall(&send, &mut recv, Exchange::Auto))?;
                compare("alltoall", round, &recv, &expected)?;
            }
            2 => {
                let expected: Vec<u8> =
                    (0..n).flat_map(|from| block(round, (from, 0), len)).collect();
                let mut recv = vec![0xEE; n * len];
                finish(group.allgather(&block(round, (me, 0), len), &mut recv))?;
                compare("allgather", round, &recv, &expected)?;
            }
            _ => {
                let mut bytes = block(round, (me, 0), len);
                let sum =
                    |at| (0..n).fold(0, |sum: u8, i| sum.wrapping_add(byte(round, (i, 0), at)));
                finish(group.allreduce(Element::U8, Reduce::Sum, &mut bytes))?;
                compare("allreduce", round, &bytes, &(0..len).map(sum).collect::<Vec<_>>())?;
            }
        }
    }
    Ok(())
}

/// Broadcasts of `len` bytes of 1 as the first member of new groups, each with `step_us` more time than the one before. After each,
/// however it ends, other bytes are in the same memory. Returns how many were sent.
///
/// # Errors
/// What failed besides the broadcasts.
fn send_late(
    session: &Session,
    len: usize,
    (times, step_us): (u64, u64),
    ranks: &[u32],
) -> Result<u64, String> {
    let mut bytes = vec![1; len];
    let mut sent = 0;
    for n in 0..times {
        let group = session.group(ranks).wait().map_err(|e| e.to_string())?;
        bytes.fill(1);
        group.barrier().wait().map_err(|e| e.to_string())?;
        let within = Duration::from_micros(n * step_us);
        sent += u64::from(group.broadcast(0, &mut bytes).within(within).wait().is_ok());
        // The last bytes are those that a receiver reads last.
        bytes.rchunks_mut(4096).for_each(|part| part.fill(2));
    }
    Ok(sent)
}

/// Does what a process is told: `random SEED ROUNDS RANK ..` or `send_late LEN TIMES STEP RANK ..`.
///
/// # Errors
/// Those of [`run`] and of groups; a word that is no number.
pub fn obey(session: &Session, verb: &str, words: &[&str]) -> Result<String, String> {
    let numbers: Result<Vec<u64>, _> = words.iter().map(|word| word.parse()).collect();
    let numbers = numbers.map_err(|e| format!("{words:?}: {e}"))?;
    let ranks = |from: usize| numbers[from..].iter().map(|r| *r as u32).collect::<Vec<_>>();
    if verb == "send_late" {
        let sent = send_late(session, numbers[0] as usize, (numbers[1], numbers[2]), &ranks(3))?;
        return Ok(sent.to_string());
    }
    let group = session.group(&ranks(2)).wait().map_err(|e| e.to_string())?;
    run(&group, numbers[0], numbers[1] as usize).map(|()| String::new())
}
