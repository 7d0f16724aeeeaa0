//! A server for tests of fetching: answers one request a connection, and remembers them all.
#![allow(dead_code)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub struct Request {
    pub line: String,
    pub headers: HashMap<String, String>,
}

impl Request {
    pub fn range_start(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// A server that answers one request a connection and remembers them all.
pub struct Stub {
    pub address: SocketAddr,
    pub requests: Arc<Mutex<Vec<Request>>>,
}

impl Stub {
    /// `answer` gets the request's index.
    pub fn new(answer: impl Fn(usize, &Request, &mut TcpStream) + Send + Sync + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let request = read_request(&stream);
                answer(index, &request, &mut stream);
                seen.lock().unwrap().push(request);
                // Wait for the other side, so that what is still on its way is not cut off.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read(&mut [0; 64]);
            }
        });
        Stub { address, requests }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub fn header(&self, index: usize, name: &str) -> Option<String> {
        self.requests.lock().unwrap()[index].headers.get(name).cloned()
    }
}

pub fn read_request(stream: &TcpStream) -> Request {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let line = lines.next().unwrap_or_default();
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    });
    Request { line, headers: headers.collect() }
}

pub fn respond(stream: &mut TcpStream, status: &str, headers: &[(&str, String)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    let _ = stream.write_all(body);
}

pub fn length(bytes: usize) -> (&'static str, String) {
    ("Content-Length", bytes.to_string())
}

/// Serves `body` as a good hub does.
pub fn good_answer(body: &[u8], request: &Request, stream: &mut TcpStream) {
    match request.range_start() {
        Some(start) => {
            let range = format!("bytes {start}-{}/{}", body.len() - 1, body.len());
            let headers = [length(body.len() - start), ("Content-Range", range)];
            respond(stream, "206 Partial Content", &headers, &body[start..]);
        }
        None => respond(stream, "200 OK", &[length(body.len())], body),
    }
}
