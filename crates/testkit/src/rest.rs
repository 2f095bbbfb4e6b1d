//! A dispatcher's REST as a client sees it.

use std::time::Duration;

use serde_json::Value;

/// Longest wait for one answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// A client of one dispatcher.
#[derive(Debug, Clone)]
pub struct Rest {
    base: String,
    http: reqwest::Client,
}

impl Rest {
    /// Of the dispatcher at `base`, such as `http://127.0.0.1:8081`.
    pub fn new(base: &str) -> Self {
        let http = reqwest::Client::builder().timeout(DEADLINE).build().expect("an HTTP client");
        Self { base: base.trim_end_matches('/').into(), http }
    }

    /// GET; status and document (Null if the answer is no JSON).
    pub async fn get(&self, path: &str) -> reqwest::Result<(u16, Value)> {
        answer(self.http.get(self.url(path)).send().await?).await
    }

    /// GET that must be answered with 200.
    pub async fn get_ok(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await.unwrap_or_else(|e| panic!("GET {path}: {e}"));
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// GET of a page, which must be answered with 200: the rows, and the path of the next page if there is one.
    pub async fn page(&self, path: &str) -> reqwest::Result<(usize, Option<String>)> {
        let response = self.http.get(self.url(path)).send().await?;
        let link = response.headers().get("link").and_then(|link| link.to_str().ok());
        let next = link.and_then(|link| Some(link.strip_prefix('<')?.split_once('>')?.0.to_owned()));
        let (status, body) = answer(response).await?;
        assert_eq!(status, 200, "GET {path}: {body}");
        Ok((body.as_array().map_or(0, Vec::len), next))
    }

    /// POST of a JSON document.
    pub async fn post(&self, path: &str, body: &Value) -> reqwest::Result<(u16, Value)> {
        answer(self.http.post(self.url(path)).json(body).send().await?).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> reqwest::Result<(u16, Value)> {
        answer(self.http.delete(self.url(path)).send().await?).await
    }

    /// PATCH without a body.
    pub async fn patch(&self, path: &str) -> reqwest::Result<(u16, Value)> {
        answer(self.http.patch(self.url(path)).send().await?).await
    }

    /// Uploads a JAR; its id.
    pub async fn upload(&self, name: &str, bytes: Vec<u8>) -> String {
        let part = reqwest::multipart::Part::bytes(bytes).file_name(name.to_owned());
        let form = reqwest::multipart::Form::new().part("jarfile", part);
        let sent = self.http.post(self.url("/jars/upload")).multipart(form).send().await.expect("an answer");
        let (status, body) = answer(sent).await.expect("a whole answer");
        assert_eq!(status, 200, "upload of {name}: {body}");
        let filename = body["filename"].as_str().unwrap_or_else(|| panic!("no filename in {body}"));
        filename.rsplit('/').next().expect("a path has a last part").to_owned()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

async fn answer(response: reqwest::Response) -> reqwest::Result<(u16, Value)> {
    let status = response.status().as_u16();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
}
