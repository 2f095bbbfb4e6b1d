//! The annotated files in conf/: written from the config structs by `cargo xtask conf`.

use meta_replica::ReplicaOptions;
use process_kit::config::{ConfFile, render, rows_of};

use crate::{
    args::ConfRole,
    roles::{dispatcher::DispatcherRole, jobmaster::JobmasterRole, standalone::StandaloneRole},
};

/// The text of a role's file.
pub fn text(role: ConfRole) -> String {
    render(&match role {
        ConfRole::Replica => replica(),
        ConfRole::Dispatcher => dispatcher(),
        ConfRole::Jobmaster => jobmaster(),
        ConfRole::Standalone => standalone(),
    })
}

fn replica() -> ConfFile {
    ConfFile {
        head: "A replica of the store: metastored replica --config replica.toml

Three replicas: the same file on each, with its own node.name, data-dir and listen.* (or --set node.name=r2 ...),
and cluster.initial = [\"r1=10.0.0.1:2380\", \"r2=10.0.0.2:2380\", \"r3=10.0.0.3:2380\"].
Written by cargo xtask conf. A line that begins with #KEY shows the default. Every key can also be set by
--set KEY=VALUE or by METASTORED_KEY in the environment, in capitals and with _ for . and -.",
        rows: rows_of::<ReplicaOptions>(),
        set: &[
            ("cluster.name", "\"metastore\""),
            ("node.name", "\"r1\""),
            ("cluster.initial", "[\"r1=127.0.0.1:2380\"]"),
            ("data-dir", "\"/var/lib/metastore/r1\""),
            ("auto-compaction.periodic", "\"1h\""),
        ],
    }
}

fn dispatcher() -> ConfFile {
    ConfFile {
        head: "A dispatcher, the REST front: metastored dispatcher --config dispatcher.toml

Two or more of them, each with its own node.name; any of them answers for all.
Written by cargo xtask conf. A line that begins with #KEY shows the default.",
        rows: rows_of::<DispatcherRole>(),
        set: &[
            ("store.endpoints", "[\"127.0.0.1:2379\"]"),
            ("jobmanager.jobmaster.single.enable", "false"),
            ("work-dir", "\"/var/lib/metastore/dispatcher/work\""),
        ],
    }
}

fn jobmaster() -> ConfFile {
    ConfFile {
        head: "A JobMaster process, a server node: metastored jobmaster --config jobmaster.toml

Any number of them, each with its own node.name and work-dir.
Written by cargo xtask conf. A line that begins with #KEY shows the default.",
        rows: rows_of::<JobmasterRole>(),
        set: &[
            ("store.endpoints", "[\"127.0.0.1:2379\"]"),
            ("work-dir", "\"/var/lib/metastore/jobmaster/work\""),
        ],
    }
}

fn standalone() -> ConfFile {
    ConfFile {
        head: "Everything in one process on loopback: metastored standalone --config standalone.toml

Written by cargo xtask conf. A line that begins with #KEY shows the default.",
        rows: rows_of::<StandaloneRole>(),
        set: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_file_in_conf_is_what_the_structs_give() {
        let conf = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf");
        for role in ConfRole::value_variants() {
            let name = role.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
            let file = std::fs::read_to_string(conf.join(format!("{name}.toml"))).unwrap_or_default();
            assert!(file == text(*role), "conf/{name}.toml is stale: run cargo xtask conf");
        }
    }

    #[test]
    fn no_key_looks_like_what_kubernetes_injects() {
        let roles = [
            rows_of::<ReplicaOptions>(),
            rows_of::<DispatcherRole>(),
            rows_of::<JobmasterRole>(),
            rows_of::<StandaloneRole>(),
        ];
        for row in roles.into_iter().flatten() {
            let variable = row.key.to_ascii_uppercase().replace(['.', '-'], "_");
            assert!(!variable.contains("_PORT") && !variable.contains("_SERVICE_"), "{}", row.key);
            assert!(!variable.starts_with("PORT") && !variable.starts_with("SERVICE_"), "{}", row.key);
        }
    }

    #[test]
    fn the_proposals_switch_is_a_literal_line() {
        assert!(text(ConfRole::Dispatcher).contains("\njobmanager.jobmaster.single.enable = false\n"));
    }
}
