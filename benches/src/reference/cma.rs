//! process_vm_readv(2), bare.

use crate::Res;

/// Reads `into.len()` bytes at `address` of process `pid`.
pub(crate) fn read(pid: i32, address: usize, into: &mut [u8]) -> Res<()> {
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(address + done),
            iov_len: rest.len(),
        };
        // SAFETY: `local` names `rest`, which is borrowed for writing across the call; `remote` is only
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
