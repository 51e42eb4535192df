//! The manual: which call when, what its completion means, who may touch which memory until when, and what a drop does.
//!
//! # Which call when
//!
//! | you want to | call |
//! | --- | --- |
//! | put bytes where a peer reads them | [`Peer::buffer`](crate::Peer::buffer) or [`Peer::window`](crate::Peer::window), then [`Remote::put`](crate::Remote::put) |
//! | read a peer's memory | [`Remote::get`](crate::Remote::get) |
//! | hand out references to blocks that are used again (caches) | [`Memory::generations`](crate::Memory::generations), and transfers that [`expect`](crate::Request::expect) one |
//! | move many blocks at equal distances | one [`Piece`](crate::Piece) with [`repeat`](crate::Piece::repeat) |
//! | move many pieces as one operation, perhaps again and again | [`Remote::put_list`](crate::Remote::put_list), [`Request::prepare`](crate::Request::prepare) |
//! | tell the peer that bytes are there | [`Request::notify`](crate::Request::notify), or [`Peer::send`](crate::Peer::send) after a put that is visible |
//! | wait for a peer | [`Session::connect`](crate::Session::connect) to it, or [`Session::accept`](crate::Session::accept) |
//! | receive a tag, number or opaque bytes | [`Peer::recv`](crate::Peer::recv); of any peer, or of one that has yet to appear, [`Session::recv`](crate::Session::recv) |
//! | send a message of any size, matched by order | [`Peer::send_data`](crate::Peer::send_data) and [`Peer::recv_data`](crate::Peer::recv_data) |
//! | let a peer put into memory of yours, and take it back | [`Peer::expose`](crate::Peer::expose), [`Window::revoke`](crate::Window::revoke) |
//! | have all ranks of a group do something together | [`Group`](crate::Group) |
//!
//! # Three ways to finish a request
//!
//! A [`Request`](crate::Request) is a value: it does nothing until it is finished.
//!
//! | | blocks | gives |
//! | --- | --- | --- |
//! | `.wait()` | until it is done | the result |
//! | `.start()` | never | an [`Op`](crate::Op): wait for it, ask it, await it, by any thread |
//! | `.await` | never; the task sleeps | the result |
//!
//! There are two times. `.within(time)` bounds the operation: when it has passed, the operation has ended, with
//! `DeadlineExceeded`. The limit of a wait ([`Op::wait_for`](crate::Op::wait_for), [`wait_any`](crate::wait_any)) ends the wait
//! and nothing else. Tokio's users: dropping a future ends no operation of registered memory, `.within` does.
//!
//! A program with an event loop of its own starts its operations and sleeps on the descriptor of its session
//! ([`Session::events`](crate::Session::events)), which is readable when an operation has ended, a message has come or a peer has gone.
//!
//! # Completion and order
//!
//! | done means | |
//! | --- | --- |
//! | put | the peer can read the bytes |
//! | put with `.when(CompleteWhen::Local)` | the memory here may be used again; the bytes arrive later, and an orderly end waits for them; that they did not arrive is not reported |
//! | get | the bytes are here |
//! | put with `.notify(tag)` | the tag is in the peer's inbox, behind all bytes of its put or list |
//! | tag, number, opaque bytes | the system has them: they arrive even if this process ends now |
//! | `send_data` | the peer has the bytes |
//!
//! Operations that are under way at the same time have no order: where two write the same bytes, these may be mixed. Whoever
//! receives a tag can read the bytes of all puts that its sender waited for before (not of those that were complete locally). Tags, numbers and opaque bytes of one peer
//! arrive in the order in which they were sent; messages of `send_data` are matched in the order of their sends and receives.
//!
//! # Memory
//!
//! | | what it is | who may touch it |
//! | --- | --- | --- |
//! | [`Span`](crate::Span) | a private range | its holder, as a slice; an operation or a window that it is given to, until the fence |
//! | [`ConnBuffer`](crate::ConnBuffer), [`LocalRange`](crate::LocalRange) | shared memory, and a range of it | everybody, by copies; an operation keeps the memory, not the bytes |
//! | a slice | lent for the call | only the caller's own calls; nothing of it is under way when they return |
//!
//! The fence of an operation or window is the moment from which nothing of it touches its memory any more. A deadline, a
//! cancellation and the end of a session are none. Until the fence a [`Failed`](crate::Failed) operation keeps its span
//! ([`Failed::reclaim`](crate::Failed::reclaim)); what is left of a session is listed by [`held`](crate::held).
//!
//! # What drop does
//!
//! | dropped | |
//! | --- | --- |
//! | a request | nothing was done, nothing will be; a span goes back to its region |
//! | its future, before the first poll | the same |
//! | its future, later, with registered memory | the operation runs on; its span goes back to its region at the fence |
//! | its future, later, with a slice | the copies stop: a part of the bytes has moved, the slice is not touched any more; a message is withdrawn |
//! | a future of `recv`, `accept`, `window` or `group` | nothing was taken |
//! | a future of a collective, after its first poll | its copies stop, its messages are withdrawn, and the group is broken |
//! | a future of `send`, after its first poll | what the connection has taken of the message is sent |
//! | a future of `connect`, `disconnect`, `shutdown` or `revoke`, after its first poll | the call runs on to its end, on a thread of its own |
//! | [`Op`](crate::Op) | the operation runs on, nobody learns its result; its span goes back at the fence |
//! | [`Failed`](crate::Failed) | its span goes back to its region at the fence |
//! | [`Window`](crate::Window) | it is taken back without waiting; the memory follows at the fence |
//! | [`Plan`](crate::Plan), [`Remote`](crate::Remote), [`Peer`](crate::Peer) | what was begun runs on, the link stays |
//! | the last handle of a session | it says goodbye (at most 200 ms); operations that run then end with an error |
//! | anything, in a forked child | nothing: it is the parent's |
//!
//! # Threads and async
//!
//! All types but spans may be used by several threads at a time. A thread that waits drives its link by itself; a thread of the
//! session drives what nobody waits for ([`Progress`](crate::Progress)). Futures need no runtime: a thread of the session's calls
//! their wakers. `connect`, `disconnect`, `shutdown` and a `revoke` whose peer is inside the window run on a thread of their own
//! while they are awaited. `allocate`, `register` and `listen` are system calls, and block as these do.
//!
//! # Choosing a transport
//!
//! [`ConnType::Auto`](crate::ConnType::Auto) takes the first that both ends have: shm on one host, RDMA verbs, UCX, TCP; a session
//! reaches itself by loopback. One that is asked for by name is never replaced by
//! another. [`Peer::explain`](crate::Peer::explain) tells which was taken, why, and why not the others.
