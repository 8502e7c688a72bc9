//! From a request's authority to its site.
//!
//! On the path of every request: one or a few look-ups in a hash map, nothing is allocated.

use crate::options::{OptionsError, SiteOptions};
use pool_model::SiteId;
use std::collections::HashMap;

/// The longest host name (RFC 1035, 2.3.4) with its brackets, if it has some.
const HOST_BYTES_MAX: usize = 255;

/// The place of a site in the options of its edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SiteSlot(pub(crate) usize);

/// Which host belongs to which site.
#[derive(Debug)]
pub(crate) struct SiteMap {
    exact: HashMap<Box<[u8]>, SiteSlot>,
    /// By what follows `*.`.
    subtree: HashMap<Box<[u8]>, SiteSlot>,
    default: Option<SiteSlot>,
}

impl SiteMap {
    pub(crate) fn new(
        sites: &[SiteOptions],
        default: Option<SiteId>,
    ) -> Result<Self, OptionsError> {
        let mut map = Self { exact: HashMap::new(), subtree: HashMap::new(), default: None };
        for (index, site) in sites.iter().enumerate() {
            if sites[..index].iter().any(|other| other.id == site.id) {
                return Err(OptionsError::SiteTwice(site.id));
            }
            for host in &site.hosts {
                map.insert(host, SiteSlot(index), sites)?;
            }
        }
        if let Some(id) = default {
            let place = sites.iter().position(|site| site.id == id);
            map.default = Some(SiteSlot(place.ok_or(OptionsError::UnknownDefault(id))?));
        }
        Ok(map)
    }

