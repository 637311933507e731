//! The groups' control socket: one thread that serves requests ([`crate::request`]) and detects disconnected clients.
//!
//! Clients are not trusted: messages have a size limit, the thread closes the connection of a client that does not read
//! its responses, and a message that is no request gets an error response. A connection without any request is closed
//! after a timeout, or earlier if another client needs its slot. The socket of listeners has the same rules
//! ([`ring::attach`]).

use crate::entry::{ClientIdentity, GroupView};
use crate::error::RequestError;
use crate::limits::connections;
use crate::registry::{LoadResult, Registry};
use crate::request::{MESSAGE_MAX, Request, Response};
use ring::Branch;
use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::unix::{Connection, Listener, Peer};

/// The maximum number of connections of one unprivileged user. All unprivileged users together may use three quarters
/// of the connections; the last quarter is reserved for root and the engine's user.
const USER_CONNECTIONS_MAX: usize = 128;

/// Time limit for a client to read a complete response.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit for the first request of a connection.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which the thread checks whether it must stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The control socket's thread; it stops when this value is dropped.
#[derive(Debug)]
pub struct ControlServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct ControlClient {
    connection: Connection,
    identity: ClientIdentity,
    since: Instant,
    /// True after the first request; from then on the connection has no idle limit.
    has_requested: bool,
}

struct ClientMonitor {
    registry: Arc<Registry>,
    /// The interface that the socket belongs to.
    port: String,
    policy: ring::AttachPolicy,
    own_uid: u32,
    clients: Vec<ControlClient>,
}

