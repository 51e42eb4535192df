//! The initiator's half: puts, gets, notified puts and windows, each compared with a copy of what must be there.

use hmc_sim::rng::Rng;
use hmc_std::{Done, ErrorKind, Peer, Region, Remote, Waited, want::Wanted};
use hmc_testkit::buffers::{BufferTransfers as _, wait};

use super::end::{End, Of as _, Step};
use super::party::{PUTS, Party, WINDOW};
use super::range::{at, range};
use super::settings::LONG;
use super::target::{Note, SLOTS};

/// Puts that are in flight at once.
const BURST: u64 = 8;
/// Labels that are looked at for the next window of a slot: so many may have come and gone unseen.
const AHEAD: u64 = 64;

/// A window of the peer, and what is in it.
struct Seen {
    window: Remote,
    copy: Vec<u8>,
}

struct Drive<'a> {
    party: &'a Party,
    peer: &'a Peer,
    rng: &'a mut Rng,
    /// What is in our area of the peer's buffer.
    copy: Vec<u8>,
    seen: [Option<Seen>; SLOTS],
    labels: [u64; SLOTS],
    /// Memory of ours for spans: one that can be mapped, one that was adopted.
    regions: [Region; 2],
}

/// One life of a link.
pub(super) fn drive(party: &Party, peer: &Peer, rng: &mut Rng) -> Step {
    let regions = [
        party.session.memory().allocate(WINDOW)?,
        party.session.memory().register(hmc_std::memory::HeapBytes::from(vec![0; at(WINDOW)]))?,
    ];
    // Whatever is there from an earlier life of the link.
    peer.get_at(party.incoming(), party.there(), PUTS).of("the first get")?;
    let mut copy = vec![0; at(PUTS)];
    party.session.buffer().read_at(party.incoming(), &mut copy)?;
    let mut drive = Drive {
        party,
        peer,
        rng,
        copy,
        seen: [const { None }; SLOTS],
        labels: [0; SLOTS],
        regions,
    };
    while party.drives() {
        match drive.rng.below(8) {
            0 | 1 => drive.put()?,
            2 => drive.burst()?,
            3 => drive.get()?,
            4 => drive.note()?,
            _ => drive.window()?,
        }
    }
    Ok(())
}

