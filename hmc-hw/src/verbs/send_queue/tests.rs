//! Work requests of one queue pair from the post until they are done, in any order of posts and completions.

use hmc_core::work::Opcode;

use super::*;
use crate::verbs::requests::tests::work;

/// A short request of an operation with that index.
fn short(index: u16) -> WorkRequest {
    work(index, Opcode::Put)
}

/// The record, or the index of the operation.
fn index(ended: Ended) -> u16 {
    match ended {
        Ended::Piece(record) => record,
        Ended::Short(op, bytes) => {
            assert_eq!((op.generation, bytes), (1, 8));
            op.index
        }
    }
}

fn completed(queue: &mut SendQueue, number: u64) -> Vec<u16> {
    let mut done = Vec::new();
    queue.complete(number, |ended| done.push(index(ended)));
    done
}

#[test]
fn a_completion_covers_all_before_it() {
    let mut queue = SendQueue::new(8);
    for record in 0..3 {
        assert_eq!(queue.push(Piece::Plain(record), 8), Some(u64::from(record)));
    }
    assert_eq!(completed(&mut queue, 1), [0, 1]);
    assert!(completed(&mut queue, 1).is_empty(), "once");
    assert!(completed(&mut queue, 3).is_empty(), "it was never posted");
    assert_eq!(completed(&mut queue, 2), [2]);
    assert!(queue.is_empty());
}

#[test]
fn a_visible_put_is_done_with_the_flush_behind_it() {
    let mut queue = SendQueue::new(8);
    queue.push(Piece::NeedsFlush(0), 8);
    queue.push(Piece::Plain(1), 8);
    assert!(queue.may_flush());
    assert_eq!(completed(&mut queue, 1), [1]);
    assert_eq!(queue.push_flush(), Some(2));
    assert!(!queue.may_flush());
    queue.push(Piece::NeedsFlush(3), 8);
    assert_eq!(completed(&mut queue, 2), [0]);
    assert!(queue.may_flush(), "the flush was in front of it");
    assert_eq!(queue.push_flush(), Some(4));
    assert_eq!(completed(&mut queue, 4), [3]);
    assert!(queue.is_empty() && !queue.may_flush());
    // The completion of the last one covers a flush and the put behind it, which needs the next.
    queue.push(Piece::NeedsFlush(5), 8);
    queue.push_flush();
    queue.push(Piece::NeedsFlush(7), 8);
    assert_eq!(queue.push(Piece::Plain(8), 8), Some(8));
    assert_eq!(completed(&mut queue, 8), [5, 8]);
    assert_eq!(queue.push_flush(), Some(9));
    assert_eq!(completed(&mut queue, 9), [7]);
}

#[test]
fn flushes_are_few() {
    let mut queue = SendQueue::new(64);
    for record in 0..u16::try_from(MAX_FLUSHES).unwrap() {
        queue.push(Piece::NeedsFlush(record), 8);
        assert!(queue.may_flush());
        queue.push_flush();
    }
    queue.push(Piece::NeedsFlush(9), 8);
    assert!(!queue.may_flush());
    assert_eq!(completed(&mut queue, 1), [0]);
    assert!(queue.may_flush());
}

/// The last of a request asks for the flush that all of it needs, as does the end of a request that is cut.
#[test]
fn parts_are_done_with_the_flush_behind_the_last() {
    let mut queue = SendQueue::new(64);
    for _ in 0..3 {
        queue.push(Piece::Part(5), 100);
    }
    assert_eq!((queue.bytes(), queue.may_flush()), (300, false));
    assert!(completed(&mut queue, 1).is_empty());
    assert_eq!((queue.bytes(), queue.record(0)), (100, Some(5)));
    queue.push(Piece::NeedsFlush(5), 50);
    assert!(queue.may_flush());
    queue.push_flush();
    assert!(completed(&mut queue, 3).is_empty() && !queue.may_flush());
    assert_eq!(completed(&mut queue, 4), [5, 5, 5, 5]);
    assert_eq!((queue.bytes(), queue.is_empty()), (0, true));
    queue.want_flush();
    assert!(!queue.may_flush(), "there is nothing to flush");
    queue.push(Piece::Part(6), 100);
    queue.want_flush();
    assert!(queue.may_flush());
    queue.push_flush();
    assert_eq!(completed(&mut queue, 6), [6]);
}

/// Parts that have completed stay in the queue until a flush: one is posted before they fill it, and not one for each.
#[test]
fn parts_do_not_fill_the_queue() {
    let mut queue = SendQueue::new(16);
    let (mut flushes, mut done) = (0, 0);
    for _ in 0..100 {
        assert!(queue.has_space_for(1));
        let mut last = queue.push(Piece::Part(1), 100).unwrap();
        if queue.may_flush() {
            last = queue.push_flush().unwrap();
            flushes += 1;
            assert!(!queue.may_flush());
            queue.push(Piece::Part(1), 100);
            assert!(!queue.may_flush(), "one is under way");
        }
        done += completed(&mut queue, last).len();
    }
    assert_eq!((flushes, done), (14, 112));
}

