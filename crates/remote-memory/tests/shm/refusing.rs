//! Owners that lie: frames cut short, files that could be cut, silence.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use remote_memory::frame::{FRAME_BYTES, FrameError, Refusal, encode};
use remote_memory::shm::{OwnedRegion, ShmError, attach};
use remote_memory::{AtomicPath, Mapped, RegionDescriptor};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::support::{DEADLINE, private_directory};

fn send(stream: &UnixStream, bytes: &[u8], file: Option<BorrowedFd<'_>>) {
    let files: Vec<_> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    }
    let bytes = [IoSlice::new(bytes)];
    rustix::net::sendmsg(stream, &bytes, &mut control, SendFlags::empty()).unwrap();
}

/// What a peer makes of an owner that does `act` and hangs up.
fn error_from(act: impl FnOnce(UnixStream) + Send) -> ShmError {
    error_within(DEADLINE, act)
}

fn error_within(deadline: Duration, act: impl FnOnce(UnixStream) + Send) -> ShmError {
    let directory = private_directory();
    let path: &Path = &directory.path().join("liar.sock");
    let listener = UnixListener::bind(path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || act(listener.accept().unwrap().0));
        match attach(path, deadline) {
            Ok(_) => panic!("the liar was believed"),
            Err(error) => error,
        }
    })
}

fn honest() -> (OwnedRegion, RegionDescriptor) {
    let region = OwnedRegion::create("liar", 4096).unwrap();
    let descriptor = region.descriptor().clone();
    (region, descriptor)
}

/// A memory file of 4096 bytes with these seals.
fn memory_file(seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("liar", flags).unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// What a peer makes of an honest frame with this file.
fn error_of_file(file: BorrowedFd<'_>) -> ShmError {
    let (_, descriptor) = honest();
    let file = file.try_clone_to_owned().unwrap();
    error_from(move |stream| send(&stream, &encode(&Ok(descriptor)), Some(file.as_fd())))
}

#[test]
fn a_frame_cut_short_is_named_so() {
    let (region, descriptor) = honest();
    let frame = encode(&Ok(descriptor));
    for length in [1, 64, FRAME_BYTES - 1] {
        let error = error_from(|stream| send(&stream, &frame[..length], Some(region.as_fd())));
        let ShmError::Frame { source, .. } = &error else { panic!("{error}") };
        assert_eq!(*source, FrameError::Truncated { found_bytes: length });
    }
    // Without a single byte there is no frame to speak of: the owner has just ended.
    let error = error_from(drop);
    assert!(matches!(error, ShmError::NoOwner { .. }), "{error}");
}

#[test]
fn a_frame_in_pieces_is_put_together() {
    let directory = private_directory();
    let path = directory.path().join("slow.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (region, descriptor) = honest();
    region.write(0, 5).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().unwrap().0;
            let frame = encode(&Ok(descriptor));
            send(&stream, &frame[..50], Some(region.as_fd()));
            std::thread::sleep(Duration::from_millis(20));
            send(&stream, &frame[50..], None);
        });
        assert_eq!(attach(&path, DEADLINE).unwrap().region().read(0), Ok(5));
    });
}

#[test]
fn another_protocol_is_not_taken_for_ours() {
    let error = error_from(|stream| send(&stream, &[b'x'; FRAME_BYTES], None));
    let ShmError::Frame { source: FrameError::Magic { found }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(found, *b"xxxxxxxx");
}

#[test]
fn silence_ends_with_the_deadline() {
    let error = error_within(Duration::from_millis(50), |stream| {
        // Hangs up only after the deadline.
        std::thread::sleep(Duration::from_millis(300));
        drop(stream);
    });
    assert!(matches!(error, ShmError::Deadline { .. }), "{error}");
}

#[test]
fn refusals_come_through() {
    let error = error_from(|stream| send(&stream, &encode(&Err(Refusal::OtherUser)), None));
    let ShmError::Refused { reason: Refusal::OtherUser, .. } = error else { panic!("{error}") };
}

#[test]
fn a_frame_without_a_file_is_refused() {
    let (_, descriptor) = honest();
    let error = error_from(|stream| send(&stream, &encode(&Ok(descriptor)), None));
    assert!(matches!(error, ShmError::NoFile { .. }), "{error}");
}

#[test]
fn a_file_that_can_be_cut_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::GROW | SealFlags::SEAL] {
        let error = error_of_file(memory_file(seals).as_fd());
        assert!(matches!(error, ShmError::NotSealed), "{error}");
    }
    // The counterpart: with the seal the same file passes as far as its mapping.
    let sealed = memory_file(SealFlags::SHRINK);
    assert!(OwnedRegion::adopt(sealed).is_ok());
    assert!(OwnedRegion::adopt(memory_file(SealFlags::empty())).is_err());
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let error = error_of_file(memory_file(SealFlags::SHRINK | SealFlags::WRITE).as_fd());
    assert!(matches!(error, ShmError::System { .. }), "{error}");
}

#[test]
fn a_file_of_another_size_is_refused() {
    let (region, descriptor) = honest();
    for stated_bytes in [8, 4088, 8192, 1 << 30] {
        let lie = RegionDescriptor { length_bytes: stated_bytes, ..descriptor.clone() };
        let error = error_from(|stream| send(&stream, &encode(&Ok(lie)), Some(region.as_fd())));
        let ShmError::SizeDiffers { stated_bytes: stated, found_bytes: 4096 } = error else {
            panic!("{error}")
        };
        assert_eq!(stated, stated_bytes);
    }
}

#[test]
fn files_that_are_no_memory_are_refused() {
    let directory = private_directory();
    let disk = std::fs::File::create(directory.path().join("file")).unwrap();
    disk.set_len(4096).unwrap();
    let error = error_of_file(disk.as_fd());
    // On a tmpfs it is memory, but never sealed.
    assert!(matches!(error, ShmError::NotSharedMemory | ShmError::NotSealed), "{error}");
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    let error = error_of_file(pipe.as_fd());
    assert!(matches!(error, ShmError::NotSharedMemory), "{error}");
}

#[test]
fn a_region_of_an_adapter_is_not_mapped() {
    let (region, descriptor) = honest();
    let other = RegionDescriptor { atomic_path: AtomicPath::Adapter(1), ..descriptor };
    let error = error_from(|stream| send(&stream, &encode(&Ok(other)), Some(region.as_fd())));
    assert!(matches!(error, ShmError::OtherAtomicPath), "{error}");
}
