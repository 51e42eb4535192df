//! A forked child that says one thing and ends.

use std::io::{Read as _, Write as _};

/// Runs `body` in a forked child and gives what it returned, or the signal that ended the child; one that hangs ends by
/// SIGALRM.
///
/// # Errors
/// The signal.
///
/// # Panics
/// When there can be no child.
pub fn in_child(body: impl FnOnce() -> String) -> Result<String, i32> {
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    // SAFETY: fork(2). The child calls into the session (the subject of the test) and ends by
    // `_exit`; glibc makes malloc usable in the child of a process with threads.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no fork");
    if pid == 0 {
        // SAFETY: alarm(2) takes a number.
        unsafe { libc::alarm(20) };
        let said = body();
        let _ = std::fs::File::from(write).write_all(said.as_bytes());
        // SAFETY: _exit(2) ends the child at once, without the destructors of the parent's things.
        unsafe { libc::_exit(0) };
    }
    drop(write);
    let mut said = String::new();
    std::fs::File::from(read).read_to_string(&mut said).expect("text");
    let mut status = 0;
    // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    if libc::WIFEXITED(status) { Ok(said) } else { Err(libc::WTERMSIG(status)) }
}

/// What `ask` answers in a child of this process.
///
/// # Panics
/// When the system makes no child, or the child does not end in order.
pub fn in_a_child(ask: impl FnOnce() -> u8) -> i32 {
    // SAFETY: fork(2). This program has a thread that uses its memory, and its other threads hold no lock of the allocator's
    // for long; the child asks and ends by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let answer = ask();
        // SAFETY: _exit(2) takes a number.
        unsafe { libc::_exit(answer.into()) };
    }
    let mut status = 0;
    // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert!(waited == pid && libc::WIFEXITED(status), "the child ended with {status:#x}");
    libc::WEXITSTATUS(status)
}

/// Returns in a child of this process, which ends as the child does.
///
/// # Panics
/// When the system makes no child.
pub fn go_on_as_a_child() {
    // SAFETY: fork(2), as above; the child takes nothing of the sessions.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no fork");
    if pid == 0 {
        return;
    }
    let mut status = 0;
    // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { status };
    // SAFETY: _exit(2) ends the process at once: nothing of it runs any more.
    unsafe { libc::_exit(code) };
}
