//! The control socket: a Unix socket (SOCK_SEQPACKET) to which other processes send commands for a replay. Each message
//! is a command as text; the answer is a JSON document: the status, or an object with the key `error`.

use crate::control::{Command, Control};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use sys::unix::{Connection, Listener, wait_readable};

/// The longest command and the longest answer in bytes.
const MESSAGE_MAX: usize = 4096;

/// The time within which a client must send its command. One thread serves all clients one after another, so a client
/// that sends no command delays the next client by at most this time.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest wait between two checks whether the replay has ended.
const END_CHECK: Duration = Duration::from_millis(100);

/// Serves the socket in a thread until the replay is stopped or the returned value is dropped.
///
/// # Errors
/// If the socket cannot be bound, for example because another process listens at the path, or because the directory is
/// not writable.
pub fn serve(path: &Path, control: Arc<Control>, version: u64) -> io::Result<ControlSocket> {
    use std::os::fd::AsFd;
    let listener = Listener::bind(path, 0o600, None, None)?;
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let end = Arc::clone(&ended);
    let thread = std::thread::Builder::new().name("replay-control".to_owned()).spawn(move || {
        while !end.load(std::sync::atomic::Ordering::Relaxed) {
            if wait_readable(&[listener.as_fd()], END_CHECK).is_ok_and(|ready| !ready.is_empty())
                && let Ok(connection) = listener.accept()
            {
                // If a client sends no complete command, its connection is closed, and the replay continues.
                let _ = answer(&connection, &control, version);
            }
        }
    })?;
    Ok(ControlSocket { ended, thread: Some(thread) })
}

/// The thread of a control socket; dropping the value removes the socket.
#[derive(Debug)]
pub struct ControlSocket {
    ended: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.ended.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one command.
fn answer(connection: &Connection, control: &Control, version: u64) -> io::Result<()> {
    connection.set_timeout(TIMEOUT)?;
    let mut message = [0; MESSAGE_MAX];
    let (len, _) = connection.receive(&mut message)?;
    let command = std::str::from_utf8(&message[..len]).unwrap_or("\u{fffd}").parse::<Command>();
    let mut document = match command {
        Ok(command) => serde_json::to_value(control.apply(command)).map_err(io::Error::other)?,
        Err(e) => serde_json::json!({ "error": e.to_string() }),
    };
    document["schema_version"] = version.into();
    connection.send(document.to_string().as_bytes(), &[])
}

/// Sends a command to the replay that serves this socket, and returns its answer.
///
/// # Errors
/// If no replay serves the socket, or it does not answer within five seconds.
pub fn send(path: &Path, command: Command) -> io::Result<String> {
    let connection = Connection::connect(path)?;
    connection.set_timeout(TIMEOUT)?;
    connection.send(command.to_string().as_bytes(), &[])?;
    let mut answer = [0; MESSAGE_MAX];
    let (len, _) = connection.receive(&mut answer)?;
    String::from_utf8(answer[..len].to_vec()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::SignalFlags;
    use crate::pace::Pace;
    use testkit::TempDir;

    #[test]
    fn commands_arrive_and_the_socket_disappears_at_the_end() {
        let dir = TempDir::new("replay-control");
        let path = dir.join("control");
        assert!(send(&path, Command::Pause).is_err(), "no replay listens");
        let control = Arc::new(Control::new(Pace::ORIGINAL, SignalFlags::default()));
        let socket = serve(&path, Arc::clone(&control), 1).unwrap();
        assert!(serve(&path, Arc::clone(&control), 1).is_err(), "the socket is in use");
        let ask = |command: &str| -> serde_json::Value {
            serde_json::from_str(&send(&path, command.parse().unwrap()).unwrap()).unwrap()
        };
        assert_eq!(ask("pause")["state"], "paused");
        assert_eq!(ask("speed 3x")["speed"], "3x");
        assert_eq!(
            (ask("resume")["state"].clone(), ask("status")["schema_version"].clone()),
            ("running".into(), 1.into())
        );
        let connection = Connection::connect(&path).unwrap();
        connection.send(b"dance", &[]).unwrap();
        let mut answer = [0; 1000];
        let (len, _) = connection.receive(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer[..len]).contains("is no command"));
        assert_eq!(control.settings().pace, Pace::Original(3.0));
        drop(socket);
        assert!(!path.exists());
    }
}
