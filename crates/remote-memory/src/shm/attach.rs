//! The peer's side: get the file, check it, map it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use super::error::ShmError;
use super::owned::{map, sealed_length_bytes};
use super::socket::{address_of, new_socket, peer_uid, uid_is_trusted};
use crate::frame::{self, FRAME_BYTES};
use crate::mapped::Mapped;
use crate::region::{AtomicPath, RegionDescriptor};
use crate::sys::Mapping;

/// Pause before connecting again to an owner whose backlog is full; it empties within one turn
/// of the owner's thread.
const CONNECT_PAUSE: Duration = Duration::from_millis(1);

/// A region of another process, mapped into this one. It stays readable and writable after the
/// owner's death, when nobody reads what is written there.
pub struct MappedRegion {
    descriptor: RegionDescriptor,
    mapping: Mapping,
}

impl Mapped for MappedRegion {
    fn descriptor(&self) -> &RegionDescriptor {
        &self.descriptor
    }

    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }
}

/// A connection to the owner of a region, with our mapping of it.
pub struct Attachment {
    region: Arc<MappedRegion>,
    socket: OwnedFd,
    path: PathBuf,
}

impl Attachment {
    /// Our mapping; it may outlive the attachment.
    pub fn region(&self) -> Arc<MappedRegion> {
        Arc::clone(&self.region)
    }

    /// Where the owner's socket lies, or lay.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True while the owner's process (or a copy of it) holds its end of the connection, even
    /// while it is stopped. Does not block; one system call, about 0.5 us: call it once per look,
    /// not per request.
    pub fn owner_alive(&self) -> bool {
        let mut byte = [0_u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.socket, &mut byte, flags) {
            Ok((_, received_bytes)) => received_bytes > 0,
            Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }
}

/// Attaches to the region that is served at `path`. **Blocks** at most `deadline`, normally some
/// tens of microseconds; an absent owner is reported at once, not waited for.
///
/// # Errors
/// Nobody serves there, the owner refuses us or does not answer in time, what it sends is no
/// frame or no safe file, or the owner is of another user.
pub fn attach(path: impl AsRef<Path>, deadline: Duration) -> Result<Attachment, ShmError> {
    let path = path.as_ref();
    let handshake = Handshake { path, deadline, ends: Instant::now().checked_add(deadline) };
    let socket = handshake.connect()?;
    let uid = peer_uid(&socket)?;
    if !uid_is_trusted(uid) {
        return Err(ShmError::OtherUser { path: path.to_owned(), uid });
    }
    let (frame, file) = handshake.receive(&socket)?;
    if frame.is_empty() {
        // The owner ended between accepting and answering.
        return Err(ShmError::no_owner(path));
    }
    let announcement = frame::decode(&frame)
        .map_err(|source| ShmError::Frame { path: path.to_owned(), source })?;
    let descriptor =
        announcement.map_err(|reason| ShmError::Refused { path: path.to_owned(), reason })?;
    let file = file.ok_or_else(|| ShmError::NoFile { path: path.to_owned() })?;
    let region = Arc::new(open(descriptor, &file)?);
    Ok(Attachment { region, socket, path: path.to_owned() })
}

/// Checks that the file is what the descriptor says and maps it.
fn open(descriptor: RegionDescriptor, file: &OwnedFd) -> Result<MappedRegion, ShmError> {
    if descriptor.atomic_path != AtomicPath::Cpu {
        return Err(ShmError::OtherAtomicPath);
    }
    let found_bytes = sealed_length_bytes(file.as_fd())?;
    let stated_bytes = descriptor.length_bytes;
    if found_bytes != stated_bytes {
        return Err(ShmError::SizeDiffers { stated_bytes, found_bytes });
    }
    let mapping = map(file.as_fd(), found_bytes)?;
    Ok(MappedRegion { descriptor, mapping })
}

/// Connecting and receiving under one deadline.
struct Handshake<'path> {
    path: &'path Path,
    deadline: Duration,
    /// Nothing if the deadline lies beyond what the clock can hold.
    ends: Option<Instant>,
}

impl Handshake<'_> {
    fn connect(&self) -> Result<OwnedFd, ShmError> {
        let address = address_of(self.path)?;
        let socket = new_socket()?;
        // Ends with the deadline at the latest.
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => return Ok(socket),
                Err(Errno::NOENT | Errno::CONNREFUSED) => {
                    return Err(ShmError::no_owner(self.path));
                }
                Err(Errno::AGAIN) => std::thread::sleep(CONNECT_PAUSE.min(self.left()?)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ShmError::system("connect to the owner")(errno)),
            }
        }
    }

    /// The time left.
    fn left(&self) -> Result<Duration, ShmError> {
        let Some(ends) = self.ends else { return Ok(self.deadline) };
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ShmError::Deadline { path: self.path.to_owned(), deadline: self.deadline });
        }
        Ok(left)
    }

    /// Receives until a frame is complete or the connection ends, and the file if one came.
    fn receive(&self, socket: &OwnedFd) -> Result<(Vec<u8>, Option<OwnedFd>), ShmError> {
        let mut frame = [0_u8; FRAME_BYTES];
        let mut received_bytes = 0;
        let mut file = None;
        // Each turn waits for bytes within the deadline and takes at least one, or ends.
        while received_bytes < FRAME_BYTES {
            self.wait_readable(socket)?;
            match receive_some(socket, &mut frame[received_bytes..]) {
                Ok((0, _)) => break,
                Ok((bytes, received_file)) => {
                    received_bytes += bytes;
                    file = file.or(received_file);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The owner closed with unread bytes of ours, or died.
                Err(Errno::CONNRESET) => break,
                Err(errno) => return Err(ShmError::system("receive the region")(errno)),
            }
        }
        Ok((frame[..received_bytes].to_vec(), file))
    }

    fn wait_readable(&self, socket: &OwnedFd) -> Result<(), ShmError> {
        let timeout = crate::time::timespec(self.left()?);
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(ShmError::system("wait for the owner")(errno)),
        }
    }
}

fn receive_some(socket: &OwnedFd, buffer: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    // Room for one file: the kernel closes any others.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    Ok((received.bytes, file))
}
