//! Requests to a front without a port, bodies included.

use axum::body::Body;
use dispatcher::web_submission_extension::FrontService;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
    pub json: Value,
}

impl Answer {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The first error text.
    pub fn error(&self) -> &str {
        self.json["errors"][0].as_str().unwrap_or_else(|| panic!("no error in {}", self.text))
    }
}

/// One part of a form.
pub struct Part<'a> {
    pub field: &'a str,
    pub file_name: Option<&'a str>,
    pub bytes: &'a [u8],
}

impl<'a> Part<'a> {
    pub fn file(field: &'a str, name: &'a str, bytes: &'a [u8]) -> Self {
        Self { field, file_name: Some(name), bytes }
    }

    pub fn text(field: &'a str, text: &'a str) -> Self {
        Self { field, file_name: None, bytes: text.as_bytes() }
    }
}

/// Content type and body of a form.
pub fn multipart(parts: &[Part<'_>]) -> (String, Vec<u8>) {
    let boundary = "----testBoundary7MA4YWxk";
    let mut body = Vec::new();
    for part in parts {
        let file = part.file_name.map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
        let head =
            format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"{file}\r\n\r\n", part.field);
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(part.bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

/// Sends a request through the whole front.
pub async fn send(
    service: &FrontService,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    answer(service, request.body(Body::from(body)).unwrap()).await
}

/// POSTs a body that comes piece by piece.
pub fn send_stream(
    service: &FrontService,
    path: &str,
    pieces: tokio::sync::mpsc::Receiver<String>,
) -> impl Future<Output = Answer> + use<> {
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<_, std::io::Error>(piece), pieces))
    });
    let request = Request::builder().method("POST").uri(path).body(Body::from_stream(pieces)).unwrap();
    let service = service.clone();
    async move { answer(&service, request).await }
}

async fn answer(service: &FrontService, request: Request<Body>) -> Answer {
    let response = service.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { status: parts.status.as_u16(), headers: parts.headers, text, json }
}
