//! Two sessions on one single-threaded executor: each step is awaited, and nothing blocks. The executor below is all that HMC
//! needs of one; any other does as well.
//!
//! ```sh
//! cargo run --release -p examples --example async_sessions
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use hmc_std::{Address, Error, Message, Session, Who, want};

const OFFSET: u64 = 4096;

async fn source(to: Address) -> Result<(), Error> {
    let session = Session::builder(0).start()?;
    let peer = session.connect(&to).within(Duration::from_secs(10)).await?;
    peer.buffer()?.put(OFFSET, b"put by a task").notify(7).await?;
    let reply = peer.recv(want::Bytes).await?;
    println!("the other end read {:?}", String::from_utf8_lossy(&reply));
    session.shutdown().await
}

async fn target(session: Session) -> Result<(), Error> {
    let peer = session.accept(Who::Any).await?;
    let tag = peer.recv(want::Notify).await?; // behind all bytes of the put
    let mut bytes = [0; 13];
    session.buffer().read_at(OFFSET, &mut bytes)?;
    println!("rank {} put with tag {tag}", peer.rank());
    peer.send(Message::bytes(&bytes)).await?;
    session.shutdown().await
}

fn main() -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("hmc-async-{}", std::process::id()));
    let listening = Session::builder(1).uds(&dir).buffer(1 << 20).start()?;
    let done = run(vec![Box::pin(target(listening)), Box::pin(source(Address::Uds(dir.clone())))]);
    std::fs::remove_dir_all(dir).ok();
    done
}

type Task = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs all tasks on this thread, until the first error.
fn run(mut tasks: Vec<Task>) -> Result<(), Error> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    while !tasks.is_empty() {
        let mut error = None;
        tasks.retain_mut(|task| match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => true,
            Poll::Ready(done) => {
                error = error.take().or(done.err());
                false
            }
        });
        if let Some(error) = error {
            return Err(error);
        }
        if !tasks.is_empty() {
            thread::park();
        }
    }
    Ok(())
}
