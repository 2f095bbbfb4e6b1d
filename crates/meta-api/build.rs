//! Compiles the proto text with a compiler written in Rust: no `protoc` is needed to build.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["proto/kv.proto", "proto/rpc.proto", "proto/health.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
