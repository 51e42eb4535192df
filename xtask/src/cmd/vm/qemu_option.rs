//! Options of QEMU that contain paths.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Returns an option that begins with `start`, followed by properties that are paths. Commas of a path are doubled.
pub(super) fn with_paths(start: &str, paths: &[(&str, &Path)], end: &str) -> OsString {
    let mut bytes = start.as_bytes().to_vec();
    for (name, path) in paths {
        bytes.extend_from_slice(format!(",{name}=").as_bytes());
        for byte in path.as_os_str().as_bytes() {
            bytes.push(*byte);
            if *byte == b',' {
                bytes.push(b',');
            }
        }
    }
    bytes.extend_from_slice(end.as_bytes());
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::with_paths;
    use std::path::Path;

    #[test]
    fn commas_of_a_path_are_doubled() {
        let paths = [("path", Path::new("/a,b c/d")), ("other", Path::new("/e"))];
        let option = with_paths("local,id=x", &paths, ",readonly=on");
        assert_eq!(option, "local,id=x,path=/a,,b c/d,other=/e,readonly=on");
    }
}
