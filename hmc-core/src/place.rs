//! [`Place`]: on which device memory lies, and of which class it is.

use core::fmt;
use core::str::FromStr;

use crate::types::MemoryKind;

/// A device of this machine: its kind, and its number among those of that kind as the vendor's runtime counts them.
///
/// Its text is `cuda:1`; `cuda` is read as `cuda:0`. The processor is `cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceId {
    /// What kind of device it is.
    pub kind: MemoryKind,
    /// Its number, from 0 on.
    pub index: u16,
}

impl DeviceId {
    /// The processor.
    pub const CPU: Self = Self { kind: MemoryKind::Cpu, index: 0 };
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            MemoryKind::Cpu => f.write_str(self.kind.name()),
            kind => write!(f, "{}:{}", kind.name(), self.index),
        }
    }
}

/// A text that names no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceIdError {
    /// Its first part is not a [`MemoryKind::name`].
    Kind,
    /// Its second part is not a number below 65,536, or it numbers the processor.
    Index,
}

impl fmt::Display for DeviceIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => {
                f.write_str("not a kind of device; the kinds are")?;
                MemoryKind::ALL.iter().try_for_each(|kind| write!(f, " {}", kind.name()))
            }
            Self::Index => {
                f.write_str("not the number of a device: \"cuda:1\" and \"cpu\" name one")
            }
        }
    }
}

impl core::error::Error for DeviceIdError {}

impl FromStr for DeviceId {
    type Err = DeviceIdError;

    fn from_str(text: &str) -> Result<Self, DeviceIdError> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let kind = MemoryKind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or(DeviceIdError::Kind)?;
        match index {
            None => Ok(Self { kind, index: 0 }),
            // A sign is no digit, although `parse` takes one.
            Some(n) if kind != MemoryKind::Cpu && n.bytes().all(|b| b.is_ascii_digit()) => {
                n.parse().map(|index| Self { kind, index }).map_err(|_| DeviceIdError::Index)
            }
            Some(_) => Err(DeviceIdError::Index),
        }
    }
}

/// The class of memory: who can reach it, and who moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryClass {
    /// Host memory that the system may move or page out.
    Pageable,
    /// Host memory whose pages stay where they are, so that a device can copy it by itself.
    Pinned,
    /// Memory of a device. The processor cannot reach it.
    Device,
    /// Memory that the runtime moves to whoever uses it, the processor or a device.
    Managed,
}

/// Where memory is: its device and its class.
///
/// Host memory that was pinned for a device is at that device, in class [`MemoryClass::Pinned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    device: DeviceId,
    class: MemoryClass,
}

impl Place {
    /// Ordinary host memory.
    pub const HOST: Self = Self { device: DeviceId::CPU, class: MemoryClass::Pageable };

    /// Memory of that class. `None` for what there is not: pageable memory is the processor's, all other classes belong to a
    /// device.
    #[must_use]
    pub const fn new(device: DeviceId, class: MemoryClass) -> Option<Self> {
        let is_cpu = matches!(device.kind, MemoryKind::Cpu);
        let is_pageable = matches!(class, MemoryClass::Pageable);
        if is_cpu == is_pageable { Some(Self { device, class }) } else { None }
    }

    /// The device's own memory: [`MemoryClass::Device`], or [`Place::HOST`] for the processor.
    #[must_use]
    pub const fn on(device: DeviceId) -> Self {
        match device.kind {
            MemoryKind::Cpu => Self::HOST,
            _ => Self { device, class: MemoryClass::Device },
        }
    }

    /// The device.
    #[must_use]
    pub const fn device(self) -> DeviceId {
        self.device
    }

    /// The class.
    #[must_use]
    pub const fn class(self) -> MemoryClass {
        self.class
    }

    /// Returns `true` if the processor can read and write the bytes at any time.
    #[must_use]
    pub const fn is_host(self) -> bool {
        matches!(self.class, MemoryClass::Pageable | MemoryClass::Pinned)
    }

    /// The kind of memory that a transport has to deal with: `Cpu` for all host memory, pinned or not.
    #[must_use]
    pub const fn kind(self) -> MemoryKind {
        if self.is_host() { MemoryKind::Cpu } else { self.device.kind }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            MemoryClass::Pageable | MemoryClass::Device => self.device.fmt(f),
            MemoryClass::Pinned => write!(f, "{} (pinned host memory)", self.device),
            MemoryClass::Managed => write!(f, "{} (managed memory)", self.device),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::{DeviceId, DeviceIdError, MemoryClass, Place};
    use crate::types::MemoryKind;

    #[test]
    fn names_of_devices_are_read_again() {
        for kind in MemoryKind::ALL {
            for index in [0, 1, u16::MAX] {
                let index = if kind == MemoryKind::Cpu { 0 } else { index };
                let id = DeviceId { kind, index };
                assert_eq!(id.to_string().parse(), Ok(id));
                assert_eq!(kind.name().parse(), Ok(DeviceId { kind, index: 0 }));
            }
        }
        for text in ["", ":", ":0", "gpu", "CUDA", "cuda ", "cud"] {
            assert_eq!(text.parse::<DeviceId>(), Err(DeviceIdError::Kind), "{text:?}");
        }
        for text in ["cuda:", "cuda:-1", "cuda:+1", "cuda:65536", "cuda:1:1", "cuda: 1", "cpu:0"] {
            assert_eq!(text.parse::<DeviceId>(), Err(DeviceIdError::Index), "{text:?}");
        }
    }

    #[test]
    fn an_error_names_the_kinds() {
        let said = DeviceIdError::Kind.to_string();
        assert_eq!(
            said,
            "not a kind of device; the kinds are cpu cuda hip cnrt musa acl dtk opencl"
        );
        assert!(DeviceIdError::Index.to_string().contains("cuda:1"));
    }

    #[test]
    fn host_memory_is_the_processors_unless_it_is_pinned() {
        use MemoryClass::{Device, Managed, Pageable, Pinned};
        let gpu = DeviceId { kind: MemoryKind::AmdGpu, index: 3 };
        for class in [Pageable, Pinned, Device, Managed] {
            let of_cpu = Place::new(DeviceId::CPU, class);
            assert_eq!(of_cpu, (class == Pageable).then_some(Place::HOST), "{class:?}");
            let of_gpu = Place::new(gpu, class);
            assert_eq!(of_gpu.is_none(), class == Pageable, "{class:?}");
            let Some(place) = of_gpu else { continue };
            assert_eq!((place.device(), place.class()), (gpu, class));
            assert_eq!(place.is_host(), class == Pinned);
            let kind = if class == Pinned { MemoryKind::Cpu } else { MemoryKind::AmdGpu };
            assert_eq!(place.kind(), kind);
        }
        assert_eq!(Some(Place::on(gpu)), Place::new(gpu, Device));
        assert_eq!(Place::on(DeviceId::CPU), Place::HOST);
        assert!(Place::HOST.is_host());
    }

    #[test]
    fn a_place_says_its_class_where_it_is_not_the_usual_one() {
        let gpu = DeviceId { kind: MemoryKind::NvidiaGpu, index: 1 };
        let said = |class| Place::new(gpu, class).map(|place| place.to_string());
        assert_eq!(said(MemoryClass::Device).as_deref(), Some("cuda:1"));
        assert_eq!(said(MemoryClass::Pinned).as_deref(), Some("cuda:1 (pinned host memory)"));
        assert_eq!(said(MemoryClass::Managed).as_deref(), Some("cuda:1 (managed memory)"));
        assert_eq!(Place::HOST.to_string(), "cpu");
    }
}
