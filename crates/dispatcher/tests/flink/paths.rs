//! Every path that Flink has: docs/flink-compat.md says what becomes of it here, and that is what a dispatcher does.

use std::collections::BTreeMap;

use crate::recordings::endpoints;
use crate::support::{Answer, Cluster};

const HEX: &str = "1b84c0c49187ce28dda32398092f14b3";

/// A method and a path, as Flink writes them.
type Endpoint = (String, String);

/// The rows of the page's table: `ours`, `501` or `404` of every endpoint.
fn documented() -> BTreeMap<Endpoint, String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flink-compat.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut all = BTreeMap::new();
    let table = page.split("## Every path of Flink").nth(1).unwrap().split("\n## ").next().unwrap();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let (endpoints, kind, why) = (columns[1], columns[2], columns[3]);
        assert!(kind == "ours" || !why.is_empty(), "{row}: and why?");
        for endpoint in endpoints.split('`').skip(1).step_by(2) {
            let (method, path) = endpoint.split_once(' ').unwrap();
            let before = all.insert((method.to_owned(), path.to_owned()), kind.to_owned());
            assert_eq!(before, None, "{endpoint} is there twice");
        }
    }
    all
}

#[test]
fn the_page_has_every_path_of_flink_and_no_other() {
    let documented: Vec<Endpoint> = documented().into_keys().collect();
    assert_eq!(documented, endpoints());
}

/// A path with something that is there for each of its parameters.
fn filled(path: &str, job: &str, jar: &str) -> String {
    let steps = path.split('/').map(|step| match step {
        ":jobid" => job,
        ":jarid" => jar,
        ":taskmanagerid" => "n1",
        ":checkpointid" | ":subtaskindex" | ":attempt" => "0",
        ":*" => "index.html",
        parameter if parameter.starts_with(':') => HEX,
        step => step,
    });
    steps.collect::<Vec<_>>().join("/")
}

fn is_no_route(answer: &Answer, path: &str) -> bool {
    let texts = [format!("Unable to load requested file {path}."), format!("Not found: {path}")];
    answer.status == 404 && texts.iter().any(|text| answer.error() == text)
}

struct Site {
    cluster: Cluster,
    job: String,
    jar: String,
}

impl Site {
    async fn start() -> Self {
        let cluster = Cluster::start(1).await;
        cluster.node("n1", 4).await;
        let jar = cluster.upload().await;
        let run = cluster.post(0, &format!("/jars/{jar}/run"), r#"{"entryClass": "Forever"}"#).await;
        assert_eq!(run.status, 200, "{}", run.text);
        let job = run.json["jobid"].as_str().unwrap().to_owned();
        Self { cluster, job, jar }
    }

    async fn ask(&self, method: &str, path: &str) -> Answer {
        self.cluster.send(0, method, path, &[], Vec::new()).await
    }
}

#[tokio::test]
async fn each_path_is_what_the_page_says() {
    let site = Site::start().await;
    let mut all: Vec<_> = documented().into_iter().collect();
    // What takes things away comes last.
    all.sort_by_key(|((method, _), _)| method == "DELETE");
    for ((method, path), kind) in all {
        for prefix in ["", "/v1"] {
            let path = format!("{prefix}{}", filled(&path, &site.job, &site.jar));
            let answer = site.ask(&method, &path).await;
            let at = format!("{method} {path}: {} {}", answer.status, answer.text);
            match kind.as_str() {
                "ours" => assert!(answer.status != 501 && !is_no_route(&answer, &path), "{at}"),
                "404" => assert!(is_no_route(&answer, &path), "{at}"),
                "501" => {
                    assert_eq!(answer.status, 501, "{at}");
                    assert_eq!(answer.json["errors"].as_array().unwrap().len(), 1, "{at}");
                    let (start, end) = answer.error().split_once(" needs a Flink cluster: ").expect(&at);
                    assert_eq!(start, format!("{method} {path}"));
                    assert_eq!(end, "set engine = flink on the JobMaster processes");
                    assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{at}");
                }
                other => panic!("{at}: {other} is no kind"),
            }
        }
    }
    site.cluster.stop().await;
}

#[tokio::test]
async fn what_is_no_id_and_what_is_not_there_is_told_apart() {
    let site = Site::start().await;
    let of_jobs = documented().into_iter().filter(|((_, path), _)| path.starts_with("/jobs/:jobid"));
    let mut seen = 0;
    for ((method, path), kind) in of_jobs {
        let answer = site.ask(&method, &filled(&path, "nothex", &site.jar)).await;
        assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text);
        assert!(answer.error().contains("parameter (jobid) from value \"nothex\""), "{}", answer.text);
        // To stop a job is refused before anybody looks for it.
        if kind == "ours" && !path.ends_with("/yarn-stop") {
            let answer = site.ask(&method, &filled(&path, HEX, &site.jar)).await;
            assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text);
            let texts = [format!("Job {HEX} not found"), "Job could not be found.".to_owned()];
            assert!(texts.iter().any(|text| answer.error().ends_with(text)), "{}", answer.text);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
    for path in ["savepoints/x", "checkpoints/x", "rescaling/x"] {
        let answer = site.ask("GET", &format!("/jobs/{}/{path}", site.job)).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
        assert!(answer.error().contains("parameter (triggerid) from value \"x\""), "{}", answer.text);
    }
    let answer = site.ask("GET", &format!("/jobs/{}/vertices/x/watermarks", site.job)).await;
    assert!(answer.status == 400 && answer.error().contains("(vertexid)"), "{}", answer.text);
    site.cluster.stop().await;
}

/// A method that Flink does not have on a path is no route, also where another is.
#[tokio::test]
async fn another_method_is_no_route() {
    let site = Site::start().await;
    let known = endpoints();
    let mut seen = 0;
    for (_, path) in known.iter().filter(|(_, path)| path != "/:*") {
        for method in ["PUT", "PATCH", "DELETE", "POST"] {
            if known.contains(&(method.to_owned(), path.clone())) {
                continue;
            }
            let path = filled(path, &site.job, &site.jar);
            let answer = site.ask(method, &path).await;
            assert!(is_no_route(&answer, &path), "{method} {path}: {}", answer.text);
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen}");
    site.cluster.stop().await;
}
