//! The transports of this build, and their selection.

use std::sync::Arc;

use hmc_core::types::ConnType;
use hmc_core::wire::advert::ENDPOINT_CUSTOM;
use hmc_core::wire::hello::Features;

use crate::base::config::Config;
use crate::base::error::{Error, ErrorKind, Result};
use crate::io::reactor::Reactor;
use crate::memory::{Region, RegionTable};
use crate::node::inbox::SharedInbox;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::Domain;
use crate::transport::loopback::LoopbackDataPlane;
use crate::transport::released::Released;
use crate::transport::shm::domain::ShmDomain;
use crate::transport::tcp::TcpDomain;
use crate::transport::ucx::SessionUcx;
use crate::transport::verbs::SessionVerbs;

/// The transports that an application brings, in the order in which it named them.
#[derive(Clone, Default)]
pub(crate) struct CustomDomains(Vec<Arc<dyn Domain>>);

impl std::fmt::Debug for CustomDomains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|domain| domain.kind())).finish()
    }
}

impl CustomDomains {
    /// Adds one.
    pub(crate) fn push(&mut self, domain: impl Domain + 'static) {
        self.0.push(Arc::new(domain));
    }

    /// Memory of the first transport that has memory of its own.
    pub(crate) fn allocate(&self, table: &Arc<RegionTable>, len: u64) -> Option<Result<Region>> {
        self.0.iter().find_map(|domain| domain.allocate(table, len))
    }

    /// Refuses what could be taken for another transport.
    ///
    /// # Errors
    /// `InvalidConfig`.
    pub(crate) fn check(&self) -> Result<()> {
        for (at, domain) in self.0.iter().enumerate() {
            let (kind, endpoint) = (domain.kind(), domain.endpoint());
            if !matches!(kind, ConnType::Custom(_)) || endpoint < ENDPOINT_CUSTOM {
                let what = format!(
                    "transport {kind} with endpoint {endpoint}: one of your own is ConnType::Custom, and its endpoint at \
                     least {ENDPOINT_CUSTOM}"
                );
                return Err(Error::config(what));
            }
            check_name(kind.name())?;
            let earlier = self.0.iter().take(at);
            if let Some(other) =
                earlier.into_iter().find(|o| o.kind() == kind || o.endpoint() == endpoint)
            {
                let what = format!(
                    "transports {} and {kind} have one name or endpoint; choose others",
                    other.kind()
                );
                return Err(Error::config(what));
            }
        }
        Ok(())
    }
}

/// The longest name of a transport of one's own.
const MAX_NAME_BYTES: usize = 64;

/// Refuses a name that would be taken for another transport, or that cannot be read in a line of a log.
///
/// # Errors
/// `InvalidConfig`.
fn check_name(name: &str) -> Result<()> {
    use ConnType::{Auto, Loopback, Rdma, Shm, Tcp, Ucx};
    if [Auto, Loopback, Shm, Tcp, Ucx, Rdma].iter().any(|kind| kind.name() == name) {
        let what = format!("`{name}` is the name of a transport of this library; choose another");
        return Err(Error::config(what));
    }
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let start: String = name.chars().take(MAX_NAME_BYTES).collect();
    let what = format!(
        "{start:?} cannot be the name of a transport: choose 1 to {MAX_NAME_BYTES} printable ASCII characters without spaces"
    );
    Err(Error::config(what))
}

/// One session's part in each transport, in the order in which they are tried. The last one serves every peer. Those of the
/// application are in front of it, and are not tried: they are used where they are named.
#[derive(Clone)]
pub(crate) struct Domains(Arc<[Arc<dyn Domain>]>);

impl std::fmt::Debug for Domains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|domain| domain.kind())).finish()
    }
}

