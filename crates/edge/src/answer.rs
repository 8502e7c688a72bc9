//! What the edge itself answers, and why. Every such response carries the reason in
//! `X-Polder-Reason` and as a short text.

use crate::face::Refusal;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use std::fmt;

/// The response header that names the reason.
pub const REASON_HEADER: HeaderName = HeaderName::from_static("x-polder-reason");

/// What `Retry-After` asks for, in seconds: the smallest it can say. Queues empty, and nodes
/// move, within milliseconds.
const RETRY_AFTER_SECONDS: &str = "1";

/// Where an error comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The request was wrong, or its client too slow or too eager.
    Client,
    /// The edge has no room, or is about to stop.
    Edge,
    /// The server failed.
    Server,
}

/// Why a request was not answered by a server. The order is that of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The head means different things to different readers, or nothing.
    BadRequest,
    /// A method that a reverse proxy does not serve (`CONNECT`).
    BadMethod,
    /// A transfer coding other than `chunked`.
    BadTransferCoding,
    /// An expectation other than `100-continue`.
    BadExpectation,
    /// The request target is longer than `uri_bytes_max`.
    UriTooLong,
    /// More header lines than `headers_max`.
    TooManyFields,
    /// The body is longer than the site's `body_bytes_max`.
    BodyTooLarge,
    /// The client's body stopped for `body_idle_timeout_ms`.
    ClientTimeout,
    /// The client's body ended early, or its chunks are malformed.
    BrokenBody,
    /// No site has this host.
    UnknownSite,
    /// The site wants a client certificate, and the connection has shown none for it.
    NoCertificate,
    /// The client asks more often than its site lets one client ask.
    ClientRate,
    /// All clients together ask more often than the site lets them.
    SiteRate,
    /// See [`Refusal::QueueFull`].
    QueueFull,
    /// See [`Refusal::QueueTimeout`].
    QueueTimeout,
    /// See [`Refusal::Shed`].
    Shed,
    /// See [`Refusal::NoServer`].
    NoServer,
    /// See [`Refusal::Draining`].
    Draining,
    /// `upgraded_max` connections are upgraded already.
    UpgradesFull,
    /// No connection to a server, or none in time.
    ConnectFailed,
    /// The server closed or reset the connection before its response.
    ServerBroke,
    /// The server sent no response head in time.
    ServerTimeout,
    /// The server's response head is malformed or ambiguous.
    BadResponse,
    /// The client wants it from the cache alone, and it is not there.
    NotCached,
    /// Who tells of a change may not, from where it comes.
    PurgeDenied,
    /// Who tells of a change has not the site's token.
    PurgeToken,
    /// What has changed is not said so that it is understood.
    BadPurge,
    /// An invalidation may not hold.
    PurgeFailed,
}

