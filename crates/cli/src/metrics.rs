//! The metrics server: its address, and advice for errors of the system.

use crate::outcome::Failure;
use config::METRICS_FORM;
use engine::{MetricsServer, Report};
use std::io::{self, ErrorKind};

/// Serves the metrics of the reports at `address`, the value of `--metrics`.
///
/// # Errors
/// The error of the system, with advice.
pub fn serve(address: &str, reports: impl Fn() -> Vec<Report> + Send + 'static) -> Result<MetricsServer, Failure> {
    config::check_metrics_address(address).map_err(|e| Failure::Said(format!("--metrics {e}")))?;
    let server = MetricsServer::start_for_all(address, reports)
        .map_err(|e| Failure::Said(format!("--metrics {address}: {e}; {}", advice(address, &e))))?;
    sys::say!("netgrain: metrics at http://{}/metrics", server.address());
    Ok(server)
}

fn advice(address: &str, error: &io::Error) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    match error.kind() {
        ErrorKind::PermissionDenied => {
            format!("ports below 1024 need the capability CAP_NET_BIND_SERVICE: choose another port, as in {host}:9600")
        }
        ErrorKind::AddrInUse => "another program uses this port: choose another port, or end that program".to_owned(),
        ErrorKind::AddrNotAvailable => {
            format!("this machine does not have the address {host}: `ip address` lists its addresses")
        }
        _ => METRICS_FORM.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bind_error_has_its_own_advice() {
        let advice_for = |kind: ErrorKind| advice("192.0.2.1:80", &kind.into());
        assert!(advice_for(ErrorKind::PermissionDenied).contains("below 1024"));
        assert!(advice_for(ErrorKind::PermissionDenied).contains("192.0.2.1:9600"));
        assert!(advice_for(ErrorKind::AddrInUse).contains("another port"));
        assert!(advice_for(ErrorKind::AddrNotAvailable).contains("192.0.2.1"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let failure = serve(&address, Vec::new).map(drop);
        assert!(
            matches!(failure, Err(Failure::Said(text)) if text.contains(&address) && text.contains("another port"))
        );
    }
}