impl Domains {
    /// All transports of this build, and those of the application. A new one is added here, and nowhere else.
    pub(crate) fn new(config: &Config, reactor: &Arc<Reactor>, custom: &CustomDomains) -> Self {
        let first: [Arc<dyn Domain>; 3] = [
            Arc::new(ShmDomain),
            Arc::new(SessionVerbs::new(&config.rdma, config.progress, reactor)),
            Arc::new(SessionUcx::new(&config.ucx, config.progress, reactor, 0)),
        ];
        let last: [Arc<dyn Domain>; 1] = [Arc::new(TcpDomain)];
        Self(first.into_iter().chain(custom.0.iter().cloned()).chain(last).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Domain> {
        self.0.iter().map(|domain| &**domain)
    }

    /// The transport of that kind.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn find(&self, kind: ConnType) -> Result<&dyn Domain> {
        self.iter().find(|domain| domain.kind() == kind).ok_or_else(|| {
            let all: Vec<String> = self.iter().map(|domain| domain.kind().to_string()).collect();
            let what = format!("{kind} is not in this build; use auto, {}", all.join(", "));
            Error::new(ErrorKind::Unavailable, what)
        })
    }

    /// The transport that a dialer asks for by that number.
    pub(crate) fn of_endpoint(&self, endpoint: u8) -> Option<&dyn Domain> {
        self.iter().find(|domain| domain.endpoint() == endpoint)
    }

    /// The transport that is tried first, or after `kind`.
    pub(crate) fn next(&self, kind: Option<ConnType>) -> Option<&dyn Domain> {
        let mut all = self.iter();
        if let Some(kind) = kind {
            all.find(|domain| domain.kind() == kind)?;
        }
        all.find(|domain| !matches!(domain.kind(), ConnType::Custom(_)))
    }

    /// Whether the data planes of that transport reach pages by their descriptor.
    pub(crate) fn shares_pages(&self, kind: Option<ConnType>) -> bool {
        self.iter().any(|domain| Some(domain.kind()) == kind && domain.shares_pages())
    }

    /// What HELLO says of the session.
    pub(crate) fn features(&self) -> Features {
        self.iter().fold(Features::empty(), |all, domain| all | domain.features())
    }

    /// Memory of the first transport that has memory of its own.
    pub(crate) fn allocate(&self, table: &Arc<RegionTable>, len: u64) -> Option<Result<Region>> {
        self.iter().find_map(|domain| domain.allocate(table, len))
    }

    /// See [`Domain::poll_worker`].
    pub(crate) fn poll_worker(&self, worker: u32, released: &mut Released) -> bool {
        self.iter().any(|domain| domain.poll_worker(worker, released))
    }

    /// See [`Domain::tick_workers`].
    pub(crate) fn tick_workers(&self, released: &mut Released) {
        self.iter().for_each(|domain| domain.tick_workers(released));
    }

    /// See [`Domain::progress_workers`].
    pub(crate) fn progress_workers(&self, released: &mut Released) -> bool {
        self.iter().fold(false, |busy, domain| domain.progress_workers(released) | busy)
    }

    /// See [`Domain::must_poll`].
    pub(crate) fn must_poll(&self) -> bool {
        self.iter().any(Domain::must_poll)
    }

    /// See [`Domain::has_leftovers`].
    pub(crate) fn has_leftovers(&self) -> bool {
        self.iter().any(Domain::has_leftovers)
    }

    /// See [`Domain::is_ending`].
    pub(crate) fn is_ending(&self) -> bool {
        self.iter().any(Domain::is_ending)
    }
}

/// The data plane of a session's link to itself.
pub(crate) fn loopback(windows: usize, inbox: SharedInbox) -> AnyDataPlane {
    AnyDataPlane::new(LoopbackDataPlane::new(windows, inbox))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hmc_core::types::{ConnType, Rank};

    use super::{CustomDomains, Domains};
    use crate::api::prepared::Prepared;
    use crate::base::config::{Config, Environment, Progress};
    use crate::base::error::{Error, ErrorKind, Result};
    use crate::io::reactor::Reactor;
    use crate::memory::{HeapBytes, Region, RegionTable};
    use crate::transport::data_plane::AnyDataPlane;
    use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};

    /// A transport by its name and number.
    struct Named(ConnType, u8);

