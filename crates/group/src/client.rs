//! The client of the groups' control socket: requests to groups, and membership in a group.

use crate::control::discard_received;
use crate::request::{MESSAGE_MAX, Request, Response};
use crate::unresponsive::UnresponsiveQueue;
use ring::{AttachError, Branch, Desc, Listener};
use serde_json::Value;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use sys::unix::Connection;

/// Time limit for the response to a request that changes a group. The engine may compile a program before it responds.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Time limit for the response to a request that only reads. The engine may first serve requests of other clients.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of branches of one member.
const BRANCHES_MAX: usize = 256;

/// The maximum number of JSON objects that follow one response.
const ITEMS_MAX: usize = 4096;

/// The reason why a request failed.
#[derive(Debug)]
pub enum ClientError {
    /// No engine listens at the socket, or the socket cannot be reached.
    Unreachable(io::Error),
    /// The engine did not respond within this time.
    NoResponse(Duration),
    /// The engine refused the request; this is its error text.
    Refused(String),
    /// The response violates the protocol.
    Protocol(&'static str),
    /// The listener could not attach to a branch.
    Branch(AttachError),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "permission denied on the engine's socket; run as its owner or a member of its group")
            }
            Self::Unreachable(e) => write!(f, "no engine listens on this socket: {}", sys::advice::cause(e)),
            Self::NoResponse(timeout) => write!(
                f,
                "the engine has not responded for {} s: its process is stopped or overloaded; check the process, then \
                 repeat the request",
                timeout.as_secs()
            ),
            Self::Refused(why) => f.write_str(why),
            Self::Protocol(what) => write!(f, "the engine's response is invalid: {what}"),
            Self::Branch(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ClientError {}

/// A connection to the groups of an engine.
#[derive(Debug)]
pub struct Client(Arc<Connection>);

/// An open membership in a group, with one listener for each queue of the group. The membership ends when all its
/// listeners are dropped.
#[derive(Debug)]
pub struct MemberSession {
    /// The member slot.
    pub slot: u8,
    /// The generation of the program that ran when the member joined.
    pub generation: u64,
    /// One listener for each queue of the group.
    pub listeners: Vec<Listener>,
    /// Queues whose dispatchers have not added the member yet. The branches of these queues contain no packets until
    /// the dispatcher adds the member.
    pub unresponsive: Vec<UnresponsiveQueue>,
    connection: Arc<Connection>,
}

impl MemberSession {
    /// Returns the handle that ends the membership without loss of packets that are already delivered.
    pub fn leave_handle(&self) -> LeaveHandle {
        LeaveHandle(Client(Arc::clone(&self.connection)))
    }
}

/// A handle that ends a membership without loss of delivered packets.
#[derive(Debug)]
pub struct LeaveHandle(Client);

impl LeaveHandle {
    /// Requests that the engine delivers no further packets to this member. [`Listener::ended`] becomes true when the
    /// listener has returned every packet that was delivered before.
    ///
    /// # Errors
    /// [`ClientError`]; the listeners can still read the packets delivered so far.
    pub fn leave(&self) -> Result<(), ClientError> {
        self.0.request(&Request::Leave).map(|_| ())
    }
}

impl Client {
    /// Connects to the groups' socket of an engine.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let connection = Connection::connect(path).map_err(ClientError::Unreachable)?;
        connection.set_timeout(CHANGE_TIMEOUT).map_err(ClientError::Unreachable)?;
        Ok(Self(Arc::new(connection)))
    }

    /// Sends a request and receives the response with the JSON objects that follow it. If the response is missing or
    /// malformed, this function shuts the connection down, because the next request could otherwise receive the late
    /// response. Later requests need a new connection.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn request(&self, request: &Request) -> Result<(Response, Vec<Value>), ClientError> {
        let text =
            serde_json::to_vec(request).map_err(|_| ClientError::Protocol("the request cannot be encoded as JSON"))?;
        if text.len() > MESSAGE_MAX {
            return Err(ClientError::Refused(format!(
                "the request has {} bytes; the limit is {MESSAGE_MAX}",
                text.len()
            )));
        }
        let timeout = match request {
            Request::List | Request::Stats { .. } | Request::Program { .. } => READ_TIMEOUT,
            _ => CHANGE_TIMEOUT,
        };
        let response = self.exchange(&text, timeout);
        if !matches!(response, Ok(_) | Err(ClientError::Refused(_))) {
            self.shut_down();
        }
        response
    }

    fn exchange(&self, text: &[u8], timeout: Duration) -> Result<(Response, Vec<Value>), ClientError> {
        self.0.set_timeout(timeout).map_err(ClientError::Unreachable)?;
        let no_response = |e| match e {
            ClientError::Unreachable(e) if e.kind() == io::ErrorKind::WouldBlock => ClientError::NoResponse(timeout),
            e => e,
        };
        // An engine that refuses the connection sends a refusal and closes the connection. The refusal contains the
        // reason; the EPIPE error of this send does not. So the error of the send is returned only if no response
        // arrives.
        let sent = self.0.send(text, &[]);
        let response: Response = match self.receive() {
            Ok(response) => response,
            Err(e) => return Err(no_response(sent.err().map_or(e, ClientError::Unreachable))),
        };
        if !response.ok {
            return Err(ClientError::Refused(response.error.unwrap_or_default()));
        }
        if response.items > ITEMS_MAX {
            return Err(ClientError::Protocol("the number of announced objects is too large"));
        }
        let items = (0..response.items).map(|_| self.receive()).collect::<Result<_, _>>().map_err(no_response)?;
        Ok((response, items))
    }

    /// Shuts both directions of the connection down.
    fn shut_down(&self) {
        if self.0.shut().is_ok() {
            // A response may have arrived before the shutdown; discard it.
            discard_received(&self.0);
        }
    }

    /// Joins a group as a member.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn join(self, request: &Request) -> Result<MemberSession, ClientError> {
        let (response, _) = self.request(request)?;
        if response.branches == 0 || response.branches > BRANCHES_MAX {
            return Err(ClientError::Protocol("the number of announced branches is 0 or too large"));
        }
        let listeners = (0..response.branches)
            .map(|_| Branch::receive(&self.0).map_err(ClientError::Branch))
            .collect::<Result<_, _>>()?;
        Ok(MemberSession {
            slot: response.slot.unwrap_or_default(),
            generation: response.generation.unwrap_or_default(),
            listeners,
            unresponsive: response.unresponsive,
            connection: self.0,
        })
    }

    fn receive<T: serde::de::DeserializeOwned>(&self) -> Result<T, ClientError> {
        let mut message = vec![0; MESSAGE_MAX];
        let (n, _) = self.0.receive(&mut message).map_err(ClientError::Unreachable)?;
        if n == 0 {
            return Err(ClientError::Unreachable(io::ErrorKind::ConnectionReset.into()));
        }
        serde_json::from_slice(&message[..n])
            .map_err(|_| ClientError::Protocol("a message is not a JSON object with the expected fields"))
    }
}

