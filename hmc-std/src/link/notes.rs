//! Services of a link for its data plane: exchanges notes with the counterpart, and passes work to the shared
//! worker.

use hmc_core::limits::MAX_ENDPOINT_BYTES;
use hmc_core::region::WindowDesc;
use hmc_core::transport::Note;
use hmc_core::wire::advert::EndpointBlob;
use hmc_core::wire::message::ControlMessage;

use super::{DataState, Link};
use crate::base::error::Result;
use crate::transport::worker::Worker;

impl Link {
    /// The peer's data plane sent a note.
    ///
    /// # Errors
    /// The data plane cannot use it.
    pub(super) fn receive_note(&self, blob: &EndpointBlob<'_>) -> Result<()> {
        let note = Note { kind: blob.kind, bytes: blob.bytes };
        let received = self.data().plane().receive_note(note);
        // What that began has to be moved on.
        self.schedule();
        received.map_err(|e| e.with_peer(self.peer))
    }

    /// Sends a note to the peer's data plane. That of a window is sent by whoever exposed it, before the window is announced.
    ///
    /// # Errors
    /// `PeerDead`, `Full`.
    pub(crate) fn send_note(&self, note: Note<'_>) -> Result<()> {
        self.send(&ControlMessage::Endpoint(EndpointBlob { kind: note.kind, bytes: note.bytes }))
    }

    /// Sends what the peer's data plane needs to reach this end, if it needs anything.
    ///
    /// # Errors
    /// `PeerDead`, `Io`.
    pub(crate) fn send_wireup(&self) -> Result<()> {
        let mut space = [0; MAX_ENDPOINT_BYTES];
        let note = self.data().plane().greeting(&mut space)?;
        note.map_or(Ok(()), |note| self.send_note(note))
    }

    /// Sends what the data plane has for its counterpart.
    pub(super) fn send_notes(&self) {
        let mut space = [0; MAX_ENDPOINT_BYTES];
        loop {
            let mut data = self.data();
            let Some(Note { kind, bytes }) = data.plane().next_note(&mut space) else { return };
            let note = Note { kind, bytes };
            drop(data);
            if let Err(e) = self.send_note(note) {
                // The transport gives a note once: without it the peer would wait for ever.
                return self
                    .close(false, &format!("a note of its transport could not be sent: {e}"));
            }
        }
    }

    /// Another thread has ended something of this link: a leader that sleeps on the worker looks again. What the worker gave was
    /// taken, so its descriptor tells of nothing.
    pub(super) fn wake_leader(&self) {
        if let Some(worker) = self.worker() {
            worker.waker.wake();
        }
    }

    /// What was posted to the worker goes on without a waiter.
    pub(super) fn resume_worker(&self) {
        let worker = self.has_worker().then(|| self.worker_of_posted(&mut self.data())).flatten();
        if let Some(worker) = worker {
            worker.shared.resume();
        }
    }

    /// The worker, if it was handed something since it was resumed last.
    pub(super) fn worker_of_posted(&self, data: &mut DataState) -> Option<Worker> {
        let is_posted = self.has_worker() && data.plane().take_posted();
        if is_posted { data.plane().worker() } else { None }
    }

    /// Someone sleeps until an operation has ended: its completion wakes the session's thread.
    pub(crate) fn wake_on_completion(&self) {
        if let Some(worker) = self.worker() {
            worker.shared.wake_on_completion();
        }
    }

    /// A caller sleeps while another one leads, who may wait for something else: the session's thread is woken by the completion of what
    /// was posted.
    pub(super) fn leave_to_worker(&self) {
        self.resume_worker();
        self.wake_on_completion();
    }

    /// Revokes a window that could not be announced to the peer: no access was made or will be.
    pub(crate) fn revoke_unannounced(&self, region: &WindowDesc) {
        let mut data = self.data();
        let _ = data.plane().begin_revoke(region.window, region.epoch);
        data.plane().free_window(region.window, region.epoch);
    }

    /// Sends that nothing of ours uses windows that the peer took back any more.
    pub(super) fn send_releases(&self) {
        loop {
            let Some((window, epoch)) = self.data().plane().next_release() else { return };
            // If the link is over, its end is the fence.
            let mut ctrl = self.ctrl();
            ctrl.send_release(window, epoch, self.clock.now());
            self.update_ctrl_interest(&mut ctrl);
        }
    }

    /// The worker that a waiter of this link drives, and what wakes it.
    pub(super) fn worker(&self) -> Option<Worker> {
        if self.has_worker() { self.data().plane().worker() } else { None }
    }
}
