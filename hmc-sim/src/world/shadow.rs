//! Shadow memory: the bytes that a range of memory may hold. It has settled bytes, and writers whose bytes may appear.
//!
//! Each writer writes a pattern of its own, so a byte identifies its writer. A failed writer stays
//! possible until a fence; a byte that no possible writer wrote is a finding.

/// The pattern of an id: words that follow each other by an addition, so that long ones are cheap to write and to check.
#[derive(Clone, Copy)]
struct Pattern(u64);

impl Pattern {
    fn of(id: u64) -> Self {
        // Vigna's splitmix64: neighbouring ids have nothing in common. Odd: no word is nothing.
        let z = id.wrapping_add(0x1234_5678_9ABC_DEF1);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self((z ^ (z >> 31)) | 1)
    }

    fn word(self, n: usize) -> u64 {
        let z = self.0.wrapping_mul((n as u64).wrapping_add(0x9E37_79B9));
        z ^ (z >> 32)
    }

    fn byte(self, index: usize) -> u8 {
        self.word(index / 8).to_le_bytes()[index % 8]
    }

    fn write(self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for (n, word) in words.iter_mut().enumerate() {
            *word = self.word(n).to_le_bytes();
        }
        let last = self.word(words.len()).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Whether `now` is it, from its word `first` on.
    fn is(self, first: usize, now: &[u8]) -> bool {
        let (words, rest) = now.as_chunks::<8>();
        let mut same = true;
        for (n, word) in words.iter().enumerate() {
            same &= u64::from_le_bytes(*word) == self.word(first + n);
        }
        same && self.word(first + words.len()).to_le_bytes()[..rest.len()] == *rest
    }
}

/// Fills `out` with the pattern of `id`.
pub(crate) fn pattern(id: u64, out: &mut [u8]) {
    Pattern::of(id).write(out);
}

/// Bytes that a check looks at together, before it looks at each.
const BLOCK: usize = 64;

/// Whose bytes, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteRange {
    /// The request behind it.
    pub(crate) number: u64,
    /// Its pattern; none if any byte may appear.
    pub(crate) pattern: Option<u64>,
    /// Where.
    pub(crate) offset: usize,
    /// How many.
    pub(crate) len: usize,
    /// The rank that writes.
    pub(crate) from: u32,
    /// The life of the link that its bytes travel on.
    pub(crate) link: u64,
}

impl WriteRange {
    fn covers(&self, at: usize) -> bool {
        at >= self.offset && at - self.offset < self.len
    }

    fn overlaps(&self, offset: usize, len: usize) -> bool {
        self.offset < offset + len && offset < self.offset + self.len
    }

    /// Whether all of `bytes` may be here, without a look at each.
    fn explains(&self, at: usize, bytes: &[u8]) -> bool {
        let Some(from) = at.checked_sub(self.offset) else { return false };
        from + bytes.len() <= self.len
            && self
                .pattern
                .is_none_or(|id| from.is_multiple_of(8) && Pattern::of(id).is(from / 8, bytes))
    }

    fn may(&self, at: usize, value: u8) -> bool {
        self.covers(at)
            && self.pattern.is_none_or(|id| Pattern::of(id).byte(at - self.offset) == value)
    }
}

#[derive(Clone, Copy, Debug)]
struct Writer {
    mark: WriteRange,
    since: u64,
    running: bool,
}

/// A reader that runs: what it may see.
#[derive(Debug)]
struct Reader {
    number: u64,
    offset: usize,
    since: u64,
    before: Vec<u8>,
}

/// One piece of memory.
#[derive(Debug)]
pub(crate) struct ShadowMemory {
    base: Vec<u8>,
    writers: Vec<Writer>,
    readers: Vec<Reader>,
    /// Writers that ended, kept while a running operation began before they did.
    past: Vec<(u64, WriteRange)>,
    stamp: u64,
}

/// A byte that cannot be.
pub(crate) type Mismatch = String;

