//! Generates the messages and the service from `proto/`, without a protoc.

use prost::Message;
use std::path::PathBuf;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["qo/v1/queue.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // The comments are for the authors of clients in other languages; rustdoc would read their indented lines as code.
    tonic_prost_build::configure()
        .disable_comments(["."])
        .btree_map(".")
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
