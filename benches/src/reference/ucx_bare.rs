//! UCX without this library: puts and gets by bare calls of libucp, between the same two processes.
//!
//! Both ends have a context, a worker and an endpoint of their own, memory of the kind that ours has, and the same UCX_TLS.
//! Over TCP lanes the passive end makes progress while it is told to, in a busy loop.

use std::sync::atomic::Ordering;

use hmc_hw::ucx::library::{Library, Search};
use hmc_hw::ucx::raw::{RawCalls, RawEndpoint};
use hmc_hw::ucx::settings::{Settings, USER_KEYS};

use super::pages::spin;
use crate::error::{Res, text};
use crate::helper::Helper;

/// Bytes behind the payload: for the word by which the passive end is told to stop.
const TAIL_BYTES: usize = 64;
/// Words there: how often the passive end was told to stop; its way is open; what is put; what nobody reads.
const STOP: usize = 0;
const OPENED: usize = 8;
const SCRATCH: usize = 16;
const SPARE: usize = 24;
/// Turns of the passive end after it was told to stop.
const LAST_TURNS: u32 = 1_000;

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    bare: RawEndpoint,
    bytes: usize,
    /// Whether UCX moves bytes only while the target makes progress: any bytes, and those of a get.
    driven: bool,
    driven_gets: bool,
    /// How often the passive end was told to stop.
    stops: u64,
}

/// Whether UCX_TLS leaves nothing but TCP.
pub(crate) fn only_tcp() -> bool {
    std::env::var("UCX_TLS").is_ok_and(|tls| tls.split(',').all(|t| matches!(t, "tcp" | "self")))
}

impl End {
    /// An end with so much memory, warm.
    pub(crate) fn new(bytes: usize) -> Res<Self> {
        // The library that sessions use, wherever they find it.
        let facts = hmc_std::probe::ucx().map_err(text)?;
        let search = Search { named: Some(facts.path), folders: Vec::new() };
        let library = Library::load(&search).map_err(text)?;
        // The passive end sleeps between its turns, and a look after it, every 20 s, would hold up a flush until it wakes.
        let keys = vec![("KEEPALIVE_INTERVAL".to_owned(), "inf".to_owned())];
        let user_tls = std::env::var("UCX_TLS").ok();
        // UCX as it is by itself.
        let user_keys = USER_KEYS.to_vec();
        let settings = Settings { keys, user_tls, user_keys, ..Settings::default() };
        let bare = RawEndpoint::new(library, &settings, bytes + TAIL_BYTES).map_err(text)?;
        Ok(Self { bare, bytes, driven: only_tcp(), driven_gets: true, stops: 0 })
    }

