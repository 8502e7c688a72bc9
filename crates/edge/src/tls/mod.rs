//! TLS towards clients, by rustls with ring: certificates by server name, and handshakes.
//!
//! Each site has a configuration of its own: its certificate, its demands on clients, and the key
//! of its session tickets, which all threads share. The server name (SNI) of the client's first
//! message chooses among them; a connection then counts as one of that site (`Secured`), and
//! `serve` refuses requests for a site whose demands the connection has not met. Tickets can't
//! carry a client past the demands either: those of one site mean nothing to another, and new
//! demands get a new key.

mod files;
mod subject;

use crate::caller::Secured;
use crate::hosts::{SiteMap, SiteSlot, host_of};
use crate::options::{ClientCertificate, Options, SiteOptions};
use crate::stream::Socket;
pub use files::TlsError;
use files::{Demands, Material};
use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// Handshakes that one thread carries at once; further clients that have said hello wait. Each
/// takes some 20 KiB and a millisecond of the processor: more at once would only be late together.
pub(crate) const HANDSHAKES_MAX: usize = 1_024;

/// The protocol identifiers of ALPN.
const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// The certificates of one edge.
#[derive(Debug)]
pub(crate) struct Tls {
    sites: RwLock<Arc<Sites>>,
    /// By slot: whether clients must show a certificate. Read for each request.
    required: Box<[AtomicBool]>,
    http2: bool,
}

#[derive(Debug)]
struct Sites {
    /// By slot; none for sites without a certificate.
    of_slot: Vec<Option<Site>>,
    /// For clients that name no host, or one without a certificate.
    fallback: Option<SiteSlot>,
}

#[derive(Debug)]
struct Site {
    config: Arc<ServerConfig>,
    demands: Demands,
}

impl Tls {
    /// Reads all files. Blocks for as long as that takes.
    pub(crate) fn new(options: &Options) -> Result<Self, TlsError> {
        let required = options.sites.iter().map(|_| AtomicBool::new(false)).collect();
        let none = Arc::new(Sites { of_slot: Vec::new(), fallback: None });
        let tls = Self { sites: RwLock::new(none), required, http2: options.http2 };
        tls.renew(&options.sites, options)?;
        if !options.tls_listen.is_empty() && tls.sites().fallback.is_none() {
            return Err(TlsError::NoCertificate);
        }
        Ok(tls)
    }

    /// Reads the files of all sites anew, in the order of `of`, for connections that come. If one
    /// is wrong, everything stays as it was.
    pub(crate) fn renew(&self, sites: &[SiteOptions], of: &Options) -> Result<(), TlsError> {
        let old = self.sites();
        let mut of_slot = Vec::new();
        for (slot, known) in of.sites.iter().enumerate() {
            let site = sites.iter().find(|site| site.id == known.id).unwrap_or(known);
            let Some(tls) = &site.tls else {
                of_slot.push(None);
                continue;
            };
            let material = Material::read(&site.name, tls)?;
            let before = old.of_slot.get(slot).and_then(Option::as_ref);
            of_slot.push(Some(self.site(&site.name, material, before)?));
        }
        let default = of.default_site.and_then(|id| of.sites.iter().position(|s| s.id == id));
        let default = default.filter(|&slot| of_slot[slot].is_some());
        let fallback = default.or_else(|| of_slot.iter().position(Option::is_some)).map(SiteSlot);
        for (slot, required) in self.required.iter().enumerate() {
            let mode = of_slot[slot].as_ref().map(|site| site.demands.mode);
            required.store(mode == Some(ClientCertificate::Required), Ordering::Release);
        }
        let mut place = self.sites.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(Sites { of_slot, fallback });
        Ok(())
    }

    fn site(
        &self,
        name: &str,
        material: Material,
        before: Option<&Site>,
    ) -> Result<Site, TlsError> {
        let demands = material.demands.clone();
        let mut config = material.config(name)?;
        let protocols: &[&[u8]] = if self.http2 { &[HTTP_2, HTTP_1] } else { &[HTTP_1] };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        // A ticket says that its owner met the demands: those of the day it was written.
        if let Some(before) = before.filter(|before| before.demands == demands) {
            config.ticketer = Arc::clone(&before.config.ticketer);
        }
        Ok(Site { config: Arc::new(config), demands })
    }

    fn sites(&self) -> Arc<Sites> {
        Arc::clone(&self.sites.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether requests for a site are taken only from connections whose client has shown a
    /// certificate for it.
    pub(crate) fn requires(&self, slot: SiteSlot) -> bool {
        self.required.get(slot.0).is_some_and(|required| required.load(Ordering::Acquire))
    }

    fn choose(
        &self,
        map: &SiteMap,
        hello: &ClientHello<'_>,
    ) -> Option<(SiteSlot, Arc<ServerConfig>)> {
        let sites = self.sites();
        let of = |slot: SiteSlot| {
            let site = sites.of_slot.get(slot.0)?.as_ref()?;
            Some((slot, Arc::clone(&site.config)))
        };
        let named = hello.server_name().and_then(|name| map.find(host_of(name.as_bytes())?));
        named.and_then(of).or_else(|| of(sites.fallback?))
    }

    /// Carries out a handshake. The caller bounds its time.
    pub(crate) async fn accept(
        &self,
        map: &SiteMap,
        places: &Semaphore,
        socket: Socket,
    ) -> io::Result<(Box<TlsStream<Socket>>, Secured)> {
        // Who has not said hello yet costs little, and takes no place from those who have.
        let start = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let chosen = self.choose(map, &start.client_hello());
        let (slot, config) = chosen.ok_or_else(|| io::Error::other("no site has a certificate"))?;
        let _place = places.acquire().await.map_err(io::Error::other)?;
        let stream = Box::new(start.into_stream(config).await?);
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let subject = shown.and_then(|certificate| subject::subject(certificate));
        let secured = Secured { slot, verified: shown.is_some(), subject };
        Ok((stream, secured))
    }
}

/// Whether the handshake settled on HTTP/2.
pub(crate) fn is_http2(stream: &TlsStream<Socket>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP_2)
}
