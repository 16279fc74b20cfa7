//! Endpoints of the gRPC services of other processes.

use tonic::transport::Endpoint;

/// Creates the endpoint of the service at `host:port`, with or without `http://`; `None` for an
/// invalid address. Does not connect yet.
pub fn endpoint_of(address: &str) -> Option<Endpoint> {
    let url = match address.contains("://") {
        true => address.to_owned(),
        false => format!("http://{address}"),
    };
    Endpoint::from_shared(url).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_the_same_with_and_without_a_scheme() {
        for address in ["127.0.0.1:7070", "http://127.0.0.1:7070"] {
            let endpoint = endpoint_of(address).unwrap();
            assert_eq!(endpoint.uri().scheme_str(), Some("http"));
            assert_eq!(endpoint.uri().port_u16(), Some(7070));
        }
        assert!(endpoint_of("not an address").is_none());
    }
}
