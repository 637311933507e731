//! The HTTP server of `/metrics`: HTTP/1.1 (RFC 9112), one thread, one request per connection.
//!
//! Any host that reaches the address may connect, and the process records packets beside the server. All resources that
//! a client can take therefore have a limit: connections, file descriptors ([`sys::limits::is_available_to_clients`]),
//! bytes of a request's head, and time. If all connections are taken, the server closes the longest-waiting connection
//! that has not sent a complete request, so connections that never send a request do not block a scrape.

use super::exposition_of;
use crate::status::Report;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};
use tokio::time::timeout;

/// The most connections at a time.
const CONNECTIONS_MAX: usize = 64;

/// The fewest connections with which the server starts: other clients must not be able to take all connections from a
/// scrape.
const CONNECTIONS_MIN: usize = 4;

/// How long a client may take to send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may last, from its first byte to the last byte of the response.
const VISIT_TIMEOUT: Duration = Duration::from_secs(15);

/// The most bytes of a request's head.
const HEAD_MAX: usize = 16 << 10;

/// The most header fields of a request.
const FIELDS_MAX: usize = 64;

/// Pause of the server before it retries an operation that the system refused.
const PAUSE: Duration = Duration::from_millis(100);

/// The interval at which a lasting failure is reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Limit of open files that the process requests.
const OPEN_FILES: u64 = 1 << 16;

/// The response to a client for which no connection is free.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Answers `GET /metrics` until dropped.
pub struct MetricsServer {
    address: SocketAddr,
    /// Dropping it ends the thread.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at `address` (with port 0 the system chooses a port) and calls `report` for each request.
    ///
    /// # Errors
    /// The address cannot be bound, or too few file descriptors are free.
    pub fn start(address: &str, report: impl Fn() -> Report + Send + 'static) -> io::Result<Self> {
        Self::start_for_all(address, move || vec![report()])
    }

    /// As [`MetricsServer::start`], for several interfaces.
    ///
    /// # Errors
    /// As [`MetricsServer::start`].
    pub fn start_for_all(address: &str, reports: impl Fn() -> Vec<Report> + Send + 'static) -> io::Result<Self> {
        // The usual limit of 1024 is meant for programs that use select(2).
        sys::limits::raise_open_files(OPEN_FILES);
        Self::serve(StdListener::bind(address)?, reports)
    }

