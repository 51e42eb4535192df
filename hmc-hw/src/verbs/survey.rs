//! All devices of the system, their ports and GIDs, and which of them HMC can use: for reports.

use super::device::{DeviceError, DeviceList};
use super::device_attrs::DeviceAttrs;
use super::device_info::DeviceInfo;
use super::error::VerbsError;
use super::gid_choice::{Choice, Want, choose};
use super::gid_table;
use super::library::Library;
use super::port::PortAttrs;

/// A device, and its ports if it can be used.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// What the system says of it.
    pub info: DeviceInfo,
    /// What it can do, and its ports, or the reason why it cannot be used.
    pub outcome: Result<(DeviceAttrs, Vec<PortReport>), DeviceError>,
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// Its number within the device.
    pub number: u8,
    /// What it is, and each of its GIDs with the reason why it is chosen or not.
    pub outcome: Result<(PortAttrs, Choice), VerbsError>,
}

/// Looks at all devices. Opens each that can be used, and closes it again.
///
/// # Errors
/// [`DeviceError`] if the devices cannot be listed.
pub fn survey(library: &'static Library, want: Want) -> Result<Vec<DeviceReport>, DeviceError> {
    let list = DeviceList::read(library)?;
    let reports = list.infos().map(|info| {
        let outcome = list.open(&info.name).map(|device| {
            let ports = (1..=device.attrs().ports).map(|number| {
                let outcome = PortAttrs::read(&device, number).map(|attrs| {
                    (attrs, choose(attrs.link, gid_table::read(&device, &attrs), want))
                });
                PortReport { number, outcome }
            });
            (device.attrs().clone(), ports.collect())
        });
        DeviceReport { info: info.clone(), outcome }
    });
    Ok(reports.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::library::Search;

    /// The installed library and the devices of this system, if any.
    #[test]
    fn each_device_is_reported() {
        let Ok(library) = Library::load(&Search::default()) else { return };
        let Ok(reports) = survey(library, Want::default()) else { return };
        for report in reports {
            let usable = report.info.usable().is_ok();
            assert!(usable || report.outcome.is_err(), "{report:?}");
            for port in report.outcome.into_iter().flat_map(|(_, ports)| ports) {
                if let Ok((attrs, _)) = port.outcome {
                    assert_eq!(attrs.number, port.number);
                }
            }
        }
    }
}
