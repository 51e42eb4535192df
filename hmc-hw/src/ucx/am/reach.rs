//! Which memory the lanes of an endpoint reach by themselves.

/// Transports without puts and gets of their own, by the beginnings of their names (`ucx_info -d`), and those that only
/// help others: between processes of one host, or with the memory of devices.
const MESSAGES_ONLY: [&str; 9] =
    ["tcp", "ud", "srd", "cma", "knem", "cuda", "rocm", "ze_", "gdr_copy"];

/// Transports that map memory of a peer, and reach nothing that they do not map.
const MAPPING: [&str; 4] = ["posix", "sysv", "xpmem", "self"];

/// Which memory an endpoint's lanes reach for puts and gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ucx) enum Reach {
    /// None: they only send messages.
    Messages,
    /// Memory that UCX allocated, which they map; for other memory UCX would use messages.
    Mapping,
    /// All memory, or UCX does not name its lanes.
    Memory,
}

impl Reach {
    /// Returns the reach of those lanes.
    pub(in crate::ucx) fn of(lanes: &[String]) -> Self {
        let all_of = |names: &[&[&str]]| {
            let is_one = |lane: &String| names.concat().iter().any(|name| lane.starts_with(name));
            !lanes.is_empty() && lanes.iter().all(is_one)
        };
        if all_of(&[&MESSAGES_ONLY]) {
            Self::Messages
        } else if all_of(&[&MESSAGES_ONLY, &MAPPING]) {
            Self::Mapping
        } else {
            Self::Memory
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reach;

    #[test]
    fn messages_are_for_what_no_lane_reaches() {
        let reach =
            |lanes: &[&str]| Reach::of(&lanes.iter().map(|l| (*l).into()).collect::<Vec<_>>());
        assert_eq!(reach(&["tcp/lo", "cma/memory"]), Reach::Messages);
        assert_eq!(reach(&["posix/memory", "cma/memory"]), Reach::Mapping);
        assert_eq!(reach(&["sysv/memory", "tcp/lo"]), Reach::Mapping);
        assert_eq!(reach(&["rc_mlx5/mlx5_0:1", "posix/memory"]), Reach::Memory);
        assert_eq!(reach(&[]), Reach::Memory, "UCX does not tell");
    }
}
