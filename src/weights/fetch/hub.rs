use super::FetchOptions;
use super::error::{SourceError, Stop, clean};
use super::transfer::Transfer;
use std::io::{ErrorKind, Read};
use std::thread;
use std::time::Duration;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// Attempts in a row that bring no byte before the source is given up.
const MAX_IDLE_ATTEMPTS: u32 = 4;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two reads: long enough for a slow line, short enough to notice a dead one.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const CHUNK_BYTES: usize = 256 << 10;

/// Fetches `{endpoint}/{repository}/resolve/{revision}/{file}` from where the transfer stands, and goes on
/// when the line breaks.
pub(super) fn download(
    transfer: &mut Transfer<'_, '_>,
    repository: &str,
    revision: &str,
    file: &str,
) -> Result<(), Stop> {
    let url = address(transfer.options, repository, revision, file);
    let agent = agent(transfer.options, &url)?;
    let mut idle = 0;
    while !transfer.is_whole() {
        let before = transfer.len();
        let broken = match attempt(transfer, &agent, &url) {
            Ok(()) => "the server closed the connection early".to_owned(),
            Err(Attempt::Broken(problem)) => problem,
            Err(Attempt::Stop(stop)) => return Err(stop),
        };
        idle = if transfer.len() > before { 0 } else { idle + 1 };
        if transfer.is_whole() {
            break;
        }
        if idle == MAX_IDLE_ATTEMPTS {
            return Err(SourceError::Http(broken).into());
        }
        thread::sleep(transfer.options.retry_delay * (1 << idle));
    }
    Ok(())
}

/// Of a file's bytes.
pub(super) fn address(options: &FetchOptions, repository: &str, revision: &str, file: &str) -> String {
    let endpoint = options.endpoint.trim_end_matches('/');
    format!("{endpoint}/{repository}/resolve/{}/{}", escaped(revision), escaped(file))
}

/// Of the list of a revision's files.
pub(super) fn listing_address(options: &FetchOptions, repository: &str, revision: &str) -> String {
    let endpoint = options.endpoint.trim_end_matches('/');
    format!("{endpoint}/api/models/{repository}/revision/{}?blobs=true", escaped(revision))
}

/// All of something small.
pub(super) fn get(options: &FetchOptions, url: &str, most: u64) -> Result<Vec<u8>, SourceError> {
    let agent = agent(options, url)?;
    let mut request = agent.get(url);
    if let Some(token) = &options.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let http = |error: &ureq::Error| match failed(error) {
        Attempt::Broken(problem) => SourceError::Http(problem),
        Attempt::Stop(Stop::Source(error)) => error,
        Attempt::Stop(Stop::All(error)) => SourceError::Http(error.to_string()),
    };
    let mut response = request.call().map_err(|error| http(&error))?;
    let status = response.status();
    if !status.is_success() {
        let advice = match status.as_u16() {
            401 | 403 => "; if the model asks for consent, give it there and set HF_TOKEN",
            404 => "; there is no such repository, revision or file (or it is private: set HF_TOKEN)",
            _ => "",
        };
        return Err(SourceError::Http(format!("the server answered {status}{advice}")));
    }
    response.body_mut().with_config().limit(most).read_to_vec().map_err(|error| http(&error))
}

enum Attempt {
    /// Worth another one.
    Broken(String),
    Stop(Stop),
}

impl From<Stop> for Attempt {
    fn from(stop: Stop) -> Self {
        Attempt::Stop(stop)
    }
}

impl From<SourceError> for Attempt {
    fn from(error: SourceError) -> Self {
        Attempt::Stop(error.into())
    }
}

fn attempt(transfer: &mut Transfer<'_, '_>, agent: &Agent, url: &str) -> Result<(), Attempt> {
    transfer.report_ahead(0)?;
    let start = transfer.len();
    // No compression: ranges and lengths must count the bytes of the file itself.
    let mut request = agent.get(url).header(header::ACCEPT_ENCODING, "identity");
    if start > 0 {
        request = request.header(header::RANGE, format!("bytes={start}-"));
    }
    if let Some(token) = &transfer.options.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = request.call().map_err(|error| failed(&error))?;
    let promised = check(transfer, &response, start)?;
    if promised != transfer.expected_len() {
        return Err(SourceError::WrongSize { expected: transfer.expected_len(), got: promised }.into());
    }
    let mut body = response.into_body().into_reader();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match body.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => transfer.write(&chunk[..read])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Attempt::Broken(clean(&error.to_string()))),
        }
    }
}

/// The length of the whole file as the answer tells it, with the transfer at the answer's first byte.
fn check(transfer: &mut Transfer<'_, '_>, response: &Response<Body>, start: u64) -> Result<u64, Attempt> {
    let unknown = transfer.expected_len();
    match response.status() {
        StatusCode::PARTIAL_CONTENT => match content_range(response) {
            Some((first, total)) if first == start => Ok(total.unwrap_or(unknown)),
            _ => Err(restarted(transfer, "the server sent another part of the file than was asked for")),
        },
        // D01: the whole file, although the rest was asked for.
        StatusCode::OK => {
            if start > 0 {
                transfer.restart()?;
            }
            Ok(response.body().content_length().unwrap_or(unknown))
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            Err(restarted(transfer, "the server's file is shorter than what is here"))
        }
        status if status.is_server_error() || matches!(status.as_u16(), 408 | 429) => {
            Err(Attempt::Broken(format!("the server answered {status}")))
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(SourceError::Http(format!(
            "the server answered {}; if the model asks for consent, give it there and set HF_TOKEN",
            response.status()
        ))
        .into()),
        status => Err(SourceError::Http(format!("the server answered {status}")).into()),
    }
}

fn restarted(transfer: &mut Transfer<'_, '_>, problem: &str) -> Attempt {
    match transfer.restart() {
        Ok(()) => Attempt::Broken(problem.to_owned()),
        Err(stop) => Attempt::Stop(stop),
    }
}

/// `bytes FIRST-LAST/TOTAL`, where the total may be `*`.
fn content_range(response: &Response<Body>) -> Option<(u64, Option<u64>)> {
    let value = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let first = range.split_once('-')?.0.parse().ok()?;
    Some((first, total.parse().ok()))
}

/// Names that cannot be found and addresses that refuse are not worth another attempt.
fn failed(error: &ureq::Error) -> Attempt {
    let stop = |text: String| Attempt::from(SourceError::Http(text));
    match error {
        ureq::Error::HostNotFound => {
            stop("the server's name cannot be found (is there a network?)".to_owned())
        }
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            stop(format!("the server cannot be reached within {} s", CONNECT_TIMEOUT.as_secs()))
        }
        ureq::Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::UnexpectedEof
            | ErrorKind::BrokenPipe => Attempt::Broken(clean(&error.to_string())),
            _ => stop(clean(&error.to_string())),
        },
        ureq::Error::Timeout(_) | ureq::Error::Protocol(_) => Attempt::Broken(clean(&error.to_string())),
        other => stop(clean(&other.to_string())),
    }
}

fn agent(options: &FetchOptions, url: &str) -> Result<Agent, SourceError> {
    let proxy = options.proxies.for_url(url).map_err(SourceError::Http)?;
    let config = Agent::config_builder()
        .proxy(proxy)
        .http_status_as_error(false)
        .user_agent(concat!("glassbox/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(CONNECT_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_per_read(Some(READ_TIMEOUT))
        // The certificates that the system trusts, so that a company's own are among them.
        .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build());
    Ok(config.build().new_agent())
}

/// A path of a URL: everything but plain characters and `/` as percent bytes.
fn escaped(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}
