//! The sockets that clients reach. The parent makes and keeps them, so that an edge that dies, or
//! makes room for another, drops nobody who waits to be accepted.
//!
//! Each edge has a share: one socket for each of its threads and addresses, so that the kernel
//! spreads connections. Edges with one address share its sockets out in their order. A socket that
//! was handed to this program from outside ([`crate::handed`]) is there once, for all.
//!
//! A group never shrinks while its address is wanted: whoever waits at a socket would be dropped
//! with it. What is more than the threads need goes to the last edge of the address.

use super::options::threads;
use crate::settings::Settings;
use edge::{Listening, StartError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};

/// What names a group of sockets: the address, and where that takes any free port, the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key {
    place: Option<usize>,
    address: SocketAddr,
}

/// The part of one group that an edge gets: sockets `from` to before `until`; none for all that
/// follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    key: Key,
    from: usize,
    until: Option<usize>,
}

#[derive(Debug)]
struct Group {
    sockets: Vec<TcpListener>,
    from_outside: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    groups: BTreeMap<Key, Group>,
}

/// A group as it is told to the program that takes this one's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupState {
    key: Key,
    count: usize,
    from_outside: bool,
}

fn key(place: usize, address: SocketAddr) -> Key {
    Key { place: (address.port() == 0).then_some(place), address }
}

/// Who wants which groups, in the order of the edges: threads by place.
fn wanted(settings: &Settings) -> BTreeMap<Key, Vec<(usize, usize)>> {
    let mut wanted: BTreeMap<Key, Vec<(usize, usize)>> = BTreeMap::new();
    for (place, edge) in settings.edges.iter().enumerate() {
        for address in edge.addresses() {
            wanted.entry(key(place, address)).or_default().push((place, threads(edge)));
        }
    }
    wanted
}

impl Sockets {
    /// Sockets that somebody made for this program.
    pub(super) fn from_outside(sockets: Vec<TcpListener>) -> io::Result<Self> {
        let mut groups = BTreeMap::new();
        for socket in sockets {
            let key = Key { place: None, address: socket.local_addr()? };
            groups
                .entry(key)
                .or_insert_with(|| Group { sockets: Vec::new(), from_outside: true })
                .sockets
                .push(socket);
        }
        Ok(Self { groups })
    }

    /// Makes what these settings need and is not there. An error names the address; then nothing
    /// has changed. What is made has to be served soon: clients may wait there at once.
    pub(super) fn prepare(&mut self, settings: &Settings) -> Result<(), StartError> {
        let mut made = Vec::new();
        for (key, edges) in wanted(settings) {
            let needed = edges.iter().map(|(_, threads)| threads).sum();
            let sockets = match self.groups.get(&key) {
                None => Listening::open(key.address, needed, false)?.sockets,
                Some(group) if !group.from_outside && group.sockets.len() < needed => {
                    let failed = |source| StartError::Listen { address: key.address, source };
                    let bound = group.sockets[0].local_addr().map_err(failed)?;
                    Listening::open(bound, needed - group.sockets.len(), true)?.sockets
                }
                Some(_) => continue,
            };
            made.push((key, sockets));
        }
        for (key, sockets) in made {
            let none = || Group { sockets: Vec::new(), from_outside: false };
            self.groups.entry(key).or_insert_with(none).sockets.extend(sockets);
        }
        Ok(())
    }

    /// Addresses that these settings do not name.
    pub(super) fn unused(&self, settings: &Settings) -> Vec<SocketAddr> {
        let wanted = wanted(settings);
        let unused = self.groups.keys().filter(|key| !wanted.contains_key(key));
        unused.map(|key| key.address).collect()
    }

    /// Closes what these settings do not need; who waits there is served by edges that have it.
    pub(super) fn retain(&mut self, settings: &Settings) {
        let wanted = wanted(settings);
        self.groups.retain(|key, _| wanted.contains_key(key));
    }

    /// What the edge at a place gets.
    pub(super) fn shares(&self, settings: &Settings, place: usize) -> Vec<Share> {
        let of_key = |(key, edges): (Key, Vec<(usize, usize)>)| {
            let own = edges.iter().position(|(edge, _)| *edge == place)?;
            if self.groups.get(&key).is_some_and(|group| group.from_outside) {
                return Some(Share { key, from: 0, until: None });
            }
            let from = edges[..own].iter().map(|(_, threads)| threads).sum();
            let until = (own + 1 < edges.len()).then(|| from + edges[own].1);
            Some(Share { key, from, until })
        };
        wanted(settings).into_iter().filter_map(of_key).collect()
    }

