//! How a listener in another process attaches: a Unix socket that preserves message boundaries (`SOCK_SEQPACKET`).
//!
//! ```text
//! listener -> engine   Hello    magic u64, version u64, mode u64 (0 lossy, 1 lossless), name [64]
//! engine -> listener   Welcome  magic u64, version u64, rings u64, refusal [104] (empty text: welcome)
//! engine -> listener   Ring     bytes_len u64, descs u64, desc u64, pos u64, slot u64  + 4 descriptors:
//!                               packet bytes, descriptors, control page (all sealed), cursor page    (once per ring)
//! ```
//! All numbers are little-endian. The connection stays open while the listener is attached. The end of the connection
//! detaches the listener, so a process that dies is detached at once.

use crate::desc::DESC_BYTES;
use crate::desc::DescPosition;
use crate::layout::{ControlPage, CursorPage, MAGIC, NAME, PAGE, RingParameters, VERSION};
use crate::listener::{Listener, Registration};
use crate::listener_registry::{JoinError, ListenerRegistry, Mode, SLOTS};
use crate::memory::RingMemory;
use crate::producer::Producer;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::memory::SharedMemory;
use sys::unix::{Connection, Peer};

const HELLO: usize = 24 + NAME;
const ACCEPT: usize = 128;
const RING: usize = 40;
const RINGS_MAX: u64 = 256;

/// Largest number of connections, with and without an attached listener. The limit prevents clients from using all file
/// descriptors of the engine.
const CLIENTS_MAX: usize = 4 * SLOTS;
/// Largest number of connections of one user (other than root and the engine's user). All such users together leave a
/// quarter of the connections to root and the engine's user.
const USER_CONNECTIONS_MAX: usize = CLIENTS_MAX / 8;
/// Largest number of listeners of one user (other than root and the engine's user). All such users together leave a
/// quarter of the listener slots to root, the engine's user and the engine's own lossless readers.
const USER_SLOTS_MAX: usize = SLOTS / 4;
/// How long the server waits for the Hello message of a client.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which the server checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The users that may attach. Root and the engine's own user may always attach.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachPolicy {
    /// The Unix id of a further user that may attach.
    pub uid: Option<u32>,
    /// The Unix id of a group of users that may attach.
    pub gid: Option<u32>,
    /// True if the users of `uid` and `gid` may also attach lossless listeners, which can make capture drop packets.
    pub allow_lossless: bool,
}

impl AttachPolicy {
    /// The reason to refuse this peer in this mode; `None` if it may attach.
    fn refusal(&self, peer: &Peer, mode: Mode, own_uid: u32) -> Option<String> {
        if !is_other_user(peer.uid, own_uid) {
            return None;
        }
        let member = self.uid == Some(peer.uid) || self.gid.is_some_and(|g| peer.gid == g || peer.groups.contains(&g));
        match (member, mode) {
            (false, _) => {
                Some(format!("user {} may not listen to this engine; the engine's owner can permit it", peer.uid))
            }
            (true, Mode::Lossless) if !self.allow_lossless => {
                Some(format!("user {} may attach lossy listeners, but no lossless listeners", peer.uid))
            }
            _ => None,
        }
    }
}

/// True if the user is neither root nor the engine's own user.
fn is_other_user(uid: u32, own_uid: u32) -> bool {
    uid != 0 && uid != own_uid
}

/// A ring to which listeners may attach.
#[derive(Clone, Debug)]
pub struct OfferedRing {
    /// The ring's memory.
    pub memory: Arc<RingMemory>,
    /// The registry that admits the ring's listeners.
    pub registry: Arc<ListenerRegistry>,
    /// The ring's parameters.
    pub shape: RingParameters,
}

impl OfferedRing {
    /// The entry for the ring that this producer writes.
    pub fn of(producer: &Producer) -> Self {
        let (memory, registry) = (Arc::clone(producer.memory()), Arc::clone(producer.registry()));
        Self { memory, registry, shape: producer.config().shape() }
    }
}

