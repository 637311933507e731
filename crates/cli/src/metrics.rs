//! Where the metrics are served: an address and a port, and what to do about the system's refusals.

use crate::outcome::Failure;
use engine::{MetricsServer, Report};
use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;

/// What an address looks like.
const FORM: &str = "write an address and a port, as in 127.0.0.1:9600";

/// Whether metrics could be served at an address: nothing is opened for it.
///
/// # Errors
/// What is wrong with its form, or that this machine does not know its name, and what to write.
pub fn check(address: &str) -> Result<(), String> {
    if let Some(port) = address.strip_prefix(':').filter(|port| port.parse::<u16>().is_ok()) {
        return Err(format!(
            "{address}: the address before the port is missing: write 127.0.0.1:{port} to serve this machine alone, or \
             0.0.0.0:{port} to serve others too"
        ));
    }
    address.to_socket_addrs().map(drop).map_err(|e| format!("{address}: {e}; {FORM}"))
}

/// Serves the reports at an address of `--metrics`.
///
/// # Errors
/// Why the system refuses the address, and what to do.
pub fn serve(address: &str, reports: impl Fn() -> Vec<Report> + Send + 'static) -> Result<MetricsServer, Failure> {
    check(address).map_err(|text| Failure::Said(format!("--metrics {text}")))?;
    let server = MetricsServer::start_for_all(address, reports)
        .map_err(|e| Failure::Said(format!("--metrics {address}: {e}; {}", advice(address, &e))))?;
    sys::say!("netgrain: metrics at http://{}/metrics", server.address());
    Ok(server)
}

fn advice(address: &str, error: &io::Error) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    match error.kind() {
        ErrorKind::PermissionDenied => {
            format!("ports below 1024 need the capability CAP_NET_BIND_SERVICE: choose another, as in {host}:9600")
        }
        ErrorKind::AddrInUse => "another program serves there: choose another port, or end that program".to_owned(),
        ErrorKind::AddrNotAvailable => {
            format!("this machine does not have the address {host}: `ip address` lists those that it has")
        }
        _ => FORM.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_checked_before_anything_is_opened() {
        for good in ["127.0.0.1:9600", "[::1]:80", "0.0.0.0:0"] {
            assert_eq!(check(good), Ok(()));
        }
        let said = check(":80").unwrap_err();
        assert!(said.contains("127.0.0.1:80") && said.contains("0.0.0.0:80"), "{said}");
        for bad in ["", ":", "80", "127.0.0.1", "127.0.0.1:x", ":x"] {
            assert!(check(bad).is_err_and(|said| said.contains(FORM)), "{bad}");
        }
    }

    #[test]
    fn a_refusal_is_told_with_its_own_remedy() {
        let said = |kind: ErrorKind| advice("192.0.2.1:80", &kind.into());
        assert!(said(ErrorKind::PermissionDenied).contains("below 1024"));
        assert!(said(ErrorKind::PermissionDenied).contains("192.0.2.1:9600"));
        assert!(said(ErrorKind::AddrInUse).contains("another port"));
        assert!(said(ErrorKind::AddrNotAvailable).contains("192.0.2.1"));
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("an address").to_string();
        let refused = serve(&address, Vec::new).map(drop);
        assert!(
            matches!(refused, Err(Failure::Said(text)) if text.contains(&address) && text.contains("another port"))
        );
    }
}
