//! The HTTP server of `/metrics`: HTTP/1.1 (RFC 9112) in one thread, with one request per connection.
//!
//! Any host that reaches the address can connect, and the process also records packets. So each resource that clients
//! can use has a limit: connections, file descriptors ([`sys::limits::is_available_to_clients`]), bytes of a request's
//! head, and time. If all connections are in use, the server closes the oldest connection that has not sent a complete
//! request. If there is none, it closes the connection whose response has waited longest to be read. So neither
//! connections without a request nor connections that do not read their response block a scrape.
//!
//! A connection that is closed before the end of its response is reset; otherwise the kernel would retain the unsent
//! data for minutes.

use super::exposition::exposition_of;
use crate::report::Report;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn, ready};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};
use tokio::time::{Timeout, timeout};

/// The largest number of connections at a time.
const CONNECTIONS_MAX: usize = 64;

/// The server does not start if it may open fewer connections than this. With fewer connections, other clients could
/// block a scrape.
const CONNECTIONS_MIN: usize = 4;

/// The longest time that a client may take to send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest duration of a connection, from its first byte to the last byte of the response.
const VISIT_TIMEOUT: Duration = Duration::from_secs(15);

/// If a client has not read its response after this time, the server may close the connection to make it available for
/// another client.
const READ_GRACE: Duration = Duration::from_secs(1);

/// The largest size of a request's head in bytes.
const HEAD_MAX: usize = 16 << 10;

/// The largest number of header fields of a request.
const FIELDS_MAX: usize = 64;

/// The pause before the server retries an operation that the system refused.
const PAUSE: Duration = Duration::from_millis(100);

/// The interval at which a continuing failure is reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The limit of open files that the process requests.
const OPEN_FILES: u64 = 1 << 16;

/// The response to a client for which no connection is free.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// A server that responds to `GET /metrics` until it is dropped.
pub struct MetricsServer {
    address: SocketAddr,
    /// The thread ends when this sender is dropped.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at `address` and calls `report` for each request. If the port is 0, the system chooses a port.
    ///
    /// # Errors
    /// The address cannot be bound, or too few file descriptors are free.
    pub fn start(address: &str, report: impl Fn() -> Report + Send + 'static) -> io::Result<Self> {
        Self::start_for_all(address, move || vec![report()])
    }

    /// Listens at `address` and calls `reports` for each request; each report is of one interface.
    ///
    /// # Errors
    /// The same as those of [`MetricsServer::start`].
    pub fn start_for_all(address: &str, reports: impl Fn() -> Vec<Report> + Send + 'static) -> io::Result<Self> {
        // Only programs that use select(2) need the usual limit of 1024 open files.
        sys::limits::raise_open_files(OPEN_FILES);
        Self::serve(StdListener::bind(address)?, Limits::default(), reports)
    }

    fn serve(
        listener: StdListener,
        limits: Limits,
        reports: impl Fn() -> Vec<Report> + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = runtime()?;
        // The runtime has already opened its descriptors, so the next descriptor number is that of the first
        // connection.
        let available = sys::limits::first_reserved_fd(listener.try_clone()?);
        if available < CONNECTIONS_MIN {
            return Err(io::Error::other(format!(
                "only {available} of {} file descriptors are free for connections; raise the limit (LimitNOFILE= of a \
                 unit, ulimit -n)",
                sys::limits::open_files()
            )));
        }
        let limits = Limits { connections: available.min(limits.connections), ..limits };
        let (stop, stopped) = oneshot::channel();
        let work = move || keep_serving(Some((runtime, listener)), address, stopped, limits, Rc::new(reports));
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

/// The limits of the resources that clients can use.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: usize,
    /// See [`VISIT_TIMEOUT`].
    visit: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: CONNECTIONS_MAX, visit: VISIT_TIMEOUT }
    }
}

/// The reason reason [`accept`] ended.
enum End {
    Stopped,
    /// The listening socket has failed permanently.
    Failed(io::Error),
}

type Reports = dyn Fn() -> Vec<Report>;
type Stop = oneshot::Receiver<Infallible>;

/// Serves until it is stopped. After a failure of the socket, or a panic, it continues with a new socket at the same
/// address.
fn keep_serving(
    mut ready: Option<(Runtime, StdListener)>,
    address: SocketAddr,
    mut stop: Stop,
    limits: Limits,
    reports: Rc<Reports>,
) {
    let mut reported: Option<(String, Instant)> = None;
    loop {
        let again = || io::Result::Ok((runtime()?, StdListener::bind(address)?));
        let reason = match ready.take().map_or_else(again, Ok) {
            Ok((runtime, listener)) => {
                let round = || LocalSet::new().block_on(&runtime, accept(listener, &mut stop, limits, &reports));
                match catch_unwind(AssertUnwindSafe(round)) {
                    Ok(Ok(End::Stopped)) => return,
                    Ok(Ok(End::Failed(e)) | Err(e)) => e.to_string(),
                    Err(_) => "a panic; please report this".to_owned(),
                }
            }
            Err(e) => e.to_string(),
        };
        if reported.as_ref().is_none_or(|(what, when)| *what != reason || when.elapsed() >= REPORT_INTERVAL) {
            sys::say!("netgrain: the metrics endpoint at {address} restarts: {reason}");
            reported = Some((reason, Instant::now()));
        }
        // Without a runtime there is no timer, so the thread itself sleeps.
        thread::sleep(PAUSE);
        if !matches!(stop.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            return;
        }
    }
}

