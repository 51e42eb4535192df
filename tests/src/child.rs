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
