//! One direction of a connection: bytes in order, some on their way, some waiting at the receiver.
//!
//! A pipe only counts and keeps; when something moves is the network's business.

/// How a pipe ends once all its bytes were delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It goes on.
    Open,
    /// The sender closed.
    Fin,
    /// The connection was reset.
    Rst,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Pipe {
    buf: Vec<u8>,
    /// Bytes before it were delivered.
    head: usize,
    /// Bytes before it are in the receiver's kernel.
    arrived: usize,
    /// Delivered and not taken by the receiving node.
    pub(crate) untaken: u64,
    /// Left the send buffer, not yet reported to the sender.
    pub(crate) unreported: u64,
    /// How it ends.
    pub(crate) end: End,
    /// An event that moves it is scheduled.
    pub(crate) flowing: bool,
    /// An event that tells the sender is scheduled.
    pub(crate) reporting: bool,
    /// The sender's process is gone, and its kernel sends all that it took.
    pub(crate) kept: bool,
    /// Nothing arrives before this time.
    pub(crate) not_before_ns: u64,
}

impl Pipe {
    pub(crate) const fn new(not_before_ns: u64) -> Self {
        Self {
            buf: Vec::new(),
            head: 0,
            arrived: 0,
            untaken: 0,
            unreported: 0,
            end: End::Open,
            flowing: false,
            reporting: false,
            kept: false,
            not_before_ns,
        }
    }

    /// Adds what the sender sends.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        if self.buf.len() == self.head {
            self.head = 0;
            self.arrived = 0;
            self.buf.clear();
            if self.buf.capacity() < bytes.len() {
                self.buf = bytes;
                return;
            }
        } else if self.head > self.buf.len() / 2 && self.head > 4096 {
            self.buf.drain(..self.head);
            self.arrived -= self.head;
            self.head = 0;
        }
        self.buf.extend_from_slice(&bytes);
    }

    /// Bytes still on their way.
    pub(crate) fn coming(&self) -> usize {
        self.buf.len() - self.arrived
    }

    /// Bytes in the receiver's kernel.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.buf[self.head..self.arrived]
    }

    /// How many more the receiver's kernel takes.
    pub(crate) fn space(&self, window: u64) -> u64 {
        window.saturating_sub(self.untaken + (self.arrived - self.head) as u64)
    }

    /// So many arrive at the receiver's kernel.
    pub(crate) fn arrive(&mut self, many: usize) {
        self.arrived += many;
        self.unreported += many as u64;
    }

    /// All that waits was given to the node.
    pub(crate) fn delivered(&mut self) {
        self.untaken += (self.arrived - self.head) as u64;
        self.head = self.arrived;
    }

    /// The rest on its way is lost after `keep` more bytes, unless it is kept, and the end comes.
    pub(crate) fn cut(&mut self, keep: usize, end: End) {
        let keep = if self.kept { self.coming() } else { keep };
        self.buf.truncate(self.arrived + keep);
        self.end = end;
    }

    /// Nothing will be moved any more.
    pub(crate) fn release(&mut self) {
        self.buf = Vec::new();
        self.head = 0;
        self.arrived = 0;
    }

    /// The end is all that is left.
    pub(crate) fn at_end(&self) -> bool {
        self.end != End::Open && self.head == self.buf.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Pipe};

    #[test]
    fn bytes_pass_in_order_and_windows_count() {
        let mut pipe = Pipe::new(0);
        pipe.push(b"abc".to_vec());
        pipe.push(b"def".to_vec());
        assert_eq!((pipe.coming(), pipe.space(4)), (6, 4));
        pipe.arrive(4);
        assert_eq!((pipe.waiting(), pipe.space(4), pipe.unreported), (&b"abcd"[..], 0, 4));
        pipe.delivered();
        assert_eq!((pipe.space(4), pipe.coming()), (0, 2));
        pipe.untaken -= 3;
        assert_eq!(pipe.space(4), 3);
        pipe.cut(1, End::Rst);
        pipe.arrive(1);
        assert_eq!(pipe.waiting(), b"e");
        assert!(!pipe.at_end());
        pipe.delivered();
        assert!(pipe.at_end());
    }
}