/// An open connection with its task.
struct Connection {
    /// The time at which the request was complete; `None` before.
    requested: Rc<Cell<Option<Instant>>>,
    /// The task ends when this sender is dropped.
    close: oneshot::Sender<Infallible>,
    task: JoinHandle<()>,
}

async fn accept(listener: StdListener, stop: &mut Stop, limits: Limits, reports: &Rc<Reports>) -> io::Result<End> {
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
                // The client has closed the connection already, or no descriptor is free at the moment. New clients
                // wait in the backlog.
                let _ = timeout(PAUSE, &mut *stop).await;
                continue;
            }
        };
        clients.retain(|client| !client.task.is_finished());
        let is_full = clients.len() >= limits.connections;
        let has_number = sys::limits::is_available_to_clients(&stream);
        let has_closed = (is_full || !has_number) && close_one(&mut clients).await;
        // The descriptor number of this connection is above the limit for clients. If another connection was closed
        // just now, a number below the limit is free, and this connection can use it.
        let stream = if has_number { Some(stream) } else { renumbered(stream) };
        let Some(stream) = stream else { continue };
        if is_full && !has_closed {
            let _ = stream.try_write(FULL);
            continue;
        }
        let requested = Rc::new(Cell::new(None));
        let (close, closed) = oneshot::channel();
        let end = timeout(limits.visit, closed);
        let task = spawn_local(visit(stream, end, Rc::clone(&requested), Rc::clone(reports)));
        clients.push_back(Connection { requested, close, task });
        // A request that has already arrived is processed first. Otherwise, a new client could cause this connection to
        // be closed before its request is read.
        yield_now().await;
    }
}

/// Closes the oldest connection that has not sent a complete request. If there is none, closes the connection whose
/// response has waited longest, if it has waited for [`READ_GRACE`]. Returns false if no connection was closed.
async fn close_one(clients: &mut VecDeque<Connection>) -> bool {
    let without_request = clients.iter().position(|client| client.requested.get().is_none());
    let unread = || {
        let waits = clients.iter().enumerate().filter_map(|(index, client)| Some((client.requested.get()?, index)));
        waits.min().filter(|(requested, _)| requested.elapsed() >= READ_GRACE).map(|(_, index)| index)
    };
    let Some(client) = without_request.or_else(unread).and_then(|index| clients.remove(index)) else { return false };
    drop(client.close);
    // The descriptor is closed when the task ends.
    let _ = client.task.await;
    true
}

/// Moves the connection to the lowest free descriptor number. Returns `None` if that number is reserved too.
fn renumbered(stream: TcpStream) -> Option<TcpStream> {
    let lower = stream.into_std().ok()?.try_clone().ok()?;
    if sys::limits::is_available_to_clients(&lower) { TcpStream::from_std(lower).ok() } else { None }
}

/// True if accept(2) will never succeed again on this socket.
fn is_final(e: &io::Error) -> bool {
    // EBADF, EINVAL (the socket no longer listens), ENOTSOCK and EOPNOTSUPP.
    matches!(e.raw_os_error(), Some(9 | 22 | 88 | 95))
}

