//! A connection that the caller provides, in place of a kernel socket.

use std::any::Any;
use std::fmt::Debug;

use hmc_core::range::ByteRange;
use hmc_mem::shared::SharedBytes;
use rustix::io::Errno;

/// One end of such a connection. It never blocks, and is shut down before it is dropped or by that.
#[allow(unreachable_pub, reason = "hmc-testkit implements it, through `internals`")]
pub trait ByteStream: Any + Debug + Send + Sync {
    /// Sends bytes: as many as there is space for.
    ///
    /// # Errors
    /// `AGAIN` if there is none; `PIPE` if nothing can be sent any more.
    fn send(&self, bytes: &[u8]) -> Result<usize, Errno>;

    /// Receives bytes; 0 at the end of the stream.
    ///
    /// # Errors
    /// `AGAIN` if nothing has come; `CONNRESET` if the connection broke.
    fn recv(&self, into: &mut [u8]) -> Result<usize, Errno>;

    /// As [`Self::recv`], but the bytes stay there to be received.
    ///
    /// # Errors
    /// As [`Self::recv`].
    fn peek(&self, into: &mut [u8]) -> Result<usize, Errno>;

    /// Whether no bytes come after those that have come.
    fn has_ended(&self) -> bool;

    /// Sends private bytes, then a span of shared ones.
    ///
    /// # Errors
    /// As [`Self::send`]; `FAULT` for a span that is not of these bytes.
    fn send_vectored(
        &self,
        head: &[u8],
        bytes: &SharedBytes<'_>,
        span: ByteRange,
    ) -> Result<usize, Errno>;

    /// Receives into a span of shared bytes, then into private ones.
    ///
    /// # Errors
    /// As [`Self::recv`]; `FAULT` for a span that is not of these bytes.
    fn recv_vectored(
        &self,
        bytes: &SharedBytes<'_>,
        span: ByteRange,
        tail: &mut [u8],
    ) -> Result<usize, Errno>;

    /// Ends both directions.
    fn shutdown(&self);
}
