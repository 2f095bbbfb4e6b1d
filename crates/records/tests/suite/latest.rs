//! What `NAME` and `NAME:latest` mean: the newest release that is READY, by the rules of SemVer.

use records::packages::{self, resolve};

use crate::world::{World, reserve};

#[test]
fn latest_is_the_newest_release_that_is_ready() {
    let world = World::default();
    let node = world.server("a");
    for (version, name) in
        [("1.9.0", "w"), ("1.10.0", "x"), ("1.2.0", "v"), ("2.0.0-rc.1", "y"), ("nightly", "z")]
    {
        world.package(&format!("lib:{version}"), &node, name);
    }
    world.package("library:9.0.0", &node, "u");
    // A newer one that is not READY yet.
    world.must(|view| packages::reserve(view, &reserve("lib:3.0.0", "t", &node)));
    for text in ["lib", "lib:latest"] {
        assert_eq!(resolve(&world.view(), text).unwrap().unit.to_string(), "lib:1.10.0", "{text}");
    }
    assert_eq!(resolve(&world.view(), "lib:2.0.0-rc.1").unwrap().unit.version, "2.0.0-rc.1");
    assert!(resolve(&world.view(), "lib:3.0.0").is_err(), "it is not READY");
    assert!(resolve(&world.view(), "other").is_err());
}
