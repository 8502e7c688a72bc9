//! Certificates of a test, and a client that speaks TLS.

use super::PATIENCE;
use edge::{ClientCertificate, SiteTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who signs the certificates of a test, with a folder for them.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Pair {
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(&self.certificate).unwrap()
    }

    pub fn site(&self) -> SiteTls {
        SiteTls {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_ca: None,
            client_certificate: ClientCertificate::Off,
        }
    }
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The authority's own certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    /// Signs a certificate for these hosts, whose subject is the file's name.
    pub fn certify(&self, name: &str, hosts: &[&str]) -> Pair {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let pair = Pair {
            certificate: self.folder().join(format!("{name}.pem")),
            key: self.folder().join(format!("{name}.key")),
        };
        std::fs::write(&pair.certificate, certificate.pem()).unwrap();
        write_key(&pair.key, &key.serialize_pem(), 0o600);
        pair
    }
}

pub fn write_key(path: &Path, pem: &str, mode: u32) {
    let _ = std::fs::remove_file(path);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create_new(true).write(true).mode(mode).open(path).unwrap();
    file.write_all(pem.as_bytes()).unwrap();
}

/// Takes every certificate of a server: the tests look at it themselves.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// How a client introduces itself; sessions are resumed within one of these.
pub fn config(identity: Option<&Pair>, protocols: &[&str]) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
            builder.with_client_auth_cert(vec![pair.der()], key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A client with a connection of its own.
pub struct TlsClient {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
}

impl TlsClient {
    /// Connects under this name; an address in its place sends no name.
    pub fn new(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Self {
        let tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        Self { stream: StreamOwned::new(connection, tcp) }
    }

    pub fn shown(&self) -> CertificateDer<'static> {
        self.stream.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }

    /// A response of known length: its status, its head and its body.
    pub fn reply(&mut self) -> io::Result<(u16, String, Vec<u8>)> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.stream.read_exact(&mut body)?;
        Ok((status, head, body))
    }

    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> io::Result<(u16, String, Vec<u8>)> {
        self.stream.write_all(request.as_ref())?;
        self.reply()
    }

    /// The status, and the body as text.
    pub fn get(&mut self, host: &str, fields: &str) -> io::Result<(u16, String)> {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        let (status, _, body) = self.ask(request)?;
        Ok((status, String::from_utf8(body).unwrap()))
    }
}
