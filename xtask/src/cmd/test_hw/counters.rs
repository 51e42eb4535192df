//! Counters of soft-RoCE devices and of interfaces.

/// The largest payload of a packet.
const MTU: u64 = 4096;

/// Reads a counter from its file.
pub(super) fn read(path: &str) -> Result<u64, String> {
    number(&std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?)
}

/// Parses a counter.
pub(super) fn number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{}` is not a counter", text.trim()))
}

/// Checks that the sender's device sent enough packets for a file of `bytes` bytes.
pub(super) fn compare(bytes: u64, packets: u64) -> Result<(), String> {
    let least = bytes.div_ceil(MTU);
    println!("counted    {packets} packets of the sender's device");
    if packets < least {
        return Err(format!("the device sent {packets} packets; {bytes} bytes take {least}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{compare, number};

    #[test]
    fn bytes_that_another_transport_moved_are_a_failure() {
        assert_eq!(compare(4 << 20, 1024), Ok(()));
        assert!(compare(4 << 20, 1023).unwrap_err().contains("1023 packets"));
        assert_eq!(number(" 17\n"), Ok(17));
        assert!(number("x").is_err());
    }
}