    impl Domain for Named {
        fn kind(&self) -> ConnType {
            self.0
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

        /// The one called "own" has memory of its own.
        fn allocate(&self, table: &Arc<RegionTable>, len: u64) -> Option<Result<Region>> {
            let bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            let is_own = self.0 == ConnType::Custom("own");
            is_own.then(|| table.adopt(Box::new(HeapBytes::from(bytes))))
        }
    }

    fn custom(all: &[(ConnType, u8)]) -> CustomDomains {
        let mut custom = CustomDomains::default();
        all.iter().for_each(|(kind, endpoint)| custom.push(Named(*kind, *endpoint)));
        custom
    }

    #[test]
    fn a_transport_of_ones_own_has_a_name_and_a_number_of_its_own() {
        let (one, other) = (ConnType::Custom("one"), ConnType::Custom("other"));
        assert!(custom(&[(one, 128), (other, 255)]).check().is_ok());
        for bad in [
            &[(ConnType::Rdma, 128)][..],
            &[(one, 127)],
            &[(one, 128), (one, 129)],
            &[(one, 128), (other, 128)],
        ] {
            let refused = custom(bad).check().map_err(|e| e.kind());
            assert_eq!(refused, Err(ErrorKind::InvalidConfig), "{bad:?}");
        }
    }

    #[test]
    fn a_name_is_nobody_elses_and_can_be_read() {
        let all = "x".repeat(65);
        let longest: &'static str = all[1..].to_owned().leak();
        let longer: &'static str = all.leak();
        let names =
            ["auto", "loopback", "shm", "tcp", "ucx", "rdma", "", "a b", "a\nb", "\u{1b}[1m"];
        for bad in names.into_iter().chain([longer, "\u{e9}"]) {
            let e = custom(&[(ConnType::Custom(bad), 128)]).check().expect_err(bad);
            assert_eq!(e.kind(), ErrorKind::InvalidConfig);
            let text = e.to_string();
            assert!(text.contains("choose") && text.len() < 300, "{text}");
            assert!(!text.contains(['\n', '\u{1b}']), "{text}");
        }
        assert!(custom(&[(ConnType::Custom(longest), 128)]).check().is_ok());
    }

    #[test]
    fn memory_of_a_transports_own_is_the_buffer() {
        let (one, own) = (ConnType::Custom("one"), ConnType::Custom("own"));
        let made = |all: &[(ConnType, u8)]| {
            let config =
                Config { buffer_bytes: 64, ..Config::new(Rank(0), &Environment::default()) };
            let prepared = Prepared::new(config, None, custom(all), None).expect("memory");
            prepared.buffer().region().is_mappable()
        };
        assert!(made(&[(one, 128)]), "an ordinary one");
        assert!(!made(&[(one, 128), (own, 129)]));
    }

    #[test]
    fn a_transport_of_ones_own_is_found_by_name_and_never_tried() {
        let config = Config::new(Rank(0), &Environment::default());
        let reactor = Arc::new(Reactor::new(Progress::Thread).expect("descriptors"));
        let one = ConnType::Custom("one");
        let all = Domains::new(&config, &reactor, &custom(&[(one, 128)]));
        assert_eq!(all.find(one).map(Domain::kind).ok(), Some(one));
        assert_eq!(all.of_endpoint(128).map(Domain::kind), Some(one));
        let why = all.find(ConnType::Custom("other")).map(Domain::kind).expect_err("nobody has it");
        assert_eq!(why.kind(), ErrorKind::Unavailable);
        assert!(why.to_string().contains("other is not in this build"), "{why}");
        let mut tried = Vec::new();
        while let Some(next) = all.next(tried.last().copied()) {
            tried.push(next.kind());
        }
        assert_eq!(tried, [ConnType::Shm, ConnType::Rdma, ConnType::Ucx, ConnType::Tcp]);
        assert!(all.shares_pages(Some(ConnType::Shm)));
        assert!(!all.shares_pages(Some(ConnType::Tcp)) && !all.shares_pages(None));
    }
}