async fn visit(
    stream: TcpStream,
    end: Timeout<oneshot::Receiver<Infallible>>,
    requested: Rc<Cell<Option<Instant>>>,
    reports: Rc<Reports>,
) {
    let service = service_fn(|request| {
        requested.set(Some(Instant::now()));
        ready(Ok::<_, Infallible>(answer(&request, &*reports)))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(HEAD_MAX)
        .max_headers(FIELDS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut end = pin!(end);
    let is_done = poll_fn(|context| {
        // A client that has closed its connection gets no response.
        let done = Pin::new(&mut connection).poll(context).map(|_| true);
        if done.is_ready() { done } else { end.as_mut().poll(context).map(|_| false) }
    });
    if !is_done.await {
        let _ = connection.into_parts().io.into_inner().set_zero_linger();
    }
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
        *response.body_mut() = "netgrain: the metrics are at the path /metrics\n".to_owned();
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

    fn send_request(address: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = StdStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    fn scrape(address: SocketAddr) -> io::Result<String> {
        send_request(address, "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")
    }

    fn server() -> MetricsServer {
        MetricsServer::start("127.0.0.1:0", Report::default).expect("an address")
    }

    /// Waits until the server closes this connection. Returns true if it did.
    fn is_closed(mut stream: StdStream) -> bool {
        let mut rest = Vec::new();
        // If the server has closed the connection, the read returns an end of stream or the error `ConnectionReset`.
        match stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(e) => e.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn incomplete_requests_are_closed_and_do_not_block_a_scrape() {
        let server = server();
        let half_open = || {
            let mut stream = StdStream::connect(server.address()).expect("a connection");
            // If there are too many connections, the server may close this connection before the request is sent.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: te");
            stream
        };
        let streams: Vec<_> = (0..3 * CONNECTIONS_MAX).map(|_| half_open()).collect();
        for _ in 0..3 {
            let text = scrape(server.address()).expect("a response although other connections send no request");
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        }
        assert!(streams.into_iter().all(is_closed), "the server closes all connections with incomplete requests");
    }

    #[test]
    fn a_client_that_sends_single_bytes_slowly_is_closed() {
        let server = server();
        let mut stream = StdStream::connect(server.address()).expect("a connection");
        let mut sender = stream.try_clone().expect("a descriptor");
        let slow_sender = thread::spawn(move || {
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
        slow_sender.join().expect("the sender ends when its connection is closed");
    }

    /// Size of a page that is larger than the send and receive buffers of a loopback connection, so that the server
    /// must wait until the client reads.
    const PAGE: usize = 6 << 20;

    fn server_of_large_pages(limits: Limits) -> MetricsServer {
        let listener = StdListener::bind("127.0.0.1:0").expect("an address");
        let of = |len: usize| vec![Report { interface: "x".repeat(len), ..Report::default() }];
        // Each line of the page contains the name of the interface.
        let lines = (exposition_of(&of(1000)).len() - exposition_of(&of(0)).len()) / 1000;
        let report = move || of(PAGE / lines + 1);
        MetricsServer::serve(listener, limits, report).expect("a server")
    }

    /// Returns a client that has sent a complete request and does not read the response.
    fn request_without_reading(address: SocketAddr) -> StdStream {
        let mut stream = StdStream::connect(address).expect("a connection");
        // If no connection is free, the server may close this connection before the request is sent.
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
        stream
    }

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(60), "not reached within 60 s: {what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_connection_with_an_unread_response_is_reset() {
        let server = server_of_large_pages(Limits { visit: Duration::from_millis(500), ..Limits::default() });
        let stream = request_without_reading(server.address());
        until("the connection is reset", || {
            stream.take_error().expect("a socket").is_some_and(|e| e.kind() == io::ErrorKind::ConnectionReset)
        });
    }

    #[test]
    fn clients_that_do_not_read_their_responses_do_not_block_a_scrape() {
        // In this test no connection reaches its time limit.
        let limits = Limits { connections: 6, visit: Duration::from_secs(3600) };
        let server = server_of_large_pages(limits);
        let address = server.address();
        let streams: Vec<_> = (0..3 * limits.connections).map(|_| request_without_reading(address)).collect();
        for _ in 0..3 {
            until("a scrape succeeds although other clients do not read", || {
                let text = scrape(address).unwrap_or_default();
                text.starts_with("HTTP/1.1 200") && text.len() > PAGE
            });
        }
        drop(streams);
        assert!(scrape(address).expect("a response").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn other_requests_get_an_error_response() {
        let address = server();
        let address = address.address();
        let of = |request: &str| send_request(address, request).expect("a response");
        assert!(of("GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404"));
        assert!(of("POST /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n").starts_with("HTTP/1.1 405"));
        let head = of("HEAD /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        let fields = "X-Field: 1\r\n".repeat(FIELDS_MAX + 1);
        assert!(of(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n")).starts_with("HTTP/1.1 431"));
        assert!(of("\u{1}\u{2}\r\n\r\n").starts_with("HTTP/1.1 400"));
    }

    #[test]
    fn a_panic_of_a_report_fails_only_its_own_request() {
        let requests = AtomicUsize::new(0);
        let report = move || {
            assert!(requests.fetch_add(1, Ordering::Relaxed) > 0, "the first request panics intentionally");
            Report::default()
        };
        let server = MetricsServer::start("127.0.0.1:0", report).expect("an address");
        let first = scrape(server.address());
        assert!(first.is_err() || first.is_ok_and(|text| text.is_empty()));
        assert!(scrape(server.address()).expect("a response").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_listening_socket_that_fails_is_replaced() {
        let listener = StdListener::bind("127.0.0.1:0").expect("an address");
        let same = listener.try_clone().expect("a descriptor");
        let server = MetricsServer::serve(listener, Limits::default(), || vec![Report::default()]).expect("a server");
        assert!(scrape(server.address()).expect("a response").starts_with("HTTP/1.1 200"));
        // This makes accept(2) fail.
        StdStream::from(OwnedFd::from(same)).shutdown(Shutdown::Both).expect("a socket that listens");
        let again = (0..600).any(|_| {
            thread::sleep(PAUSE);
            scrape(server.address()).is_ok_and(|text| text.starts_with("HTTP/1.1 200"))
        });
        assert!(again, "no server responds after the failure of the socket");
    }
}
