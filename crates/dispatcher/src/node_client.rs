//! A client of the node API: a package goes to the node that becomes its deploy coordinator, output comes back.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use flink_rest::RestError;
use futures_util::TryStreamExt;
use http::{HeaderMap, HeaderName, StatusCode, header};
use records::UnitId;
use serde_json::Value;
use thiserror::Error;
use tokio_util::io::ReaderStream;

use crate::limits::{DEPLOY_DEADLINE, NODE_ANSWER, NODE_CONNECT};
use crate::receive::SpooledFile;

/// Why a node gave no answer.
#[derive(Debug, Error)]
pub enum NodeError {
    /// It was never reached: nothing happened there, another node may be asked.
    #[error("{address} cannot be reached: {why}")]
    NotReached {
        /// Its address.
        address: String,
        /// What happened.
        why: String,
    },
    /// The connection broke: it may go on there.
    #[error("{address} gave no answer: {why}")]
    Lost {
        /// Its address.
        address: String,
        /// What happened.
        why: String,
    },
}

impl From<NodeError> for RestError {
    fn from(error: NodeError) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, format!("node {error}; try again"))
    }
}

/// Why a caller's body did not get to a node.
#[derive(Debug, Error)]
pub enum PassError {
    /// The caller's own connection.
    #[error("the upload broke off: {0}")]
    Body(String),
    /// The node.
    #[error(transparent)]
    Node(#[from] NodeError),
}

impl From<PassError> for RestError {
    fn from(error: PassError) -> Self {
        match error {
            PassError::Body(_) => Self::new(StatusCode::BAD_REQUEST, error.to_string()),
            PassError::Node(error) => error.into(),
        }
    }
}

/// A node's answer.
#[derive(Debug)]
pub struct NodeAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Value,
}

/// How a package is to be deployed, as the query of the node API.
#[derive(Debug, Clone)]
pub struct Deploy {
    /// `icp`, `jar` or `private`.
    pub origin: &'static str,
    /// Number of nodes that must hold it.
    pub copies: usize,
}

/// The client; clones share its connections.
#[derive(Debug, Clone)]
pub struct NodeClient {
    http: reqwest::Client,
}

