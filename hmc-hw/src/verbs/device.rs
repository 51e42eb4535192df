//! Devices: the list of the system's devices, and an open device.

use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::device_attrs::DeviceAttrs;
use super::device_info::{DeviceInfo, Unusable, info};
use super::error::{VerbsError, check};
use super::functions::Verbs;
use super::library::{Library, LoadError};
use super::sys::{ibv_context, ibv_device, ibv_device_attr};

/// Reason why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// A call failed.
    Verbs(VerbsError),
    /// The process may not use the library.
    Library(LoadError),
    /// There is none of that name.
    NotFound {
        /// The name.
        name: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// It is of a kind that HMC does not use.
    Unusable {
        /// Its name.
        name: String,
        /// The reason.
        why: Unusable,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verbs(e) => e.fmt(f),
            Self::Library(e) => e.fmt(f),
            Self::NotFound { name, there } if there.is_empty() => {
                write!(f, "there is no RDMA device {name}, nor any other: {NO_DEVICE}")
            }
            Self::NotFound { name, there } => write!(
                f,
                "there is no RDMA device {name}: choose one of {} (`ibv_devices`)",
                there.join(", ")
            ),
            Self::Unusable { name, why } => write!(f, "{name} cannot be used: {why}"),
        }
    }
}

impl std::error::Error for DeviceError {}

impl From<VerbsError> for DeviceError {
    fn from(e: VerbsError) -> Self {
        Self::Verbs(e)
    }
}

/// What to do where there is no device.
pub(super) const NO_DEVICE: &str = "see `rdma link` and `ibv_devices`; a device needs its kernel driver (as mlx5_ib), its \
     provider (`apt install ibverbs-providers`) and, in a container, /dev/infiniband; without hardware: \
     `rdma link add rxe0 type rxe netdev eth0`";

/// The RDMA devices of the system, as `ibv_get_device_list` returns them. Later changes of the system do not change the list.
pub struct DeviceList {
    library: &'static Library,
    list: NonNull<*mut ibv_device>,
    devices: Vec<(NonNull<ibv_device>, DeviceInfo)>,
}

impl fmt::Debug for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.infos()).finish()
    }
}

impl DeviceList {
    /// Reads the list, which is empty if the system has no device.
    ///
    /// # Errors
    /// [`DeviceError::Verbs`] if the kernel has no RDMA, [`DeviceError::Library`] in a forked child of a process that has
    /// devices open.
    pub fn read(library: &'static Library) -> Result<Self, DeviceError> {
        if library.is_inherited() {
            return Err(DeviceError::Library(LoadError::Forked));
        }
        let mut count: c_int = 0;
        // SAFETY: it writes the number of the list's entries.
        let list = unsafe { (library.api().ibv_get_device_list)(&mut count) };
        let list = NonNull::new(list).ok_or_else(|| VerbsError::last("listing devices", ""))?;
        let mut out = Self { library, list, devices: Vec::new() };
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has that many entries.
            let entry = unsafe { list.add(at) };
            // SAFETY: as above.
            if let Some(device) = NonNull::new(unsafe { entry.read() }) {
                // SAFETY: the list lives, and so do its devices.
                let info = unsafe { info(library.api(), device) };
                out.devices.push((device, info));
            }
        }
        Ok(out)
    }

    /// Returns the description of each device, in the order of libibverbs. Opens none.
    pub fn infos(&self) -> impl Iterator<Item = &DeviceInfo> {
        self.devices.iter().map(|(_, info)| info)
    }

    /// Opens the device of that name (`mlx5_0`) and reads its attributes.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`]; [`DeviceError::Unusable`] if it is neither InfiniBand nor RoCE; [`DeviceError::Verbs`] if a call fails, for
    /// example for lack of access to its file.
    pub fn open(&self, name: &str) -> Result<Arc<Device>, DeviceError> {
        let found = self.devices.iter().find(|(_, info)| info.name == name);
        let Some((device, info)) = found else {
            let there = self.infos().map(|info| info.name.clone()).collect();
            return Err(DeviceError::NotFound { name: name.to_owned(), there });
        };
        info.usable().map_err(|why| DeviceError::Unusable { name: name.to_owned(), why })?;
        let what = format!("{name}, {}", info.file);
        // SAFETY: the device is one of the list, which lives.
        let context = unsafe { (self.library.api().ibv_open_device)(device.as_ptr()) };
        let context = NonNull::new(context).ok_or_else(|| VerbsError::last("opening", &what))?;
        self.library.count_device(true);
        let (library, info) = (self.library, info.clone());
        let mut device = Device { library, context, info, attrs: DeviceAttrs::default() };
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open; it writes the attributes.
        let returned =
            unsafe { (library.api().ibv_query_device)(context.as_ptr(), attr.as_mut_ptr()) };
        check("reading the attributes", &what, returned)?;
        // SAFETY: zeroed, then written: numbers.
        device.attrs = DeviceAttrs::of(unsafe { attr.assume_init_ref() });
        set_nonblocking(device.event_fd(), "setting up asynchronous events", &what)?;
        Ok(Arc::new(device))
    }
}

