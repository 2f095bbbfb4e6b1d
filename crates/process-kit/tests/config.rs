//! The four layers, from files and variables as an operator writes them.

use std::{io::Write as _, time::Duration};

use process_kit::{
    Config,
    config::{ConfFile, ConfigError, Note, Source, Sources, load, render},
};

process_kit::config! {
    /// A role as the real ones are.
    struct RoleConfig {
        include { log: process_kit::telemetry::LogConfig }
        /// Name of the node.
        "node.name" => node_name: String = "n1".to_owned(),
        /// Members at the first start.
        "cluster.initial" => initial: Vec<String> = vec![],
        /// How long.
        "lease.ttl" => ttl: Duration = Duration::from_secs(15),
        /// How many.
        "slots" => slots: Option<u32> = None,
        /// The proposal's switch.
        "jobmanager.jobmaster.single.enable" => single: bool = false,
    }
}

process_kit::config! {
    /// Two sections that share keys.
    struct BothConfig {
        include { first: RoleConfig, second: OtherConfig }
    }
}

process_kit::config! {
    /// Another section.
    struct OtherConfig {
        /// The same key.
        "node.name" => node_name: String = "n2".to_owned(),
        /// One of its own.
        "other" => other: u16 = 1,
    }
}

#[test]
fn a_key_of_two_sections_is_one_key() {
    let loaded = load::<BothConfig>(&sources(None, &[], &["node.name=x", "other=2"])).unwrap();
    assert_eq!((loaded.config.first.node_name.as_str(), loaded.config.second.node_name.as_str()), ("x", "x"));
    assert_eq!(loaded.config.second.other, 2);
    assert_eq!(loaded.shown.iter().filter(|shown| shown.key == "node.name").count(), 1);
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn sources(file: Option<&tempfile::NamedTempFile>, env: &[(&str, &str)], sets: &[&str]) -> Sources {
    Sources {
        file: file.map(|file| file.path().to_owned()),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        env_prefix: "METASTORED_",
        sets: sets.iter().map(|set| (*set).to_owned()).collect(),
    }
}

#[test]
fn flag_beats_variable_beats_file_beats_default() {
    let file = file("node.name = \"from-file\"\nlease.ttl = \"20s\"\nslots = 3\n");
    let env = [("METASTORED_NODE_NAME", "from-env"), ("METASTORED_SLOTS", "4")];
    let loaded = load::<RoleConfig>(&sources(Some(&file), &env, &["slots=5"])).unwrap();
    assert_eq!(loaded.config.node_name, "from-env");
    assert_eq!(loaded.config.ttl, Duration::from_secs(20));
    assert_eq!(loaded.config.slots, Some(5));
    assert_eq!(loaded.config.log.level, "info,openraft=warn");
    let source = |key| loaded.shown.iter().find(|shown| shown.key == key).unwrap().source.clone();
    assert_eq!(source("lease.ttl"), Source::File { path: file.path().to_owned(), line: 2 });
    assert_eq!(source("log.level"), Source::Default);
    // Flag and variable together start the process, and one line says who won.
    let winner = Note::Overridden {
        key: "slots".into(),
        winner: Source::Flag,
        loser: Source::Env("METASTORED_SLOTS".into()),
    };
    assert_eq!(loaded.notes, vec![winner]);
}

#[test]
fn tables_dotted_keys_and_quoted_keys_are_one() {
    for text in [
        "jobmanager.jobmaster.single.enable = true",
        "\"jobmanager.jobmaster.single.enable\" = true",
        "[jobmanager.jobmaster]\nsingle.enable = true",
        "jobmanager = { jobmaster = { single = { enable = true } } }",
    ] {
        let file = file(text);
        assert!(load::<RoleConfig>(&sources(Some(&file), &[], &[])).unwrap().config.single, "{text}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_file_line_and_nearest_name() {
    let file = file("# a comment\n[node]\nname = \"a\"\nnmae = \"b\"\n");
    let error = load::<RoleConfig>(&sources(Some(&file), &[], &[])).unwrap_err().to_string();
    assert_eq!(error, format!("{}:4: unknown key node.nmae; did you mean node.name?", file.path().display()));
    let error = load::<RoleConfig>(&sources(None, &[], &["clustr.initial=a"])).unwrap_err().to_string();
    assert_eq!(error, "--set: unknown key clustr.initial; did you mean cluster.initial?");
}

#[test]
fn a_bad_value_names_place_key_and_what_fits() {
    let file = file("\nlease.ttl = 15\n");
    let error = load::<RoleConfig>(&sources(Some(&file), &[], &[])).unwrap_err().to_string();
    assert!(error.contains(":2: lease.ttl = 15: wants a duration such as 15s"), "{error}");
    let env = [("METASTORED_SLOTS", "many")];
    let error = load::<RoleConfig>(&sources(None, &env, &[])).unwrap_err().to_string();
    assert!(error.starts_with("METASTORED_SLOTS: slots = \"many\": wants a whole number"), "{error}");
}

#[test]
fn what_kubernetes_injects_is_never_config_and_a_near_miss_warns() {
    let env = [
        ("METASTORED_PORT", "tcp://10.0.0.1:2379"),
        ("METASTORED_SERVICE_HOST", "10.0.0.1"),
        ("METASTORED_PORT_2379_TCP", "tcp://10.0.0.1:2379"),
        ("METASTORED_CONFIG", "x.toml"),
        ("METASTORED_NODE_NAEM", "x"),
        ("HOME", "/nowhere"),
    ];
    let loaded = load::<RoleConfig>(&sources(None, &env, &[])).unwrap();
    let near = Note::UnknownVariable {
        name: "METASTORED_NODE_NAEM".into(),
        nearest: Some("METASTORED_NODE_NAME".into()),
    };
    assert_eq!(loaded.notes, vec![near]);
}

#[test]
fn broken_toml_and_a_missing_file_say_where() {
    let broken = file("a = 1\nb = = 2\n");
    let error = load::<RoleConfig>(&sources(Some(&broken), &[], &[])).unwrap_err();
    assert!(matches!(error, ConfigError::Syntax { line: 2, .. }), "{error}");
    let mut gone = sources(None, &[], &[]);
    gone.file = Some("/nonexistent/x.toml".into());
    let error = load::<RoleConfig>(&gone).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/x.toml"), "{error}");
    assert!(load::<RoleConfig>(&sources(None, &[], &["slots"])).is_err());
}

#[test]
fn what_is_printed_and_what_is_rendered_can_be_read_back() {
    let sets = ["cluster.initial=a=1,b=2", "node.name=x\"y", "slots=7"];
    let first = load::<RoleConfig>(&sources(None, &[], &sets)).unwrap();
    let printed = file(&first.print());
    let again = load::<RoleConfig>(&sources(Some(&printed), &[], &[])).unwrap();
    assert_eq!(again.config.initial, ["a=1", "b=2"]);
    assert_eq!(again.config.node_name, "x\"y");
    let conf = ConfFile {
        head: "The role.\n\nSecond line.",
        rows: RoleConfig::rows(),
        set: &[("jobmanager.jobmaster.single.enable", "true")],
    };
    let text = render(&conf);
    assert!(text.contains("\njobmanager.jobmaster.single.enable = true\n"), "{text}");
    assert!(text.contains("\n# How long.\n#lease.ttl = \"15s\"\n"), "{text}");
    let rendered = file(&text);
    assert!(load::<RoleConfig>(&sources(Some(&rendered), &[], &[])).unwrap().config.single);
}
