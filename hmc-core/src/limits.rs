//! Every limit of the protocol and of the core's tables.
//!
//! A length from a peer is compared with one of these before it sizes, indexes or loops. A limit of a single
//! backend belongs to that backend.

/// Largest control frame payload accepted from a peer, in bytes. Checked on the header alone.
pub const MAX_FRAME_BYTES: u32 = 1 << 20;
/// Bytes of a control frame's header.
pub const FRAME_HEADER_BYTES: usize = 8;
/// Largest payload of a HELLO or ATTACH frame, in bytes: an unauthenticated peer may send no more.
pub const MAX_HELLO_BYTES: u32 = 512;
/// Payload bytes that a control connection can hold before it must grow its buffer.
pub const FRAMER_INITIAL_BYTES: usize = 1024;
/// Largest number of ranks in one session, itself included. Ranks are `0..MAX_PEERS`.
pub const MAX_PEERS: u32 = 4096;
/// Peers of a session that are known to it by numbers beyond all ranks, at a time.
pub const MAX_PRIVATE_PEERS: usize = 256;
/// Bytes of the longest frame that an unauthenticated peer may send.
pub const MAX_HELLO_FRAME_BYTES: usize = 520;
/// Largest number of pending connections of one session: accepted, and their handshake is not finished. Each costs a
/// descriptor and little else.
pub const MAX_PENDING_CONNS: usize = 1024;
/// Largest number of operations posted and not finished on one work queue.
pub const MAX_SLOTS: usize = 1024;
/// Operations in flight on one work queue unless the caller asks for another number.
pub const DEFAULT_SLOTS: usize = 128;
/// Largest piece copied between two checks of a window's epoch, in bytes.
pub const MAX_CHUNK_BYTES: u64 = 1 << 20;
/// Largest payload of one frame on a data stream, in bytes.
pub const MAX_STREAM_FRAME_BYTES: u32 = 1 << 20;
/// Requests that one end may have unanswered on one data stream; more is a breach of protocol.
pub const MAX_STREAM_REQUESTS: usize = 256;
/// The same between two ends that understand `Gather`.
pub const MAX_GATHER_REQUESTS: usize = 16 * MAX_GATHERED_FRAMES;
/// Frames of a data stream whose payloads may follow all their headers. With the headers, or with what follows the last payload,
/// these are the parts of one call of `sendmsg` or `recvmsg`.
pub const MAX_GATHERED_FRAMES: usize = 63;
/// Windows that one peer may hold open towards another.
pub const MAX_WINDOWS_PER_PEER: usize = 256;
/// Blocks of one window that can have generations.
pub const MAX_BLOCKS: u32 = 1 << 16;
/// Bytes that unread messages of peers that are gone may take, of one session, in all.
pub const MAX_LEFT_BYTES: usize = 64 << 20;
/// Rendezvous (messages of `send_data`) that one end may have in flight to a peer.
pub const MAX_RNDV: u32 = 64;
/// Bytes that a message may have to be sent with its offer.
pub const MAX_EAGER_BYTES: usize = 4096;
/// Such messages that may wait to be processed: as many as may be in flight, and the one that is too many.
pub const MAX_EAGER_MSGS: usize = 65;
/// Messages of such rendezvous that may wait to be processed. Each end sends at most four for each before the other replies.
pub const MAX_RNDV_MSGS: usize = 1024;
/// Longest half-buffer that a peer may name for a rendezvous, in bytes.
pub const MAX_RNDV_HALF_BYTES: u64 = 1 << 30;
/// Default length of a half-buffer of a rendezvous, in bytes.
pub const RNDV_HALF_BYTES: u64 = 1 << 20;
/// Regions that one session may hold registered at a time.
pub const MAX_REGIONS: usize = 1 << 16;
/// Endpoint blobs in one HELLO exchange.
pub const MAX_ENDPOINTS: usize = 8;
/// Longest opaque endpoint blob, in bytes. The address of a UCX worker fits: 215 bytes with one network device, and some
/// hundred more for each NIC.
pub const MAX_ENDPOINT_BYTES: usize = 8192;
/// Longest socket path that fits `sockaddr_un` with its terminating zero (unix(7)), in bytes.
pub const MAX_UDS_PATH_BYTES: usize = 107;

/// Time a pending connection has to send a complete HELLO, in nanoseconds.
pub const HELLO_DEADLINE_NS: u64 = 2_000_000_000;
/// Time a peer has to complete a frame it began, in nanoseconds.
pub const FRAME_DEADLINE_NS: u64 = 5_000_000_000;
/// Default deadline of a blocking call, in nanoseconds.
pub const DEFAULT_DEADLINE_NS: u64 = 30_000_000_000;
/// Period of heartbeats, in nanoseconds.
pub const HEARTBEAT_NS: u64 = 500_000_000;
/// Shortest period of heartbeats that a peer may ask for, in nanoseconds.
pub const MIN_HEARTBEAT_NS: u64 = 10_000_000;
/// Silence after which a peer is dead, in nanoseconds.
pub const PEER_DEAD_NS: u64 = 2_500_000_000;
/// Periods of heartbeats without one after which a peer is dead, for links with another period.
pub const MISSED_HEARTBEATS: u64 = 5;
/// The most periods for which an end is silent towards a peer of its own system: of the [`MISSED_HEARTBEATS`] that make it dead.
pub const MAX_SPREAD: u64 = 3;
/// For each so many peers of its own system that it beats to by messages, an end is silent for one period more.
pub const PEERS_A_SPREAD: usize = 64;
/// How long a rank is kept for a holder that ended, against others that proved as much as it did, in nanoseconds.
pub const RANK_KEPT_NS: u64 = 10_000_000_000;
/// Pauses between attempts to reconnect to a lost peer, in nanoseconds; the last one repeats.
pub const RECONNECT_BACKOFF_NS: [u64; 8] = [
    50_000_000,
    100_000_000,
    200_000_000,
    400_000_000,
    800_000_000,
    1_600_000_000,
    3_200_000_000,
    5_000_000_000,
];

const _: () = {
    assert!(MAX_SLOTS <= 1 << 16, "an OpId's index is 16 bits");
    assert!(DEFAULT_SLOTS <= MAX_SLOTS);
    assert!(MAX_REGIONS <= 1 << 16, "a region key's index is 16 bits");
    assert!(RNDV_HALF_BYTES > 0 && RNDV_HALF_BYTES <= MAX_RNDV_HALF_BYTES);
    assert!(MAX_RNDV == 64 && MAX_EAGER_MSGS == 65 && MAX_RNDV_MSGS >= 2 * 4 * 64);
    assert!(MAX_HELLO_BYTES <= MAX_FRAME_BYTES);
    assert!(MAX_HELLO_FRAME_BYTES == FRAME_HEADER_BYTES + 512 && MAX_HELLO_BYTES == 512);
    assert!(PEER_DEAD_NS >= 3 * HEARTBEAT_NS, "three beats may be missed");
    assert!(PEER_DEAD_NS == MISSED_HEARTBEATS * HEARTBEAT_NS);
    assert!(MAX_SPREAD + 1 < MISSED_HEARTBEATS, "an answer may take a period");
    assert!(MIN_HEARTBEAT_NS <= HEARTBEAT_NS);
};
