//! Calls of memory regions.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_RELAXED_ORDERING, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd,
};
use crate::faults::Call;
use crate::object::{KeyOwner, Mr};
use crate::state::{FakeIbv, fail, state, structure};

const PAGE: usize = 4096;
/// The low bits of keys: a local key is never a remote one.
const LOCAL_KEY: u32 = b'L' as u32;
const REMOTE_KEY: u32 = b'R' as u32;
const REMOTE: c_uint = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
/// What `ibv_reg_mr` takes.
const RIGHTS: c_uint = IBV_ACCESS_LOCAL_WRITE | REMOTE | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB;
/// What `ibv_reg_dmabuf_mr` takes.
const DMABUF_RIGHTS: c_uint = IBV_ACCESS_LOCAL_WRITE | REMOTE | IBV_ACCESS_RELAXED_ORDERING;

/// Returns `true` if all pages of a range are mapped.
fn is_mapped(start: *mut c_void, len: usize) -> bool {
    let before = start.addr() % PAGE;
    // SAFETY: without effect on mapped pages, and an error on others.
    unsafe { libc::msync(start.wrapping_byte_sub(before), len + before, libc::MS_ASYNC) == 0 }
}

/// What a region is made of.
struct Range {
    start: *mut c_void,
    len: usize,
    iova: u64,
    access: c_uint,
}

impl FakeIbv {
    /// Checks what all registrations have in common; the errno of one that fails.
    fn check_registration(&mut self, call: Call, pd: *mut ibv_pd) -> Result<(u32, usize), c_int> {
        let id = self.known(call, |w| &w.pds, pd).ok_or(libc::EINVAL)?;
        let device = self.pds.get(id).map_or(0, |p| p.device);
        if let Some(errno) = self.set_up(call, Some(device)) {
            return Err(errno);
        }
        let count = self.mrs.values().filter(|m| m.device == device).count();
        if count as u64 >= self.devices[device].limits.max_mr {
            return Err(libc::ENOMEM);
        }
        Ok((id, device))
    }

    fn check_range(&self, device: usize, range: &Range, rights: c_uint) -> Result<(), c_int> {
        let remote_writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        if range.access & IBV_ACCESS_ON_DEMAND != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let lacks_write =
            range.access & remote_writes != 0 && range.access & IBV_ACCESS_LOCAL_WRITE == 0;
        let len = range.len as u64;
        if range.access & !rights != 0
            || lacks_write
            || len == 0
            || len > self.devices[device].limits.max_mr_size
        {
            return Err(libc::EINVAL);
        }
        let memlock = self.script.knobs.memlock;
        if memlock != 0 && self.counters.registered.saturating_add(len) > memlock {
            return Err(libc::ENOMEM);
        }
        Ok(())
    }

    fn add_region(
        &mut self,
        pd: *mut ibv_pd,
        (domain, device): (u32, usize),
        range: &Range,
        mapping: Option<usize>,
    ) -> *mut ibv_mr {
        let id = self.mrs.next_id();
        let key = self.new_key(KeyOwner::Mr(id));
        let (lkey, rkey) = (key | LOCAL_KEY, key | REMOTE_KEY);
        // SAFETY: the structure of a domain that is alive.
        let context = unsafe { (*pd).context };
        let (addr, length) = (range.start, range.len);
        let new = structure(ibv_mr { context, pd, addr, length, handle: id, lkey, rkey });
        let mr = Mr {
            pd: domain,
            device,
            start: range.start.expose_provenance(),
            iova: range.iova,
            len: length as u64,
            access: range.access,
            lkey,
            rkey,
            users: 0,
            windows: 0,
            mapping,
        };
        self.mrs.insert(new, mr);
        self.counters.registered += length as u64;
        if let Some(pd) = self.pds.get_mut(domain) {
            pd.users += 1;
        }
        new
    }

    fn register(
        &mut self,
        call: Call,
        pd: *mut ibv_pd,
        range: &Range,
        rights: c_uint,
    ) -> *mut ibv_mr {
        let domain = match self.check_registration(call, pd) {
            Ok(domain) => domain,
            Err(errno) => return fail(errno),
        };
        if let Err(errno) = self.check_range(domain.1, range, rights) {
            return fail(errno);
        }
        if !is_mapped(range.start, range.len) {
            return fail(libc::EFAULT);
        }
        self.add_region(pd, domain, range, None)
    }
}

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let access = access.cast_unsigned();
    let range = Range { start: addr, len: length, iova: addr.addr() as u64, access };
    // The macro of the header calls `ibv_reg_mr_iova2` for optional bits.
    state().register(Call::RegMr, pd, &range, RIGHTS)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let access = access & !IBV_ACCESS_OPTIONAL_RANGE;
    let range = Range { start: addr, len: length, iova, access };
    state().register(Call::RegMrIova2, pd, &range, RIGHTS)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let mut w = state();
    let domain = match w.check_registration(Call::RegDmabufMr, pd) {
        Ok(domain) => domain,
        Err(errno) => return fail(errno),
    };
    if !w.devices[domain.1].has_dmabuf {
        return fail(libc::EOPNOTSUPP);
    }
    let access = access.cast_unsigned();
    let mut range = Range { start: core::ptr::null_mut(), len: length, iova, access };
    if let Err(errno) = w.check_range(domain.1, &range, DMABUF_RIGHTS) {
        return fail(errno);
    }
    let (before, file_offset) = (offset as usize % PAGE, offset as i64 & !(PAGE as i64 - 1));
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let len = length + before;
    // SAFETY: a mapping of its own, at a new address.
    let mapping = unsafe {
        libc::mmap(core::ptr::null_mut(), len, rights, libc::MAP_SHARED, fd, file_offset)
    };
    if mapping == libc::MAP_FAILED {
        return fail(libc::EINVAL);
    }
    range.start = mapping.wrapping_byte_add(before);
    w.add_region(pd, domain, &range, Some(mapping.expose_provenance()))
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let mut w = state();
    let call = Call::DeregMr;
    if let Some(errno) = w.script.refused(call) {
        return errno;
    }
    let Some(id) = w.known(call, |w| &w.mrs, mr) else { return libc::EINVAL };
    let Some(region) = w.mrs.get(id) else { return libc::EINVAL };
    if region.windows != 0 {
        return libc::EINVAL;
    }
    if region.users != 0 {
        w.misuse(call, "a posted request still uses this region: its completion was not polled");
    }
    // The call is a fence: what was acknowledged has arrived.
    w.deliver_to(id);
    let Some(gone) = w.mrs.remove(id) else { return libc::EINVAL };
    w.keys.remove(&(gone.lkey >> 8));
    w.counters.registered -= gone.len;
    if let Some(pd) = w.pds.get_mut(gone.pd) {
        pd.users -= 1;
    }
    if let Some(mapping) = gone.mapping {
        let len = gone.start - mapping + gone.len as usize;
        // SAFETY: made at the registration with that length, and unmapped once.
        unsafe { libc::munmap(core::ptr::with_exposed_provenance_mut(mapping), len) };
    }
    0
}