impl Drive<'_> {
    fn put(&mut self) -> Step {
        let (offset, len) = range(self.rng, PUTS);
        self.write(offset, len)?;
        let (from, to) = (self.party.outgoing() + offset, self.party.there() + offset);
        self.peer.put_at(from, to, len).of(&format!("a put of {len}"))?;
        self.party.totals.moved(&self.party.totals.puts, len);
        Ok(())
    }

    /// New bytes for that range of the peer's, here and in the copy.
    fn write(&mut self, offset: u64, len: u64) -> Step {
        let bytes = self.rng.bytes(at(len));
        self.party.session.buffer().write_at(self.party.outgoing() + offset, &bytes)?;
        self.copy[at(offset)..at(offset + len)].copy_from_slice(&bytes);
        Ok(())
    }

    /// Several at once, each in a part of its own.
    fn burst(&mut self) -> Step {
        let part = PUTS / BURST;
        let mut ops = Vec::new();
        for n in 0..BURST {
            let (offset, len) = range(self.rng, part);
            let offset = n * part + offset;
            self.write(offset, len)?;
            let (from, to) = (self.party.outgoing() + offset, self.party.there() + offset);
            ops.push(self.peer.start_put_at(from, to, len).of("posting a put")?);
        }
        for op in ops {
            let n = wait(op).of("one put of several")?;
            self.party.totals.moved(&self.party.totals.puts, n);
        }
        Ok(())
    }

    fn get(&mut self) -> Step {
        let (offset, len) = range(self.rng, PUTS);
        let to = self.party.incoming() + offset;
        self.peer.get_at(to, self.party.there() + offset, len).of(&format!("a get of {len}"))?;
        let mut got = vec![0; at(len)];
        self.party.session.buffer().read_at(to, &mut got)?;
        self.party.totals.moved(&self.party.totals.gets, len);
        same("a get", offset, &got, &self.copy[at(offset)..at(offset + len)])
    }

    /// The peer looks whether the bytes are there when the tag is, and says so.
    fn note(&mut self) -> Step {
        let note = Note::draw(self.rng);
        let offset = PUTS + note.offset;
        let from = self.party.outgoing() + offset;
        self.party.session.buffer().write_at(from, &note.bytes())?;
        let to = self.party.there() + offset;
        let put = self.peer.put_notify_at(from, to, note.len, note.tag());
        put.of(&format!("a notified put of {}", note.len))?;
        self.party.totals.moved(&self.party.totals.notes, note.len);
        match self.peer.recv(Wanted::Tag).within(LONG).wait().of("its answer")? {
            hmc_std::Message::Tag(tag) if tag == note.tag() => Ok(()),
            other => Err(End::Wrong(format!("{:x} was answered by {other:?}", note.tag()))),
        }
    }

    fn window(&mut self) -> Step {
        let slot = self.rng.index(SLOTS);
        if self.seen[slot].is_none() {
            self.find(slot)?;
        }
        let Some(mut seen) = self.seen[slot].take() else { return Ok(()) };
        let (offset, len) = range(self.rng, seen.window.len());
        let region = &self.regions[self.rng.index(2)];
        let mut span = region.take(0, len)?;
        let put = self.rng.below(3) != 0;
        let area = at(offset)..at(offset + len);
        let posted = if put {
            self.rng.fill(span.as_mut_slice());
            seen.copy[area.clone()].copy_from_slice(span.as_slice());
            seen.window.put(offset, span).start_blocking()
        } else {
            seen.window.get(offset, span).start_blocking()
        };
        let mut hangs = false;
        let ended = posted.and_then(|op| {
            hangs |= matches!(op.wait_for(LONG), Waited::Limit | Waited::Interrupted);
            op.wait()
        });
        if hangs {
            return Err(End::Wrong("a window's operation hangs".to_owned()));
        }
        match ended {
            Ok(Done { bytes: n, memory: span }) => {
                let totals = &self.party.totals;
                totals.moved(if put { &totals.puts } else { &totals.gets }, n);
                if !put {
                    same("a get from a window", offset, span.as_slice(), &seen.copy[area])?;
                }
                self.seen[slot] = Some(seen);
                Ok(())
            }
            // Its owner took it back. A later one will come.
            Err(e) if is_gone(e.kind()) => Ok(()),
            Err(e) => {
                let what = if put { "a put into" } else { "a get from" };
                Err(hmc_std::Error::from(e)).of(&format!("{what} a window, {len} bytes"))
            }
        }
    }

    /// Looks for the slot's next window.
    fn find(&mut self, slot: usize) -> Step {
        let from = self.labels[slot];
        for n in from..from + AHEAD {
            let label = n * SLOTS as u64 + slot as u64;
            match self.peer.window(label).within(std::time::Duration::ZERO).wait() {
                Ok(window) => {
                    // A window begins with zeros.
                    let copy = vec![0; at(window.len())];
                    self.seen[slot] = Some(Seen { window, copy });
                    self.labels[slot] = n + 1;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::DeadlineExceeded => {}
                Err(e) => return Err(e).of("looking for a window"),
            }
        }
        Ok(())
    }
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Revoked | ErrorKind::StaleEpoch | ErrorKind::NotFound)
}

fn same(what: &str, offset: u64, got: &[u8], want: &[u8]) -> Step {
    match got.iter().zip(want).position(|(g, w)| g != w) {
        None => Ok(()),
        Some(n) => Err(End::Wrong(format!(
            "{what} at {offset}, {} bytes: byte {n} is {:#04x} and not {:#04x}",
            got.len(),
            got[n],
            want[n]
        ))),
    }
}
