//! Tests of the run request: one meaning for query and body, leniency on Flink's route, refusals on ours.

use super::*;
use crate::query::Query;

fn body(route: Route, text: &str) -> Result<RunRequest, RestError> {
    RunRequest::from_body(route, text.as_bytes())
}

fn query(route: Route, text: &str) -> Result<RunRequest, RestError> {
    RunRequest::from_query(route, &Query::parse(Some(text)).unwrap())
}

#[test]
fn query_and_body_forms_of_one_request_are_one() {
    let from_query = query(
        Route::RunAsync,
        "entry-class=a.Main&programArg=x,y%20z&parallelism=2&savepointPath=s3%3A%2F%2Fb%2F1&restoreMode=CLAIM\
         &allowNonRestoredState=true&triggerId=T1&jarId=J&jobId=1B84C0C49187CE28DDA32398092F14B3",
    )
    .unwrap();
    let from_body = body(
        Route::RunAsync,
        r#"{"entryClass":"a.Main","programArgsList":["x","y z"],"parallelism":"2","savepointPath":"s3://b/1",
            "claimMode":"CLAIM","allowNonRestoredState":true,"triggerId":"T1","jarId":"J",
            "jobId":"1b84c0c49187ce28dda32398092f14b3"}"#,
    )
    .unwrap();
    assert_eq!(from_query, from_body);
    let line = body(Route::RunAsync, r#"{"programArgs":"x \"y z\""}"#).unwrap();
    assert_eq!(line.program_args, from_body.program_args);
}

