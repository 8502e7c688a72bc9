//! Who may speak: holders of one key, or anybody on the loopback device where that is set.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::hint;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::error::KeyError;

/// Length of a key in bytes, as Noise has it.
pub const KEY_BYTES: usize = 32;

/// Length of the longest key file: the key's digits and the end of a line.
const TEXT_BYTES_MAX: usize = 2 * KEY_BYTES + 1;

/// Digits of keys in text.
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Permission bits that a key file must not have: any of the group and of others.
const MODE_FORBIDDEN: u32 = 0o077;

/// The secret that owners and peers of a pool share: who holds it may read and write every
/// region, and can pose as any owner or peer. It is never printed.
#[derive(Clone)]
pub struct PreSharedKey([u8; KEY_BYTES]);

impl PreSharedKey {
    /// Takes a key from elsewhere. It must come from a source of randomness, not from a phrase.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads a file that holds exactly 32 bytes, or 64 hexadecimal digits in one line, and belongs
    /// to this user or root, mode 600 or less.
    ///
    /// # Errors
    /// The file is not there, not ours, readable by others, or holds no key.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        let system = |cause| KeyError::System { path: path.to_owned(), cause };
        // A pipe would block the open; links are followed, for the file itself is checked.
        let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(flags).open(path).map_err(system)?;
        let metadata = file.metadata().map_err(system)?;
        if !metadata.is_file() {
            return Err(KeyError::NotAFile { path: path.to_owned() });
        }
        let mode = metadata.mode() & 0o777;
        if mode & MODE_FORBIDDEN != 0 {
            return Err(KeyError::Mode { path: path.to_owned(), mode });
        }
        let uid = metadata.uid();
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err(KeyError::Owner { path: path.to_owned(), uid });
        }
        let mut key = Self([0; KEY_BYTES]);
        key.fill_from(file, path)?;
        Ok(key)
    }

    /// Makes a new file of mode 600 with a random key. An existing file stays as it is.
    ///
    /// # Errors
    /// The file exists, or could not be written; then it may be left behind, shorter.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        let system = |cause| KeyError::System { path: path.to_owned(), cause };
        let random = |error: getrandom::Error| system(std::io::Error::other(error.to_string()));
        let key = Self::random().map_err(random)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(system)?;
        file.write_all(&key.0).map_err(system)?;
        file.sync_all().map_err(system)?;
        Ok(key)
    }

    fn fill_from(&mut self, mut file: File, path: &Path) -> Result<(), KeyError> {
        let mut text = Zeroed([0; TEXT_BYTES_MAX + 1]);
        let mut length = 0;
        // Ends at the end of the file, or when it is longer than any key.
        while length < text.0.len() {
            match file.read(&mut text.0[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(KeyError::System { path: path.to_owned(), cause }),
            }
        }
        let given = &text.0[..length];
        let is_key = match given.strip_suffix(b"\n").unwrap_or(given) {
            digits if digits.len() == 2 * KEY_BYTES => self.fill_from_digits(digits),
            _ if length == KEY_BYTES => {
                self.0.copy_from_slice(given);
                true
            }
            _ => false,
        };
        if !is_key {
            return Err(KeyError::Length { path: path.to_owned() });
        }
        if self.0 == [0; KEY_BYTES] {
            return Err(KeyError::Zero { path: path.to_owned() });
        }
        Ok(())
    }

    fn fill_from_digits(&mut self, digits: &[u8]) -> bool {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (pairs, _) = digits.as_chunks::<2>();
        for (byte, [high, low]) in self.0.iter_mut().zip(pairs) {
            let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return false };
            *byte = (high << 4 | low) as u8;
        }
        true
    }

    /// Draws a new key.
    ///
    /// # Errors
    /// The system has no random numbers (a kernel without `getrandom`).
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut key = Self([0; KEY_BYTES]);
        getrandom::fill(&mut key.0)?;
        Ok(key)
    }

    /// The key as a line for a key file. Whoever sees it holds the key.
    pub fn to_line(&self) -> String {
        let mut line = String::with_capacity(2 * KEY_BYTES + 1);
        for byte in self.0 {
            line.extend([byte >> 4, byte & 15].map(|half| char::from(DIGITS[usize::from(half)])));
        }
        line.push('\n');
        line
    }

    /// The bytes, for the cipher only.
    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

