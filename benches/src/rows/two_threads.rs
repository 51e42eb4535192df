//! Small puts of two threads at a time to one peer over shared memory, in mapped memory: what they share slows both down.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use hmc_std::{ConnBuffer, Remote};

use super::session_ops::Pair;
use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::machine;
use crate::measure::interleave;
use crate::row::Row;

/// Puts of one thread in one sample.
const PUTS: u32 = 20_000;
const PUT_BYTES: u64 = 8;
/// Threads write the two halves of the peer's buffer.
const HALF_BYTES: u64 = 1 << 15;

/// The row.
pub(crate) struct TwoThreads;

/// Makes the puts of the thread `number` on its processor, once both are there; when it began and ended.
fn puts(
    remote: &Remote,
    buffer: &ConnBuffer,
    (number, cpu): (u64, usize),
    both: &Barrier,
) -> Res<(Instant, Instant)> {
    let pinned = machine::pin(cpu);
    let from = buffer.range(number * HALF_BYTES, PUT_BYTES).map_err(text)?;
    both.wait();
    pinned?;
    let begun = Instant::now();
    for n in 0..PUTS {
        let at = number * HALF_BYTES + u64::from(n % 512) * 64;
        remote.put(at, from).wait().map_err(text)?;
    }
    Ok((begun, Instant::now()))
}

/// Nanoseconds for one put, of all that were made from the first one's begin to the last one's end, by a thread with each of `remotes`.
fn sample(remotes: &[&Remote], buffer: &ConnBuffer, cpus: [usize; 2]) -> Res<f64> {
    let both = Barrier::new(remotes.len());
    let times = thread::scope(|scope| {
        let start = |((remote, number), cpu)| {
            let both = &both;
            scope.spawn(move || puts(remote, buffer, (number, cpu), both))
        };
        let threads: Vec<_> = remotes.iter().copied().zip(0..).zip(cpus).map(start).collect();
        let join = |t: thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        };
        threads.into_iter().map(join).collect::<Res<Vec<_>>>()
    })?;
    let begun = times.iter().map(|(begun, _)| *begun).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    let (begun, ended) = begun.zip(ended).ok_or("no thread")?;
    Ok((ended - begun).as_nanos() as f64 / (f64::from(PUTS) * remotes.len() as f64))
}

impl Row for TwoThreads {
    fn name(&self) -> &'static str {
        "two-threads"
    }

    fn unit(&self) -> &'static str {
        "M/s"
    }

    fn reference(&self) -> &'static str {
        "one thread"
    }

    fn target(&self) -> &'static str {
        "ratio >= 1.7 with a clone each"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        context.two_cpus()?;
        let (Some(home), Some(away)) = context.processors() else {
            return Err("two threads need a processor each".to_owned());
        };
        let pair = Pair::new()?;
        // The first put finds out how the window is reached.
        let (remote, buffer) = (pair.remote(), pair.buffer());
        remote.put(0, buffer.range(0, PUT_BYTES).map_err(text)?).wait().map_err(text)?;
        let other = remote.clone();
        let share_core = machine::share_core(home, away);
        let bound = (!share_core).then_some(1.7);
        let note = if share_core { "the two processors share a core: no goal" } else { "" };
        let all = [
            ("a clone each", [remote, &other], bound, note),
            ("one handle", [remote, remote], None, ""),
        ];
        let mut lines = Vec::new();
        for (name, remotes, bound, note) in all {
            let pairs = interleave(
                context.pick(41, 201),
                || sample(&remotes, buffer, [home, away]),
                || sample(&remotes[..1], buffer, [home, away]),
            )?;
            let name = format!("session over shm: put of 8 B by two threads, {name}");
            lines.push(Line::rate(name, &pairs, bound).noted(note).with_interval(&pairs));
        }
        Ok(lines)
    }
}
