//! Calls to dispatchers: any live one does, and which are alive the store knows.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use records::{Scope, keys::NodeKey};

use crate::{cli::Globals, exit::Failure, view};

/// How long a connection to a dispatcher may take.
const CONNECT: Duration = Duration::from_secs(2);

/// The live dispatchers.
#[derive(Debug, Clone)]
pub struct Dispatchers {
    addresses: Vec<String>,
    http: reqwest::Client,
}

impl Dispatchers {
    /// Finds them in the store.
    pub async fn find(globals: &Globals) -> Result<Self, Failure> {
        let nodes = view::load(globals, Scope::nodes()).await?.all::<NodeKey>()?;
        let addresses: Vec<_> = nodes.into_iter().filter_map(|(_, node)| node.value.rest_address).collect();
        if addresses.is_empty() {
            return Err(Failure::unavailable("no dispatcher is alive: start one with metastored dispatcher"));
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .no_proxy()
            .build()
            .map_err(|error| Failure::failed(error.to_string()))?;
        Ok(Self { addresses, http })
    }

    /// Sends a request to the first dispatcher that can be reached, for one that answers an error the failure says
    /// so. `make` builds the request anew for each. A request that was sent and not answered is only repeated
    /// elsewhere if `repeatable`.
    pub async fn call<F>(
        &self,
        method: Method,
        path: &str,
        repeatable: bool,
        make: F,
    ) -> Result<Response, Failure>
    where
        F: AsyncFn(RequestBuilder) -> Result<RequestBuilder, Failure>,
    {
        let response = self.answer(method, path, repeatable, make).await?;
        if response.status().is_success() { Ok(response) } else { Err(of_response(response).await) }
    }

    /// The same, and an error is an answer like any other.
    pub async fn answer<F>(
        &self,
        method: Method,
        path: &str,
        repeatable: bool,
        make: F,
    ) -> Result<Response, Failure>
    where
        F: AsyncFn(RequestBuilder) -> Result<RequestBuilder, Failure>,
    {
        let mut reasons = Vec::new();
        for address in &self.addresses {
            let request = make(self.http.request(method.clone(), format!("http://{address}{path}"))).await?;
            match request.send().await {
                Ok(response) => {
                    warnings(&response).iter().for_each(|text| eprintln!("warning: {text}"));
                    return Ok(response);
                }
                Err(error) if error.is_connect() || repeatable => {
                    reasons.push(format!("{address}: {}", why(&error)))
                }
                Err(error) => {
                    return Err(Failure::unavailable(format!(
                        "{address}: {}; it may have been carried out",
                        why(&error)
                    )));
                }
            }
        }
        Err(Failure::unavailable(format!("no dispatcher answers: {}", reasons.join("; "))))
    }

    /// The same for requests without a body, within `timeout`.
    pub async fn simple(&self, method: Method, path: &str, timeout: Duration) -> Result<Response, Failure> {
        let repeatable = method == Method::GET || method == Method::DELETE;
        self.call(method, path, repeatable, async |request| Ok(request.timeout(timeout))).await
    }
}

/// The texts of an answer's `Warning` headers: a success with a reservation.
fn warnings(response: &Response) -> Vec<String> {
    let values = response.headers().get_all(reqwest::header::WARNING).iter();
    values.filter_map(|value| warning_text(value.to_str().ok()?)).collect()
}

/// The quoted text of `CODE AGENT "TEXT"`, what may follow it aside.
fn warning_text(value: &str) -> Option<String> {
    let quoted = value.split_once('"')?.1;
    let (mut text, mut escaped) = (String::new(), false);
    for c in quoted.chars() {
        match c {
            _ if escaped => {
                text.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return Some(text),
            _ => text.push(c),
        }
    }
    None
}

/// The answer's JSON.
pub async fn json(response: Response) -> Result<Value, Failure> {
    response
        .json()
        .await
        .map_err(|error| Failure::failed(format!("the dispatcher's answer: {}", why(&error))))
}

async fn of_response(response: Response) -> Failure {
    let status = response.status().as_u16();
    let body = response.text().await.unwrap_or_default();
    of_body(status, &body)
}

/// An error's text becomes the failure.
pub fn of_body(status: u16, body: &str) -> Failure {
    let text = serde_json::from_str::<Value>(body).ok().and_then(|value| error_text(&value));
    let text = text.unwrap_or_else(|| body.to_owned());
    let text = if text.trim().is_empty() { format!("HTTP status {status}") } else { text };
    Failure::of_http(status, text.trim().to_owned())
}

/// The text in Flink's `{"errors": [...]}`, or in `{"error": ...}`.
fn error_text(value: &Value) -> Option<String> {
    let listed = value.get("errors").and_then(Value::as_array);
    let lines = listed.map(|errors| errors.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "));
    lines.or_else(|| value.get("error")?.as_str().map(str::to_owned))
}

/// The innermost cause of a failed request.
fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut at: &dyn std::error::Error = error;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_of_an_error_is_found_in_both_forms() {
        assert_eq!(error_text(&json!({"errors": ["a", "b"]})).unwrap(), "a b");
        assert_eq!(error_text(&json!({"error": "c"})).unwrap(), "c");
        assert_eq!(error_text(&json!({"x": 1})), None);
    }

    #[test]
    fn the_text_of_a_warning_is_its_quoted_part() {
        let text = |value| warning_text(value).unwrap();
        assert_eq!(text("199 metastore \"only \\\"a\\\" holds it\""), "only \"a\" holds it");
        assert_eq!(text("199 - \"x\" \"Sun, 06 Nov 1994 08:49:37 GMT\""), "x");
        assert_eq!(warning_text("199 metastore x"), None);
        assert_eq!(warning_text("199 metastore \"x"), None);
    }
}
