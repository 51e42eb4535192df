//! How UCX is found and configured.

use std::sync::Arc;

use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::library::{Library, LoadError, Search};
use hmc_hw::ucx::log::{self, Level, LogRecord};
use hmc_hw::ucx::settings::Settings;

use crate::base::config::Ucx as Config;
use crate::base::error::{Error, ErrorKind, Result};

impl From<LoadError> for Error {
    fn from(e: LoadError) -> Self {
        Self::new(ErrorKind::Unavailable, format!("no UCX: {e}"))
    }
}

/// Passes on a log record of UCX.
fn log_record(m: &LogRecord<'_>) {
    let (file, line, text) = (m.file, m.line, m.text);
    match m.level {
        Level::Error => tracing::error!(target: "ucx", file, line, "{text}"),
        Level::Warn => tracing::warn!(target: "ucx", file, line, "{text}"),
        Level::Info => tracing::info!(target: "ucx", file, line, "{text}"),
        Level::Debug => tracing::debug!(target: "ucx", file, line, "{text}"),
        Level::Trace => tracing::trace!(target: "ucx", file, line, "{text}"),
    }
}

/// The library, and a context with all its devices. Takes some 15 ms.
///
/// # Errors
/// `Unavailable` when there is no UCX, or none that can be used; it says how to get one.
pub(crate) fn open(config: &Config) -> Result<Arc<Context>> {
    let library = Library::load(&Search::usual(config.library.clone(), &config.prefixes))?;
    if config.log && !log::install_handler(library, log_record) {
        tracing::warn!("this UCX keeps its messages to itself");
    }
    let settings = Settings {
        keys: config.keys.clone(),
        user_tls: config.user_tls.clone(),
        user_devices: config.user_devices.clone(),
        user_keys: config.user_keys.clone(),
    };
    Ok(Context::new(library, &settings)?)
}

#[cfg(test)]
mod tests {
    use hmc_hw::ucx::log::{Level, LogRecord};

    use super::log_record;
    use crate::transport::ucx::tests::logged;

    #[test]
    fn records_of_ucx_are_logged_at_their_level() {
        for (level, logged_at) in [
            (Level::Error, tracing::Level::ERROR),
            (Level::Warn, tracing::Level::WARN),
            (Level::Info, tracing::Level::INFO),
            (Level::Debug, tracing::Level::DEBUG),
            (Level::Trace, tracing::Level::TRACE),
        ] {
            let said = logged(|| {
                log_record(&LogRecord { level, file: "ucp_ep.c", line: 77, text: "reset by peer" });
            });
            let [(at, text)] = said.as_slice() else { panic!("{level:?}: {said:?}") };
            assert_eq!(*at, logged_at);
            let parts = ["ucp_ep.c", "77", "reset by peer"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