impl ShadowMemory {
    pub(crate) const fn new(base: Vec<u8>) -> Self {
        Self { base, writers: Vec::new(), readers: Vec::new(), past: Vec::new(), stamp: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.base.len()
    }

    fn tick(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Writer starts.
    pub(crate) fn write_starts(&mut self, mark: WriteRange) {
        let since = self.tick();
        self.writers.push(Writer { mark, since, running: true });
    }

    /// Readers and writers that began after every past mark need none of them. Failed writers need them too: the
    /// message of one may be read long after its bytes were written over.
    fn drop_unneeded(&mut self) {
        if self.past.is_empty() {
            return;
        }
        let writers = self.writers.iter().map(|writer| writer.since);
        let oldest = self.readers.iter().map(|reader| reader.since).chain(writers).min();
        match oldest {
            None => self.past.clear(),
            Some(oldest) => self.past.retain(|(ended, _)| *ended > oldest),
        }
    }

    /// Checks `now`, which was read at `offset`: each byte is of `own`, or settled (if `own` is none,
    /// or somebody settled it since `own` began), or of a writer that may be at work there.
    fn check(
        &self,
        offset: usize,
        now: &[u8],
        own: Option<(WriteRange, u64)>,
    ) -> Result<(), Mismatch> {
        let same = match own {
            None => self.base.get(offset..offset + now.len()) == Some(now),
            Some((mark, _)) => mark.pattern.is_none(),
        };
        if same {
            return Ok(());
        }
        for (block, bytes) in now.chunks(BLOCK).enumerate() {
            let offset = offset + block * BLOCK;
            let settled = own.is_none() && self.base[offset..offset + bytes.len()] == *bytes;
            let explained = settled
                || own.is_some_and(|(mark, _)| mark.explains(offset, bytes))
                || self.writers.iter().any(|w| w.mark.explains(offset, bytes));
            if !explained {
                self.check_bytes(offset, bytes, own)?;
            }
        }
        Ok(())
    }

    fn check_bytes(
        &self,
        offset: usize,
        now: &[u8],
        own: Option<(WriteRange, u64)>,
    ) -> Result<(), Mismatch> {
        for (index, value) in now.iter().enumerate() {
            let at = offset + index;
            let fine = match own {
                None => self.base[at] == *value,
                Some((mark, since)) => {
                    mark.may(at, *value)
                        || self.past.iter().any(|(ended, mark)| {
                            *ended > since
                                && (mark.may(at, *value)
                                    || mark.covers(at) && self.base[at] == *value)
                        })
                }
            };
            let other = || self.writers.iter().any(|writer| writer.mark.may(at, *value));
            if !fine && !other() {
                return Err(self.history(at, *value, own));
            }
        }
        Ok(())
    }

    #[cold]
    fn history(&self, at: usize, value: u8, own: Option<(WriteRange, u64)>) -> Mismatch {
        let mut text = format!("byte {at} is {value:#04x}, settled {:#04x}", self.base[at]);
        if let Some((mark, _)) = own {
            let want = mark.pattern.map_or(0, |id| Pattern::of(id).byte(at - mark.offset));
            text += &format!(", written {want:#04x} by request {}", mark.number);
        }
        for writer in &self.writers {
            if writer.mark.covers(at) {
                text += &format!(", possible writer: request {}", writer.mark.number);
            }
        }
        for (_, mark) in &self.past {
            if mark.covers(at) {
                text += &format!(", past writer: request {}", mark.number);
            }
        }
        text
    }

    /// What a check of that writer has to read: its place.
    pub(crate) fn places(&self, number: u64) -> Vec<(usize, usize)> {
        let of = |writer: &&Writer| writer.mark.number == number;
        self.writers.iter().filter(of).map(|w| (w.mark.offset, w.mark.len)).collect()
    }

    /// The writers that `pick` picks, by number.
    pub(crate) fn numbers(&self, pick: impl Fn(&WriteRange) -> bool) -> Vec<u64> {
        let mut list: Vec<u64> =
            self.writers.iter().map(|w| &w.mark).filter(|m| pick(m)).map(|m| m.number).collect();
        list.dedup();
        list
    }

    /// Bytes of `number` at `offset` can be read now: is it so?
    pub(crate) fn visible(&self, number: u64, offset: usize, now: &[u8]) -> Result<(), Mismatch> {
        let own = |w: &&Writer| w.mark.number == number && w.mark.offset == offset;
        // Its own mark is among the writers: without it, only others excuse a byte.
        let Some(writer) = self.writers.iter().find(own) else { return Ok(()) };
        self.check(offset, now, Some((writer.mark, writer.since)))
    }

    /// Writer ends, and `now` was read at its place: confirm it. A failed one stays possible.
    pub(crate) fn confirm(&mut self, number: u64, offset: usize, now: &[u8]) {
        self.base[offset..offset + now.len()].copy_from_slice(now);
        let ended = self.tick();
        let own = |w: &Writer| w.mark.number == number && w.mark.offset == offset;
        if let Some(index) = self.writers.iter().position(own) {
            let writer = self.writers.remove(index);
            let others = self.readers.iter().any(|r| r.since < ended)
                || self.writers.iter().any(|w| w.mark.overlaps(offset, now.len()));
            if others {
                self.past.push((ended, writer.mark));
            }
        }
        self.drop_unneeded();
    }

    /// The request failed: its writers may still write, until a fence.
    pub(crate) fn loosen(&mut self, number: u64) {
        for writer in &mut self.writers {
            if writer.mark.number == number {
                writer.running = false;
            }
        }
        self.drop_unneeded();
    }

    /// The owner of the memory wrote these bytes itself.
    pub(crate) fn own_write(&mut self, offset: usize, bytes: &[u8], id: u64) {
        self.base[offset..offset + bytes.len()].copy_from_slice(bytes);
        let ended = self.tick();
        if !self.readers.is_empty() {
            let len = bytes.len();
            let mark =
                WriteRange { number: id, pattern: Some(id), offset, len, from: u32::MAX, link: 0 };
            self.past.push((ended, mark));
        }
    }

    /// A reader starts.
    pub(crate) fn read_starts(&mut self, number: u64, offset: usize, len: usize) {
        let since = self.tick();
        let before = self.base[offset..offset + len].to_vec();
        self.readers.push(Reader { number, offset, since, before });
    }

    /// A reader completes; `got` is the bytes that it read, if it reports any.
    pub(crate) fn read_ends(&mut self, number: u64, got: Option<&[u8]>) -> Result<(), Mismatch> {
        let Some(index) = self.readers.iter().position(|reader| reader.number == number) else {
            return Ok(());
        };
        let reader = self.readers.swap_remove(index);
        let result = got.map_or(Ok(()), |got| self.check_read(&reader, got));
        self.drop_unneeded();
        result
    }

    fn check_read(&self, reader: &Reader, got: &[u8]) -> Result<(), Mismatch> {
        if reader.before == got {
            return Ok(());
        }
        for (index, value) in got.iter().enumerate() {
            let at = reader.offset + index;
            let past =
                |(ended, mark): &(u64, WriteRange)| *ended > reader.since && mark.may(at, *value);
            let fine = reader.before[index] == *value
                || self.base[at] == *value
                || self.writers.iter().any(|writer| writer.mark.may(at, *value))
                || self.past.iter().any(past);
            if !fine {
                return Err(format!(
                    "a get read what was never there: {}",
                    self.history(at, *value, None)
                ));
            }
        }
        Ok(())
    }

    /// A range: is every byte settled or of a possible writer?
    pub(crate) fn range(&self, offset: usize, now: &[u8]) -> Result<(), Mismatch> {
        self.check(offset, now, None)
    }
}

#[cfg(test)]
mod tests {
    use super::{ShadowMemory, WriteRange, pattern};

    fn mark(number: u64, offset: usize, len: usize) -> WriteRange {
        WriteRange { number, pattern: Some(number), offset, len, from: 0, link: 1 }
    }

    fn bytes(id: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        pattern(id, &mut out);
        out
    }

    #[test]
    fn a_writer_is_seen_when_done_and_settled_bytes_stay() {
        let mut ground = ShadowMemory::new(vec![0; 32]);
        ground.write_starts(mark(7, 4, 16));
        assert!(ground.visible(7, 4, &[0; 16]).is_err(), "done before its bytes");
        let now = bytes(7, 16);
        ground.visible(7, 4, &now).expect("its own bytes");
        ground.confirm(7, 4, &now);
        let mut all = vec![0; 32];
        all[4..20].copy_from_slice(&now);
        ground.range(0, &all).expect("as settled");
        all[5] ^= 1;
        assert!(ground.range(0, &all).is_err(), "a byte changed by nobody");
    }

    #[test]
    fn overlapping_writers_excuse_each_other_only_while_both_ran() {
        let mut ground = ShadowMemory::new(vec![0; 8]);
        ground.write_starts(mark(1, 0, 8));
        ground.write_starts(mark(2, 0, 8));
        let (one, two) = (bytes(1, 8), bytes(2, 8));
        ground.visible(1, 0, &two).expect("2 wrote over it");
        ground.confirm(1, 0, &two);
        ground.visible(2, 0, &one).expect("1 wrote over it");
        assert!(ground.visible(2, 0, &[0; 8]).is_err(), "neither wrote");
        ground.confirm(2, 0, &two);
        ground.write_starts(mark(3, 0, 8));
        assert!(ground.visible(3, 0, &two).is_err(), "2 was done before 3 began");
    }

    /// The second writer begins where no word of it lies at a block's start.
    #[test]
    fn long_writers_are_checked_byte_by_byte_across_blocks() {
        const LEN: usize = 203;
        for (number, offset) in [(1, 8), (2, 3)] {
            let end = offset + LEN;
            let mut ground = ShadowMemory::new(vec![0; 256]);
            ground.write_starts(mark(number, offset, LEN));
            // One byte more than it may write.
            let long = bytes(number, LEN + 1);
            assert_ne!(long[LEN], 0, "else it could not be told from a settled byte");
            let mut all = vec![0; 256];
            all[offset..end].copy_from_slice(&long[..LEN]);
            ground.range(0, &all).expect("its bytes");
            ground.range(offset + 8, &all[offset + 8..]).expect("from its second word on");
            ground.visible(number, offset, &all[offset..end]).expect("its bytes, looked at alone");
            for at in offset..end {
                let good = all[at];
                all[at] = if good == 1 { 2 } else { 1 };
                assert!(ground.range(0, &all).is_err(), "byte {at} by nobody");
                let alone = ground.visible(number, offset, &all[offset..end]);
                assert!(alone.is_err(), "byte {at} by nobody, looked at alone");
                all[at] = good;
            }
            let (mut moved, mut again) = (vec![0; 256], all[offset..end].to_vec());
            moved[offset + 5..end].copy_from_slice(&long[..LEN - 5]);
            assert!(ground.range(64, &moved[64..128]).is_err(), "all of it five bytes further");
            again.copy_within(..64, 64);
            assert!(ground.visible(number, offset, &again).is_err(), "its first block again");
            all[end] = long[LEN];
            assert!(ground.range(0, &all).is_err(), "its pattern goes on past its end");
            let last = offset + 144;
            assert!(ground.range(last, &all[last..=end]).is_err(), "in one block with its end");
            assert!(ground.visible(number, offset, &long).is_err(), "also when looked at alone");
        }
    }

    #[test]
    fn a_failed_writer_stays_possible_until_it_is_settled() {
        let mut ground = ShadowMemory::new(vec![0; 8]);
        ground.write_starts(mark(1, 0, 8));
        ground.loosen(1);
        ground.range(0, &bytes(1, 8)).expect("late bytes before the fence");
        ground.confirm(1, 0, &[0; 8]);
        assert!(ground.range(0, &bytes(1, 8)).is_err(), "late bytes after it");
    }

    #[test]
    fn a_get_sees_what_was_there_at_some_time() {
        let mut ground = ShadowMemory::new(vec![0; 8]);
        ground.read_starts(9, 0, 8);
        ground.write_starts(mark(1, 0, 8));
        let one = bytes(1, 8);
        ground.confirm(1, 0, &one);
        ground.write_starts(mark(2, 0, 8));
        ground.confirm(2, 0, &bytes(2, 8));
        ground.read_ends(9, Some(&one)).expect("between 1 and 2");
        ground.read_starts(10, 0, 8);
        assert!(ground.read_ends(10, Some(&one)).is_err(), "1 was over before");
    }
}
