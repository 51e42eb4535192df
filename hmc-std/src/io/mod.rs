//! Sockets, listeners, and their readiness.

pub(crate) mod byte_stream;
pub(crate) mod eventfd;
pub(crate) mod events_fd;
pub(crate) mod listener;
pub(crate) mod reactor;
pub(crate) mod rest_socket;
pub(crate) mod socket;
