//! process_vm_readv(2), by raw calls.

use crate::error::Res;

/// Reads `len` bytes at `address` of process `pid` to the address `into` of this one.
///
/// # Safety
/// `len` bytes at `into` are this process's, writable, and nobody has a reference to them during the call.
pub(crate) unsafe fn read(pid: i32, address: usize, into: usize, len: usize) -> Res<()> {
    let mut done = 0;
    while done < len {
        let at = |start: usize| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(start + done),
            iov_len: len - done,
        };
        let (local, remote) = (at(into), at(address));
        // SAFETY: `local` is the rest of what the caller vouched for; `remote` is only
        // an address in another process, which the kernel checks there (process_vm_readv(2)).
        let n =
            unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => done += n,
            _ => {
                let why = std::io::Error::last_os_error();
                return Err(format!("process_vm_readv: {why}"));
            }
        }
    }
    Ok(())
}
