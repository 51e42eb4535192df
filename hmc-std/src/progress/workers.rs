//! Work of a session for the shared workers of its transports.

use hmc_core::types::ConnType;

use crate::base::error::{Error, ErrorKind, Result};
use crate::callbacks::deferred_drops::DeferDrops;
use crate::state::inner::SessionInner;
use crate::transport::domain::Domain;
use crate::transport::released::Released;

impl SessionInner {
    /// The shared worker of that number has something to do. Returns whether anything happened.
    pub(crate) fn poll_worker(&self, worker: u32) -> bool {
        self.with_released(|released| self.domains.poll_worker(worker, released))
    }

    /// Lets the workers do what has a time of its own, and what closed links have left.
    pub(crate) fn tick_workers(&self) {
        self.with_released(|released| self.domains.tick_workers(released));
    }

    /// Makes progress on all workers, whoever watches them. Returns whether anything happened.
    pub(crate) fn progress_workers(&self) -> bool {
        self.with_released(|released| self.domains.progress_workers(released))
    }

    /// What is released may be the application's: it is dropped without a lock.
    fn with_released<R>(&self, run: impl FnOnce(&mut Released) -> R) -> R {
        let _aside = DeferDrops::to(&self.wakers);
        let mut released = Released::default();
        let result = run(&mut released);
        drop(released);
        result
    }

    /// The transport that was asked for, once what it needs is there.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn activate(&self, conn: ConnType) -> Result<ConnType> {
        if conn != ConnType::Auto {
            // One that is not in this build is refused once it is known whether a peer is there.
            let activated = self.domains.find(conn).map_or(Ok(()), Domain::activate);
            activated?;
        }
        Ok(conn)
    }

    /// # Errors
    /// `Closed` when the process is about to end by exit(3) and this session uses a library that has state of its own: what its
    /// thread has locked stays so, and the system closes everything.
    pub(crate) fn check_lasts(&self) -> Result<()> {
        if self.domains.is_ending() {
            let what = "the process is about to end: the system closes what is open";
            return Err(Error::new(ErrorKind::Closed, what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use hmc_core::types::ConnType;
    use hmc_core::wire::hello::Features;

    use crate::api::session::Session;
    use crate::base::error::{Error, ErrorKind, Result};
    use crate::base::lock::lock;
    use crate::io::reactor::Token;
    use crate::transport::data_plane::AnyDataPlane;
    use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};
    use crate::transport::released::Released;

    /// What a transport was asked to do for its workers, and what it answers.
    #[derive(Default)]
    struct Workers {
        calls: Mutex<Vec<String>>,
        /// The result of all calls.
        answer: AtomicBool,
        released: Arc<()>,
    }

    impl Workers {
        fn was_called(&self, what: &str) -> bool {
            let mut calls = lock(&self.calls);
            let before = calls.len();
            calls.retain(|one| one != what);
            calls.len() < before
        }

        fn set(&self, answer: bool) {
            self.answer.store(answer, Ordering::Relaxed);
        }

        /// Records the call and hands out something to drop.
        fn record_call(&self, what: String, released: &mut Released) -> bool {
            lock(&self.calls).push(what);
            released.push(Arc::clone(&self.released));
            self.answer.load(Ordering::Relaxed)
        }

        /// Whether all that it has handed out was dropped.
        fn is_given_back(&self) -> bool {
            Arc::strong_count(&self.released) == 1
        }
    }

    /// A transport with workers, by its name and number.
    struct WithWorkers(&'static str, u8, Arc<Workers>);

    impl WithWorkers {
        fn answer(&self) -> bool {
            self.2.answer.load(Ordering::Relaxed)
        }
    }

    impl Domain for WithWorkers {
        fn kind(&self) -> ConnType {
            ConnType::Custom(self.0)
        }

        fn endpoint(&self) -> u8 {
            self.1
        }

        fn side(&self) -> Side {
            Side::Either
        }

        fn unfit(&self, _peer: &PeerFacts<'_>, _by_name: bool) -> Option<String> {
            None
        }

        fn fit(&self) -> &'static str {
            "it is a test"
        }

        fn data_plane(&self, _params: DataPlaneParams<'_>) -> Result<AnyDataPlane> {
            Err(Error::config("no link is made"))
        }

        fn features(&self) -> Features {
            if self.answer() { Features::UCX_NIC } else { Features::empty() }
        }

        fn registrations(&self) -> u64 {
            u64::from(self.1)
        }

        fn poll_worker(&self, worker: u32, released: &mut Released) -> bool {
            self.2.record_call(format!("poll {worker}"), released)
        }

        fn tick_workers(&self, released: &mut Released) {
            let _ = self.2.record_call("tick".to_owned(), released);
        }

        fn progress_workers(&self, released: &mut Released) -> bool {
            self.2.record_call("progress".to_owned(), released)
        }

        fn has_leftovers(&self) -> bool {
            self.answer()
        }

        fn is_ending(&self) -> bool {
            self.answer()
        }
    }

    /// A session with two such transports.
    fn session() -> (Session, [Arc<Workers>; 2]) {
        let workers = [(); 2].map(|()| Arc::<Workers>::default());
        let [one, other] = workers.each_ref().map(Arc::clone);
        let session = Session::builder(0)
            .buffer(4096)
            .transport(WithWorkers("one", 128, one))
            .transport(WithWorkers("other", 129, other));
        (session.start().expect("a session"), workers)
    }

    /// Whoever waits for a worker's progress is told of it, and each transport makes its own.
    #[test]
    fn workers_of_all_transports_are_served_and_their_results_are_returned() {
        let (session, workers) = session();
        let shared = &session.shared;
        for answers in [[false, false], [true, false], [false, true], [true, true]] {
            let any = answers != [false, false];
            workers.iter().zip(answers).for_each(|(one, answer)| one.set(answer));
            assert_eq!(shared.serve(Token::Worker(7)), any, "{answers:?}");
            assert!(workers.iter().any(|one| one.was_called("poll 7")));
            assert_eq!(shared.progress_workers(), any, "{answers:?}");
            assert_eq!(workers.each_ref().map(|one| one.was_called("progress")), [true; 2]);
            assert_eq!(session.progress(), any, "{answers:?}");
            assert_eq!(workers.each_ref().map(|one| one.was_called("progress")), [true; 2]);
            shared.tick_workers();
            assert_eq!(workers.each_ref().map(|one| one.was_called("tick")), [true; 2]);
            assert_eq!(shared.has_peers(), any, "{answers:?}: something is left to do");
            let closed = if any { Err(ErrorKind::Closed) } else { Ok(()) };
            assert_eq!(shared.check_lasts().map_err(|e| e.kind()), closed, "{answers:?}");
            let features = if any { Features::UCX_NIC } else { Features::empty() };
            assert_eq!(shared.domains.features(), features, "{answers:?}");
        }
        workers.iter().for_each(|one| one.set(false));
        assert_eq!(session.stats().ucx_registrations, 257);
        drop(session);
        assert!(workers.iter().all(|one| one.is_given_back()));
    }
}
