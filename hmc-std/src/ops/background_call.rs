//! Calls that wait, as futures: each runs on a thread of its own, so that no poll waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::callbacks::wakers::{Wakers, panics};

/// A call that runs on a thread of its own. Dropped, it detaches the call, which runs on to its end.
#[derive(Debug)]
pub(crate) struct BackgroundCall<T>(Arc<Mutex<Call<T>>>);

#[derive(Debug)]
struct Call<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
}

impl<T: Send + 'static> BackgroundCall<T> {
    /// Starts `call` on a thread of that name. Futures that wait for it are woken by `wakers`.
    ///
    /// # Errors
    /// `SystemLimit` when the system has no thread to give.
    pub(crate) fn start(
        name: &str,
        wakers: &Arc<Wakers>,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let state = Arc::new(Mutex::new(Call { result: None, waker: None }));
        let (mine, wakers) = (Arc::clone(&state), Arc::clone(wakers));
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
                // Its own drop may be code of the application.
                panics(|| drop(panic));
                Err(Error::new(ErrorKind::Io, "the thread that made the call panicked"))
            });
            let waker = {
                let mut state = lock(&mine);
                state.result = Some(result);
                state.waker.take()
            };
            if let Some(waker) = waker {
                wakers.wake(waker);
            }
        };
        let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
        spawned.map(|_| Self(state)).map_err(|e| {
            let what = format!(
                "no thread for a call that is awaited: {e}; raise the limit of threads (ulimit -u)"
            );
            Error::new(ErrorKind::SystemLimit, what)
        })
    }

    /// The result, once. The waker of the last call is woken.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Result<T>> {
        // Wakers are cloned and dropped without a lock.
        let waker = cx.waker().clone();
        let (result, unused) = {
            let mut state = lock(&self.0);
            match state.result.take() {
                Some(result) => (Some(result), Some(waker)),
                None => (None, state.waker.replace(waker)),
            }
        };
        drop(unused);
        result.map_or(Poll::Pending, Poll::Ready)
    }
}
