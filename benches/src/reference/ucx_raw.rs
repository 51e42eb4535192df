//! UCX without this library: puts and gets by raw calls of libucp, between the same two processes.
//!
//! Both ends have a context, a worker and an endpoint of their own, memory of the kind that ours has, and the same UCX_TLS.
//! Over TCP lanes the passive end makes progress on request, in a busy loop.

use std::sync::atomic::Ordering;

use hmc_hw::ucx::library::{Library, Search};
use hmc_hw::ucx::settings::{Settings, USER_KEYS};
use hmc_hw::ucx::testing::{RawCalls, RawEndpoint};

use super::pages::spin;
use crate::error::{Res, text};
use crate::helper::Helper;

/// Bytes behind the payload: for the word that stops the passive end.
const TAIL_BYTES: usize = 64;
/// Words there: the number of stops of the passive end; its path is open; the source of puts; an unused word.
const STOP: usize = 0;
const OPENED: usize = 8;
const SCRATCH: usize = 16;
const SPARE: usize = 24;
/// Progress calls of the passive end after a stop.
const LAST_TURNS: u32 = 1_000;

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    raw: RawEndpoint,
    bytes: usize,
    /// UCX moves bytes only while the target makes progress: any bytes, and those of a get.
    driven: bool,
    driven_gets: bool,
    /// The number of stops of the passive end.
    stops: u64,
}

/// Returns `true` if UCX_TLS allows TCP only.
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
        // The passive end sleeps between its turns; a keepalive, every 20 s, would delay a flush until it wakes.
        let keys = vec![("KEEPALIVE_INTERVAL".to_owned(), "inf".to_owned())];
        let user_tls = std::env::var("UCX_TLS").ok();
        // UCX with its own settings.
        let user_keys = USER_KEYS.to_vec();
        let settings = Settings { keys, user_tls, user_keys, ..Settings::default() };
        let raw = RawEndpoint::new(library, &settings, bytes + TAIL_BYTES).map_err(text)?;
        Ok(Self { raw, bytes, driven: only_tcp(), driven_gets: true, stops: 0 })
    }

    /// Returns the connection info for the other end, in hexadecimal.
    pub(crate) fn conn_info(&self) -> Res<String> {
        let info = self.raw.conn_info().map_err(text)?;
        Ok(info.iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Connects to the end of that connection info.
    pub(crate) fn connect(&mut self, info: &str) -> Res<()> {
        let byte = |at: usize| {
            let pair = info.get(at..at + 2).ok_or("connection info of odd length")?;
            u8::from_str_radix(pair, 16).map_err(text)
        };
        let info: Vec<u8> = (0..info.len()).step_by(2).map(byte).collect::<Res<_>>()?;
        self.raw.connect(&info).map_err(text)
    }

    /// The calls.
    pub(crate) fn calls(&self) -> Res<RawCalls<'_>> {
        self.raw.calls().map_err(text)
    }

    /// Two connected ends: one here and one in the helper.
    pub(crate) fn pair(helper: &mut Helper, bytes: u64) -> Res<Self> {
        let info = helper.request(&format!("raw {bytes}"))?;
        let mut here = Self::new(usize::try_from(bytes).map_err(text)?)?;
        here.connect(&info)?;
        helper.send(&format!("rawpeer {}", here.conn_info()?))?;
        let calls = here.calls()?;
        put_now(&calls, here.bytes + SCRATCH, here.bytes + SPARE, 8)?;
        here.until(&calls, here.bytes + OPENED, 1)?;
        // The other end makes progress until a stop.
        let get = calls.get(here.bytes + SCRATCH, here.bytes + SPARE, 8).map_err(text)?;
        let driven_gets = !get.is_done();
        calls.wait(get).map_err(text)?;
        drop(calls);
        here.driven_gets = driven_gets;
        here.stop(helper)?;
        Ok(here)
    }

    /// The passive end of [`End::pair`], after it connected. A path opens while both ends make progress, and a word can arrive
    /// before it is open: so each end continues until the other reports that its own path is open.
    pub(crate) fn open(&mut self) -> Res<()> {
        let calls = self.calls()?;
        self.store(&calls, self.bytes + SCRATCH, 1)?;
        put_now(&calls, self.bytes + SCRATCH, self.bytes + SPARE, 8)?;
        let told = calls.put(self.bytes + SCRATCH, self.bytes + OPENED, 8).map_err(text)?;
        calls.wait(told).map_err(text)?;
        drop(calls);
        self.serve(1)
    }

    /// Runs `job`, which puts, or gets if `gets`, while the passive end makes progress if UCX needs that: over TCP, and for gets
    /// that the target executes. Otherwise it sleeps, as with ours.
    pub(crate) fn served<R>(
        &mut self,
        helper: &mut Helper,
        gets: bool,
        job: impl FnOnce(&RawCalls<'_>) -> Res<R>,
    ) -> Res<R> {
        let serves = if gets { self.driven_gets } else { self.driven };
        if serves {
            helper.send(&format!("rawserve {}", self.stops + 1))?;
        }
        let result = job(&self.calls()?)?;
        if serves {
            self.stop(helper)?;
        }
        Ok(result)
    }

    /// Stops the passive end, and waits for it. Without a flush: its reply could arrive at the passive end's worker after its
    /// last progress call.
    fn stop(&mut self, helper: &mut Helper) -> Res<()> {
        self.stops += 1;
        let calls = self.calls()?;
        self.store(&calls, self.bytes + SCRATCH, self.stops)?;
        let put = calls.put(self.bytes + SCRATCH, self.bytes + STOP, 8).map_err(text)?;
        calls.wait(put).map_err(text)?;
        helper.receive_while(|| calls.progress()).map(drop)
    }

    /// The passive end: makes progress until the `n`th stop.
    pub(crate) fn serve(&self, n: u64) -> Res<()> {
        let calls = self.calls()?;
        self.until(&calls, self.bytes + STOP, n)?;
        progress_a_while(&calls);
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

    /// One direction of a ping-pong: changes the first and the last word of `len` bytes at `at`, puts them to `to`, visibly.
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

    /// The other direction: waits for the last word. Without TCP lanes the bytes come by themselves.
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

/// Progress after the last word has come: its acknowledgement may still wait for a credit.
fn progress_a_while(calls: &RawCalls<'_>) {
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
