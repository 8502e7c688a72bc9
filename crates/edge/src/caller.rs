//! Who asks: what a connection says about its client, the same for all its requests.

use crate::hosts::SiteSlot;
use crate::proxy_header::Ends;
use http::HeaderValue;
use std::net::{IpAddr, SocketAddr};

/// The client of one connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) address: SocketAddr,
    /// Its address as it stands in `X-Forwarded-For`.
    pub(crate) forwarded_for: HeaderValue,
    /// Both ends of the client's connection, where servers are to be told.
    pub(crate) ends: Option<Ends>,
    /// None on a plain connection.
    pub(crate) secured: Option<Secured>,
}

/// What a TLS handshake settled.
#[derive(Clone, Debug)]
pub(crate) struct Secured {
    /// The site whose certificate was shown, and whose demands the client met.
    pub(crate) slot: SiteSlot,
    /// The client has shown a certificate, and it was verified.
    pub(crate) verified: bool,
    /// The subject of that certificate.
    pub(crate) subject: Option<HeaderValue>,
}

impl Caller {
    pub(crate) fn new(address: SocketAddr, ends: Option<Ends>) -> Self {
        Self { address, forwarded_for: forwarded_for(address.ip()), ends, secured: None }
    }

    /// The same client after a TLS handshake.
    pub(crate) fn secured(self, secured: Secured) -> Self {
        Self { secured: Some(secured), ..self }
    }

    /// What `X-Forwarded-Proto` says.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.secured.is_some() { "https" } else { "http" }
    }

    /// What was verified by the rules of this site. A certificate that met another site's rules
    /// says nothing here.
    fn verified_for(&self, slot: SiteSlot) -> Option<&Secured> {
        self.secured.as_ref().filter(|secured| secured.slot == slot && secured.verified)
    }

    /// Whether the client has shown a certificate that this site trusts.
    pub(crate) fn is_verified_for(&self, slot: SiteSlot) -> bool {
        self.verified_for(slot).is_some()
    }

    /// The subject of that certificate.
    pub(crate) fn subject_for(&self, slot: SiteSlot) -> Option<&HeaderValue> {
        self.verified_for(slot)?.subject.as_ref()
    }
}

fn forwarded_for(address: IpAddr) -> HeaderValue {
    HeaderValue::try_from(address.to_canonical().to_string())
        .expect("an address is written in ASCII")
}