/// Reading an event from that descriptor is not to wait for one.
///
/// # Errors
/// [`VerbsError`].
pub(super) fn set_nonblocking(
    fd: BorrowedFd<'_>,
    step: &'static str,
    what: &str,
) -> Result<(), VerbsError> {
    // SAFETY: it reads the flags of an open descriptor.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(VerbsError::last(step, what));
    }
    // SAFETY: it sets them.
    let set = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
    if set == 0 { Ok(()) } else { Err(VerbsError::last(step, what)) }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: a list of `ibv_get_device_list`, freed once. Open devices do not need it.
        unsafe { (self.library.api().ibv_free_device_list)(self.list.as_ptr()) };
    }
}

/// An open device (`ibv_context`). All methods may be called by several threads at a time. The last owner closes it, except in a forked
/// child.
pub struct Device {
    library: &'static Library,
    context: NonNull<ibv_context>,
    info: DeviceInfo,
    attrs: DeviceAttrs,
}

// SAFETY: libibverbs may be called from any thread (its README, "Threading"): a context's calls take its own locks.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Device {
    /// Returns its library.
    #[must_use]
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// Returns the functions of its library.
    #[inline]
    pub(crate) fn api(&self) -> &'static Verbs {
        self.library.api()
    }

    /// Returns its context, which lives as long as the device.
    #[inline]
    pub(crate) fn context(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// Returns its name: `mlx5_0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Returns its description from the list of devices.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Returns its limits and capabilities, read when it was opened.
    #[must_use]
    pub fn attrs(&self) -> &DeviceAttrs {
        &self.attrs
    }

    /// Returns the descriptor that is readable while the device has an asynchronous event (`async_fd`). It is non-blocking. The descriptor of
    /// a removed device stays readable.
    #[must_use]
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open.
        let fd = unsafe { (*self.context()).async_fd };
        // SAFETY: the descriptor is open as long as the context, which the device owns.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // In a forked child it is the parent's.
        if self.library.is_inherited() {
            return;
        }
        // SAFETY: queues and memory own the device, so none of them is left; closed once.
        unsafe { (self.api().ibv_close_device)(self.context.as_ptr()) };
        self.library.count_device(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::library::Search;

    #[test]
    fn errors_have_a_remedy() {
        let name = || "mlx5_9".to_owned();
        let e = DeviceError::Unusable { name: name(), why: Unusable::Iwarp };
        assert!(e.to_string().starts_with("mlx5_9 cannot be used: it speaks iWARP"), "{e}");
        let why = Unusable::Protocol { node: 7, transport: 4 };
        let e = DeviceError::Unusable { name: name(), why };
        assert!(e.to_string().contains("node type 7, transport type 4"), "{e}");
        let there = vec!["mlx5_0".to_owned(), "rxe0".to_owned()];
        let e = DeviceError::NotFound { name: name(), there };
        assert!(e.to_string().contains("choose one of mlx5_0, rxe0"), "{e}");
        let e = DeviceError::NotFound { name: name(), there: Vec::new() };
        assert!(e.to_string().contains("type rxe netdev eth0"), "{e}");
        assert!(DeviceError::Library(LoadError::Forked).to_string().contains("spawn"));
    }

    /// The installed library and the devices of this system, if any.
    #[test]
    fn the_devices_of_this_system_can_be_listed() {
        let Ok(library) = Library::load(&Search::default()) else { return };
        match DeviceList::read(library) {
            Ok(list) => {
                assert_eq!(list.infos().count(), list.devices.len());
                let e = list.open("no such device").unwrap_err();
                assert!(matches!(e, DeviceError::NotFound { .. }), "{e}");
            }
            Err(DeviceError::Verbs(e)) => assert_eq!(e.errno, libc::ENOSYS, "{e}"),
            Err(e) => panic!("{e}"),
        }
    }
}
