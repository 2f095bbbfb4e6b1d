//! Paths as Flink's router takes them: an optional `/v1`, an optional trailing slash, HEAD is no route.

use http::{Request, Uri, uri::PathAndQuery};

/// The path as the client sent it, for error texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPath(pub String);

/// The path without `/v1` and without a trailing slash.
pub fn canonical(path: &str) -> &str {
    let path = match path.strip_prefix("/v1") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
        _ => path,
    };
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { trimmed }
}

/// Rewrites a request to its canonical path and keeps the original as [`RawPath`].
pub fn canonicalize<B>(mut request: Request<B>) -> Request<B> {
    let raw = request.uri().path().to_owned();
    let wanted = canonical(&raw);
    if wanted != raw {
        let target = match request.uri().query() {
            Some(query) => format!("{wanted}?{query}"),
            None => wanted.to_owned(),
        };
        // A part of a valid path with its query is a valid target.
        if let Ok(target) = target.parse::<PathAndQuery>() {
            let mut parts = request.uri().clone().into_parts();
            parts.path_and_query = Some(target);
            if let Ok(uri) = Uri::from_parts(parts) {
                *request.uri_mut() = uri;
            }
        }
    }
    request.extensions_mut().insert(RawPath(raw));
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_prefix_and_trailing_slash_do_not_matter() {
        for (given, wanted) in [
            ("/jars", "/jars"),
            ("/jars/", "/jars"),
            ("/v1/jars", "/jars"),
            ("/v1/jars/", "/jars"),
            ("/v1", "/"),
            ("/v1x/jars", "/v1x/jars"),
            ("/v2/overview", "/v2/overview"),
            ("/", "/"),
        ] {
            assert_eq!(canonical(given), wanted, "{given}");
        }
    }

    #[test]
    fn the_query_and_the_raw_path_survive() {
        let request = Request::builder().uri("/v1/jobs/?mode=cancel").body(()).unwrap();
        let request = canonicalize(request);
        assert_eq!(request.uri(), "/jobs?mode=cancel");
        assert_eq!(request.extensions().get(), Some(&RawPath("/v1/jobs/".to_owned())));
    }
}