/// What was read of a file, gone once it is not needed any more.
struct Zeroed([u8; TEXT_BYTES_MAX + 1]);

impl Drop for Zeroed {
    fn drop(&mut self) {
        self.0.fill(0);
        hint::black_box(&mut self.0);
    }
}

impl Drop for PreSharedKey {
    fn drop(&mut self) {
        self.0 = [0; KEY_BYTES];
        // Keeps the compiler from leaving the line above out.
        hint::black_box(&mut self.0);
    }
}

impl fmt::Debug for PreSharedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PreSharedKey(not shown)")
    }
}

/// How frames are protected. Both sides must be set alike.
#[derive(Debug, Clone)]
pub enum Security {
    /// Encrypted and authenticated by Noise, with the key of the pool.
    Noise(PreSharedKey),
    /// As they are, and only on the loopback device: everybody on the machine can connect.
    PlainLoopback,
}

impl Security {
    /// True if frames may go between this machine and the address.
    pub(super) fn allows(&self, address: SocketAddr) -> bool {
        matches!(self, Self::Noise(_)) || address.ip().to_canonical().is_loopback()
    }

    /// Its number in a preamble.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::PlainLoopback => 0,
            Self::Noise(_) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(bytes: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_key_is_made_once_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.key");
        let made = PreSharedKey::create(&path).unwrap();
        assert_eq!(PreSharedKey::read(&path).unwrap().0, made.0);
        assert!(PreSharedKey::create(&path).is_err(), "an existing key was replaced");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_a_private_file_of_a_key_s_length_is_read() {
        assert!(PreSharedKey::read(file(&[7; 32], 0o400).path()).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o602, 0o666, 0o610] {
            let file = file(&[7; 32], mode);
            let found = PreSharedKey::read(file.path());
            assert!(matches!(found, Err(KeyError::Mode { .. })), "{mode:o}: {found:?}");
        }
        let line = PreSharedKey::from_bytes([0x5a; 32]).to_line();
        for text in [line.as_str(), line.trim_end(), &line.to_uppercase()] {
            let read = PreSharedKey::read(file(text.as_bytes(), 0o600).path()).unwrap();
            assert_eq!(read.0, [0x5a; 32]);
        }
        for text in [format!("{line}\n"), line.replace('5', "g"), format!(" {line}")] {
            let found = PreSharedKey::read(file(text.as_bytes(), 0o600).path());
            assert!(matches!(found, Err(KeyError::Length { .. })), "{text:?}: {found:?}");
        }
        for length in [0, 31, 33, 64] {
            let file = file(&vec![7; length], 0o600);
            let found = PreSharedKey::read(file.path());
            assert!(matches!(found, Err(KeyError::Length { .. })), "{length}: {found:?}");
        }
        let zero = PreSharedKey::read(file(&[0; 32], 0o600).path());
        assert!(matches!(zero, Err(KeyError::Zero { .. })), "{zero:?}");
        let directory = PreSharedKey::read(std::env::temp_dir());
        assert!(matches!(directory, Err(KeyError::NotAFile { .. })), "{directory:?}");
        assert!(matches!(PreSharedKey::read("no such file"), Err(KeyError::System { .. })));
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = PreSharedKey::from_bytes([0xab; 32]);
        for shown in [format!("{key:?}"), format!("{:#?}", Security::Noise(key.clone()))] {
            assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
        }
    }

    #[test]
    fn plain_text_stays_on_the_machine() {
        let key = PreSharedKey::from_bytes([1; 32]);
        for (address, allowed) in [
            ("127.0.0.1:1", true),
            ("127.8.8.8:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.168.0.1:1", false),
            ("[::ffff:10.0.0.1]:1", false),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(Security::PlainLoopback.allows(address), allowed, "{address}");
            assert!(Security::Noise(key.clone()).allows(address));
        }
    }
}