    /// The sockets of some shares, once more.
    pub(super) fn copies(&self, shares: &[Share]) -> io::Result<Vec<Listening>> {
        let mut copies = Vec::new();
        for share in shares {
            let none = || io::Error::other(format!("no socket listens on {}", share.key.address));
            let group = self.groups.get(&share.key).ok_or_else(none)?;
            let until = share.until.unwrap_or(group.sockets.len());
            let sockets = group.sockets.get(share.from..until).ok_or_else(none)?;
            let sockets = sockets.iter().map(TcpListener::try_clone).collect::<Result<_, _>>()?;
            copies.push(Listening { wanted: share.key.address, sockets });
        }
        Ok(copies)
    }

    /// All of them for the program that takes this one's place: words, and files in their order.
    pub(super) fn state(&self) -> (Vec<GroupState>, Vec<BorrowedFd<'_>>) {
        let state = |(key, group): (&Key, &Group)| GroupState {
            key: *key,
            count: group.sockets.len(),
            from_outside: group.from_outside,
        };
        let files = self.groups.values().flat_map(|group| &group.sockets).map(|one| one.as_fd());
        (self.groups.iter().map(state).collect(), files.collect())
    }

    /// The same on the other side; takes its files from the front.
    pub(super) fn resumed(
        states: Vec<GroupState>,
        files: &mut impl Iterator<Item = std::os::fd::OwnedFd>,
    ) -> Self {
        let mut groups = BTreeMap::new();
        for GroupState { key, count, from_outside } in states {
            let sockets = files.by_ref().take(count).map(TcpListener::from).collect();
            groups.insert(key, Group { sockets, from_outside });
        }
        Self { groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;

    fn settings(edges: &[(&str, u16)]) -> Settings {
        let edge = |(listen, threads): &(&str, u16)| {
            format!("[[edges]]\nlisten = [\"{listen}\"]\nthreads = {threads}\n")
        };
        let text: String = edges.iter().map(edge).collect();
        let text = text
            + "[[sites]]\nname = 'a'\nhosts = ['a']\n\
               [[nodes]]\nname = 'n'\nservers = { a = '127.0.0.1:9' }\n";
        settings::parse("x", &text, &[]).unwrap_or_else(|e| panic!("{e}")).settings
    }

    fn counts(sockets: &Sockets, settings: &Settings, place: usize) -> Vec<usize> {
        let copies = sockets.copies(&sockets.shares(settings, place)).unwrap();
        copies.iter().map(|one| one.sockets.len()).collect()
    }

    #[test]
    fn edges_share_an_address_and_no_socket_is_left_out() {
        let free = Listening::open("127.0.0.1:0".parse().unwrap(), 1, false).unwrap();
        let address = free.address().unwrap().to_string();
        drop(free);
        let three = settings(&[(&address, 2), ("127.0.0.1:0", 1), (&address, 1)]);
        let mut sockets = Sockets::default();
        sockets.prepare(&three).unwrap();
        assert_eq!([0, 1, 2].map(|place| counts(&sockets, &three, place)), [[2], [1], [1]]);
        let kept = sockets.shares(&three, 0);
        // The last edge of an address takes what the others leave.
        let fewer = settings(&[(&address, 1), ("127.0.0.1:0", 1), (&address, 1)]);
        sockets.prepare(&fewer).unwrap();
        assert_eq!([0, 2].map(|place| counts(&sockets, &fewer, place)), [[1], [2]]);
        assert_ne!(sockets.shares(&fewer, 0), kept);
        let more = settings(&[(&address, 2), ("127.0.0.1:0", 1), (&address, 4)]);
        sockets.prepare(&more).unwrap();
        assert_eq!([0, 2].map(|place| counts(&sockets, &more, place)), [[2], [4]]);
        // What nobody wants is closed, and only that.
        let other = settings(&[("127.0.0.1:0", 1)]);
        let bound = sockets.copies(&sockets.shares(&more, 1)).unwrap()[0].address().unwrap();
        assert!(Listening::open(bound, 1, false).is_err());
        sockets.retain(&other);
        assert!(Listening::open(address.parse().unwrap(), 1, false).is_ok());
        assert!(Listening::open(bound, 1, false).is_ok(), "another edge's free port");
    }

    #[test]
    fn a_socket_from_outside_is_for_all_and_the_state_goes_over() {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let both = settings(&[(&address.to_string(), 3), (&address.to_string(), 2)]);
        let mut sockets = Sockets::from_outside(vec![outside]).unwrap();
        sockets.prepare(&both).unwrap();
        assert_eq!([0, 1].map(|place| counts(&sockets, &both, place)), [[1], [1]]);
        let (state, files) = sockets.state();
        let files: Vec<_> = files.iter().map(|file| file.try_clone_to_owned().unwrap()).collect();
        let text = serde_json::to_string(&state).unwrap();
        drop(sockets);
        let state = serde_json::from_str(&text).unwrap();
        let resumed = Sockets::resumed(state, &mut files.into_iter());
        let copies = resumed.copies(&resumed.shares(&both, 1)).unwrap();
        assert_eq!(copies[0].address().unwrap(), address);
    }
}
