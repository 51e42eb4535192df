//! What users write: addresses, folders of sockets, environment variables. Shared by the fuzz target
//! `config` and the ordinary tests. Asks no resolver and touches no file.

use crate::bodies::Subject;
use hmc_std::Rank;
use hmc_std::address::Address;
use hmc_std::config::{Environment, uds_path};
use hmc_std::error::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::Duration;

/// What a text must be taken for.
#[derive(Debug, PartialEq, Eq)]
enum Want {
    Tcp(SocketAddr),
    Uds(PathBuf),
    Local(PathBuf, SocketAddr),
    /// A name and a port: a resolver would be asked.
    Name,
    Refused,
}

/// A folder, and the endpoint behind the last `#` if there is one.
fn local(s: &str) -> Want {
    let at = s.bytes().rposition(|b| b == b'#').unwrap_or(0);
    match s[at..].strip_prefix('#').map(str::parse) {
        Some(Ok(endpoint)) if at > 0 => Want::Local(s[..at].into(), endpoint),
        _ => Want::Uds(s.into()),
    }
}

/// The four forms of docs and error messages, once more.
fn expected(s: &str) -> Want {
    let folder = s.strip_prefix("uds://");
    let host = s.strip_prefix("tcp://");
    match (folder, host) {
        (Some(""), _) => Want::Refused,
        (Some(dir), _) => local(dir),
        // What stands before the first slash, with a colon at its end and a slash behind: another scheme.
        (None, None) if s.bytes().any(|b| b == b'/') => {
            match s.split('/').collect::<Vec<_>>()[..] {
                [scheme, "", _, ..] if scheme.ends_with(':') => Want::Refused,
                _ => local(s),
            }
        }
        (None, host) => {
            let text = host.unwrap_or(s);
            let at = text.bytes().rposition(|b| b == b':').unwrap_or(0);
            let (name, port) = text.split_at(at);
            let digits = port.strip_prefix(':').unwrap_or("+");
            let is_name = !name.is_empty() && name.bytes().all(|b| !b":[]".contains(&b));
            match (text.parse::<SocketAddr>(), digits.parse::<u16>()) {
                (Ok(addr), _) if addr.port() > 0 => Want::Tcp(addr),
                (Err(_), Ok(1..)) if is_name && !digits.starts_with('+') => Want::Name,
                _ => Want::Refused,
            }
        }
    }
}

/// The broken parser takes what follows a colon in a path for a port.
fn parse(s: &str, subject: Subject) -> hmc_std::Result<Address> {
    let parsed: hmc_std::Result<Address> = s.parse();
    match (subject, parsed) {
        (Subject::Broken, Ok(Address::Uds(p))) => {
            let bytes = p.as_os_str().as_bytes();
            let end = bytes.iter().position(|b| *b == b':').unwrap_or(bytes.len());
            Ok(Address::Uds(OsStr::from_bytes(&bytes[..end]).into()))
        }
        (_, parsed) => parsed,
    }
}

fn address(text: &[u8], subject: Subject) -> String {
    let Ok(s) = std::str::from_utf8(text) else { return "no text".into() };
    let want = expected(s);
    if want == Want::Name {
        return "name".into();
    }
    match parse(s, subject) {
        Ok(a) => {
            let got = match &a {
                Address::Tcp(addr) | Address::UnauthenticatedTcp(addr) => Want::Tcp(*addr),
                Address::Uds(dir) => Want::Uds(dir.clone()),
                Address::Local { dir, endpoint } => Want::Local(dir.clone(), *endpoint),
            };
            assert_eq!(got, want, "{s:?}");
            assert_eq!(a.to_string().parse::<Address>().unwrap(), a, "{s:?} is written otherwise");
            format!("good {a:?}")
        }
        Err(e) => {
            assert_eq!((want, e.kind()), (Want::Refused, ErrorKind::InvalidConfig), "{s:?}: {e}");
            format!("{:?}", e.kind())
        }
    }
}

fn socket_path(text: &[u8]) -> String {
    let (rank, dir) = text.split_at(text.len().min(2));
    let rank = rank.iter().fold(0u32, |r, b| (r << 8) | u32::from(*b));
    let name = format!("hmc_ctrl_rank_{rank}.sock");
    let mut whole = dir.to_vec();
    if !dir.is_empty() && !dir.ends_with(b"/") {
        whole.push(b'/');
    }
    whole.extend_from_slice(name.as_bytes());
    match uds_path(OsStr::from_bytes(dir).as_ref(), Rank(rank)) {
        Ok(path) => {
            assert!(whole.len() <= 107);
            assert_eq!(path.as_os_str().as_bytes(), whole);
            format!("good {} bytes", whole.len())
        }
        Err(e) => {
            assert!(whole.len() > 107 && e.kind() == ErrorKind::InvalidConfig, "{e}");
            format!("{:?}", e.kind())
        }
    }
}

fn environment(text: &[u8]) -> String {
    let names = ["HMC_UDS_DIR", "HMC_SPIN_US", "HMC_NO_CMA", "XDG_RUNTIME_DIR"];
    // A line for each; a line that is missing is a variable that is not set.
    let values: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    let value = |name: &str| {
        let at = names.iter().position(|n| *n == name);
        at.and_then(|at| values.get(at).copied())
    };
    let env = Environment::of(|name| value(name).map(|v| OsString::from_vec(v.to_vec())));
    let path =
        |name| value(name).filter(|v| !v.is_empty()).map(|v| PathBuf::from(OsStr::from_bytes(v)));
    assert_eq!((&env.uds_dir, &env.runtime_dir), (&path(names[0]), &path(names[3])));
    assert_eq!(env.no_cma, value(names[2]) == Some(b"1"));
    let digits = value(names[1]).map(|v| v.strip_prefix(b"+").unwrap_or(v)).unwrap_or_default();
    let micros = digits.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    });
    let micros = micros.filter(|_| !digits.is_empty());
    assert_eq!(env.spin, micros.map(Duration::from_micros));
    // Nothing that is set is passed over without a word; a switch may be empty.
    let wrong = [
        (names[1], value(names[1]).is_some() && micros.is_none()),
        (names[2], value(names[2]).is_some_and(|v| !matches!(v, b"" | b"0" | b"1"))),
    ];
    for (name, is_wrong) in wrong {
        let told = env.refused.iter().filter(|r| r.starts_with(&format!("{name}="))).count();
        assert_eq!(told, usize::from(is_wrong), "{name}: {:?}", env.refused);
    }
    let folder = env.default_uds_dir();
    match (path(names[0]), path(names[3])) {
        (Some(dir), _) => assert_eq!(folder, dir),
        (None, Some(run)) => assert_eq!(folder, run.join("hmc")),
        (None, None) => assert!(folder.starts_with("/tmp")),
    }
    format!("good spin {:?} no_cma {} refused {}", env.spin, env.no_cma, env.refused.len())
}

fn run(bytes: &[u8], subject: Subject) -> String {
    match bytes.split_first() {
        None => "nothing".into(),
        Some((b'A', text)) => address(text, subject),
        Some((b'P', text)) => socket_path(text),
        Some((b'E', text)) => environment(text),
        Some((_, text)) => address(text, subject),
    }
}

/// A letter for what it is (A an address, P a rank and a folder, E lines of an environment), then a text.
pub fn config(bytes: &[u8], subject: Subject) {
    let _ = run(bytes, subject);
}

/// What a text is taken for.
pub fn class(bytes: &[u8]) -> String {
    run(bytes, Subject::Real)
}
