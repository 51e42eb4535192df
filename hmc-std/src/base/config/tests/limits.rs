//! The limits of a session, and what it starts with.

use std::path::Path;

use hmc_core::limits;
use hmc_core::types::Rank;

use crate::base::config::{Config, Environment, check_rank, listening_address};
use crate::base::error::ErrorKind;

#[test]
fn each_limit_of_a_session_is_one_that_it_can_have() {
    type Set = fn(&mut Config, usize);
    let cases: [(Set, usize, usize, &str); 3] = [
        (|c, n| c.slots = n, 1, limits::MAX_SLOTS, "operations in flight"),
        (|c, n| c.windows = n, 1, limits::MAX_WINDOWS_PER_PEER, "windows per peer"),
        (|c, n| c.set_channels(u32::try_from(n).expect("small")), 1, 16, "channels"),
    ];
    for (set, least, most, name) in cases {
        for (n, is_right) in
            [(least - 1, false), (least, true), (most - 1, true), (most, true), (most + 1, false)]
        {
            let mut config = Config::new(Rank(0), &Environment::default());
            set(&mut config, n);
            match config.check() {
                Ok(()) => assert!(is_right, "{n} {name}"),
                Err(e) => {
                    assert_eq!((e.kind(), is_right), (ErrorKind::InvalidConfig, false));
                    assert!(e.to_string().contains(&format!("{n} {name}")), "{e}");
                }
            }
        }
    }
    for (rank, is_right) in [(limits::MAX_PEERS - 1, true), (limits::MAX_PEERS, false)] {
        assert_eq!(check_rank(rank).is_ok(), is_right);
        assert_eq!(Config::new(Rank(rank), &Environment::default()).check().is_ok(), is_right);
    }
    let e = check_rank(u32::MAX).expect_err("beyond");
    assert!(e.to_string().ends_with(&format!(", {}", limits::MAX_PEERS - 1)), "{e}");
}

#[test]
fn where_a_session_listens_is_checked_before_it_starts() {
    let with = |set: fn(&mut Config)| {
        let mut config = Config::new(Rank(0), &Environment::default());
        set(&mut config);
        config.check().map_err(|e| e.kind())
    };
    let address = |text: &str| Some(listening_address(text).expect("an address"));
    assert_eq!(with(|c| c.tcp = "127.0.0.1:0".parse().ok()), Ok(()));
    assert_eq!(with(|c| c.tcp = "10.0.0.1:0".parse().ok()), Err(ErrorKind::NoCredentials));
    let insecure: fn(&mut Config) = |c| {
        (c.tcp, c.insecure) = ("10.0.0.1:0".parse().ok(), true);
    };
    assert_eq!(with(insecure), Ok(()));
    assert_eq!(with(|c| c.uds_dir = Some("/d".into())), Ok(()));
    assert!(with(|c| c.uds_dir = Some("d".repeat(200).into())).is_err());
    assert_eq!(address("127.0.0.1:7"), "127.0.0.1:7".parse().ok());
    let e = listening_address("here").expect_err("none");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    assert!(e.to_string().contains("`here`"), "{e}");
}

#[test]
fn a_session_starts_with_what_its_environment_says() {
    let vars = [
        ("HMC_JOB", "5"),
        ("HMC_SPIN_US", "7"),
        ("HMC_TIMEOUT", "3"),
        ("HMC_NO_CMA", "1"),
        ("HMC_UCX", "1"),
        ("HMC_UCX_LIB", "/lib/ucp"),
        ("UCX_TLS", "tcp"),
        ("UCX_NET_DEVICES", "eth0"),
        ("VIRTUAL_ENV", "/venv"),
        ("CONDA_PREFIX", "/conda"),
        ("HOME", "/home"),
    ];
    let get = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).into());
    let env = Environment::of(get);
    let config = Config::new(Rank(2), &env);
    assert_eq!((config.rank, config.job, config.job_from), (Rank(2), 5, "HMC_JOB"));
    assert_eq!(config.spin, std::time::Duration::from_micros(7));
    assert_eq!(config.deadline, std::time::Duration::from_secs(3));
    assert!(!config.cma && config.ucx.wanted);
    assert_eq!(config.ucx.library, Some("/lib/ucp".into()));
    assert_eq!(config.ucx.user_tls.as_deref(), Some("tcp"));
    assert_eq!(config.ucx.user_devices.as_deref(), Some("eth0"));
    let prefixes: [std::path::PathBuf; 5] =
        ["/venv", "/conda", "/home/.local", "/usr/local", "/usr"].map(Into::into);
    assert_eq!(config.ucx.prefixes, prefixes);
    let config = Config::new(Rank(2), &Environment::default());
    assert_eq!((config.job, config.job_from), (0, "the default"));
    assert!(config.cma && !config.ucx.wanted);
    assert_eq!(config.deadline, std::time::Duration::from_secs(30));
}

#[test]
fn control_sockets_are_in_the_folder_that_was_named_or_in_one_of_the_users() {
    let (uds_dir, runtime_dir) = (Some("/uds".into()), Some("/run/user/7".into()));
    let both = Environment { uds_dir, runtime_dir: runtime_dir.clone(), ..Environment::default() };
    assert_eq!(both.default_uds_dir(), Path::new("/uds"));
    let one = Environment { runtime_dir, ..Environment::default() };
    assert_eq!(one.default_uds_dir(), Path::new("/run/user/7/hmc"));
    let user = rustix::process::geteuid().as_raw();
    let none = Environment::default().default_uds_dir();
    assert_eq!(none, Path::new(&format!("/tmp/hmc-{user}")));
    // Set to nothing, as if it were not set.
    let empty = Environment::of(|n| (n == "HMC_UDS_DIR").then(Default::default));
    assert_eq!(empty.uds_dir, None);
}
