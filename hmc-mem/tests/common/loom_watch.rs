//! Models of who sees to the completions of a queue ([`CompletionWatch`]): in the end somebody sees to all that is under way, whatever
//! callers, sleepers, events and looks have done meanwhile.

use super::check;
use hmc_mem::watch::{CompletionWatch, Next};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// A caller that waits no more asks for nothing.
    LeavesSilently,
    /// Whoever takes an event asks for nothing.
    TakesSilently,
    /// Whoever ends looks asks for nothing.
    EndsSilently,
}

/// A link: requests under way, of which its lock has the number, and their watch.
struct Link {
    requests: Mutex<u8>,
    watch: CompletionWatch,
    bug: Bug,
}

impl Link {
    fn new(bug: Bug) -> Arc<Self> {
        Arc::new(Self { requests: Mutex::new(0), watch: CompletionWatch::new(), bug })
    }

    /// Does what is to be done, which has its effect with the word itself.
    fn go_on(&self, unless: Bug) {
        if self.bug != unless || unless == Bug::Nothing {
            let _ = self.watch.next();
        }
    }

    fn post(&self) {
        let mut requests = self.requests.lock().unwrap();
        *requests += 1;
        self.watch.set_busy();
        drop(requests);
        self.go_on(Bug::Nothing);
    }

    /// Takes completions: all that is under way is done.
    fn take(&self) {
        let mut requests = self.requests.lock().unwrap();
        *requests = 0;
        self.watch.set_idle();
    }

    fn wait(&self) {
        self.watch.claim();
        self.take();
        if self.watch.release() {
            self.go_on(Bug::LeavesSilently);
        }
    }

    fn sleep(&self) {
        self.watch.set_awaited();
        self.go_on(Bug::Nothing);
    }

    fn take_event(&self) {
        self.watch.disarm();
        self.go_on(Bug::TakesSilently);
    }

    fn end_looks(&self) {
        self.watch.end_looks();
        self.go_on(Bug::EndsSilently);
    }

    /// All threads have ended.
    fn assert_seen_to(&self) {
        let requests = *self.requests.lock().unwrap();
        assert_eq!(self.watch.is_busy(), requests != 0);
        assert!(!self.watch.is_claimed());
        assert_eq!(self.watch.next(), Next::Nothing, "{requests} requests are left alone");
    }
}

/// Runs the steps, each on a thread of its own, after the steps `before`.
fn model(bug: Bug, before: &'static [fn(&Link)], steps: &'static [fn(&Link)]) {
    check(move || {
        let link = Link::new(bug);
        before.iter().for_each(|step| step(&link));
        let threads = steps.iter().map(|step| {
            let link = Arc::clone(&link);
            thread::spawn(move || step(&link))
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        link.assert_seen_to();
    });
}

/// A post while a caller waits and leaves: the later one of the two sees to it.
#[test]
fn watch_what_is_posted_beside_a_caller_is_seen_to() {
    model(Bug::Nothing, &[], &[Link::post, Link::wait]);
    model(Bug::Nothing, &[Link::post], &[Link::post, Link::wait]);
    model(Bug::Nothing, &[Link::post, Link::sleep], &[Link::post, Link::wait]);
}

/// A sleeper whose request is awaited while the event of an earlier one is taken, and while a caller leaves.
#[test]
fn watch_a_sleeper_beside_an_event_is_heard() {
    model(Bug::Nothing, &[Link::post, Link::sleep], &[Link::take_event, Link::sleep]);
    model(
        Bug::Nothing,
        &[Link::post, Link::sleep],
        &[Link::take_event, Link::wait, |link| {
            link.post();
            link.sleep();
        }],
    );
}

/// A post while the thread ends its looks.
#[test]
fn watch_what_is_posted_beside_the_end_of_looks_is_seen_to() {
    model(Bug::Nothing, &[Link::post], &[Link::post, Link::end_looks]);
    model(Bug::Nothing, &[Link::post], &[Link::post, Link::end_looks, Link::wait]);
}

/// Control: a caller that leaves without asking leaves requests alone.
#[test]
#[should_panic(expected = "left alone")]
fn control_watch_of_a_caller_that_asks_nothing() {
    model(Bug::LeavesSilently, &[], &[Link::post, Link::wait]);
}

/// Control: so does whoever takes an event without asking.
#[test]
#[should_panic(expected = "left alone")]
fn control_watch_of_an_event_without_a_question() {
    model(Bug::TakesSilently, &[Link::post, Link::sleep], &[Link::take_event, Link::sleep]);
}

/// Control: so does whoever ends looks without asking.
#[test]
#[should_panic(expected = "left alone")]
fn control_watch_of_looks_that_end_without_a_question() {
    model(Bug::EndsSilently, &[Link::post], &[Link::post, Link::end_looks]);
}
