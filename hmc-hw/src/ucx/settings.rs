//! Configuration of UCX: keys that the user sets, and keys that HMC sets by default.
//!
//! Order: the user's `UCX_*` variables, the keys that HMC sets, [`Settings::keys`]. A later value replaces an earlier
//! one.

use std::ffi::CStr;

use super::library::Version;

/// A key of UCX's configuration, without `UCX_`, and its value.
pub(super) type Setting = (&'static CStr, &'static CStr);

/// By default, lanes of shared memory do not advertise that they detect a peer's death, and UCX leaves them out of
/// endpoints with error handling. The keys of the single transports inherit this one, and 1.13 honours only this one.
const MEMORY_LANES: Setting = (c"MM_ERROR_HANDLING", c"y");

/// A key of TCP's.
struct TcpKey {
    name: &'static CStr,
    /// For releases before [`WHOLE_NAMES`].
    short: &'static CStr,
    value: &'static CStr,
}

/// From this release on a call of `ucp_config_modify` finds a transport's key by its whole name; those before it want
/// it without the transport's, and give it to all transports that know such a key.
const WHOLE_NAMES: Version = Version { major: 1, minor: 17, release: 0 };

/// UCX sends nothing over TCP without a copy: if the socket refuses the rest of a message that was not copied, UCX
/// completes the message twice (`uct_tcp_ep_handle_disconnected` and `uct_tcp_ep_sendv`, tcp_ep.c, in all releases up
/// to 1.22.0 at least). With assertions, as Debian builds it, that ends the process; without them, UCX changes a
/// counter in memory that may be another request's by then. HMC's messages have a header and a payload, and a lane with
/// one I/O vector entry has to copy both. The value must not be 0: the short messages of 1.13 have three entries, and
/// the lane allows two more than this value. (CMA has such a key, too, and uses one entry for contiguous data.)
const NOTHING_IN_PLACE: TcpKey = TcpKey { name: c"TCP_MAX_IOV", short: c"MAX_IOV", value: c"1" };

/// One segment has all copied bytes. It is as long as a peer receives by default ([`TCP_RX`]): UCX's own 8 KiB make
/// eight segments.
const ONE_SEGMENT: TcpKey =
    TcpKey { name: c"TCP_TX_SEG_SIZE", short: c"TX_SEG_SIZE", value: c"64k" };

/// The end of a registration fences a window for peers on other hosts, so it must take effect in the call. With UCX's
/// cache of registrations `ucp_mem_unmap` drops one reference, and the cache keeps another (ucp_mm.c): the NIC serves
/// the key until the cache evicts the region. Registrations of memory that overlaps are one there, with one key.
pub(super) const NO_CACHE: Setting = (c"RCACHE_ENABLE", c"n");

/// The first release whose `ucp_mem_map` has a cache and that key.
const UCP_CACHE: Version = Version { major: 1, minor: 13, release: 0 };

/// Releases before [`UCP_CACHE_ALONE`] have another cache below it (`uct_ib_mem_rcache_dereg`, ib_md.c), which this key
/// leaves out. They are all older than [`WHOLE_NAMES`]: the key is `IB_REG_METHODS` as a variable.
const NO_IB_CACHE: Setting = (c"REG_METHODS", c"direct");
const UCP_CACHE_ALONE: Version = Version { major: 1, minor: 16, release: 0 };

/// Where the kernel lists RDMA devices.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// Whether this system has an RDMA device.
pub(super) fn has_rdma() -> bool {
    std::fs::read_dir(RDMA_DEVICES).is_ok_and(|mut devices| devices.next().is_some())
}

impl TcpKey {
    fn of(&self, version: Version) -> Setting {
        (if version < WHOLE_NAMES { self.short } else { self.name }, self.value)
    }
}

const TCP_IOV: &str = "TCP_MAX_IOV";
const TCP_TX: &str = "TCP_TX_SEG_SIZE";
/// Never less than a segment that is sent: a lane with less than [`ONE_SEGMENT`] could not be opened.
const TCP_RX: &str = "TCP_RX_SEG_SIZE";
const CACHE: &str = "RCACHE_ENABLE";
const IB_CACHE: &str = "IB_REG_METHODS";

