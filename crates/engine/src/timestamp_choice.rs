//! The choice of the method of timestamping for a source.

use capture::afxdp::XdpTimestamps;
use capture::tpacket::TpacketTimestamps;
use capture::{SourceError, SourceInfo, TimestampSource};
use timestamping::{BatchMethod, TimestampSetting};

/// The method by which the engine thread timestamps the packets of this source: `None` if the source makes the
/// timestamps, or if the engine thread reads its clock for each packet.
///
/// # Errors
/// [`SourceError::Unsupported`] if the source does not have the method, with the methods that it has.
pub fn batch_method(setting: TimestampSetting, info: &SourceInfo) -> Result<Option<BatchMethod>, SourceError> {
    use TimestampSetting as S;
    let reason = match (info.timestamp_source, setting) {
        (TimestampSource::Engine, S::Auto | S::Poll) => return Ok(None),
        (TimestampSource::Engine, S::Batch) => return Ok(Some(BatchMethod::Batch)),
        (TimestampSource::Engine, S::Udts) => return Ok(Some(BatchMethod::Udts)),
        (TimestampSource::Engine, S::Wdts) => return Ok(Some(BatchMethod::Wdts)),
        (TimestampSource::Engine, S::Adaptive) => return Ok(Some(BatchMethod::Adaptive)),
        (TimestampSource::Kernel | TimestampSource::Hardware, S::Auto)
        | (TimestampSource::Kernel, S::Kernel)
        | (TimestampSource::Hardware, S::Hardware)
        | (TimestampSource::File | TimestampSource::Simulated, S::Auto) => return Ok(None),
        // The engine thread warns of the reason when it starts.
        (TimestampSource::Engine, S::Kernel | S::Hardware) if info.timestamp_fallback.is_some() => return Ok(None),
        (TimestampSource::Engine, S::Kernel | S::Hardware) => format!(
            "timestamps = {setting} is not available: the simulation delivers frames without timestamps; use poll or \
             adaptive"
        ),
        (TimestampSource::Kernel, S::Hardware) => {
            "timestamps = hardware is not available: the NIC is not set to timestamp all received frames; use kernel"
                .to_owned()
        }
        (TimestampSource::Hardware, S::Kernel) => {
            "timestamps = kernel is not available: the socket uses the NIC's timestamps; use hardware".to_owned()
        }
        (TimestampSource::Kernel | TimestampSource::Hardware, _) => format!(
            "timestamps = {setting} is not available: TPACKET delivers frames up to some milliseconds after their \
             arrival, with the kernel's timestamps; use kernel, or capture with AF_XDP (source = af-xdp)"
        ),
        (TimestampSource::File, _) => {
            format!("timestamps = {setting} is not available: a capture file contains timestamps; use auto")
        }
        (TimestampSource::Simulated, _) => {
            format!("timestamps = {setting} is not available in virtual time; use auto, or simulate in real time")
        }
    };
    Err(SourceError::Unsupported { name: info.name.clone(), reason })
}

/// The timestamps that the XDP program of an AF_XDP source writes.
pub fn of_afxdp(setting: TimestampSetting) -> XdpTimestamps {
    match setting {
        TimestampSetting::Kernel => XdpTimestamps::Kernel,
        TimestampSetting::Hardware => XdpTimestamps::Hardware,
        _ => XdpTimestamps::None,
    }
}

/// The timestamps that a TPACKET source requests from the kernel.
pub fn of_tpacket(setting: TimestampSetting) -> TpacketTimestamps {
    match setting {
        TimestampSetting::Kernel => TpacketTimestamps::Kernel,
        TimestampSetting::Hardware => TpacketTimestamps::Hardware,
        _ => TpacketTimestamps::Best,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(timestamp_source: TimestampSource) -> SourceInfo {
        SourceInfo {
            name: "eth1".into(),
            queue: 0,
            description: String::new(),
            link_type: 1,
            timestamp_source,
            timestamp_fallback: None,
            timestamp_warning: None,
            link_mbps: None,
            counted_from: "",
        }
    }

    #[test]
    fn a_method_that_the_source_does_not_have_is_refused_with_an_alternative() {
        for (source, setting, alternative) in [
            (TimestampSource::Engine, TimestampSetting::Kernel, "adaptive"),
            (TimestampSource::Engine, TimestampSetting::Hardware, "adaptive"),
            (TimestampSource::Kernel, TimestampSetting::Hardware, "use kernel"),
            (TimestampSource::Kernel, TimestampSetting::Adaptive, "af-xdp"),
            (TimestampSource::File, TimestampSetting::Poll, "use auto"),
            (TimestampSource::Simulated, TimestampSetting::Wdts, "use auto"),
        ] {
            let error = batch_method(setting, &info(source)).expect_err("refused").to_string();
            assert!(error.starts_with("eth1: timestamps = ") && error.contains(alternative), "{error}");
        }
    }

    #[test]
    fn a_source_that_names_the_reason_for_missing_timestamps_is_not_refused() {
        let fallback = Some("the driver has none".to_owned());
        let info = SourceInfo { timestamp_fallback: fallback, ..info(TimestampSource::Engine) };
        assert_eq!(batch_method(TimestampSetting::Hardware, &info).expect("the engine timestamps"), None);
    }

    #[test]
    fn auto_is_available_for_every_source() {
        for source in [
            TimestampSource::Engine,
            TimestampSource::Kernel,
            TimestampSource::Hardware,
            TimestampSource::File,
            TimestampSource::Simulated,
        ] {
            assert!(batch_method(TimestampSetting::Auto, &info(source)).is_ok());
        }
    }
}