    /// What the other end needs, in hexadecimal.
    pub(crate) fn card(&self) -> Res<String> {
        let card = self.bare.conn_info().map_err(text)?;
        Ok(card.iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Makes the way to the end of that card.
    pub(crate) fn connect(&mut self, card: &str) -> Res<()> {
        let byte = |at: usize| {
            let pair = card.get(at..at + 2).ok_or("a card of odd length")?;
            u8::from_str_radix(pair, 16).map_err(text)
        };
        let card: Vec<u8> = (0..card.len()).step_by(2).map(byte).collect::<Res<_>>()?;
        self.bare.connect(&card).map_err(text)
    }

    /// The calls.
    pub(crate) fn calls(&self) -> Res<RawCalls<'_>> {
        self.bare.calls().map_err(text)
    }

    /// Two connected ends: one here and one in the helper.
    pub(crate) fn pair(helper: &mut Helper, bytes: u64) -> Res<Self> {
        let card = helper.ask(&format!("bare {bytes}"))?;
        let mut here = Self::new(usize::try_from(bytes).map_err(text)?)?;
        here.connect(&card)?;
        helper.tell(&format!("barepeer {}", here.card()?))?;
        let calls = here.calls()?;
        put_now(&calls, here.bytes + SCRATCH, here.bytes + SPARE, 8)?;
        here.until(&calls, here.bytes + OPENED, 1)?;
        // The other end makes progress until it is stopped.
        let get = calls.get(here.bytes + SCRATCH, here.bytes + SPARE, 8).map_err(text)?;
        let driven_gets = !get.is_done();
        calls.wait(get).map_err(text)?;
        drop(calls);
        here.driven_gets = driven_gets;
        here.stop(helper)?;
        Ok(here)
    }

    /// The passive end of [`End::pair`], after its way was made. A way opens while both ends make progress, and a word can be
    /// seen before it is open: so each end goes on until the other says that its own way is.
    pub(crate) fn open(&mut self) -> Res<()> {
        let calls = self.calls()?;
        self.store(&calls, self.bytes + SCRATCH, 1)?;
        put_now(&calls, self.bytes + SCRATCH, self.bytes + SPARE, 8)?;
        let told = calls.put(self.bytes + SCRATCH, self.bytes + OPENED, 8).map_err(text)?;
        calls.wait(told).map_err(text)?;
        drop(calls);
        self.serve(1)
    }

    /// Runs `job`, which puts, or gets if `gets`, while the passive end serves where UCX needs that: over TCP, and for gets
    /// that it asks the target for. Elsewhere it sleeps, as with ours.
    pub(crate) fn served<R>(
        &mut self,
        helper: &mut Helper,
        gets: bool,
        job: impl FnOnce(&RawCalls<'_>) -> Res<R>,
    ) -> Res<R> {
        let serves = if gets { self.driven_gets } else { self.driven };
        if serves {
            helper.tell(&format!("bareserve {}", self.stops + 1))?;
        }
        let result = job(&self.calls()?)?;
        if serves {
            self.stop(helper)?;
        }
        Ok(result)
    }

    /// Tells the passive end to stop, and waits until it has. Without a flush: its answer could come to the passive end's
    /// worker after the last turn that it takes.
    fn stop(&mut self, helper: &mut Helper) -> Res<()> {
        self.stops += 1;
        let calls = self.calls()?;
        self.store(&calls, self.bytes + SCRATCH, self.stops)?;
        let put = calls.put(self.bytes + SCRATCH, self.bytes + STOP, 8).map_err(text)?;
        calls.wait(put).map_err(text)?;
        helper.hear_while(|| calls.progress()).map(drop)
    }

    /// The passive end: makes progress until it was told to stop for the `n`th time.
    pub(crate) fn serve(&self, n: u64) -> Res<()> {
        let calls = self.calls()?;
        self.until(&calls, self.bytes + STOP, n)?;
        linger(&calls);
        Ok(())
    }

    /// Waits for a value in our memory.
    pub(crate) fn until(&self, calls: &RawCalls<'_>, at: usize, value: u64) -> Res<()> {
        let word = calls.word(at).ok_or("no word")?;
        spin(|| {
            calls.progress();
            word.load(Ordering::Acquire) == value
        })
    }

    /// One way of a ping-pong: changes the first and the last word of `len` bytes at `at`, puts them to `to`, visibly.
    pub(crate) fn ping(
        &self,
        calls: &RawCalls<'_>,
        at: usize,
        to: usize,
        len: usize,
        value: u64,
    ) -> Res<()> {
        self.store(calls, at + len - 8, value)?;
        put_now(calls, at, to, len)
    }

    /// The other way: waits for the last word. Without TCP lanes the bytes come by themselves.
    pub(crate) fn pong(&self, calls: &RawCalls<'_>, at: usize, len: usize, value: u64) -> Res<()> {
        let last = calls.word(at + len - 8).ok_or("no word")?;
        spin(|| {
            if self.driven {
                calls.progress();
            }
            last.load(Ordering::Acquire) == value
        })
    }

    fn store(&self, calls: &RawCalls<'_>, at: usize, value: u64) -> Res<()> {
        calls.word(at).ok_or("no word")?.store(value, Ordering::Release);
        Ok(())
    }
}

/// Progress after the last word has come: its acknowledgement may still wait for room.
fn linger(calls: &RawCalls<'_>) {
    for _ in 0..LAST_TURNS {
        calls.progress();
    }
}

/// A put, and the flush that shows that it is visible.
#[inline]
pub(crate) fn put_now(calls: &RawCalls<'_>, at: usize, to: usize, len: usize) -> Res<()> {
    let put = calls.put(at, to, len).map_err(text)?;
    let flush = calls.flush().map_err(text)?;
    calls.wait(flush).map_err(text)?;
    calls.wait(put).map_err(text)
}
