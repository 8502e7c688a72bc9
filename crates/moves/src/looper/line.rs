//! Where a region is, and the way to one that is elsewhere.

use remote_memory::tcp::{ConnectError, Requester, RequesterSettings};
use remote_memory::{RegionDescriptor, Remote};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a region is.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a process of this machine, which hands it out over this socket.
    Here(PathBuf),
    /// Elsewhere: with an owner who serves it under this label.
    Elsewhere {
        /// The region's label.
        label: String,
        /// The way to its owner.
        dial: Arc<dyn Dial>,
    },
}

/// How to connect to an owner elsewhere, by whichever transport.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Begins to connect. Does not block.
    ///
    /// # Errors
    /// It can't even be begun; in words.
    fn dial(&self) -> Result<Box<dyn Line>, String>;
}

/// A connection to an owner elsewhere.
pub trait Line: Remote {
    /// The regions that the owner serves, once the connection is up.
    fn served(&self) -> &[RegionDescriptor];

    /// Why the connection is broken, in words.
    fn why_broken(&self) -> Option<String>;
}

impl Line for Requester {
    fn served(&self) -> &[RegionDescriptor] {
        Requester::served(self)
    }

    fn why_broken(&self) -> Option<String> {
        Requester::why_broken(self).map(ConnectError::to_string)
    }
}

impl Dial for RequesterSettings {
    fn dial(&self) -> Result<Box<dyn Line>, String> {
        match Requester::begin(self.clone()) {
            Ok(requester) => Ok(Box::new(requester)),
            Err(error) => Err(error.to_string()),
        }
    }
}
