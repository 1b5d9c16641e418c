//! From an operator's words to a transport: which one, and what is asked of it.
//!
//! Called by housekeeping only. A transport is named by the word before the first colon of `via=`: `quic` or `verbs`, in builds with
//! the feature of that name. Its service thread is started with the first link that needs it and lives as long as the plane.

use madplane_port::datagram::{Datagrams, Standing};
#[cfg(feature = "verbs")]
use madplane_port::verbs::links as verbs;
use madplane_shm::links::LinkSpec;

/// What the transports of a plane have in common: their threads.
#[derive(Debug, Default)]
pub struct Transports {
    #[cfg(feature = "quic")]
    quic: Option<madplane_quic::Service>,
    #[cfg(feature = "verbs")]
    verbs: Option<verbs::Service>,
}

impl Transports {
    /// Opens the transport of a link.
    ///
    /// # Errors
    /// One line: what was not understood, or why it is unavailable.
    pub fn open(&mut self, spec: &LinkSpec) -> Result<(Box<dyn Datagrams>, Standing), String> {
        let (kind, local) = spec.via.split_once(':').unwrap_or((&spec.via, ""));
        match kind {
            "quic" => self.open_quic(local, spec),
            "verbs" => self.open_verbs(local, spec),
            other => Err(format!("no transport {other:?}; use via=quic:HOST:PORT or via=verbs:DEVICE")),
        }
    }

    #[cfg(feature = "quic")]
    fn open_quic(&mut self, local: &str, spec: &LinkSpec) -> Result<(Box<dyn Datagrams>, Standing), String> {
        let options = madplane_quic::QuicOptions::parse(local, &spec.peer, &spec.credentials);
        let options = options.map_err(|error| error.to_string())?;
        let service = match &mut self.quic {
            Some(service) => service,
            none => none.insert(
                madplane_quic::Service::start().map_err(|error| format!("cannot start QUIC: {error}"))?,
            ),
        };
        let (datagrams, standing) = service.open(options).map_err(|error| error.to_string())?;
        Ok((Box::new(datagrams), standing))
    }

    #[cfg(feature = "verbs")]
    fn open_verbs(&mut self, local: &str, spec: &LinkSpec) -> Result<(Box<dyn Datagrams>, Standing), String> {
        let options = verbs::LinkOptions::parse(local, &spec.peer, &spec.credentials);
        let options = options.map_err(|error| error.to_string())?;
        let service = match &mut self.verbs {
            Some(service) => service,
            none => none.insert(
                verbs::Service::start().map_err(|error| format!("cannot serve links over verbs: {error}"))?,
            ),
        };
        let (datagrams, standing) = service.open(options).map_err(|error| error.to_string())?;
        Ok((Box::new(datagrams), standing))
    }

    #[cfg(not(feature = "verbs"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    fn open_verbs(&mut self, _: &str, _: &LinkSpec) -> Result<(Box<dyn Datagrams>, Standing), String> {
        Err("via=verbs is unavailable, because this build has no verbs".to_owned())
    }

    #[cfg(not(feature = "quic"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    fn open_quic(&mut self, _: &str, _: &LinkSpec) -> Result<(Box<dyn Datagrams>, Standing), String> {
        Err("via=quic is unavailable, because this build has no QUIC".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let spec = LinkSpec::parse(line).unwrap();
        Transports::default().open(&spec).map(|_| ()).unwrap_err()
    }

    #[test]
    fn a_transport_that_is_not_there_is_named() {
        assert!(refusal("a:1 via=tcp:1 peer=x").contains("no transport \"tcp\""));
        assert!(refusal("a:1 via=verbs:no_such_device peer=fe80::1").contains("unavailable, because"));
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn words_that_verbs_does_not_understand_are_named() {
        assert!(refusal("a:1 via=verbs:rxe0 peer=x").contains("names no port"));
        assert!(refusal("a:1 via=verbs:rxe0,x peer=fe80::1").contains("names no device"));
        assert!(refusal("a:1 via=verbs:rxe0 peer=fe80::1 credentials=/x").contains("no credentials"));
    }

    #[cfg(feature = "quic")]
    #[test]
    fn words_that_quic_does_not_understand_are_named() {
        assert!(refusal("a:1 via=quic:127.0.0.1:7 peer=127.0.0.1:8").contains("credentials=DIRECTORY"));
        assert!(
            refusal("a:1 via=quic:here peer=127.0.0.1:8 credentials=/x").contains("\"here\" is no address")
        );
        let nowhere = refusal("a:1 via=quic:127.0.0.1:0 peer=127.0.0.1:8 credentials=/nowhere");
        assert!(nowhere.contains("/nowhere/ca.pem"), "{nowhere}");
    }
}
