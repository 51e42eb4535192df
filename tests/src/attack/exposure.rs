//! What a session opens to others only if it is asked to by name, and what it must not believe to be private.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::time::Duration;

use hmc_std::{Address, Error, ErrorKind, Session};

use super::{Context, Outcome};
use crate::actor::Actor;
use crate::env::TempDir;

/// A user who is not this one.
const OTHER_USER: u32 = 65_534;

/// What is wrong with the end of a call that has to be refused, if something is.
fn wrong(call: &str, end: Result<(), Error>, wanted: ErrorKind) -> Option<String> {
    match end {
        Err(e) if e.kind() == wanted => None,
        Err(e) => Some(format!("{call}: {e}")),
        Ok(()) => Some(format!("{call} succeeded")),
    }
}

fn mode(path: &Path, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).expect("it is ours");
}

/// Listens, and dials, beyond loopback without asking for it by name.
///
/// # Panics
/// When there can be no session.
pub fn beyond_loopback(context: &mut Context) -> Outcome {
    let session = Session::builder(2).buffer(4096).start().expect("a session");
    while context.again(5) {
        // 192.0.2.0/24 leads nowhere (RFC 5737).
        let far = Address::Tcp(SocketAddr::from(([192, 0, 2, 1], 9)));
        let dialed = session.connect(&far).rank(8).within(Duration::from_millis(200)).wait();
        let listens = Session::builder(9).tcp("0.0.0.0:0").start();
        let later = session.listen(&Address::tcp(([0, 0, 0, 0], 0)));
        let wanted = ErrorKind::NoCredentials;
        let all = [
            wrong("a listener at 0.0.0.0", listens.map(drop), wanted),
            wrong("a later listener at 0.0.0.0", later.map(|_| ()), wanted),
            wrong("a dial of 192.0.2.1", dialed.map(drop), wanted),
        ];
        if let Some(seen) = all.into_iter().flatten().next() {
            return context.broken(seen);
        }
    }
    context.held("listeners and dials beyond loopback were refused")
}

/// Asks by name for a transport whose library is not there.
///
/// # Panics
/// When there can be no session.
pub fn absent_transport(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let _server = Session::builder(1).uds(dir.path()).buffer(4096).start().expect("a session");
    let absent = [("HMC_UCX_LIB", "/nonexistent/libucp.so")];
    while context.again(2) {
        let mut client = Actor::session_with(&context.actor, "rank=2 buffer=4096", &absent);
        let said = client.try_request(&format!("connect 1 {} ucx 5000", dir.address()));
        if !said.as_ref().is_err_and(|e| e.starts_with("Unavailable")) {
            return context.broken(format!("a dial over a UCX that is not there: {said:?}"));
        }
    }
    context.held("a transport that is not there is an error")
}

/// Folders for control sockets that other users can enter, and links to such folders.
///
/// # Panics
/// When there can be no folder.
pub fn open_folders(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    while context.again(10) {
        let n = context.attempts();
        let (own, link) = (dir.path().join(format!("{n}")), dir.path().join(format!("link{n}")));
        std::fs::create_dir(&own).expect("a new folder");
        // At least one right of somebody else.
        let others = 1 + u32::try_from(context.rng.below(0o77)).expect("small");
        mode(&own, 0o700 | others);
        symlink(&own, &link).expect("a new link");
        let listens = |at: &Path| Session::builder(1).uds(at).buffer(0).start().map(drop);
        let call = format!("a folder of mode {:o}", 0o700 | others);
        let mut all = vec![wrong(&call, listens(&own), ErrorKind::InvalidConfig)];
        mode(&own, 0o700);
        all.push(wrong("a link", listens(&link), ErrorKind::InvalidConfig));
        if let Some(seen) = all.into_iter().flatten().next() {
            return context.broken(seen);
        }
        assert!(listens(&own).is_ok(), "a folder of this user alone");
    }
    context.held("folders that others can enter were refused, and links")
}

/// Secrets that other users can read or write.
///
/// # Panics
/// When there can be no file.
pub fn readable_secrets(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let secret = dir.path().join("secret");
    let listens = || {
        let builder = Session::builder(1).tcp("127.0.0.1:0").secret_file(&secret).buffer(0);
        builder.start().map(drop)
    };
    while context.again(10) {
        std::fs::write(&secret, context.rng.bytes(32)).expect("a new file");
        let others = 1 + u32::try_from(context.rng.below(0o77)).expect("small");
        mode(&secret, 0o600 | others);
        let call = format!("a secret of mode {:o}", 0o600 | others);
        if let Some(seen) = wrong(&call, listens(), ErrorKind::NoCredentials) {
            return context.broken(seen);
        }
        mode(&secret, 0o600);
        assert!(listens().is_ok(), "a secret of this user alone");
    }
    context.held("secrets that others can read or write were refused")
}

/// A process of another user at a local socket, whose folder is opened to it after the session has started.
///
/// # Panics
/// When there can be no session.
pub fn another_user(context: &mut Context) -> Outcome {
    if std::fs::metadata("/proc/self").expect("proc").uid() != 0 {
        return Outcome::skipped("only root can start a process of another user");
    }
    let Some(place) = TempDir::for_all_users() else {
        return Outcome::skipped("other users can enter no folder for temporary files");
    };
    let (uds, home) = (place.path().join("uds"), place.path().join("home"));
    for dir in [&uds, &home] {
        std::fs::create_dir(dir).expect("a new folder");
        mode(dir, 0o700);
    }
    chown(&home, Some(OTHER_USER), Some(OTHER_USER)).expect("root may");
    let server = Session::builder(1).uds(&uds).buffer(4096).start().expect("a session");
    // The socket's own mode is no obstacle either: what keeps the process out is what the kernel says of it.
    mode(&uds, 0o777);
    for socket in std::fs::read_dir(&uds).expect("ours").flatten() {
        mode(&socket.path(), 0o777);
    }
    let program = place.runnable(&context.actor);
    let home = home.display().to_string();
    let variables = [("HMC_UDS_DIR", home.as_str())];
    let mut actor = Actor::spawn_as(program.to_str().expect("text"), OTHER_USER, &variables);
    actor.request("start rank=2 buffer=4096");
    while context.again(3) {
        let said = actor.try_request(&format!("connect 1 uds://{} auto 300", uds.display()));
        if let Ok(conn) = said {
            return context.broken(format!("a process of another user is connected over {conn}"));
        }
        if !server.peers().is_empty() {
            return context.broken("a process of another user is a peer");
        }
    }
    context.held("its connections were closed")
}