impl NodeClient {
    /// A client without proxies, which would hide the nodes.
    pub fn new() -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder().connect_timeout(NODE_CONNECT).no_proxy().build()?;
        Ok(Self { http })
    }

    /// Makes the node the coordinator of a package that consists of one file.
    pub async fn put_file(
        &self,
        address: &str,
        unit: &UnitId,
        deploy: &Deploy,
        file: &SpooledFile,
        path: &str,
    ) -> Result<NodeAnswer, NodeError> {
        let lost = |why: String| NodeError::Lost { address: address.to_owned(), why };
        let opened = tokio::fs::File::open(file.path()).await.map_err(|e| lost(e.to_string()))?;
        let body = reqwest::Body::wrap_stream(ReaderStream::new(opened));
        let part = reqwest::multipart::Part::stream_with_length(body, file.bytes).file_name(path.to_owned());
        let form = reqwest::multipart::Form::new().part("file", part);
        let Deploy { origin, copies } = deploy;
        let timeout_ms = DEPLOY_DEADLINE.as_millis();
        let url =
            format!("{}?origin={origin}&copies={copies}&timeout_ms={timeout_ms}", package_url(address, unit));
        let request = self.http.put(url).multipart(form).timeout(DEPLOY_DEADLINE + NODE_ANSWER);
        answer(address, request).await
    }

    /// Passes a caller's own body on to the node that is to take it, with what its headers say of it.
    pub async fn put_body(
        &self,
        address: &str,
        path_and_query: &str,
        request: Request,
    ) -> Result<NodeAnswer, PassError> {
        let (parts, body) = request.into_parts();
        let broke = Arc::new(OnceLock::new());
        let breaks = broke.clone();
        let body = body.into_data_stream().inspect_err(move |error| {
            let _ = breaks.set(error.to_string());
        });
        let mut put = self.http.put(format!("http://{address}{path_and_query}"));
        for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
            put = put
                .headers(parts.headers.get(&name).map(|value| (name, value.clone())).into_iter().collect());
        }
        let put = put.body(reqwest::Body::wrap_stream(body)).timeout(DEPLOY_DEADLINE * 2);
        answer(address, put).await.map_err(|error| match broke.get() {
            Some(why) => PassError::Body(why.clone()),
            None => error.into(),
        })
    }

    /// Sends a small JSON body.
    pub async fn post_json(&self, address: &str, path: &str, body: Bytes) -> Result<NodeAnswer, NodeError> {
        let request = self.http.post(format!("http://{address}{path}")).body(body);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        answer(address, request.timeout(DEPLOY_DEADLINE)).await
    }

    /// Makes the node the coordinator of a register, which takes `within` at most.
    pub async fn post_register(
        &self,
        address: &str,
        unit: &UnitId,
        query: &str,
        within: Duration,
    ) -> Result<NodeAnswer, NodeError> {
        let url = format!("{}/register?{query}", package_url(address, unit));
        answer(address, self.http.post(url).timeout(within + NODE_ANSWER)).await
    }

    /// Asks for something that takes up to `limit`; the answer is the node's, whatever it says.
    pub async fn post(
        &self,
        address: &str,
        path_and_query: &str,
        limit: Duration,
    ) -> Result<NodeAnswer, NodeError> {
        let request = self.http.post(format!("http://{address}{path_and_query}")).timeout(limit);
        answer(address, request).await
    }

    /// A small JSON answer.
    pub async fn get_json(&self, address: &str, path: &str) -> Result<Value, NodeError> {
        let request = self.http.get(format!("http://{address}{path}")).timeout(NODE_ANSWER);
        let answer = answer(address, request).await?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        Err(NodeError::Lost { address: address.to_owned(), why: format!("it says {}", answer.status) })
    }

    /// Passes a node's answer to a GET on as it comes.
    pub async fn pass_get(
        &self,
        address: &str,
        path_and_query: &str,
    ) -> Result<axum::response::Response, NodeError> {
        self.pass_get_with(address, path_and_query, HeaderMap::new()).await
    }

    /// The same with headers of the caller.
    pub async fn pass_get_with(
        &self,
        address: &str,
        path_and_query: &str,
        headers: HeaderMap,
    ) -> Result<axum::response::Response, NodeError> {
        let sent = self.http.get(format!("http://{address}{path_and_query}")).headers(headers).send();
        let response = match tokio::time::timeout(NODE_ANSWER, sent).await {
            Ok(sent) => sent.map_err(|error| classify(address, &error))?,
            Err(_) => {
                let why = format!("nothing within {NODE_ANSWER:?}");
                return Err(NodeError::Lost { address: address.to_owned(), why });
            }
        };
        let mut passed = axum::response::Response::new(Body::empty());
        *passed.status_mut() = response.status();
        for name in PASSED_HEADERS {
            if let Some(value) = response.headers().get(&name) {
                passed.headers_mut().insert(name, value.clone());
            }
        }
        *passed.body_mut() = Body::from_stream(response.bytes_stream().map_err(std::io::Error::other));
        Ok(passed)
    }
}

const PASSED_HEADERS: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    HeaderName::from_static(jobmaster::node_api::LOG_SIZE),
    HeaderName::from_static(jobmaster::node_api::LOG_OFFSET),
];

fn package_url(address: &str, unit: &UnitId) -> String {
    let (name, version) =
        (records::keys::encode_segment(&unit.name), records::keys::encode_segment(&unit.version));
    format!("http://{address}/packages/{name}/{version}")
}

async fn answer(address: &str, request: reqwest::RequestBuilder) -> Result<NodeAnswer, NodeError> {
    let response = request.send().await.map_err(|error| classify(address, &error))?;
    let status = response.status();
    let text = response.text().await.map_err(|error| classify(address, &error))?;
    Ok(NodeAnswer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
}

fn classify(address: &str, error: &reqwest::Error) -> NodeError {
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        why = inner.to_string();
        source = inner.source();
    }
    let address = address.to_owned();
    if error.is_connect() { NodeError::NotReached { address, why } } else { NodeError::Lost { address, why } }
}
