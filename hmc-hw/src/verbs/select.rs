//! The port in use: the one that the user names, else the first that is active and has a GID.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::device::{Device, DeviceError, DeviceList, NO_DEVICE};
use super::gid::Gid;
use super::gid_choice::{Choice, Want, choose};
use super::gid_table::{self, GidEntry};
use super::library::Library;
use super::port::{LinkLayer, Mtu, PortAttrs};
use super::reach::End;

/// What the user wants: all of it may be left open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The device: `mlx5_0`.
    pub device: Option<String>,
    /// The number of its port, from 1.
    pub port: Option<u8>,
    /// Which of the port's GIDs.
    pub gid: Want,
}

/// A text names no port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError(pub String);

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` names no port: write DEVICE or DEVICE:PORT, as in mlx5_0:1", self.0)
    }
}

impl std::error::Error for SelectorError {}

/// Reads `DEVICE` or `DEVICE:PORT`.
impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let wrong = || SelectorError(text.to_owned());
        let (device, port) = match text.split_once(':') {
            None => (text, None),
            Some((device, port)) => (device, Some(port.parse::<u8>().map_err(|_| wrong())?)),
        };
        if device.is_empty() || device.contains('/') || port == Some(0) {
            return Err(wrong());
        }
        Ok(Self { device: Some(device.to_owned()), port, gid: Want::default() })
    }
}

/// Why no port can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectError {
    /// The device that was named cannot be used.
    Device(DeviceError),
    /// There is no device.
    NoDevice,
    /// No port can be used.
    NoPort {
        /// The devices and ports that were looked at, each with the reason.
        tried: Vec<String>,
    },
    /// This port was named twice.
    Twice(String),
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(e) => e.fmt(f),
            Self::NoDevice => write!(f, "there is no RDMA device here: {NO_DEVICE}"),
            Self::NoPort { tried } => {
                write!(f, "no port of an RDMA device can be used: {}", tried.join("; "))
            }
            Self::Twice(name) => {
                write!(f, "the port {name} is named twice: name each NIC once (HMC_RDMA_PORT)")
            }
        }
    }
}

impl std::error::Error for SelectError {}

/// A port of an open device, with the GID that it uses. Its attributes do not change: a later state of the port is another value.
#[derive(Clone, Debug)]
pub struct Port {
    device: Arc<Device>,
    attrs: PortAttrs,
    gid: GidEntry,
    /// By what the GID was chosen.
    want: Want,
}

impl Port {
    /// Opens the first device with a port that can be used and matches `wanted`: the port is active and has a fitting GID.
    ///
    /// # Errors
    /// [`SelectError::Device`] if a named device cannot be opened, or the devices cannot be listed; [`SelectError::NoDevice`] if there is
    /// none; [`SelectError::NoPort`] with a reason for each port if none can be used.
    pub fn open(library: &'static Library, wanted: &Selector) -> Result<Self, SelectError> {
        let list = DeviceList::read(library).map_err(SelectError::Device)?;
        let mut tried = Vec::new();
        if let Some(name) = &wanted.device {
            let device = list.open(name).map_err(SelectError::Device)?;
            return Self::of(&device, wanted, &mut tried).ok_or(SelectError::NoPort { tried });
        }
        for info in list.infos() {
            match list.open(&info.name) {
                Ok(device) => {
                    if let Some(port) = Self::of(&device, wanted, &mut tried) {
                        return Ok(port);
                    }
                }
                Err(e) => tried.push(e.to_string()),
            }
        }
        Err(if tried.is_empty() { SelectError::NoDevice } else { SelectError::NoPort { tried } })
    }

    /// Returns the first port of a device that can be used. Adds the others to `tried`.
    fn of(device: &Arc<Device>, wanted: &Selector, tried: &mut Vec<String>) -> Option<Self> {
        let all = 1..=device.attrs().ports;
        if let Some(number) = wanted.port.filter(|number| !all.contains(number)) {
            let (name, last) = (device.name(), all.end());
            tried.push(format!("{name} has no port {number}: its last one is {last}"));
        }
        for number in all.filter(|number| wanted.port.is_none_or(|port| port == *number)) {
            match Self::read(device, number, wanted.gid) {
                Ok(port) => return Some(port),
                Err(why) => tried.push(why),
            }
        }
        None
    }

    /// Reads the port of that number.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    fn read(device: &Arc<Device>, number: u8, want: Want) -> Result<Self, String> {
        let attrs = PortAttrs::read(device, number).map_err(|e| e.to_string())?;
        let choice = choose(attrs.link, gid_table::read(device, &attrs), want);
        match usable(&attrs, &choice) {
            Ok(gid) => {
                let (device, gid) = (Arc::clone(device), gid.clone());
                Ok(Self { device, attrs, gid, want })
            }
            Err(why) => Err(format!("{}:{number} {why}", device.name())),
        }
    }

    /// Reads it again: its state, its attributes and its GIDs may have changed.
    ///
    /// # Errors
    /// [`SelectError::NoPort`] if it cannot be used any more.
    pub(super) fn read_again(&self) -> Result<Self, SelectError> {
        let read = Self::read(&self.device, self.attrs.number, self.want);
        read.map_err(|why| SelectError::NoPort { tried: vec![why] })
    }

    /// Returns its device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns its attributes, as they were when it was read.
    #[must_use]
    pub fn attrs(&self) -> &PortAttrs {
        &self.attrs
    }

    /// Returns its number within the device.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.attrs.number
    }

    /// Returns the largest payload of a packet.
    #[must_use]
    pub fn mtu(&self) -> Mtu {
        self.attrs.mtu
    }

    /// Returns its link layer.
    #[must_use]
    pub fn link(&self) -> LinkLayer {
        self.attrs.link
    }

    /// Returns its address in an InfiniBand subnet; 0 on Ethernet.
    #[must_use]
    pub fn lid(&self) -> u16 {
        self.attrs.lid
    }

    /// Returns the index of its GID.
    #[must_use]
    pub fn gid_index(&self) -> u8 {
        self.gid.index
    }

    /// Returns its GID.
    #[must_use]
    pub fn gid(&self) -> Gid {
        self.gid.gid
    }

    /// Returns what the peer has to know to decide whether it can reach it.
    #[must_use]
    pub fn end(&self) -> End {
        End { link: self.attrs.link, kind: self.gid.kind, gid: self.gid.gid }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number) = (self.device.name(), self.attrs.number);
        write!(f, "{name}:{number}, {}, MTU {}, {}", self.attrs.link, self.attrs.mtu, self.gid)
    }
}

/// Returns the GID that a port is used with.
///
/// # Errors
/// The reason why it cannot be used, as the end of a sentence.
fn usable<'c>(attrs: &PortAttrs, choice: &'c Choice) -> Result<&'c GidEntry, String> {
    if !attrs.state.is_active() {
        return Err(format!("is {}", attrs.state));
    }
    if matches!(attrs.link, LinkLayer::InfiniBand) && attrs.lid == 0 {
        return Err("has no LID: is a subnet manager running (opensm)?".to_owned());
    }
    choice.chosen().ok_or_else(|| {
        let reasons = choice.to_string().replace('\n', ", ");
        format!("has no GID that can be used ({reasons})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::gid::GidType;
    use crate::verbs::gid_table::Interface;
    use crate::verbs::library::Search;
    use crate::verbs::port::PortState;

    #[test]
    fn a_text_names_a_device_and_perhaps_a_port() {
        let named = |device: &str, port| Selector {
            device: Some(device.to_owned()),
            port,
            gid: Want::default(),
        };
        assert_eq!("mlx5_0".parse(), Ok(named("mlx5_0", None)));
        assert_eq!("mlx5_0:1".parse(), Ok(named("mlx5_0", Some(1))));
        assert_eq!("rxe0:255".parse(), Ok(named("rxe0", Some(255))));
        for wrong in ["", ":1", "mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:a", "a:1:2", "../x"] {
            let e = wrong.parse::<Selector>().unwrap_err();
            assert_eq!(e, SelectorError(wrong.to_owned()));
            assert!(e.to_string().contains("as in mlx5_0:1"), "{e}");
        }
    }

    #[test]
    fn a_port_that_is_active_and_has_a_gid_can_be_used() {
        let attrs = PortAttrs {
            number: 1,
            state: PortState(4),
            link: LinkLayer::Ethernet,
            mtu: Mtu(5),
            lid: 0,
            sm_lid: 0,
            gid_table_len: 16,
            max_message: 1 << 30,
        };
        let choice = |gid: [u8; 16]| {
            let interface = Interface::Up("eth0".to_owned());
            let entry = GidEntry { index: 1, gid: Gid(gid), kind: GidType::RoceV2, interface };
            choose(LinkLayer::Ethernet, vec![entry], Want::default())
        };
        let (good, bad) = (choice([0xFD; 16]), choice([0; 16]));
        assert_eq!(usable(&attrs, &good).unwrap().index, 1);
        let why = usable(&attrs, &bad).unwrap_err();
        assert_eq!(why, "has no GID that can be used (GID 1, ::, RoCE v2, eth0, up: empty)");
        let down = PortAttrs { state: PortState(1), ..attrs };
        assert!(usable(&down, &good).unwrap_err().starts_with("is down: look at its cable"));
        let no_lid = PortAttrs { link: LinkLayer::InfiniBand, ..attrs };
        assert!(usable(&no_lid, &good).unwrap_err().contains("opensm"));
        let infiniband = PortAttrs { lid: 7, ..no_lid };
        assert!(usable(&infiniband, &good).is_ok());
    }

    #[test]
    fn errors_have_a_remedy() {
        let text = SelectError::NoDevice.to_string();
        assert!(text.contains("apt install ibverbs-providers") && text.contains("rxe"), "{text}");
        let tried = vec!["mlx5_0:1 is down".to_owned(), "mlx5_1:1 has no LID".to_owned()];
        let text = SelectError::NoPort { tried }.to_string();
        assert!(text.ends_with("can be used: mlx5_0:1 is down; mlx5_1:1 has no LID"), "{text}");
    }

    /// The installed library, if any: on a system without a device the error names that.
    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        let Ok(library) = Library::load(&Search::default()) else { return };
        let wanted = Selector { device: Some("no-such-device".to_owned()), ..Selector::default() };
        let e = Port::open(library, &wanted).unwrap_err();
        assert!(matches!(e, SelectError::Device(_)), "{e}");
    }
}
