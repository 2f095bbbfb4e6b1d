//! What the paths say that no recording could: failures, settings, slots and figures of our own jobs and processes.

use serde_json::{Value, json};

use crate::support::{Answer, Cluster};

struct Site {
    cluster: Cluster,
    jar: String,
}

impl Site {
    async fn start() -> Self {
        let cluster = Cluster::start(1).await;
        cluster.node("n1", 4).await;
        let jar = cluster.upload().await;
        Self { cluster, jar }
    }

    async fn run(&self, body: &Value) -> String {
        let run = self.cluster.post(0, &format!("/jars/{}/run", self.jar), &body.to_string()).await;
        assert_eq!(run.status, 200, "{}", run.text);
        run.json["jobid"].as_str().unwrap().to_owned()
    }

    async fn of(&self, job: &str, path: &str) -> Answer {
        self.cluster.get(0, &format!("/jobs/{job}{path}")).await
    }

    async fn ok(&self, job: &str, path: &str) -> Value {
        let answer = self.of(job, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json
    }

    async fn until(&self, job: &str, state: &str) -> Value {
        let is = || async { (self.ok(job, "/status").await["status"] == state).then_some(()) };
        self.cluster.until(is).await;
        self.ok(job, "").await
    }
}

#[tokio::test]
async fn a_failed_job_says_what_it_failed_of() {
    let site = Site::start().await;
    let job = site.run(&json!({ "entryClass": "FailTask" })).await;
    let ended = site.until(&job, "FAILED").await["end-time"].clone();
    let said = site.ok(&job, "/exceptions").await;
    let entry = json!({
        "exceptionName": "MAIN_FAILED",
        "stacktrace": "a task failed",
        "timestamp": ended,
        "taskManagerId": "n1",
        "failureLabels": {},
        "concurrentExceptions": [],
    });
    let all = json!({
        "root-exception": "a task failed",
        "timestamp": ended,
        "all-exceptions": [],
        "truncated": false,
        "exceptionHistory": { "entries": [entry], "truncated": false },
    });
    assert_eq!(said, all);
    assert_eq!(site.ok(&job, "/exceptions?maxExceptions=1").await, all);
    let none = site.ok(&job, "/exceptions?maxExceptions=0").await;
    assert_eq!(none["exceptionHistory"], json!({ "entries": [], "truncated": true }));
    let labelled = site.ok(&job, "/exceptions?failureLabelFilter=type:user").await;
    assert_eq!(labelled["exceptionHistory"], json!({ "entries": [], "truncated": false }));
    for bad in ["many", "-1"] {
        let refused = site.of(&job, &format!("/exceptions?maxExceptions={bad}")).await;
        let text = format!("query parameter (maxExceptions) from value \"{bad}\"");
        assert!(refused.status == 400 && refused.error().contains(&text), "{}", refused.text);
    }
    site.cluster.stop().await;
}

#[tokio::test]
async fn a_job_that_was_started_again_says_why_and_how_often() {
    let site = Site::start().await;
    let fixed = "restart-strategy.fixed-delay";
    let job = site
        .run(&json!({
            "entryClass": "FailTask",
            "flinkConfiguration": {
                "restart-strategy.type": "fixed-delay",
                (format!("{fixed}.attempts")): "2",
                (format!("{fixed}.delay")): "1 ms",
            },
        }))
        .await;
    site.until(&job, "FAILED").await;
    let history = &site.ok(&job, "/exceptions").await["exceptionHistory"];
    assert_eq!(history["entries"].as_array().unwrap().len(), 2, "the last that it was started again after");
    assert_eq!(history["truncated"], true, "the first of three is not known any more");
    assert_eq!(site.ok(&job, "/metrics").await, json!([{ "id": "numRestarts" }, { "id": "uptime" }]));
    let figures = site.ok(&job, "/metrics?get=uptime,numRestarts,numberOfCompletedCheckpoints").await;
    assert_eq!(figures, json!([{ "id": "uptime", "value": "-1" }, { "id": "numRestarts", "value": "2" }]));
    let config = site.ok(&job, "/config").await;
    let strategy = &config["execution-config"]["restart-strategy"];
    assert_eq!(strategy, "Restart with fixed delay (1 ms). #2 restart attempts.");
    site.cluster.stop().await;
}

#[tokio::test]
async fn the_settings_of_a_job_are_shown_without_its_secrets() {
    let site = Site::start().await;
    let stated = json!({ "my.color": "red", "s3.secret-key": "hunter2" });
    let job =
        site.run(&json!({ "entryClass": "Forever", "parallelism": 2, "flinkConfiguration": stated })).await;
    let config = site.ok(&job, "/config").await;
    assert_eq!(
        config,
        json!({
            "jid": job,
            "name": "Forever",
            "execution-config": {
                "restart-strategy": "Restart after the loss of a container only.",
                "job-parallelism": 2,
                "object-reuse-mode": false,
                "user-config": { "my.color": "red", "s3.secret-key": "******" },
            },
        })
    );
    let pair = |key: &str, value: &str| json!({ "key": key, "value": value });
    assert_eq!(
        site.ok(&job, "/jobmanager/config").await,
        json!([
            pair("my.color", "red"),
            pair("on-lost-store", "kill"),
            pair("parallelism.default", "2"),
            pair("restart-strategy.type", "on-container-loss"),
            pair("s3.secret-key", "******"),
        ])
    );
    site.cluster.stop().await;
}

#[tokio::test]
async fn a_job_without_checkpoints_says_so() {
    let site = Site::start().await;
    let job = site.run(&json!({ "entryClass": "Forever" })).await;
    let checkpoints = site.ok(&job, "/checkpoints").await;
    assert!(checkpoints["counts"].as_object().unwrap().values().all(|count| count == 0), "{checkpoints}");
    let config = site.of(&job, "/checkpoints/config").await;
    assert_eq!(config.status, 404);
    let text = format!("Checkpointing is not enabled for this job ({job}).");
    assert!(config.error().ends_with(&text), "{}", config.text);
    for path in ["/checkpoints/details/7", &format!("/checkpoints/details/7/subtasks/{job}")] {
        let details = site.of(&job, path).await;
        let text = "Could not find checkpointing statistics for checkpoint 7.";
        assert!(details.status == 404 && details.error().ends_with(text), "{}", details.text);
    }
    let bad = site.of(&job, "/checkpoints/details/last").await;
    assert!(bad.status == 400 && bad.error().contains("(checkpointid)"), "{}", bad.text);
    let vertex = site.of(&job, &format!("/vertices/{job}/watermarks")).await;
    let text = format!("JobVertex {job} not found");
    assert!(vertex.status == 404 && vertex.error().ends_with(&text), "{}", vertex.text);
    let accumulators = site.ok(&job, "/accumulators?includeSerializedValue=true").await;
    assert_eq!(accumulators["user-task-accumulators"], json!([]));
    site.cluster.stop().await;
}

#[tokio::test]
async fn a_get_cancels_where_it_does_in_flink() {
    let site = Site::start().await;
    let job = site.run(&json!({ "entryClass": "Forever" })).await;
    let stop = site.of(&job, "/yarn-stop").await;
    assert!(stop.status == 308 && stop.error().contains("use mode=cancel"), "{}", stop.text);
    assert_eq!(site.ok(&job, "/status").await["status"], "RUNNING");
    let cancel = site.of(&job, "/yarn-cancel").await;
    assert_eq!((cancel.status, cancel.text.as_str()), (202, "{}"));
    site.until(&job, "CANCELED").await;
    let none = site.ok(&job, "/exceptions").await;
    assert_eq!(none["root-exception"], Value::Null, "to be cancelled is no failure");
    assert_eq!(site.of(&job, "/yarn-cancel").await.status, 202);
    site.cluster.stop().await;
}

#[tokio::test]
async fn the_job_manager_is_the_dispatcher_that_answers() {
    let site = Site::start().await;
    let get = |path: &'static str| site.cluster.get(0, path);
    let config = get("/jobmanager/config").await.json;
    let of = |key: &str| {
        let rows = config.as_array().unwrap().iter().filter(|row| row["key"] == key);
        let values: Vec<_> = rows.map(|row| row["value"].as_str().unwrap().to_owned()).collect();
        assert_eq!(values.len(), 1, "{key}");
        values[0].clone()
    };
    assert_eq!((of("node.name").as_str(), of("icp.grace").as_str()), ("d1", "200ms"), "what was set");
    assert_eq!((of("parallelism.default").as_str(), of("run.token-retention").as_str()), ("1", "7d"));
    assert_eq!(of("restart-strategy.type"), "on-container-loss");
    assert_eq!(of("jobmanager.jobmaster.single.enable"), "true");
    let environment = get("/jobmanager/environment").await.json;
    assert!(environment["jvm"]["version"].as_str().unwrap().starts_with("none: "), "{environment}");
    for path in ["/jobmanager/log", "/jobmanager/stdout", "/jobmanager/logs/x.log"] {
        let none = get(path).await;
        let text = "This file does not exist in JobManager log dir.";
        assert!(none.status == 404 && none.error().ends_with(text), "{path}: {}", none.text);
    }
    site.cluster.stop().await;
}

#[tokio::test]
async fn a_server_node_shows_the_jobs_that_it_runs() {
    let site = Site::start().await;
    let job = site.run(&json!({ "entryClass": "Forever", "parallelism": 3 })).await;
    let listed = site.cluster.get(0, "/taskmanagers").await.json["taskmanagers"][0].clone();
    let node = site.cluster.get(0, "/taskmanagers/n1").await;
    assert_eq!(node.status, 200, "{}", node.text);
    for field in ["id", "slotsNumber", "freeSlots", "totalResource", "hardware", "memoryConfiguration"] {
        assert_eq!(node.json[field], listed[field], "{field}");
    }
    assert_eq!((&node.json["slotsNumber"], &node.json["freeSlots"]), (&json!(4), &json!(1)));
    let slots = node.json["allocatedSlots"].as_array().unwrap();
    assert_eq!(slots.len(), 1, "{}", node.text);
    assert_eq!((&slots[0]["jobId"], &slots[0]["resource"]["cpuCores"]), (&json!(job), &json!(3.0)));
    assert_eq!(node.json["metrics"]["heapUsed"], 0);
    for id in ["n2", "d1"] {
        let none = site.cluster.get(0, &format!("/taskmanagers/{id}")).await;
        let text = format!("Could not find TaskExecutor {id}.");
        assert!(none.status == 404 && none.error().ends_with(&text), "{}", none.text);
    }
    site.cluster.stop().await;
}