    fn serve(listener: StdListener, reports: impl Fn() -> Vec<Report> + Send + 'static) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = runtime()?;
        // The runtime has opened its descriptors before, so the next number is that of the first connection.
        let room = sys::limits::first_reserved_fd(listener.try_clone()?);
        if room < CONNECTIONS_MIN {
            return Err(io::Error::other(format!(
                "only {room} of {} file descriptors are free for connections; raise the limit (LimitNOFILE= of a unit, \
                 ulimit -n)",
                sys::limits::open_files()
            )));
        }
        let most = room.min(CONNECTIONS_MAX);
        let (stop, stopped) = oneshot::channel();
        let work = move || keep_serving(Some((runtime, listener)), address, stopped, most, Rc::new(reports));
        let thread = thread::Builder::new().name("metrics".into()).spawn(work)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// The reason why [`accept`] ended.
enum End {
    Stopped,
    /// The listening socket failed for good.
    Failed(io::Error),
}

type Reports = dyn Fn() -> Vec<Report>;
type Stop = oneshot::Receiver<Infallible>;

/// Serves until stopped; after a failure of the socket, or a panic, with a new socket at the same address.
fn keep_serving(
    mut ready: Option<(Runtime, StdListener)>,
    address: SocketAddr,
    mut stop: Stop,
    most: usize,
    reports: Rc<Reports>,
) {
    let mut reported: Option<(String, Instant)> = None;
    loop {
        let again = || io::Result::Ok((runtime()?, StdListener::bind(address)?));
        let why = match ready.take().map_or_else(again, Ok) {
            Ok((runtime, listener)) => {
                let round = || LocalSet::new().block_on(&runtime, accept(listener, &mut stop, most, &reports));
                match catch_unwind(AssertUnwindSafe(round)) {
                    Ok(Ok(End::Stopped)) => return,
                    Ok(Ok(End::Failed(e)) | Err(e)) => e.to_string(),
                    Err(_) => "a panic; please report this".to_owned(),
                }
            }
            Err(e) => e.to_string(),
        };
        if reported.as_ref().is_none_or(|(what, when)| *what != why || when.elapsed() >= REPORT_INTERVAL) {
            sys::say!("netgrain: the metrics endpoint at {address} starts again: {why}");
            reported = Some((why, Instant::now()));
        }
        // Without a runtime there is no timer, so the thread itself sleeps.
        thread::sleep(PAUSE);
        if !matches!(stop.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            return;
        }
    }
}

/// One connection.
struct Connection {
    /// True once the request is complete.
    has_request: Rc<Cell<bool>>,
    task: JoinHandle<()>,
}

async fn accept(listener: StdListener, stop: &mut Stop, most: usize, reports: &Rc<Reports>) -> io::Result<End> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let mut clients: VecDeque<Connection> = VecDeque::new();
    loop {
        let next = poll_fn(|context| {
            if Pin::new(&mut *stop).poll(context).is_ready() {
                return Poll::Ready(None);
            }
            listener.poll_accept(context).map(Some)
        });
        let stream = match next.await {
            None => return Ok(End::Stopped),
            Some(Ok((stream, _))) => stream,
            Some(Err(e)) if is_final(&e) => return Ok(End::Failed(e)),
            Some(Err(_)) => {
                // The client has closed already, or no descriptor is free at the moment: clients wait in the backlog.
                let _ = timeout(PAUSE, &mut *stop).await;
                continue;
            }
        };
        clients.retain(|client| !client.task.is_finished());
        let is_full = clients.len() >= most;
        let has_number = sys::limits::is_available_to_clients(&stream);
        let made_room = (is_full || !has_number) && close_one(&mut clients).await;
        // The closed connection has freed a descriptor number below the limit for clients; this connection's number was
        // above it.
        let stream = if has_number { Some(stream) } else { renumbered(stream) };
        let Some(stream) = stream else { continue };
        if is_full && !made_room {
            let _ = stream.try_write(FULL);
            continue;
        }
        let has_asked = Rc::new(Cell::new(false));
        let visit = spawn_local(visit(stream, Rc::clone(&has_asked), Rc::clone(reports)));
        clients.push_back(Connection { has_request: has_asked, task: visit });
        // A request that has already arrived is answered before a further connection can displace this one.
        yield_now().await;
    }
}

/// Closes the longest-waiting connection that has not sent a whole request; false if there is none.
async fn close_one(clients: &mut VecDeque<Connection>) -> bool {
    let Some(index) = clients.iter().position(|client| !client.has_request.get()) else { return false };
    if let Some(client) = clients.remove(index) {
        client.task.abort();
        // The descriptor is closed when the task has ended.
        let _ = client.task.await;
    }
    true
}

/// Moves the connection to the lowest free descriptor number; `None` if that number is reserved too.
fn renumbered(stream: TcpStream) -> Option<TcpStream> {
    let lower = stream.into_std().ok()?.try_clone().ok()?;
    if sys::limits::is_available_to_clients(&lower) { TcpStream::from_std(lower).ok() } else { None }
}

/// True if accept(2) will never succeed again on this socket.
fn is_final(e: &io::Error) -> bool {
    // EBADF, EINVAL (the socket no longer listens), ENOTSOCK and EOPNOTSUPP.
    matches!(e.raw_os_error(), Some(9 | 22 | 88 | 95))
}

async fn visit(stream: TcpStream, has_asked: Rc<Cell<bool>>, reports: Rc<Reports>) {
    let service = service_fn(|request| {
        has_asked.set(true);
        let answer = answer(&request, &*reports);
        async { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(HEAD_MAX)
        .max_headers(FIELDS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // A client that has closed or is too slow gets no response.
    let _ = timeout(VISIT_TIMEOUT, connection).await;
}

fn answer(request: &Request<Incoming>, reports: &Reports) -> Response<String> {
    const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let mut response = Response::new(String::new());
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    } else if request.uri().path() == "/metrics" {
        *response.body_mut() = exposition_of(&reports());
    } else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        *response.body_mut() = "netgrain: the metrics are at /metrics\n".to_owned();
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream as StdStream};
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn ask(address: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = StdStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    fn scrape(address: SocketAddr) -> io::Result<String> {
        ask(address, "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")
    }

    fn server() -> MetricsServer {
        MetricsServer::start("127.0.0.1:0", Report::default).expect("an address")
    }

    /// Waits for the server; true if it closes this connection.
    fn is_closed(mut stream: StdStream) -> bool {
        let mut rest = Vec::new();
        // End of stream and reset both mean that the server closed it.
        match stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(e) => e.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn requests_that_are_never_finished_are_closed_and_keep_no_scrape_out() {
        let server = server();
        let half_open = || {
            let mut stream = StdStream::connect(server.address()).expect("a connection");
            // The server may close a connection that exceeds its limit while this is sent.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: te");
            stream
        };
        let streams: Vec<_> = (0..3 * CONNECTIONS_MAX).map(|_| half_open()).collect();
        for _ in 0..3 {
            let text = scrape(server.address()).expect("an answer beside all those that ask for nothing");
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        }
        assert!(streams.into_iter().all(is_closed), "each is closed in the end");
    }

    #[test]
    fn a_client_that_sends_a_byte_now_and_then_is_closed_too() {
        let server = server();
        let mut stream = StdStream::connect(server.address()).expect("a connection");
        let mut sender = stream.try_clone().expect("a descriptor");
        let drip = thread::spawn(move || {
            let bytes = b"GET /metrics HTTP/1.1\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'x'));
            for byte in bytes {
                if sender.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        assert!(!text.contains(" 200 "), "{text}");
        drop(stream);
        drip.join().expect("its connection is gone");
    }

    #[test]
    fn what_is_no_scrape_gets_an_answer_that_says_so() {
        let address = server();
        let address = address.address();
        let of = |request: &str| ask(address, request).expect("an answer");
        assert!(of("GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404"));
        assert!(of("POST /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n").starts_with("HTTP/1.1 405"));
        let head = of("HEAD /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        let fields = "X-Field: 1\r\n".repeat(FIELDS_MAX + 1);
        assert!(of(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n")).starts_with("HTTP/1.1 431"));
        assert!(of("\u{1}\u{2}\r\n\r\n").starts_with("HTTP/1.1 400"));
    }

    #[test]
    fn a_report_that_panics_costs_its_own_request_alone() {
        let asked = AtomicUsize::new(0);
        let report = move || {
            assert!(asked.fetch_add(1, Ordering::Relaxed) > 0, "the first request panics, as this test wants");
            Report::default()
        };
        let server = MetricsServer::start("127.0.0.1:0", report).expect("an address");
        let first = scrape(server.address());
        assert!(first.is_err() || first.is_ok_and(|text| text.is_empty()));
        assert!(scrape(server.address()).expect("an answer").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_listening_socket_that_fails_is_replaced() {
        let listener = StdListener::bind("127.0.0.1:0").expect("an address");
        let same = listener.try_clone().expect("a descriptor");
        let server = MetricsServer::serve(listener, || vec![Report::default()]).expect("a server");
        assert!(scrape(server.address()).expect("an answer").starts_with("HTTP/1.1 200"));
        // accept(2) fails from now on.
        StdStream::from(OwnedFd::from(same)).shutdown(Shutdown::Both).expect("a socket that listens");
        let again = (0..600).any(|_| {
            thread::sleep(PAUSE);
            scrape(server.address()).is_ok_and(|text| text.starts_with("HTTP/1.1 200"))
        });
        assert!(again, "nobody answers any more");
    }
}
