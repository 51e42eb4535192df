//! Log records of UCX. UCX has one list of handlers for the whole process, and prints to standard output what none of
//! them takes.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::OnceLock;

use super::library::Library;
use super::ucs_log::{CONTINUE, FATAL, STOP};
use crate::sys::{VaList, vsnprintf};

/// Level of a record: `ucs_log_level_t` (ucs/config/types.h), the finer levels together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// UCX ends the process after it, or answers with an error.
    Error,
    /// Something is wrong, and UCX goes on.
    Warn,
    /// What UCX found and chose.
    Info,
    /// For debugging.
    Debug,
    /// Every request.
    Trace,
}

impl Level {
    const fn of(level: c_uint) -> Self {
        match level {
            0 | 1 => Self::Error,
            2 => Self::Warn,
            3 | 4 => Self::Info,
            5 => Self::Debug,
            _ => Self::Trace,
        }
    }
}

/// One log record.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// Its level.
    pub level: Level,
    /// UCX's source file, without its folder.
    pub file: &'a str,
    /// The line there.
    pub line: u32,
    /// The text.
    pub text: &'a str,
}

/// Receives a record. UCX calls it from inside its own calls, in any thread: it must not call UCX and must not block.
pub type Sink = fn(&LogRecord<'_>);

/// Bytes of a record that are kept.
const LONGEST: usize = 1024;

static SINK: OnceLock<Sink> = OnceLock::new();

/// Handler that UCX calls for each record.
///
/// # Safety
/// UCX calls it with a format and the arguments that belong to it.
unsafe extern "C" fn handler(
    file: *const c_char,
    line: c_uint,
    _function: *const c_char,
    level: c_uint,
    _component: *const c_void,
    format: *const c_char,
    arguments: VaList,
) -> c_uint {
    let mut text = [0u8; LONGEST];
    // SAFETY: UCX's own format with its arguments, which no code has read yet; at most `LONGEST` bytes are written, the
    // last of them a zero.
    let written = unsafe { vsnprintf(text.as_mut_ptr().cast(), LONGEST, format, arguments) };
    let file = if file.is_null() {
        ""
    } else {
        // SAFETY: the name of a source file, in the library's own text.
        unsafe { CStr::from_ptr(file) }.to_str().unwrap_or("")
    };
    let file = file.rsplit_once('/').map_or(file, |(_, name)| name);
    if written >= 0
        && let (Some(sink), Ok(text)) = (SINK.get(), CStr::from_bytes_until_nul(&text))
    {
        let text = text.to_string_lossy();
        sink(&LogRecord { level: Level::of(level), file, line, text: text.trim_end() });
    }
    if level == FATAL { CONTINUE } else { STOP }
}

/// Passes UCX's log records to `sink` instead of printing them, from now on and for the whole process; `UCX_LOG_LEVEL`
/// selects them. Returns `false` if this library has no API for log handlers. A second call does not replace the first
/// sink.
pub fn install_handler(library: &'static Library, sink: Sink) -> bool {
    let Some(push) = library.push_handler() else { return false };
    let mut first = false;
    SINK.get_or_init(|| {
        first = true;
        sink
    });
    if first {
        // SAFETY: the handler has the type that UCX calls, and stays as long as the program.
        unsafe { push(handler) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn levels_keep_their_order() {
        let levels: Vec<Level> = (0..13).map(Level::of).collect();
        assert!(levels.is_sorted());
        let [error, warn, info, debug] = [Level::Error, Level::Warn, Level::Info, Level::Debug];
        assert_eq!(levels[..6], [error, error, warn, info, info, debug]);
        assert!(levels[6..].iter().all(|level| *level == Level::Trace));
    }
}
