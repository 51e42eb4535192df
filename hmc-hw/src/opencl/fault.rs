//! [`OpenClFault`]: what can go wrong with a device.

use std::fmt;

use hmc_core::device::{DeviceError, DeviceErrorKind};

use super::sys::{
    CL_INVALID_BUFFER_SIZE, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_SUCCESS,
    cl_int,
};

/// An error of an OpenCL device: of a call, or one that was found before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenClFault {
    kind: DeviceErrorKind,
    call: &'static str,
    code: cl_int,
}

impl OpenClFault {
    /// An error without a call.
    pub(super) const fn of(kind: DeviceErrorKind) -> Self {
        Self { kind, call: "", code: CL_SUCCESS }
    }

    /// The failure of a call, or of a command.
    pub(super) const fn failed(call: &'static str, code: cl_int) -> Self {
        Self { kind: DeviceErrorKind::Other, call, code }
    }

    /// The same of a call that makes something: it may have failed for want of memory.
    pub(super) const fn of_memory(self) -> Self {
        match self.code {
            CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY | CL_INVALID_BUFFER_SIZE => {
                Self { kind: DeviceErrorKind::NoSpace, ..self }
            }
            _ => self,
        }
    }

    /// The device is lost, since this failed: whether its commands have ended cannot be found any more.
    pub(super) const fn lost(self) -> Self {
        Self { kind: DeviceErrorKind::Lost, ..self }
    }
}

/// What a call returned, as a result.
pub(super) const fn check(call: &'static str, code: cl_int) -> Result<(), OpenClFault> {
    match code {
        CL_SUCCESS => Ok(()),
        code => Err(OpenClFault::failed(call, code)),
    }
}

impl DeviceError for OpenClFault {
    fn kind(&self) -> DeviceErrorKind {
        self.kind
    }

    fn call(&self) -> &'static str {
        self.call
    }

    fn code(&self) -> i64 {
        self.code.into()
    }
}

impl fmt::Display for OpenClFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            DeviceErrorKind::Busy => "the stream is full: ask for one of its events first",
            DeviceErrorKind::NoSpace => "the device has not that much memory left",
            DeviceErrorKind::Region => {
                "there is no memory under that key, or it is in use, or it is of another platform"
            }
            DeviceErrorKind::Range => "the ranges differ in length, overlap or leave their memory",
            DeviceErrorKind::Stream => "there is no such stream or event, or it is in use",
            DeviceErrorKind::Unsupported => "an OpenCL device cannot do that",
            DeviceErrorKind::Forked => {
                "this process was forked from one that has OpenCL devices open: start it anew by execve, or by spawn of Python's multiprocessing"
            }
            DeviceErrorKind::Lost => "the device is lost",
            _ => "OpenCL failed",
        };
        match self.call {
            "" => f.write_str(what),
            call => write!(f, "{what} ({call}: {})", self.code),
        }
    }
}

impl std::error::Error for OpenClFault {}

#[cfg(test)]
mod tests {
    use super::{OpenClFault, check};
    use hmc_core::device::{DeviceError as _, DeviceErrorKind};

    #[test]
    fn a_fault_says_what_to_do_and_which_call_failed() {
        assert_eq!(check("clFlush", 0), Ok(()));
        for (code, kind) in [
            (-4, DeviceErrorKind::NoSpace),
            (-6, DeviceErrorKind::NoSpace),
            (-61, DeviceErrorKind::NoSpace),
            (-2, DeviceErrorKind::Other),
            (-5, DeviceErrorKind::Other),
            (-38, DeviceErrorKind::Other),
        ] {
            let fault = check("clFlush", code).unwrap_err();
            let seen = (fault.kind(), fault.call(), fault.code());
            assert_eq!(seen, (DeviceErrorKind::Other, "clFlush", code.into()));
            assert!(fault.to_string().ends_with(&format!("(clFlush: {code})")), "{fault}");
            assert_eq!(fault.of_memory().kind(), kind);
            assert_eq!(fault.lost().kind(), DeviceErrorKind::Lost);
        }
        let fault = OpenClFault::of(DeviceErrorKind::Forked);
        assert!(fault.to_string().contains("spawn") && !fault.to_string().contains('('), "{fault}");
    }
}
