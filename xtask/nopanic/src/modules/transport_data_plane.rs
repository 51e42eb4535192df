//! `hmc_core::transport::data_plane`: the text of a reason.

use crate::values::{any, show};
use hmc_core::transport::DataCloseReason;

pub(crate) fn call() {
    for why in [DataCloseReason::Failed(any(1)), DataCloseReason::Protocol("why"), DataCloseReason::Eof] {
        show::<DataCloseReason>(&any(why));
    }
}