/// An error in the order of the program generations in a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationError {
    /// A program descriptor has a lower generation than the program descriptor before it.
    Decrease {
        /// The generation of the previous program descriptor.
        from: u64,
        /// The lower generation of the program descriptor that follows.
        to: u64,
    },
    /// The generation bits of a packet differ from those of the program.
    Packet {
        /// The generation of the packet, modulo 4.
        bits: u8,
        /// The generation of the program.
        program: u64,
    },
}

impl fmt::Display for GenerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decrease { from, to } => write!(f, "program generation {to} follows the higher generation {from}"),
            Self::Packet { bits, program } => {
                write!(f, "a packet has generation {bits} modulo 4, but the program has generation {program}")
            }
        }
    }
}

impl std::error::Error for GenerationError {}

/// Tracks the program generations of one branch, descriptor by descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generations {
    now: u64,
}

impl Generations {
    /// Returns the generation that evaluated this packet, or `None` for a control descriptor. The generation bits of a
    /// packet must match the last program descriptor, and generations must not decrease; otherwise the engine is
    /// faulty.
    ///
    /// # Errors
    /// The generation of the descriptor contradicts the generations of the descriptors before it.
    pub fn follow(&mut self, desc: &Desc) -> Result<Option<u64>, GenerationError> {
        if let Some(generation) = desc.as_program() {
            if generation < self.now {
                return Err(GenerationError::Decrease { from: self.now, to: generation });
            }
            self.now = generation;
        }
        if !desc.is_packet() {
            return Ok(None);
        }
        if u64::from(desc.generation()) != self.now & 3 {
            return Err(GenerationError::Packet { bits: desc.generation(), program: self.now });
        }
        Ok(Some(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::unix::Listener as UnixListener;
    use testkit::TempDir;

    const RESPONSE: &[u8] = br#"{"ok":true}"#;

    fn connected_pair() -> (Client, Connection, (UnixListener, TempDir)) {
        let dir = TempDir::new("client::connected_pair");
        let path = dir.path().join("engine.sock");
        let listener = UnixListener::bind(&path, 0o600, None, None).expect("a socket");
        let client = Client::connect(&path).expect("a connection");
        let engine = listener.accept().expect("the engine's end");
        (client, engine, (listener, dir))
    }

    #[test]
    fn a_late_response_is_not_taken_for_the_response_to_the_next_request() {
        let (client, engine, _held) = connected_pair();
        let no_response = client.exchange(b"{}", Duration::from_millis(10));
        assert!(matches!(no_response, Err(ClientError::NoResponse(_))), "{no_response:?}");
        // The engine responds after the client has stopped waiting: once before the client shuts the connection down,
        // and once after it.
        engine.send(RESPONSE, &[]).expect("an open connection");
        client.shut_down();
        assert!(engine.send(RESPONSE, &[]).is_err(), "the connection is shut down");
        let next = client.request(&Request::List);
        assert!(matches!(next, Err(ClientError::Unreachable(_))), "{next:?}");
    }

    #[test]
    fn an_invalid_response_ends_the_connection_and_a_refusal_does_not() {
        for invalid in [&b"not JSON"[..], br#"{"ok":true,"items":2}"#] {
            let (client, engine, _held) = connected_pair();
            engine.send(invalid, &[]).expect("an open connection");
            engine.send(b"not an object", &[]).expect("an open connection");
            engine.send(RESPONSE, &[]).expect("an open connection");
            let response = client.request(&Request::List);
            assert!(matches!(response, Err(ClientError::Protocol(_))), "{response:?}");
            let next = client.request(&Request::List);
            assert!(matches!(next, Err(ClientError::Unreachable(_))), "{next:?}");
            let mut requests = 0;
            let mut message = vec![0; MESSAGE_MAX];
            while engine.receive(&mut message).is_ok_and(|(n, _)| n > 0) {
                requests += 1;
            }
            assert_eq!(requests, 1, "the client sends no request after an invalid response");
        }
        let (client, engine, _held) = connected_pair();
        engine.send(br#"{"ok":false,"error":"no"}"#, &[]).expect("an open connection");
        engine.send(RESPONSE, &[]).expect("an open connection");
        assert!(matches!(client.request(&Request::List), Err(ClientError::Refused(why)) if why == "no"));
        assert!(client.request(&Request::List).is_ok(), "the connection stays open");
    }
}