impl ControlServer {
    /// Starts the thread. The socket belongs to interface `port` (an engine has one socket for each interface).
    /// `policy` names the users that may connect in addition to root and the engine's own user.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn open(socket: Listener, registry: Arc<Registry>, port: &str, policy: ring::AttachPolicy) -> io::Result<Self> {
        let (stop, port) = (Arc::new(AtomicBool::new(false)), port.to_owned());
        let reported = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("groups".into()).spawn(move || {
            let own_uid = sys::cpu::effective_uid();
            let mut worker = ClientMonitor { registry, port, policy, own_uid, clients: Vec::new() };
            while !reported.load(Ordering::Relaxed) {
                worker.serve(&socket);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ClientMonitor {
    fn drop(&mut self) {
        self.clients.iter().for_each(|client| self.registry.remove_connection(client.identity.uid));
    }
}

impl ClientMonitor {
    fn serve(&mut self, socket: &Listener) {
        let mut fds = vec![socket.as_fd()];
        fds.extend(self.clients.iter().map(|g| g.connection.as_fd()));
        let Ok(ready) = sys::unix::wait_readable(&fds, CHECK_INTERVAL) else {
            // poll(2) failed, for example because the kernel had no memory. Retry later; capture is not affected.
            std::thread::sleep(CHECK_INTERVAL);
            return;
        };
        // The loop serves the connections in reverse order, so that the removal of a connection does not shift the
        // indexes of the connections that the loop has not served yet.
        for index in ready.iter().rev().filter(|i| **i > 0).map(|i| i - 1) {
            if !self.serve_request(index) {
                self.disconnect(index);
            }
        }
        for index in (0..self.clients.len()).rev() {
            let client = &self.clients[index];
            if !client.has_requested && client.since.elapsed() > FIRST_REQUEST_TIMEOUT {
                self.disconnect(index);
            }
        }
        if ready.contains(&0) {
            self.accept_client(socket);
        }
    }

    fn disconnect(&mut self, index: usize) {
        let client = self.clients.swap_remove(index);
        self.registry.farewell(client.identity.connection);
        self.registry.remove_connection(client.identity.uid);
    }

    fn accept_client(&mut self, socket: &Listener) {
        let Ok(connection) = socket.accept() else {
            // Probably no file descriptors are left. The connection stays in the backlog; an immediate retry would
            // spin.
            std::thread::sleep(CHECK_INTERVAL);
            return;
        };
        let Ok(peer) = connection.peer() else { return };
        if connection.set_timeout(TIMEOUT).is_err() {
            return;
        }
        if !self.is_admitted(&peer) {
            let why = format!(
                "user {} may not use the groups of this engine; to admit a group of users, start the engine with \
                 --socket-group GROUP (`netgrain record`) or listen.group (`netgrain run`); the mode of the socket \
                 file does not admit them",
                peer.uid
            );
            return refuse_connection(&connection, why);
        }
        if !sys::limits::is_available_to_clients(&connection) {
            self.close_idle_connection(|_| true);
            return refuse_connection(
                &connection,
                "the engine has reached its limit of open files for connections; try again later",
            );
        }
        if self.register_connection(peer.uid) {
            let identity = ClientIdentity { uid: peer.uid, pid: peer.pid, connection: self.registry.next_connection() };
            self.clients.push(ControlClient { connection, identity, since: Instant::now(), has_requested: false });
        } else {
            refuse_connection(&connection, "the limit of connections to this engine is reached; try again later");
        }
    }

    /// Registers one more connection of this user, if necessary in place of a connection that has not sent a request
    /// yet; false if the limit is reached.
    fn register_connection(&mut self, uid: u32) -> bool {
        let registry = Arc::clone(&self.registry);
        let is_client_unprivileged = registry.is_unprivileged(uid);
        let limit = connections(sys::limits::open_files());
        // The limit counts the connections at all sockets of the engine.
        let has_too_many = Cell::new(false);
        let try_add = || {
            registry.add_connection(uid, |of_user, all| {
                has_too_many.set(is_client_unprivileged && of_user >= USER_CONNECTIONS_MAX.min(limit / 4));
                !has_too_many.get() && all < if is_client_unprivileged { limit / 4 * 3 } else { limit }
            })
        };
        if try_add() {
            return true;
        }
        let may_close = |client: &ControlClient| match is_client_unprivileged {
            true if has_too_many.get() => client.identity.uid == uid,
            true => registry.is_unprivileged(client.identity.uid),
            false => true,
        };
        self.close_idle_connection(may_close) && try_add()
    }

    /// Closes the oldest connection that satisfies `which` and has not sent a request yet; false if there is none.
    fn close_idle_connection(&mut self, which: impl Fn(&ControlClient) -> bool) -> bool {
        let idle = self.clients.iter().enumerate().filter(|(_, client)| !client.has_requested && which(client));
        let Some((index, _)) = idle.min_by_key(|(_, client)| client.since) else { return false };
        self.disconnect(index);
        true
    }

    fn is_admitted(&self, peer: &Peer) -> bool {
        let group = |gid| peer.gid == gid || peer.groups.contains(&gid);
        peer.uid == 0
            || peer.uid == self.own_uid
            || self.policy.uid == Some(peer.uid)
            || self.policy.gid.is_some_and(group)
    }

    /// Serves one request; false if the client has disconnected or must be disconnected.
    fn serve_request(&mut self, index: usize) -> bool {
        let client = &self.clients[index];
        let mut message = vec![0; MESSAGE_MAX];
        let (n, _) = match client.connection.receive(&mut message) {
            Ok((0, _)) => return false,
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return send_response(
                    &client.connection,
                    &Response::refusal(format!(
                        "the request has more than {MESSAGE_MAX} bytes, or carries file descriptors"
                    )),
                )
                .is_ok();
            }
            Err(_) => return false,
        };
        let reported = match serde_json::from_slice::<Request>(&message[..n]) {
            Ok(request) => {
                self.clients[index].has_requested = true;
                self.carry_out(self.clients[index].identity, &self.with_default_interface(request))
                    .unwrap_or_else(|e| ResponseParts::of(Response::refusal(e.to_string())))
            }
            Err(e) => ResponseParts::of(Response::refusal(format!("the message is not a request: {e}"))),
        };
        reported.send_to(&self.clients[index].connection, TIMEOUT).is_ok()
    }

    /// Sets the interface of a request without interfaces to that of this socket.
    fn with_default_interface(&self, mut request: Request) -> Request {
        if let Request::Create { ports, .. } = &mut request {
            ports.get_or_insert_with(|| vec![self.port.clone()]);
        }
        request
    }

    fn carry_out(&self, client: ClientIdentity, request: &Request) -> Result<ResponseParts, RequestError> {
        let registry = &self.registry;
        Ok(match request {
            Request::Create { .. } => {
                let LoadResult { generation, program_info: about, unresponsive, .. } =
                    registry.create(client, request)?;
                ResponseParts::of(Response { generation: Some(generation), about, ..Response::done_but(unresponsive) })
            }
            Request::Delete { group } => {
                registry.delete(client, group)?;
                ResponseParts::of(Response::done())
            }
            Request::Leave => {
                registry.leave(client);
                ResponseParts::of(Response::done())
            }
            Request::Join { .. } => {
                let joined = registry.join(client, request)?;
                let (slot, generation) = (Some(joined.slot), Some(joined.generation));
                let branches = joined.branches.len();
                let response = Response { slot, generation, branches, ..Response::done_but(joined.unresponsive) };
                ResponseParts { response, items: Vec::new(), branches: joined.branches }
            }
            Request::Attach { .. } => {
                let slot = Some(registry.attach(client, request)?);
                ResponseParts::of(Response { slot, ..Response::done() })
            }
            Request::Detach { group, slot } => {
                registry.detach(client, group, *slot)?;
                ResponseParts::of(Response::done())
            }
            Request::SetWeight { group, slot, weight } => {
                registry.set_weight(client, group, *slot, *weight)?;
                ResponseParts::of(Response::done())
            }
            Request::Program { group } => {
                let (program, generation) = registry.program(client, group)?;
                ResponseParts::of(Response { program, generation: Some(generation), ..Response::done() })
            }
            Request::Swap { group, program } => {
                let LoadResult { generation, program_info: about, took, unresponsive, .. } =
                    registry.swap(client, group, program.as_deref())?;
                let took_us = Some(took.as_micros() as u64);
                ResponseParts::of(Response {
                    generation: Some(generation),
                    about,
                    took_us,
                    ..Response::done_but(unresponsive)
                })
            }
            Request::List => ResponseParts::items(registry.view(client, None, Some(&self.port))?),
            Request::Stats { group } => {
                ResponseParts::items(registry.view(client, group.as_deref(), Some(&self.port))?)
            }
        })
    }
}

/// The parts of a response: the first message, and the JSON objects and branches that the messages after it contain.
struct ResponseParts {
    response: Response,
    items: Vec<String>,
    branches: Vec<Branch>,
}

impl ResponseParts {
    fn of(response: Response) -> Self {
        Self { response, items: Vec::new(), branches: Vec::new() }
    }

    fn items(views: Vec<GroupView>) -> Self {
        let items: Vec<String> = views.iter().map(GroupView::message).collect();
        Self { response: Response { items: items.len(), ..Response::done() }, items, branches: Vec::new() }
    }

    /// Sends all messages within `timeout` in total. One thread serves all clients, so a client that reads slowly
    /// delays the other clients.
    fn send_to(&self, connection: &Connection, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        let set_remaining_timeout = || {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            connection.set_timeout(left)
        };
        send_response(connection, &self.response)?;
        for item in &self.items {
            set_remaining_timeout()?;
            connection.send(item.as_bytes(), &[])?;
        }
        for branch in &self.branches {
            set_remaining_timeout()?;
            branch.send(connection)?;
        }
        connection.set_timeout(timeout)
    }
}

/// Sends a refusal. To close a Unix socket with unread data resets the connection and discards the refusal, so this
/// function shuts the read direction down and reads what has already arrived.
fn refuse_connection(connection: &Connection, why: impl Into<String>) {
    // If the refusal cannot be sent, the client sees the closed connection.
    let _ = send_response(connection, &Response::refusal(why));
    if connection.shut_reading().is_ok() {
        discard_received(connection);
    }
}

/// Reads and discards the messages that have arrived at a connection whose read direction is shut down.
pub(crate) fn discard_received(connection: &Connection) {
    let mut message = vec![0; MESSAGE_MAX];
    let mut is_more = || match connection.receive(&mut message) {
        Ok((n, _)) => n > 0,
        Err(e) => e.kind() == io::ErrorKind::InvalidData,
    };
    while is_more() {}
}

fn send_response(connection: &Connection, response: &Response) -> io::Result<()> {
    connection.send(&serde_json::to_vec(response)?, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_of_a_response_holds_for_all_its_messages_together() {
        let path = std::env::temp_dir().join(format!("netgrain-control-{}", std::process::id()));
        let socket = Listener::bind(&path, 0o600, None, None).expect("a socket");
        let reader = Connection::connect(&path).expect("a connection");
        let connection = socket.accept().expect("a client");
        // The response is longer than the socket buffer, so the server can send it only as fast as the client reads.
        let items = vec!["x".repeat(100_000); 60];
        let reported = ResponseParts { response: Response::done(), items, branches: Vec::new() };
        let slow = std::thread::spawn(move || {
            let mut message = vec![0; MESSAGE_MAX];
            while reader.receive(&mut message).is_ok_and(|(n, _)| n > 0) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let timeout = Duration::from_millis(100);
        assert!(reported.send_to(&connection, timeout).is_err(), "each message alone is within the limit");
        drop(connection);
        slow.join().expect("no panic");
        let _ = std::fs::remove_file(path);
    }
}
