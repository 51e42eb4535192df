//! Parses text that UCX prints: its devices, and the lanes of an endpoint.

use std::ptr;

use super::sys;

/// Returns the text that `print` writes to the stream that it is given.
pub(super) fn capture(print: impl FnOnce(*mut sys::FILE)) -> String {
    let (mut text, mut len) = (ptr::null_mut(), 0);
    // SAFETY: both are written when the stream is flushed or closed, and live until then.
    let stream = unsafe { libc::open_memstream(&mut text, &mut len) };
    if stream.is_null() {
        return String::new();
    }
    print(stream.cast());
    // SAFETY: opened above, closed once.
    let closed = unsafe { libc::fclose(stream) };
    if text.is_null() {
        return String::new();
    }
    let said = if closed == 0 {
        // SAFETY: the stream left that many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
        String::from_utf8_lossy(bytes).into_owned()
    } else {
        String::new()
    };
    // SAFETY: the stream's memory is the caller's to free (open_memstream(3)).
    unsafe { libc::free(text.cast()) };
    said
}

/// The transports in what `ucp_ep_print_info` writes: `#   lane[0]:  3:sysv/memory.0 md[2] ...`, and others.
pub(super) fn lanes(text: &str) -> Vec<String> {
    let lane = |line: &str| {
        let (_, rest) = line.split_once("lane[")?;
        let (_, rest) = rest.split_once(':')?;
        let (number, rest) = rest.trim_start().split_once(':')?;
        let (name, _) = rest.split_once('/')?;
        let numbered = number.parse::<u32>().is_ok() && !name.is_empty();
        numbered.then(|| name.to_owned())
    };
    text.lines().filter_map(lane).collect()
}

/// The transports and devices in what `ucp_context_print_info` writes:
/// `#      resource 2  :  md 1  dev 2  flags -- tcp/eth0`, and others.
pub(super) fn resources(text: &str) -> Vec<String> {
    let resource = |line: &str| {
        let line = line.trim_start_matches('#').trim();
        let (_, last) = line.strip_prefix("resource ")?.rsplit_once(' ')?;
        last.contains('/').then(|| last.to_owned())
    };
    text.lines().filter_map(resource).collect()
}

#[cfg(test)]
mod tests {
    use super::{capture, lanes, resources};

    #[test]
    fn a_stream_gives_what_was_written_to_it() {
        // SAFETY: the stream is open, the text ends with a zero.
        let text = capture(|stream| unsafe {
            libc::fputs(c"some words".as_ptr(), stream.cast());
        });
        assert_eq!(text, "some words");
        assert_eq!(capture(|_| {}), "");
    }

    #[test]
    fn lanes_are_read_from_what_both_versions_write() {
        let old = "#\n# UCP endpoint \n#\n#               peer: <no debug data>\n\
            #                 lane[0]:  3:sysv/memory.0 md[2]           -> md[2]/sysv/sysdev[255] am am_bw#0 keepalive\n\
            #                 lane[1]:  4:posix/memory.0 md[3]          -> md[3]/posix/sysdev[255]\n#\n\
            #                 am_send: 0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)\n";
        assert_eq!(lanes(old), ["sysv", "posix"]);
        let new = "#                 lane[0]:  1:tcp/lo.0 md[0]    -> md[0]/tcp/sysdev[255] seg 4294967295 am keepalive wireup\n\
            # |      0..8184 | short                                      | tcp/lo |\n";
        assert_eq!(lanes(new), ["tcp"]);
        for other in ["", "lane[0]", "lane[0]: x:tcp/lo", "lane[0]: 1:/lo", "lane[0]: 1:tcp"] {
            assert!(lanes(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn resources_are_read_from_what_both_versions_write() {
        let text = "#\n# UCP context\n#\n#     component 0  :  self\n#            md 0  :  component 0  self \n#\n\
            #      resource 0  :  md 0  dev 0  flags -- self/memory0\n#      resource 2  :  md 1  dev 2  flags -- tcp/eth0\n#\n";
        assert_eq!(resources(text), ["self/memory0", "tcp/eth0"]);
        assert!(resources("resource\nresource 1 tcp\n").is_empty());
    }
}
