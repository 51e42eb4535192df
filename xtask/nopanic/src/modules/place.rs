//! `hmc_core::place`.

use crate::values::{any, device, done, place, show};
use hmc_core::place::{DeviceId, DeviceIdError, MemoryClass, Place};

pub(crate) fn call() {
    done(any("cuda:1").parse::<DeviceId>());
    show::<DeviceId>(&device());
    show::<DeviceIdError>(&any(DeviceIdError::Kind));
    done(Place::new(device(), any(MemoryClass::Pinned)));
    done(Place::on(device()));
    done(Place::device(place()));
    done(Place::class(place()));
    done(Place::is_host(place()));
    done(Place::kind(place()));
    show::<Place>(&place());
}
