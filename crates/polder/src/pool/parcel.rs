//! Words and open files from one process to the next, over a socket that becomes its standard
//! input: to a child that is started, and to the program that takes this one's place.
//!
//! ```text
//! sender:    socket pair -> a memory file with the words, then the files, 200 to a message, the
//!            last message marked -> the other end becomes standard input -> spawn or exec
//! receiver:  messages until the marked one; the first file holds the words
//! ```
//!
//! The kernel keeps what is under way in the socket, so sender and receiver need not live at the
//! same time; no number of a descriptor is ever guessed.

use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Files in one message: the kernel takes 253.
const FILES_PER_MESSAGE: usize = 200;
/// Files in a parcel: the listening sockets of 64 edges, and a region for each of some thousand
/// nodes; more than a process may have open by default.
const FILES_MAX: usize = 100_000;
/// Bytes of words: the state of the largest pool at some hundred bytes for each process.
const WORDS_MAX_BYTES: u64 = 64 << 20;

const MORE: u8 = b'+';
const LAST: u8 = b'.';

/// Words and files.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) words: String,
    pub(super) files: Vec<OwnedFd>,
}

/// Packs it up; what comes back is the receiver's standard input. Does not block.
pub(super) fn pack(words: &str, files: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let memory = File::from(rustix::fs::memfd_create("polder:parcel", MemfdFlags::CLOEXEC)?);
    (&memory).write_all(words.as_bytes())?;
    rustix::fs::seek(&memory, SeekFrom::Start(0))?;
    let all: Vec<BorrowedFd<'_>> =
        std::iter::once(memory.as_fd()).chain(files.iter().copied()).collect();
    let messages = all.len().div_ceil(FILES_PER_MESSAGE);
    for (number, files) in all.chunks(FILES_PER_MESSAGE).enumerate() {
        let mark = if number + 1 == messages { LAST } else { MORE };
        send(&near, mark, files)?;
    }
    Ok(far)
}

fn send(socket: &OwnedFd, mark: u8, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_PER_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files for one message"));
    }
    let bytes = [mark];
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes what was packed. Does not block: all of it lies in the socket already.
pub(super) fn unpack(socket: BorrowedFd<'_>) -> io::Result<Parcel> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let mut files = Vec::new();
    while receive(socket, &mut files)? != LAST {
        if files.len() > FILES_MAX {
            return Err(invalid("more files than any pool has"));
        }
    }
    if files.is_empty() {
        return Err(invalid("it holds no words"));
    }
    let mut words = String::new();
    File::from(files.remove(0)).take(WORDS_MAX_BYTES).read_to_string(&mut words)?;
    Ok(Parcel { words, files })
}

fn receive(socket: BorrowedFd<'_>, files: &mut Vec<OwnedFd>) -> io::Result<u8> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_PER_MESSAGE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut mark = [0_u8; 1];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut mark)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            files.extend(sent);
        }
    }
    if got.bytes != 1 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the parcel is not whole"));
    }
    Ok(mark[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_files_arrive_whole_and_in_order_though_the_sender_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<File> = (0..450)
            .map(|number: u32| {
                let path = folder.path().join(number.to_string());
                std::fs::write(&path, number.to_string()).unwrap();
                File::open(path).unwrap()
            })
            .collect();
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let words = "x".repeat(1_000_000);
        let socket = pack(&words, &borrowed).unwrap();
        drop(files);
        let parcel = unpack(socket.as_fd()).unwrap();
        assert_eq!((parcel.words.len(), parcel.files.len()), (words.len(), 450));
        for (number, file) in parcel.files.into_iter().enumerate() {
            let mut text = String::new();
            File::from(file).read_to_string(&mut text).unwrap();
            assert_eq!(text, number.to_string());
        }
        // There is nothing more.
        assert_eq!(unpack(socket.as_fd()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_parcel_is_refused() {
        let nothing = File::open("/dev/null").unwrap();
        assert!(unpack(nothing.as_fd()).is_err());
    }
}
