//! The queues to capture.

use super::AfXdpConfig;
use crate::SourceError;

/// The queues that the configuration requests, of the `existing` queues of the interface.
///
/// # Errors
/// [`SourceError::Unsupported`] for an empty list, a queue that does not exist, and a queue that is listed twice.
pub(super) fn chosen_queues(config: &AfXdpConfig, existing: u32) -> Result<Vec<u32>, SourceError> {
    let Some(requested) = &config.queues else { return Ok((0..existing).collect()) };
    let unsupported = |reason| SourceError::Unsupported { name: config.interface.clone(), reason };
    if requested.is_empty() {
        return Err(unsupported("the list of queues is empty; omit the list to capture all queues".to_owned()));
    }
    let mut queues = Vec::new();
    for queue in requested.iter().copied().map(u32::from) {
        if queue >= existing {
            return Err(unsupported(format!(
                "queue {queue} does not exist; {} has {existing} queue(s), counted from 0",
                config.interface
            )));
        }
        if queues.contains(&queue) {
            return Err(unsupported(format!("queue {queue} is listed twice")));
        }
        queues.push(queue);
    }
    Ok(queues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_does_not_exist_is_named_in_the_error() {
        let choose = |queues: &[u16]| {
            let config = AfXdpConfig { queues: Some(queues.to_vec()), ..AfXdpConfig::new("eth1") };
            chosen_queues(&config, 2).map_err(|e| e.to_string())
        };
        assert_eq!(choose(&[3]), Err("eth1: queue 3 does not exist; eth1 has 2 queue(s), counted from 0".to_owned()));
        assert_eq!(choose(&[1, 1]), Err("eth1: queue 1 is listed twice".to_owned()));
        assert!(choose(&[]).is_err());
        assert_eq!(choose(&[1, 0]), Ok(vec![1, 0]));
    }
}
