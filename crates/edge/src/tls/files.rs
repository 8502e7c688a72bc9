//! Certificates and keys in PEM files. Every message names its file.

use crate::options::{ClientCertificate, SiteTls};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A PEM file is at most so long: hundreds of certificates.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Permission bits of everyone who is neither the owner nor of the file's group.
const EVERYONE: u32 = 0o007;

/// Why certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("can't read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds nothing of the kind, or something malformed.
    #[error("{path} holds no {wanted} in PEM{why}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
        /// More, if more is known.
        why: String,
    },
    /// A private key that everyone may read.
    #[error("{path} holds a private key, and everyone may read or change it: chmod o= {path}")]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The certificate and the key of a site don't fit together, or can't be used.
    #[error("{pair}: {source}")]
    Pair {
        /// The site and its files.
        pair: String,
        /// Why.
        source: Box<rustls::Error>,
    },
    /// Clients are to be checked, and there is nothing to check them by.
    #[error("site {site}: client certificates need `client_ca`, the certificates that sign them")]
    NoClientCa {
        /// The site.
        site: String,
    },
    /// A certificate of `client_ca` can't be used.
    #[error("{path}: {why}")]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The system has no random numbers.
    #[error("no key for session tickets: {0}")]
    Tickets(#[source] rustls::Error),
    /// There is an address for TLS, and no site with a certificate.
    #[error("tls_listen is given, but no site has a certificate (`tls`)")]
    NoCertificate,
}

/// What a site demands of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Demands {
    pub(super) mode: ClientCertificate,
    /// Who signs their certificates.
    authorities: Vec<CertificateDer<'static>>,
}

/// What the files of one site hold.
#[derive(Debug)]
pub(super) struct Material {
    paths: SiteTls,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    pub(super) demands: Demands,
}

impl Material {
    /// Reads the files.
    pub(super) fn read(site: &str, paths: &SiteTls) -> Result<Self, TlsError> {
        let chain = certificates(&paths.certificate)?;
        let key = private_key(&paths.key)?;
        let authorities = match (paths.client_certificate, &paths.client_ca) {
            (ClientCertificate::Off, _) => Vec::new(),
            (_, Some(path)) => certificates(path)?,
            (_, None) => return Err(TlsError::NoClientCa { site: site.to_owned() }),
        };
        let demands = Demands { mode: paths.client_certificate, authorities };
        Ok(Self { paths: paths.clone(), chain, key, demands })
    }

    /// The site's configuration, with a fresh key for tickets.
    pub(super) fn config(self, site: &str) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let (certificate, key) = (self.paths.certificate.display(), self.paths.key.display());
        let pair = format!("site {site}: {certificate} with the key {key}");
        let versions = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring knows TLS 1.2 and 1.3");
        let builder = match self.demands.mode {
            ClientCertificate::Off => versions.with_no_client_auth(),
            _ => versions.with_client_cert_verifier(self.verifier(provider)?),
        };
        let config = builder.with_single_cert(self.chain, self.key);
        let mut config =
            config.map_err(|error| TlsError::Pair { pair, source: Box::new(error) })?;
        config.ticketer = ring::Ticketer::new().map_err(TlsError::Tickets)?;
        // Tickets are enough, and a table of sessions would be shared between threads under a lock.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }

    fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
        let path = self.paths.client_ca.clone().unwrap_or_default();
        let wrong = |why: String| TlsError::ClientCa { path: path.clone(), why };
        let mut roots = RootCertStore::empty();
        for authority in &self.demands.authorities {
            roots.add(authority.clone()).map_err(|error| wrong(error.to_string()))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = match self.demands.mode {
            ClientCertificate::Required => builder,
            _ => builder.allow_unauthenticated(),
        };
        builder.build().map_err(|error| wrong(error.to_string()))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (bytes, _) = read(path)?;
    let wanted = "certificate";
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| pem_error(path, wanted, &error))?;
    match found.is_empty() {
        true => Err(pem_error(path, wanted, &pem::Error::NoItemsFound)),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (bytes, mode) = read(path)?;
    if mode & EVERYONE != 0 {
        return Err(TlsError::Exposed { path: path.to_owned() });
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| pem_error(path, "private key", &error))
}

fn pem_error(path: &Path, wanted: &'static str, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::NoItemsFound => String::new(),
        // Others may quote what the file holds, which can be a key.
        _ => ": it is malformed".to_owned(),
    };
    TlsError::Pem { path: path.to_owned(), wanted, why }
}

/// A file's bytes and permissions, both of the same file.
fn read(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let read = || {
        let file = File::open(path)?;
        let mode = file.metadata()?.mode();
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other("it is too long for certificates"));
        }
        Ok((bytes, mode))
    };
    read().map_err(|source| TlsError::Read { path: path.to_owned(), source })
}
