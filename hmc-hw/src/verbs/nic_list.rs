//! The NICs of a session: one by the rule of [`super::select`], or those that the user names.

use std::fmt;
use std::str::FromStr;

use super::conn_info::MAX_NICS;
use super::gid_choice::Want;
use super::library::Library;
use super::select::{Port, SelectError, Selector};

/// The ports that a session is to use, as far as the user names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicList {
    /// None: the first port that can be used.
    named: Vec<Selector>,
    /// Which of the ports' GIDs.
    gid: Want,
}

/// A text names no ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicListError(String);

impl fmt::Display for NicListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NicListError {}

/// Reads `DEVICE` or `DEVICE:PORT`, or several of them with commas between.
impl FromStr for NicList {
    type Err = NicListError;

    fn from_str(text: &str) -> Result<Self, NicListError> {
        let named = text.split(',').map(str::parse).collect::<Result<Vec<Selector>, _>>();
        let named = named.map_err(|e| NicListError(e.to_string()))?;
        if named.len() > MAX_NICS {
            let count = named.len();
            return Err(NicListError(format!("{count} NICs: a session uses {MAX_NICS} at most")));
        }
        Ok(Self { named, gid: Want::default() })
    }
}

impl NicList {
    /// Returns these, with the GID that is wanted of each.
    #[must_use]
    pub fn with_gid(self, gid: Want) -> Self {
        Self { gid, ..self }
    }

    /// Returns the GID that is wanted of each.
    #[must_use]
    pub fn gid(&self) -> Want {
        self.gid
    }

    /// Opens the device of each port; without names, that of the first port of the system that can be used.
    ///
    /// # Errors
    /// [`SelectError`] for the first port that cannot be used; [`SelectError::Twice`] if two names are of one port.
    pub fn open(&self, library: &'static Library) -> Result<Vec<Port>, SelectError> {
        let any = [Selector::default()];
        let wanted = if self.named.is_empty() { &any[..] } else { &self.named };
        let mut ports: Vec<Port> = Vec::new();
        for selector in wanted {
            let port = Port::open(library, &Selector { gid: self.gid, ..selector.clone() })?;
            let name = |port: &Port| (port.device().name().to_owned(), port.number());
            if ports.iter().any(|other| name(other) == name(&port)) {
                let (device, number) = name(&port);
                return Err(SelectError::Twice(format!("{device}:{number}")));
            }
            ports.push(port);
        }
        Ok(ports)
    }

    /// Returns why these are used, for people.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        if self.named.is_empty() {
            "the first port that can be used; HMC_RDMA_PORT names another, or several"
        } else {
            "named by HMC_RDMA_PORT"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NicList, Selector};

    #[test]
    fn a_text_names_one_port_or_several() {
        let named = |texts: &[&str]| NicList {
            named: texts.iter().map(|text| text.parse::<Selector>().unwrap()).collect(),
            ..NicList::default()
        };
        assert_eq!("mlx5_0".parse(), Ok(named(&["mlx5_0"])));
        assert_eq!("mlx5_0:1,mlx5_1:2,rxe0".parse(), Ok(named(&["mlx5_0:1", "mlx5_1:2", "rxe0"])));
        for wrong in ["", ",", "mlx5_0,", ",mlx5_0", "mlx5_0:0,mlx5_1", "mlx5_0,,mlx5_1"] {
            let e = wrong.parse::<NicList>().unwrap_err();
            assert!(e.to_string().contains("as in mlx5_0:1"), "{e}");
        }
        let many = |count| vec!["mlx5_0"; count].join(",").parse::<NicList>();
        assert!(many(8).is_ok());
        let e = many(9).unwrap_err();
        assert_eq!(e.to_string(), "9 NICs: a session uses 8 at most");
    }
}