/// The server thread that admits listeners. It ends when this value is dropped.
#[derive(Debug)]
pub struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves these rings on a new thread. Each connection gets one listener per ring.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub fn start(socket: sys::unix::Listener, rings: Vec<OfferedRing>, policy: AttachPolicy) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let reported = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("listeners".into()).spawn(move || {
            let mut clients = Clients { rings, policy, own_uid: sys::cpu::effective_uid(), connections: Vec::new() };
            while !reported.load(Ordering::Relaxed) {
                clients.serve(&socket);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Clients {
    rings: Vec<OfferedRing>,
    policy: AttachPolicy,
    own_uid: u32,
    connections: Vec<Client>,
}

struct Client {
    connection: Connection,
    uid: u32,
    since: Instant,
    /// The listener slots of this connection, one per ring; `None` until the listener is admitted.
    slots: Option<Vec<u8>>,
}

impl Clients {
    fn serve(&mut self, socket: &sys::unix::Listener) {
        let mut fds = vec![socket.as_fd()];
        fds.extend(self.connections.iter().map(|g| g.connection.as_fd()));
        let Ok(ready) = sys::unix::wait_readable(&fds, CHECK_INTERVAL) else {
            // poll(2) failed, for example because memory is short. Capture continues, and new clients wait.
            std::thread::sleep(CHECK_INTERVAL);
            return;
        };
        let mut gone = Vec::new();
        for index in ready.iter().filter(|i| **i > 0).map(|i| i - 1) {
            if self.connections[index].slots.is_some() {
                gone.push(index);
                continue;
            }
            let limit_refusal = self.listener_limit_refusal(self.connections[index].uid);
            let client = &mut self.connections[index];
            match serve_hello(&client.connection, &self.rings, &self.policy, self.own_uid, limit_refusal) {
                Ok(slots) => client.slots = Some(slots),
                Err(_) => gone.push(index),
            }
        }
        for (index, client) in self.connections.iter().enumerate() {
            if client.slots.is_none() && client.since.elapsed() > HELLO_TIMEOUT && !gone.contains(&index) {
                gone.push(index);
            }
        }
        gone.sort_unstable();
        for index in gone.into_iter().rev() {
            self.disconnect(index);
        }
        if ready.contains(&0) {
            self.accept_client(socket);
        }
    }

    fn accept_client(&mut self, socket: &sys::unix::Listener) {
        let Ok(connection) = socket.accept() else {
            // The process probably has no free file descriptor. The client stays in the backlog, and an immediate retry
            // would only use CPU time.
            std::thread::sleep(CHECK_INTERVAL);
            return;
        };
        let Ok(peer) = connection.peer() else { return };
        if connection.set_timeout(HELLO_TIMEOUT).is_err() {
            return;
        }
        // This check precedes the Hello message. Otherwise users without permission could occupy all connections of a
        // socket that every user can open.
        if let Some(why) = self.policy.refusal(&peer, Mode::Lossy, self.own_uid) {
            return refuse_connection(&connection, &why);
        }
        if !sys::limits::is_available_to_clients(&connection) {
            self.close_idle_connection(|_| true);
            return refuse_connection(
                &connection,
                "the engine has reached its limit of open files for listeners; try again later",
            );
        }
        if self.admit_connection(peer.uid) {
            self.connections.push(Client { connection, uid: peer.uid, since: Instant::now(), slots: None });
        } else {
            refuse_connection(&connection, "the limit of connections to this engine is reached; try again later");
        }
    }

    /// True if the server can accept one more connection of this user. If necessary, the server closes a connection
    /// without Hello for it.
    fn admit_connection(&mut self, uid: u32) -> bool {
        let own_uid = self.own_uid;
        let is_other = |client: &Client| is_other_user(client.uid, own_uid);
        let count = |which: &dyn Fn(&Client) -> bool| self.connections.iter().filter(|g| which(g)).count();
        if is_other_user(uid, own_uid) {
            if count(&|client| client.uid == uid) >= USER_CONNECTIONS_MAX {
                return self.close_idle_connection(|client| client.uid == uid);
            }
            if count(&is_other) >= CLIENTS_MAX / 4 * 3 {
                return self.close_idle_connection(is_other);
            }
        }
        self.connections.len() < CLIENTS_MAX || self.close_idle_connection(|_| true)
    }

    /// Closes the oldest connection that satisfies `which` and has sent no Hello message; false if there is none.
    fn close_idle_connection(&mut self, which: impl Fn(&Client) -> bool) -> bool {
        let idle = self.connections.iter().enumerate().filter(|(_, g)| g.slots.is_none() && which(g));
        let Some((index, _)) = idle.min_by_key(|(_, client)| client.since) else { return false };
        self.disconnect(index);
        true
    }

    /// The reason to refuse this user a further listener; `None` if the limits permit it.
    fn listener_limit_refusal(&self, uid: u32) -> Option<&'static str> {
        let is_other = |client: &&Client| client.slots.is_some() && is_other_user(client.uid, self.own_uid);
        let (mut all, mut mine) = (0, 0);
        for client in self.connections.iter().filter(is_other) {
            all += 1;
            mine += usize::from(client.uid == uid);
        }
        if !is_other_user(uid, self.own_uid) {
            None
        } else if mine >= USER_SLOTS_MAX {
            Some("this user has reached the limit of listeners per user; end one of them first")
        } else if all >= SLOTS / 4 * 3 {
            Some("the limit of listeners of users other than the engine's owner is reached; try again later")
        } else {
            None
        }
    }

    fn disconnect(&mut self, index: usize) {
        let client = self.connections.swap_remove(index);
        for (ring, slot) in self.rings.iter().zip(client.slots.unwrap_or_default()) {
            ring.registry.leave(slot);
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        while !self.connections.is_empty() {
            self.disconnect(0);
        }
    }
}

/// Sends a refusal and discards the client's input. If the connection were closed with an unread Hello message, the
/// kernel would reset the connection and discard the refusal. Therefore the function shuts down the receiving side and
/// reads all input first.
fn refuse_connection(connection: &Connection, why: &str) {
    // If the refusal cannot be sent, the client still sees the closed connection.
    let _ = connection.send(&accept_message(0, why), &[]);
    if connection.shut_reading().is_ok() {
        while connection.receive(&mut [0; HELLO]).is_ok_and(|(n, _)| n > 0) {}
    }
}

/// Responds to one Hello. After an error the connection is closed and no slot stays occupied. `limit_refusal` is the
/// reason to refuse further listeners.
fn serve_hello(
    connection: &Connection,
    rings: &[OfferedRing],
    policy: &AttachPolicy,
    own_uid: u32,
    limit_refusal: Option<&str>,
) -> io::Result<Vec<u8>> {
    let mut hello = [0; HELLO];
    let (n, _) = connection.receive(&mut hello)?;
    let refuse = |why: &str| -> io::Result<Vec<u8>> {
        connection.send(&accept_message(0, why), &[])?;
        Err(io::Error::other(why.to_owned()))
    };
    if n != HELLO || word(&hello, 0) != MAGIC {
        return refuse(
            "the message is not the Hello of a listener; this socket of a netgrain engine admits listeners only",
        );
    }
    if word(&hello, 8) != VERSION {
        return refuse(&format!("this engine supports only version {VERSION} of the listener protocol"));
    }
    let mode = if word(&hello, 16) == 1 { Mode::Lossless } else { Mode::Lossy };
    let name: Vec<u8> = hello[24..].iter().copied().take_while(|b| *b != 0).collect();
    let name: String = String::from_utf8_lossy(&name).chars().filter(|c| !c.is_control()).collect();
    let peer = connection.peer()?;
    if let Some(why) = policy.refusal(&peer, mode, own_uid) {
        return refuse(&why);
    }
    if let Some(why) = limit_refusal {
        return refuse(why);
    }
    let name = if name.is_empty() { format!("pid {}", peer.pid) } else { format!("{name} (pid {})", peer.pid) };
    let mut joined = JoinGuard { rings, slots: Vec::new() };
    let mut responses = Vec::new();
    for ring in rings {
        match ring.registry.join(&name, mode, false) {
            Ok((state, position)) => {
                joined.slots.push(state.slot);
                if !sys::limits::is_available_to_clients(&state.cursor.memory().as_fd()) {
                    return refuse(
                        "the engine has reached its limit of open files for listeners; end a listener first",
                    );
                }
                responses.push((state, position.unwrap_or_default()));
            }
            Err(why) => return refuse(&why.to_string()),
        }
    }
    connection.send(&accept_message(rings.len() as u64, ""), &[])?;
    for (ring, (state, position)) in rings.iter().zip(&responses) {
        let mut message = [0; RING];
        let words = [ring.shape.bytes, ring.shape.descs, position.desc, position.pos, state.slot.into()];
        for (to, from) in message.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        let memory = &ring.memory;
        connection.send(
            &message,
            &[
                memory.bytes().as_fd(),
                memory.descs().as_fd(),
                memory.control.memory().as_fd(),
                state.cursor.memory().as_fd(),
            ],
        )?;
    }
    Ok(std::mem::take(&mut joined.slots))
}

/// The slots of a listener. When the guard is dropped, the listener leaves these slots, unless the caller has taken
/// them.
struct JoinGuard<'a> {
    rings: &'a [OfferedRing],
    slots: Vec<u8>,
}

impl Drop for JoinGuard<'_> {
    fn drop(&mut self) {
        for (ring, slot) in self.rings.iter().zip(&self.slots) {
            ring.registry.leave(*slot);
        }
    }
}

/// Reasons why attaching failed.
#[derive(Debug)]
pub enum AttachError {
    /// No engine listens on the socket, or the socket is not accessible.
    Unreachable(io::Error),
    /// The engine refused; the text is its reason.
    Refused(String),
    /// A message of the engine violates the protocol.
    Protocol(&'static str),
    /// The memory of the ring could not be mapped.
    Memory(io::Error),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "permission denied on the engine's socket; run as its owner or a member of its group")
            }
            Self::Unreachable(e) => write!(f, "no engine listens on this socket: {}", sys::advice::cause(e)),
            Self::Refused(why) => write!(f, "the engine refused: {why}"),
            Self::Protocol(what) => write!(f, "the engine's response is invalid: {what}"),
            Self::Memory(e) => write!(f, "the shared ring cannot be mapped: {e}"),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<JoinError> for AttachError {
    fn from(e: JoinError) -> Self {
        Self::Refused(e.to_string())
    }
}

/// Attaches to the engine that listens at `path`: one [`Listener`] per queue.
///
/// # Errors
/// [`AttachError`].
pub fn attach(path: &Path, mode: Mode, name: &str) -> Result<Vec<Listener>, AttachError> {
    let connection = Connection::connect(path).map_err(AttachError::Unreachable)?;
    connection.set_timeout(2 * HELLO_TIMEOUT).map_err(AttachError::Unreachable)?;
    let mut hello = [0; HELLO];
    hello[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    hello[8..16].copy_from_slice(&VERSION.to_le_bytes());
    hello[16..24].copy_from_slice(&u64::from(mode == Mode::Lossless).to_le_bytes());
    let text = name.as_bytes();
    let len = text.len().min(NAME);
    hello[24..24 + len].copy_from_slice(&text[..len]);
    match connection.send(&hello, &[]) {
        // An engine may refuse a client before it reads the Hello message. It has then closed its side of the
        // connection, but its refusal is still readable.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.map_err(AttachError::Unreachable)?,
    }
    let mut message = [0; ACCEPT];
    let (n, _) = connection.receive(&mut message).map_err(AttachError::Unreachable)?;
    if n != ACCEPT || word(&message, 0) != MAGIC {
        return Err(AttachError::Protocol("the Welcome message is malformed"));
    }
    let refusal: Vec<u8> = message[24..].iter().copied().take_while(|b| *b != 0).collect();
    if !refusal.is_empty() {
        return Err(AttachError::Refused(String::from_utf8_lossy(&refusal).into_owned()));
    }
    let rings = word(&message, 16);
    if rings == 0 || rings > RINGS_MAX {
        return Err(AttachError::Protocol("the number of rings is out of range"));
    }
    let connection = Arc::new(connection);
    (0..rings).map(|_| receive_ring(&connection, mode)).collect()
}

fn receive_ring(connection: &Arc<Connection>, mode: Mode) -> Result<Listener, AttachError> {
    let mut message = [0; RING];
    let (n, fds) = connection.receive(&mut message).map_err(AttachError::Unreachable)?;
    let [bytes, descs, control, cursor] = <[_; 4]>::try_from(fds)
        .map_err(|_| AttachError::Protocol("a Ring message does not carry four file descriptors"))?;
    if n != RING {
        return Err(AttachError::Protocol("a Ring message is malformed"));
    }
    let control = SharedMemory::attach_read_only(control, PAGE, false).map_err(AttachError::Memory)?;
    let (control, shape) = ControlPage::attach(control).map_err(AttachError::Protocol)?;
    if (shape.bytes, shape.descs) != (word(&message, 0), word(&message, 8)) {
        return Err(AttachError::Protocol("the sizes of the ring in the message and in the control page differ"));
    }
    let bytes = SharedMemory::attach_read_only(bytes, shape.bytes as usize, true).map_err(AttachError::Memory)?;
    let descs =
        SharedMemory::attach_read_only(descs, shape.descs as usize * DESC_BYTES, true).map_err(AttachError::Memory)?;
    let cursor = SharedMemory::attach_read_write(cursor, PAGE).map_err(AttachError::Memory)?;
    let memory = Arc::new(RingMemory::attached(bytes, descs, control, None, &shape));
    let position = (mode == Mode::Lossless).then(|| DescPosition { desc: word(&message, 16), pos: word(&message, 24) });
    let cursor = Arc::new(CursorPage::attach(cursor));
    Ok(Listener::new(memory, cursor, shape, mode, position, Registration::Connection(Arc::clone(connection))))
}

fn accept_message(rings: u64, refusal: &str) -> [u8; ACCEPT] {
    let mut message = [0; ACCEPT];
    for (to, from) in message.chunks_exact_mut(8).zip([MAGIC, VERSION, rings]) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    let text = refusal.as_bytes();
    let len = text.len().min(ACCEPT - 25);
    message[24..24 + len].copy_from_slice(&text[..len]);
    message
}

fn word(message: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&message[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, gid: u32, groups: &[u32]) -> Peer {
        Peer { pid: 1, uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn users_outside_the_policy_are_refused_and_members_may_attach_lossy_only() {
        let policy = AttachPolicy { uid: Some(7), gid: Some(70), allow_lossless: false };
        assert!(policy.refusal(&peer(0, 0, &[]), Mode::Lossless, 1000).is_none());
        assert!(policy.refusal(&peer(1000, 1, &[]), Mode::Lossless, 1000).is_none());
        assert!(policy.refusal(&peer(8, 8, &[9]), Mode::Lossy, 1000).is_some());
        for member in [peer(7, 1, &[]), peer(8, 70, &[]), peer(8, 1, &[3, 70])] {
            assert!(policy.refusal(&member, Mode::Lossy, 1000).is_none());
            assert!(policy.refusal(&member, Mode::Lossless, 1000).unwrap().contains("no lossless listeners"));
        }
    }
}
