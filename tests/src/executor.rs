//! A bare executor: futures on the thread of the test, and nothing else.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long tasks may take.
const LONG: Duration = Duration::from_secs(60);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// One of several futures that run together.
pub type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// Runs all tasks on this thread.
///
/// # Panics
/// When they do not end within a minute.
pub fn run(mut tasks: Vec<Task<'_>>) {
    let waker = waker();
    let begun = Instant::now();
    while !tasks.is_empty() {
        let mut cx = Context::from_waker(&waker);
        tasks.retain_mut(|task| task.as_mut().poll(&mut cx) == Poll::Pending);
        assert!(begun.elapsed() < LONG, "{} tasks never end", tasks.len());
        if !tasks.is_empty() {
            thread::park_timeout(LONG);
        }
    }
}

/// Runs one future on this thread.
///
/// # Panics
/// When it does not end within a minute.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let (waker, begun) = (waker(), Instant::now());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(begun.elapsed() < LONG, "the future never ends");
        thread::park_timeout(LONG);
    }
}

/// Polls a future once, with a waker that does nothing.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets the other tasks go on.
#[derive(Debug, Default)]
pub struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