    fn insert(
        &mut self,
        host: &str,
        slot: SiteSlot,
        sites: &[SiteOptions],
    ) -> Result<(), OptionsError> {
        let site = &sites[slot.0].name;
        let lower = host.to_ascii_lowercase();
        let (table, name) = match lower.strip_prefix("*.") {
            Some(rest) => (&mut self.subtree, rest),
            None => (&mut self.exact, lower.as_str()),
        };
        if host_of(name.as_bytes()) != Some(name.as_bytes()) {
            return Err(OptionsError::BadHost { site: site.clone(), host: host.to_owned() });
        }
        match table.insert(name.as_bytes().into(), slot) {
            Some(other) if other != slot => Err(OptionsError::HostTwice {
                host: host.to_owned(),
                first: sites[other.0].name.clone(),
                second: site.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The site of a host as [`host_of`] returned it; the most specific name wins.
    pub(crate) fn find(&self, host: &[u8]) -> Option<SiteSlot> {
        let mut buffer = [0_u8; HOST_BYTES_MAX];
        let lower = buffer.get_mut(..host.len())?;
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        let mut rest: &[u8] = lower;
        if let Some(&slot) = self.exact.get(rest) {
            return Some(slot);
        }
        if !self.subtree.is_empty() {
            // At most 127 labels fit into a host name.
            while let Some(dot) = rest.iter().position(|&b| b == b'.') {
                rest = &rest[dot + 1..];
                if let Some(&slot) = self.subtree.get(rest) {
                    return Some(slot);
                }
            }
        }
        self.default
    }

    /// The site of a request that names no host (HTTP/1.0 only).
    pub(crate) fn default_site(&self) -> Option<SiteSlot> {
        self.default
    }
}

/// The host within `host [":" port]`, without a final dot; none where it is malformed.
///
/// Stricter than RFC 3986: no user info, no percent-encoding, no sub-delimiters. No host name
/// that resolves has them, and the next parser may read them otherwise than we do.
pub(crate) fn host_of(authority: &[u8]) -> Option<&[u8]> {
    let host = if authority.first() == Some(&b'[') {
        let end = authority.iter().position(|&b| b == b']')?;
        let inner = &authority[1..end];
        if inner.is_empty() || !inner.iter().all(|b| b.is_ascii_hexdigit() || b":.".contains(b)) {
            return None;
        }
        port(&authority[end + 1..])?;
        &authority[..=end]
    } else {
        let end = authority.iter().position(|&b| b == b':').unwrap_or(authority.len());
        port(&authority[end..])?;
        let host = authority[..end].strip_suffix(b".").unwrap_or(&authority[..end]);
        let allowed = |&b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if host.is_empty() || host[0] == b'.' || !host.iter().all(allowed) {
            return None;
        }
        host
    };
    (host.len() <= HOST_BYTES_MAX).then_some(host)
}

/// Whether this is nothing or a colon and at most five digits.
fn port(bytes: &[u8]) -> Option<()> {
    match bytes {
        [] => Some(()),
        [b':', digits @ ..] if digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) => {
            Some(())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(number: u16, hosts: &[&str]) -> SiteOptions {
        SiteOptions::new(SiteId::new(number).unwrap(), &format!("site{number}"), hosts)
    }

    fn find(map: &SiteMap, authority: &str) -> Option<usize> {
        map.find(host_of(authority.as_bytes())?).map(|slot| slot.0)
    }

    #[test]
    fn exact_names_win_over_subtrees_and_longer_over_shorter() {
        let sites = [
            site(1, &["www.example.org", "[::1]"]),
            site(2, &["*.example.org"]),
            site(3, &["*.Deep.example.org"]),
        ];
        let map = SiteMap::new(&sites, None).unwrap();
        assert_eq!(find(&map, "WWW.example.ORG:8080"), Some(0));
        assert_eq!(find(&map, "www.example.org."), Some(0));
        assert_eq!(find(&map, "[::1]:80"), Some(0));
        assert_eq!(find(&map, "a.example.org"), Some(1));
        assert_eq!(find(&map, "a.b.example.org"), Some(1));
        assert_eq!(find(&map, "a.deep.example.org"), Some(2));
        assert_eq!(find(&map, "example.org"), None);
        assert_eq!(find(&map, "badexample.org"), None);
    }

    #[test]
    fn the_default_takes_the_rest() {
        let sites = [site(1, &["a"]), site(2, &["b"])];
        let map = SiteMap::new(&sites, Some(sites[1].id)).unwrap();
        assert_eq!(find(&map, "elsewhere"), Some(1));
        assert_eq!(map.default_site(), Some(SiteSlot(1)));
    }

    #[test]
    fn mistakes_in_the_table_are_named() {
        let id = SiteId::new(9).unwrap();
        assert_eq!(SiteMap::new(&[], Some(id)).unwrap_err(), OptionsError::UnknownDefault(id));
        let twice = [site(1, &["a"]), site(2, &["A"])];
        let words = SiteMap::new(&twice, None).unwrap_err().to_string();
        assert!(words.contains("site1") && words.contains("site2"), "{words}");
        for bad in ["", "*", "*.", "a b", "a:80", "a/b", "*.*.a", "a.", "u@h", "[::1"] {
            let error = SiteMap::new(&[site(1, &[bad])], None);
            assert!(matches!(error, Err(OptionsError::BadHost { .. })), "{bad:?}");
        }
        let same_id = [site(1, &["a"]), site(1, &["b"])];
        assert!(matches!(SiteMap::new(&same_id, None), Err(OptionsError::SiteTwice(_))));
    }

    #[test]
    fn malformed_authorities_have_no_host() {
        for bad in [
            "", ":80", "a:b", "a:123456", "a@b", "a b", "a,b", "a/b", "a\\b", "[::1", "[]", "[g]",
            "[::1]x", "a:80:80", "a%2eb", ".a", "a\0b", "a?b", "a#b", "é",
        ] {
            assert_eq!(host_of(bad.as_bytes()), None, "{bad:?}");
        }
        assert!(host_of(&[b'a'; 256]).is_none());
        assert!(host_of(&[b'a'; 255]).is_some());
    }
}