impl Reason {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 28] = [
        Self::BadRequest,
        Self::BadMethod,
        Self::BadTransferCoding,
        Self::BadExpectation,
        Self::UriTooLong,
        Self::TooManyFields,
        Self::BodyTooLarge,
        Self::ClientTimeout,
        Self::BrokenBody,
        Self::UnknownSite,
        Self::NoCertificate,
        Self::ClientRate,
        Self::SiteRate,
        Self::QueueFull,
        Self::QueueTimeout,
        Self::Shed,
        Self::NoServer,
        Self::Draining,
        Self::UpgradesFull,
        Self::ConnectFailed,
        Self::ServerBroke,
        Self::ServerTimeout,
        Self::BadResponse,
        Self::NotCached,
        Self::PurgeDenied,
        Self::PurgeToken,
        Self::BadPurge,
        Self::PurgeFailed,
    ];

    /// The word used in `X-Polder-Reason`, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad-request",
            Self::BadMethod => "bad-method",
            Self::BadTransferCoding => "bad-transfer-coding",
            Self::BadExpectation => "bad-expectation",
            Self::UriTooLong => "uri-too-long",
            Self::TooManyFields => "too-many-fields",
            Self::BodyTooLarge => "body-too-large",
            Self::ClientTimeout => "client-timeout",
            Self::BrokenBody => "broken-body",
            Self::UnknownSite => "unknown-site",
            Self::NoCertificate => "no-certificate",
            Self::ClientRate => "client-rate",
            Self::SiteRate => "site-rate",
            Self::QueueFull => Refusal::QueueFull.name(),
            Self::QueueTimeout => Refusal::QueueTimeout.name(),
            Self::Shed => "shed",
            Self::NoServer => Refusal::NoServer.name(),
            Self::Draining => Refusal::Draining.name(),
            Self::UpgradesFull => "upgrades-full",
            Self::ConnectFailed => "connect-failed",
            Self::ServerBroke => "server-broke",
            Self::ServerTimeout => "server-timeout",
            Self::BadResponse => "bad-response",
            Self::NotCached => "not-cached",
            Self::PurgeDenied => "purge-denied",
            Self::PurgeToken => "purge-token",
            Self::BadPurge => "bad-purge",
            Self::PurgeFailed => "purge-failed",
        }
    }

    /// The status of the response.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest | Self::BrokenBody | Self::BadPurge => StatusCode::BAD_REQUEST,
            Self::PurgeToken => StatusCode::UNAUTHORIZED,
            Self::PurgeDenied => StatusCode::FORBIDDEN,
            Self::BadMethod | Self::BadTransferCoding => StatusCode::NOT_IMPLEMENTED,
            Self::BadExpectation => StatusCode::EXPECTATION_FAILED,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::TooManyFields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::UnknownSite | Self::NoCertificate => StatusCode::MISDIRECTED_REQUEST,
            Self::ClientRate | Self::SiteRate => StatusCode::TOO_MANY_REQUESTS,
            Self::QueueFull
            | Self::QueueTimeout
            | Self::Shed
            | Self::NoServer
            | Self::Draining
            | Self::UpgradesFull
            | Self::PurgeFailed => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectFailed | Self::ServerBroke | Self::BadResponse => StatusCode::BAD_GATEWAY,
            Self::ServerTimeout | Self::NotCached => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Where the error comes from.
    #[must_use]
    pub const fn source(self) -> Source {
        match self {
            Self::QueueFull
            | Self::QueueTimeout
            | Self::Shed
            | Self::NoServer
            | Self::Draining
            | Self::UpgradesFull
            | Self::PurgeFailed => Source::Edge,
            Self::ConnectFailed | Self::ServerBroke | Self::ServerTimeout | Self::BadResponse => {
                Source::Server
            }
            _ => Source::Client,
        }
    }

    /// Whether the connection ends with the answer: the edge cannot, or will not, find the start
    /// of the next request.
    const fn closes(self) -> bool {
        matches!(self.source(), Source::Client)
            && !matches!(
                self,
                Self::UnknownSite
                    | Self::NoCertificate
                    | Self::ClientRate
                    | Self::SiteRate
                    | Self::NotCached
                    | Self::PurgeDenied
                    | Self::PurgeToken
                    | Self::BadPurge
            )
    }

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::BadRequest => "The request is malformed or ambiguous.\n",
            Self::BadMethod => "This method is not served here.\n",
            Self::BadTransferCoding => "Only the transfer coding \"chunked\" is understood.\n",
            Self::BadExpectation => "Only the expectation \"100-continue\" is understood.\n",
            Self::UriTooLong => "The request target is too long.\n",
            Self::TooManyFields => "The request has too many header lines.\n",
            Self::BodyTooLarge => "The request body is too large.\n",
            Self::ClientTimeout => "The request body did not arrive in time.\n",
            Self::BrokenBody => "The request body is malformed or incomplete.\n",
            Self::UnknownSite => "No site of this host is served here.\n",
            Self::NoCertificate => "This site asks for a client certificate. Connect to it anew.\n",
            Self::ClientRate => "Too many requests from your address. Try again later.\n",
            Self::SiteRate => "Too many requests for this site. Try again later.\n",
            Self::QueueFull => "Too many requests wait for this site. Try again soon.\n",
            Self::QueueTimeout => "No server became free in time. Try again soon.\n",
            Self::Shed => "This site has more requests than it can answer. Try again later.\n",
            Self::NoServer => "No server of this site is available. Try again soon.\n",
            Self::Draining => "This server is about to stop. Try again.\n",
            Self::UpgradesFull => "Too many connections are open. Try again soon.\n",
            Self::ConnectFailed => "The site's server could not be reached.\n",
            Self::ServerBroke => "The site's server closed the connection before its response.\n",
            Self::ServerTimeout => "The site's server did not answer in time.\n",
            Self::BadResponse => "The site's server sent a malformed or ambiguous response.\n",
            Self::NotCached => "This is not in the cache, and nothing else was asked for.\n",
            Self::PurgeDenied => "You may not invalidate.\n",
            Self::PurgeToken => "The token is missing or wrong.\n",
            Self::BadPurge => "What to invalidate is not said as it should be.\n",
            Self::PurgeFailed => "The invalidation may not hold. Try again.\n",
        }
    }

    /// The place among the counters.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The response, its body as text.
    pub(crate) fn answer(self) -> Response<&'static str> {
        let mut response = Response::new(self.text());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(REASON_HEADER, HeaderValue::from_static(self.name()));
        // Who asks too often, or is shed, is told the time that it has to wait where the answer is
        // used.
        if matches!(self.source(), Source::Edge) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        if self.closes() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::QueueFull => Self::QueueFull,
            Refusal::QueueTimeout => Self::QueueTimeout,
            Refusal::Shed { .. } => Self::Shed,
            Refusal::NoServer => Self::NoServer,
            Refusal::Draining => Self::Draining,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_follow_the_order_of_the_list() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index, "{reason}");
        }
    }

    #[test]
    fn only_the_edges_own_refusals_ask_to_come_back() {
        for reason in Reason::ALL {
            let answer = reason.answer();
            let retry = answer.headers().contains_key(header::RETRY_AFTER);
            assert_eq!(retry, answer.status() == StatusCode::SERVICE_UNAVAILABLE, "{reason}");
            assert_eq!(answer.headers()[REASON_HEADER], reason.name());
        }
    }
}