/// Keys of UCX's configuration, without `UCX_`, that HMC changes only if the user has not set them. See [`Settings::user_keys`].
pub const USER_KEYS: [&str; 5] = [TCP_IOV, TCP_TX, TCP_RX, CACHE, IB_CACHE];

/// Configuration of a context (`ucp_config_modify`). A key here overrides the user's `UCX_*` variable of that name.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Keys of UCX's configuration without `UCX_`, with values: `("TLS", "tcp,self")`.
    pub keys: Vec<(String, String)>,
    /// The user's `UCX_TLS`, if there is one.
    pub user_tls: Option<String>,
    /// The user's `UCX_NET_DEVICES`, if it is set.
    pub user_devices: Option<String>,
    /// Those of [`USER_KEYS`] that the user has set by variables.
    pub user_keys: Vec<&'static str>,
}

impl Settings {
    /// The value of a key that a user has set by a call, else by a variable.
    fn value<'a>(&'a self, key: &str, variable: Option<&'a String>) -> &'a str {
        let own = self.keys.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value);
        own.or(variable).map_or("all", String::as_str)
    }

    /// The transports that may be used.
    fn tls(&self) -> &str {
        self.value("TLS", self.user_tls.as_ref())
    }

    /// Whether there may be lanes of TCP. Its devices are the kernel's network interfaces, whose names have no colon;
    /// those of RDMA end with a port: `mlx5_0:1`.
    fn has_tcp(&self) -> bool {
        let devices = self.value("NET_DEVICES", self.user_devices.as_ref());
        let all_but = devices.starts_with('^');
        has_lanes(self.tls(), &TCP)
            && (all_but || !devices.split(',').all(|name| name.contains(':')))
    }

    /// Whether there may be lanes of a NIC that reach memory. A name that is not known counts as one.
    fn has_nic(&self) -> bool {
        let tls = self.tls();
        let name = |tl: &str| tl.trim().split(':').next().unwrap_or_default().to_owned();
        tls.starts_with('^') || !tls.split(',').all(|tl| NO_NIC.contains(&name(tl).as_str()))
    }

    /// Whether `NET_DEVICES` allows ports of RDMA devices.
    fn has_ports(&self) -> bool {
        let devices = self.value("NET_DEVICES", self.user_devices.as_ref());
        devices.starts_with('^') || devices.split(',').any(|d| d == "all" || d.contains(':'))
    }

    /// Whether the user has set that key: by a variable, or by a call, by its whole name or without `TCP_` or `IB_`.
    fn has(&self, key: &str) -> bool {
        let short =
            |name: &str| name.trim_start_matches("TCP_").trim_start_matches("IB_").to_owned();
        self.user_keys.contains(&key) || self.keys.iter().any(|(name, _)| short(name) == short(key))
    }

    /// What is set here by itself, for that release, on a system with RDMA devices or without. Only for lanes that
    /// there may be: UCX complains, on standard output and for each worker, about keys that nothing uses.
    pub(super) fn own(&self, version: Version, rdma: bool) -> impl Iterator<Item = Setting> {
        let tls = self.tls();
        let tcp = self.has_tcp();
        let segment = tcp && !self.has(TCP_TX) && !self.has(TCP_RX);
        let cache = self.has_nic() && version >= UCP_CACHE && !self.has(CACHE);
        let below = rdma && self.has_ports() && version < UCP_CACHE_ALONE;
        let below = below && self.has_nic() && !self.has(IB_CACHE);
        let settings = [
            has_lanes(tls, &MEMORY).then_some(MEMORY_LANES),
            (tcp && !self.has(TCP_IOV)).then(|| NOTHING_IN_PLACE.of(version)),
            segment.then(|| ONE_SEGMENT.of(version)),
            cache.then_some(NO_CACHE),
            below.then_some(NO_IB_CACHE),
        ];
        settings.into_iter().flatten()
    }
}

/// Names in `UCX_TLS` for some lanes.
struct Names {
    /// Any of them allows such lanes.
    with: &'static [&'static str],
    /// Any of them behind `^` leaves none.
    without: &'static [&'static str],
}

const TCP: Names = Names { with: &["all", "tcp"], without: &["tcp"] };