#[test]
fn the_body_wins_and_trigger_ids_must_agree() {
    let merged = RunRequest::merge(
        query(Route::RunAsync, "parallelism=2&entryClass=A&triggerId=T").unwrap(),
        body(Route::RunAsync, r#"{"parallelism":3,"triggerId":null}"#).unwrap(),
    )
    .unwrap();
    assert_eq!(merged.parallelism, Some(3));
    assert_eq!(merged.entry_class.as_deref(), Some("A"));
    assert_eq!(merged.trigger_id.as_deref(), Some("T"));
    let one = query(Route::RunAsync, "triggerId=T").unwrap();
    let other = body(Route::RunAsync, r#"{"triggerId":"U"}"#).unwrap();
    assert_eq!(RunRequest::merge(one, other).unwrap_err().status(), 400);
}

#[test]
fn flinks_route_ignores_what_it_does_not_know() {
    let request = body(Route::JarsRun, r#"{"triggerId":"x","nonsense":1,"parallelism":2.5}"#).unwrap();
    assert_eq!(request, RunRequest { parallelism: Some(2), ..RunRequest::default() });
    let request = query(Route::JarsRun, "jobId=nothex&allowNonRestoredState=abc&nonsense=1").unwrap();
    assert_eq!(request.job_id, None);
    assert_eq!(request.allow_non_restored_state, Some(false));
    for empty in ["", " \n", "{}"] {
        assert_eq!(body(Route::JarsRun, empty).unwrap(), RunRequest::default());
    }
}

#[test]
fn our_route_names_the_unknown_field_and_the_nearest_known_one() {
    let refusal = body(Route::RunAsync, r#"{"paralelism":2}"#).unwrap_err();
    assert_eq!(refusal.status(), 400);
    assert_eq!(refusal.errors(), [r#"unknown field "paralelism"; did you mean "parallelism"?"#]);
    let refusal = query(Route::RunAsync, "triggerid=T").unwrap_err();
    assert_eq!(refusal.errors(), [r#"unknown query parameter "triggerid"; did you mean "triggerId"?"#]);
    for (given, wanted) in
        [("jar-id", "jarId"), ("entry_class", "entryClass"), ("restoremode", "restoreMode")]
    {
        assert_eq!(nearest(given, BODY_FIELDS), wanted);
    }
}

#[test]
fn refusals_have_flinks_words_on_flinks_route_and_clear_ones_on_ours() {
    for bad in
        ["{\"parallelism\": ", "[]", "\"x\"", r#"{"programArgsList":"12"}"#, r#"{"restoreMode":"FOO"}"#]
    {
        let refusal = body(Route::JarsRun, bad).unwrap_err();
        assert_eq!(refusal.status(), 400);
        assert!(refusal.errors()[0].ends_with("expected format JarRunRequestBody."), "{bad}: {refusal}");
        assert!(!body(Route::RunAsync, bad).unwrap_err().errors()[0].contains("JarRunRequestBody"), "{bad}");
    }
    let refusal = body(Route::RunAsync, r#"{"parallelism":"abc"}"#).unwrap_err();
    assert_eq!(refusal.errors(), [r#"parallelism: expected a whole number, found "abc""#]);
    let both = body(Route::JarsRun, r#"{"programArgs":"a","programArgsList":["a"]}"#).unwrap_err();
    assert!(both.errors()[0].contains("Confusing request"));
}

#[test]
fn parallelism_is_positive_or_the_default() {
    for route in [Route::JarsRun, Route::RunAsync] {
        let default = RunRequest { parallelism: Some(-1), ..RunRequest::default() };
        assert_eq!(default.checked(route).unwrap().parallelism, None);
        for bad in [0, -2] {
            let request = RunRequest { parallelism: Some(bad), ..RunRequest::default() };
            assert_eq!(request.checked(route).unwrap_err().status(), 400);
        }
    }
}

/// Each field, in the body and in the query, under each of its names.
#[test]
fn every_field_may_stand_in_the_query_and_in_the_body_under_each_of_its_names() {
    let text = |text: &str| Some(text.to_owned());
    let list = || Some(vec!["x".to_owned(), "y".to_owned()]);
    let default = RunRequest::default;
    let cases = [
        ("entryClass", "A", r#""A""#, RunRequest { entry_class: text("A"), ..default() }),
        ("entry-class", "A", r#""A""#, RunRequest { entry_class: text("A"), ..default() }),
        ("programArgs", "x y", r#""x y""#, RunRequest { program_args: list(), ..default() }),
        ("program-args", "x y", r#""x y""#, RunRequest { program_args: list(), ..default() }),
        ("programArg", "x,y", r#""x,y""#, RunRequest { program_args: list(), ..default() }),
        ("programArgsList", "x,y", r#"["x","y"]"#, RunRequest { program_args: list(), ..default() }),
        ("programArgsList", r#"["x","y"]"#, r#"["x","y"]"#, RunRequest { program_args: list(), ..default() }),
        ("parallelism", "2", "2", RunRequest { parallelism: Some(2), ..default() }),
        (
            "jobId",
            &"a".repeat(32),
            r#""aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa""#,
            RunRequest { job_id: Some("a".repeat(32)), ..default() },
        ),
        (
            "allowNonRestoredState",
            "true",
            "true",
            RunRequest { allow_non_restored_state: Some(true), ..default() },
        ),
        ("savepointPath", "s", r#""s""#, RunRequest { savepoint_path: text("s"), ..default() }),
        (
            "restoreMode",
            "CLAIM",
            r#""CLAIM""#,
            RunRequest { restore_mode: Some(RestoreMode::Claim), ..default() },
        ),
        (
            "claimMode",
            "CLAIM",
            r#""CLAIM""#,
            RunRequest { restore_mode: Some(RestoreMode::Claim), ..default() },
        ),
        (
            "flinkConfiguration",
            r#"{"k":"v"}"#,
            r#"{"k":"v"}"#,
            RunRequest {
                flink_configuration: Some(BTreeMap::from([("k".to_owned(), "v".to_owned())])),
                ..default()
            },
        ),
        ("triggerId", "T", r#""T""#, RunRequest { trigger_id: text("T"), ..default() }),
        ("jarId", "J", r#""J""#, RunRequest { jar_id: text("J"), ..default() }),
        ("packages", "x,y", r#"["x","y"]"#, RunRequest { packages: list(), ..default() }),
        ("classPaths", r#"["x","y"]"#, r#"["x","y"]"#, RunRequest { packages: list(), ..default() }),
    ];
    for (name, in_query, in_body, wanted) in &cases {
        let pairs = [((*name).to_owned(), (*in_query).to_owned())];
        let read = RunRequest::from_query(Route::RunAsync, &Query::of_pairs(pairs).unwrap());
        assert_eq!(read.as_ref(), Ok(wanted), "{name} in the query");
        let read = body(Route::RunAsync, &format!("{{\"{name}\":{in_body}}}"));
        assert_eq!(read.as_ref(), Ok(wanted), "{name} in the body");
    }
    for name in BODY_FIELDS.iter().chain(ALIASES) {
        assert!(cases.iter().any(|(of, ..)| of == name), "{name} is not tried");
    }
}

#[test]
fn two_names_of_one_field_must_agree() {
    for (one, other) in [
        ("entryClass=A", "entry-class=B"),
        ("programArgs=a b", "programArg=a,c"),
        ("programArgsList=a", "program-args=b"),
        ("packages=a", "classPaths=b"),
        ("claimMode=CLAIM", "restoreMode=LEGACY"),
    ] {
        let pairs: Vec<_> = [one, other].iter().map(|pair| pair.split_once('=').unwrap()).collect();
        let refusal = query(Route::RunAsync, &format!("{one}&{other}")).unwrap_err();
        let names = pairs.iter().all(|(name, _)| refusal.errors()[0].contains(name));
        assert!(names && refusal.errors()[0].contains("differ"), "{refusal}");
        // Flink's route takes one of them, as it always did.
        query(Route::JarsRun, &format!("{one}&{other}")).unwrap();
    }
    let same = query(Route::RunAsync, "programArgs=a b&programArg=a,b").unwrap();
    assert_eq!(same.program_args, Some(vec!["a".into(), "b".into()]));
    let refusal = body(Route::RunAsync, r#"{"programArgs":"a","program-args":"b"}"#).unwrap_err();
    assert!(refusal.errors()[0].contains("differ"), "{refusal}");
    for bad in ["flinkConfiguration=x", "flinkConfiguration=[]", "programArgsList=[1", "packages=[{}]"] {
        let refusal = query(Route::RunAsync, bad).unwrap_err();
        assert!(refusal.errors()[0].starts_with(bad.split('=').next().unwrap()), "{refusal}");
    }
}