#[test]
fn one_place_is_kept_for_a_flush() {
    let mut queue = SendQueue::new(3);
    assert!(queue.has_space_for(2) && !queue.has_space_for(3));
    queue.push(Piece::NeedsFlush(0), 8);
    queue.push(Piece::NeedsFlush(1), 8);
    assert!(!queue.has_space_for(1));
    assert!(queue.may_flush());
    assert!(queue.push_flush().is_some());
    assert_eq!(queue.push(Piece::Plain(2), 8), None);
    assert_eq!(completed(&mut queue, 2), [0, 1]);
    assert!(queue.has_space_for(2) && !queue.has_space_for(3));
}

/// A short request that fails gets a record, and ends by it as it would have.
#[test]
fn short_requests_may_get_a_record() {
    let mut queue = SendQueue::new(16);
    for (index, needs_flush) in [(0, true), (1, false), (2, true)] {
        queue.push_short(&short(index), needs_flush);
        assert_eq!(queue.record(index.into()), None);
    }
    queue.push_flush();
    let shorts = |queue: &SendQueue| queue.shorts().map(|parts| parts.op.index).collect::<Vec<_>>();
    assert_eq!((completed(&mut queue, 1), shorts(&queue)), (vec![1], vec![0, 2]));
    queue.record_shorts(|parts| (parts.op.index != 2).then_some(100));
    assert_eq!((queue.record(0), queue.record(2), shorts(&queue)), (Some(100), None, vec![2]));
    queue.push(Piece::Plain(7), 8);
    assert!(completed(&mut queue, 2).is_empty(), "their flush has not completed");
    assert_eq!(completed(&mut queue, 3), [100, 2]);
    assert_eq!(completed(&mut queue, 4), [7]);
    assert!(queue.is_empty() && shorts(&queue).is_empty());
}

/// What was posted to a queue, besides it.
#[derive(Default)]
struct Posts {
    /// The number of each record, and whether it needs a flush.
    records: Vec<(u64, bool)>,
    /// The numbers of the flushes.
    flushes: Vec<u64>,
    /// The records that are done.
    done: Vec<u16>,
}

impl Posts {
    fn post(&mut self, queue: &mut SendQueue, piece: fn(u16) -> Piece) {
        let record = u16::try_from(self.records.len()).unwrap();
        let piece = piece(record);
        let needs_flush = !matches!(piece, Piece::Plain(_) | Piece::Short);
        let number = match piece {
            Piece::Short | Piece::ShortNeedsFlush => queue.push_short(&short(record), needs_flush),
            _ => queue.push(piece, 8),
        };
        self.records.push((number.unwrap(), needs_flush));
    }

    fn flush(&mut self, queue: &mut SendQueue) {
        self.flushes.push(queue.push_flush().unwrap());
        assert!(queue.len() <= queue.depth, "there is a place for each flush");
    }

    /// All up to `number` have completed.
    fn complete(&mut self, queue: &mut SendQueue, number: u64) {
        let Self { records, flushes, done } = self;
        queue.complete(number, |ended| {
            let record = index(ended);
            let (at, needs_flush) = records[usize::from(record)];
            let is_flushed = flushes.iter().any(|flush| at < *flush && *flush <= number);
            assert!(at <= number && (is_flushed || !needs_flush), "{at} by {number}");
            done.push(record);
        });
    }
}

/// Each record is done once and never before what covers it, whatever completes when.
#[test]
fn any_order_of_posts_and_completions() {
    let mut seed = 0x9e37_79b9_u32;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed
    };
    for _ in 0..500 {
        let (mut queue, mut posts) = (SendQueue::new(16), Posts::default());
        let mut done_up_to = 0;
        for _ in 0..60 {
            match next() % 7 {
                0 if queue.has_space_for(1) => posts.post(&mut queue, Piece::Plain),
                1 if queue.has_space_for(1) => posts.post(&mut queue, Piece::NeedsFlush),
                2 if queue.has_space_for(1) => posts.post(&mut queue, Piece::Part),
                3 if queue.may_flush() => posts.flush(&mut queue),
                4 if queue.has_space_for(1) => posts.post(&mut queue, |_| Piece::Short),
                5 if queue.has_space_for(1) => {
                    posts.post(&mut queue, |_| Piece::ShortNeedsFlush);
                }
                _ if queue.next > done_up_to => {
                    done_up_to += 1 + u64::from(next()) % (queue.next - done_up_to);
                    posts.complete(&mut queue, done_up_to - 1);
                }
                _ => {}
            }
        }
        while !queue.is_empty() {
            queue.want_flush();
            if queue.may_flush() {
                posts.flush(&mut queue);
            }
            let last = queue.next - 1;
            posts.complete(&mut queue, last);
        }
        posts.done.sort_unstable();
        assert!(posts.done.into_iter().map(usize::from).eq(0..posts.records.len()));
    }
}