/// Names in `UCX_TLS` of lanes by which no peer reaches memory through a NIC.
const NO_NIC: [&str; 16] = [
    "", "tcp", "self", "sm", "shm", "mm", "posix", "sysv", "xpmem", "cma", "knem", "ud", "ud_v",
    "ud_x", "ud_verbs", "ud_mlx5",
];

/// Without one kind of shared memory there still is the other.
const MEMORY: Names = Names {
    with: &["all", "sm", "shm", "mm", "posix", "sysv", "xpmem"],
    without: &["sm", "shm", "mm"],
};

/// Whether a value of `UCX_TLS` allows lanes of those names.
fn has_lanes(tls: &str, names: &Names) -> bool {
    match tls.strip_prefix('^') {
        Some(without) => !without.split(',').any(|name| names.without.contains(&name.trim())),
        None => tls.split(',').any(|name| names.with.contains(&name.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::{MEMORY, Settings, TCP, WHOLE_NAMES, has_lanes};
    use crate::ucx::library::{OLDEST, Version};

    #[test]
    fn lanes_of_shared_memory_are_told_from_others() {
        for tls in ["all", "sm", "tcp,posix", "sysv,cma,self", "rc, shm", "^tcp", "^posix"] {
            assert!(has_lanes(tls, &MEMORY), "{tls}");
        }
        for tls in ["tcp", "tcp,self", "rc,ud", "cma", "", "^sm", "^tcp,shm"] {
            assert!(!has_lanes(tls, &MEMORY), "{tls}");
        }
    }

    #[test]
    fn lanes_of_tcp_are_told_from_others() {
        for tls in ["all", "tcp", "sm, tcp", "^sm", "^ud,posix"] {
            assert!(has_lanes(tls, &TCP), "{tls}");
        }
        for tls in ["sm", "rc,ud,self", "", "^tcp", "^sm, tcp"] {
            assert!(!has_lanes(tls, &TCP), "{tls}");
        }
    }

    #[test]
    fn what_was_asked_for_here_comes_before_the_user_s_variable() {
        let mut settings = Settings::default();
        assert_eq!(settings.tls(), "all");
        settings.user_tls = Some("tcp".into());
        assert_eq!(settings.tls(), "tcp");
        settings.keys.push(("TLS".into(), "sm".into()));
        assert_eq!(settings.tls(), "sm");
    }

    fn own(settings: &Settings) -> Vec<&'static str> {
        settings.own(WHOLE_NAMES, true).map(|(key, _)| key.to_str().unwrap()).collect()
    }

    #[test]
    fn tcp_lanes_send_nothing_from_where_it_lies() {
        for tls in ["all", "tcp", "tcp,self", "rc,tcp", "^sm"] {
            let settings = Settings { user_tls: Some(tls.into()), ..Settings::default() };
            let sets = |version, key| settings.own(version, false).any(|s| s == (key, c"1"));
            assert!(sets(WHOLE_NAMES, c"TCP_MAX_IOV"), "{tls}");
            assert!(sets(OLDEST, c"MAX_IOV"), "{tls}");
        }
    }

    #[test]
    fn only_lanes_that_there_may_be_are_set_up() {
        let over = |tls: &str| own(&Settings { user_tls: Some(tls.into()), ..Settings::default() });
        assert_eq!(over("tcp,self"), ["TCP_MAX_IOV", "TCP_TX_SEG_SIZE"]);
        assert_eq!(over("sm,self"), ["MM_ERROR_HANDLING"]);
        let all = ["MM_ERROR_HANDLING", "TCP_MAX_IOV", "TCP_TX_SEG_SIZE", "RCACHE_ENABLE"];
        assert_eq!(over("all"), all);
        assert_eq!(over("ud"), [""; 0]);
    }

    #[test]
    fn ports_of_rdma_are_no_devices_of_tcp() {
        for (devices, tcp) in [
            ("all", true),
            ("eth0", true),
            ("mlx5_0:1,eth0", true),
            ("^mlx5_0:1", true),
            ("mlx5_0:1", false),
            ("mlx5_0:1,mlx5_1:1", false),
        ] {
            let by_variable =
                Settings { user_devices: Some(devices.into()), ..Settings::default() };
            assert_eq!(by_variable.has_tcp(), tcp, "{devices}");
            let keys = vec![("NET_DEVICES".to_owned(), devices.to_owned())];
            assert_eq!(Settings { keys, ..Settings::default() }.has_tcp(), tcp, "{devices}");
        }
    }

    #[test]
    fn older_releases_are_told_keys_without_the_transport() {
        let settings = Settings { user_tls: Some("tcp".into()), ..Settings::default() };
        let said: Vec<_> = settings.own(OLDEST, true).collect();
        assert_eq!(said, [(c"MAX_IOV", c"1"), (c"TX_SEG_SIZE", c"64k")]);
    }

    /// The caches of registrations that are left out, in that release.
    fn no_caches(settings: &Settings, minor: u32, rdma: bool) -> Vec<&'static str> {
        let version = Version { major: 1, minor, release: 0 };
        let keys = settings.own(version, rdma).map(|(key, _)| key.to_str().unwrap());
        keys.filter(|key| ["RCACHE_ENABLE", "REG_METHODS"].contains(key)).collect()
    }

    #[test]
    fn registrations_end_at_once_where_a_nic_may_reach_them() {
        let over = |tls: &str| Settings { user_tls: Some(tls.into()), ..Settings::default() };
        for tls in ["all", "rc", "sm,dc_mlx5", "ib", "^tcp", "^ib", "ud, rc_x", "ud:aux,srd"] {
            assert_eq!(no_caches(&over(tls), 22, true), ["RCACHE_ENABLE"], "{tls}");
        }
        for tls in ["tcp", "sm,self", "ud:aux, tcp", "posix,cma"] {
            assert_eq!(no_caches(&over(tls), 13, true), [""; 0], "{tls}");
        }
        // Each release has its caches, and complains of keys that it does not know.
        let rc = over("rc");
        assert_eq!(no_caches(&rc, 16, true), ["RCACHE_ENABLE"]);
        assert_eq!(no_caches(&rc, 15, true), ["RCACHE_ENABLE", "REG_METHODS"]);
        assert_eq!(no_caches(&rc, 13, true), ["RCACHE_ENABLE", "REG_METHODS"]);
        assert_eq!(no_caches(&rc, 12, true), ["REG_METHODS"]);
        assert_eq!(no_caches(&rc, 12, false), [""; 0]);
        let ethernet = Settings { user_devices: Some("eth0".into()), ..rc };
        assert_eq!(no_caches(&ethernet, 13, true), ["RCACHE_ENABLE"]);
    }

    #[test]
    fn caches_that_the_user_has_chosen_stay() {
        for (key, left) in [("RCACHE_ENABLE", "REG_METHODS"), ("IB_REG_METHODS", "RCACHE_ENABLE")] {
            let by_variable = Settings { user_keys: vec![key], ..Settings::default() };
            assert_eq!(no_caches(&by_variable, 13, true), [left], "{key}");
            for name in [key, key.trim_start_matches("IB_")] {
                let keys = vec![(name.to_owned(), "try".to_owned())];
                let by_call = Settings { keys, ..Settings::default() };
                assert_eq!(no_caches(&by_call, 13, true), [left], "{name}");
            }
        }
    }

    #[test]
    fn what_the_user_has_set_is_not_touched() {
        for (key, left) in [
            ("TCP_MAX_IOV", "TCP_TX_SEG_SIZE"),
            ("TCP_TX_SEG_SIZE", "TCP_MAX_IOV"),
            ("TCP_RX_SEG_SIZE", "TCP_MAX_IOV"),
        ] {
            let tls = ("TLS".to_owned(), "tcp".to_owned());
            let by_variable =
                Settings { keys: vec![tls.clone()], user_keys: vec![key], ..Settings::default() };
            assert_eq!(own(&by_variable), [left], "{key}");
            for name in [key, key.trim_start_matches("TCP_")] {
                let keys = vec![tls.clone(), (name.to_owned(), "1".to_owned())];
                let by_call = Settings { keys, ..Settings::default() };
                assert_eq!(own(&by_call), [left], "{name}");
            }
        }
    }
}
