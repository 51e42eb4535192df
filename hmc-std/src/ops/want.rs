//! What a receiver takes: `peer.recv(want::Tag)` gives a `u64`, `peer.recv(want::Any)` a [`Message`].

use crate::node::inbox::Message;
pub use crate::node::inbox::Wanted;

/// A kind of message, and what a receiver gets of it.
pub trait Want: sealed::Sealed + Copy + Unpin + std::fmt::Debug {
    /// What is received.
    type Output;

    /// Which messages are taken.
    #[doc(hidden)]
    fn wanted(self) -> Wanted;

    /// The value of a message that was taken; `None` for one of another kind.
    #[doc(hidden)]
    fn value(message: Message<'static>) -> Option<Self::Output>;
}

mod sealed {
    pub trait Sealed {}
}

/// The oldest message of any kind.
#[derive(Clone, Copy, Debug)]
pub struct Any;

/// The oldest tag.
#[derive(Clone, Copy, Debug)]
pub struct Tag;

/// The oldest message with exactly this tag, sent or notified.
#[derive(Clone, Copy, Debug)]
pub struct TagIs(pub u64);

/// The oldest 32-bit number.
#[derive(Clone, Copy, Debug)]
pub struct Int;

/// The oldest opaque bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// The oldest notification of a put. The bytes of that put can be read.
#[derive(Clone, Copy, Debug)]
pub struct Notify;

macro_rules! wants {
    ($($type:ident => $output:ty, |$value:ident| $wanted:expr, $($pattern:pat => $result:expr),+;)*) => { $(
        impl sealed::Sealed for $type {}

        impl Want for $type {
            type Output = $output;

            fn wanted(self) -> Wanted {
                let $value = self;
                $wanted
            }

            fn value(message: Message<'static>) -> Option<$output> {
                match message {
                    $($pattern => Some($result),)+
                    #[allow(unreachable_patterns, reason = "`Any` takes all")]
                    _ => None,
                }
            }
        }
    )* };
}

wants! {
    Any => Message<'static>, |_want| Wanted::Any, message => message;
    Wanted => Message<'static>, |want| want, message => message;
    Tag => u64, |_want| Wanted::Tag, Message::Tag(tag) => tag;
    TagIs => u64, |want| Wanted::ThisTag(want.0), Message::Tag(tag) | Message::Notify(tag) => tag;
    Int => i32, |_want| Wanted::Int, Message::Int(n) => n;
    Bytes => Vec<u8>, |_want| Wanted::Bytes, Message::Bytes(bytes) => bytes.into_owned();
    Notify => u64, |_want| Wanted::Notify, Message::Notify(tag) => tag;
}
