//! The layers of ARCHITECTURE.md, checked on what cargo says the crates depend on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// Bottom to top: a crate may depend only on crates before it.
const LAYERS: [&str; 41] = [
    "test-data",
    "target",
    "kd-wire",
    "kd-api",
    "kd-target",
    "redaction",
    "connection-string",
    "code",
    "pe",
    "code-flow",
    "emulate",
    "driver-replay",
    "symbol-store",
    "symbols",
    "unwind",
    "expression",
    "dump",
    "dumpforge",
    "kd-sim",
    "engine-native",
    "kd-transport",
    "kd-client",
    "engine-dbgeng",
    "control",
    "analysis-status",
    "analysis-crash",
    "analysis-ioctl",
    "analysis-driver",
    "analysis-walk",
    "command",
    "batch",
    "transcript",
    "tools",
    "channel",
    "worker",
    "supervisor",
    "server",
    "cli",
    "differential",
    "driver-harness",
    "windbg-mcp",
];

/// What a crate must never know, although it lies below.
const NEVER: [(&str, &[&str]); 6] = [
    ("channel", &["tools"]),
    ("tools", &["engine-native", "dump", "channel", "rmcp"]),
    ("supervisor", &["engine-native", "dump", "worker", "rmcp"]),
    ("server", &["engine-native", "dump", "worker"]),
    ("cli", &["engine-native", "dump", "worker", "rmcp"]),
    ("engine-native", &["analysis-status", "analysis-crash", "tools", "rmcp"]),
];

fn rank(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

fn workspace() -> BTreeMap<String, Package> {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    metadata.packages.into_iter().map(|package| (package.name.to_string(), package)).collect()
}

/// Dependencies a crate ships with; what its tests use may be anything below or beside.
fn shipped(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal).map(|d| d.name.as_str())
}

/// Every upward or forbidden dependency among `crates`.
fn violations(crates: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, dependencies) in crates {
        let Some(own) = rank(name) else { continue };
        for dependency in dependencies {
            if rank(dependency).is_some_and(|other| other >= own) {
                found.push(format!("{name} depends upwards on {dependency}"));
            }
            if NEVER.iter().any(|(who, what)| who == name && what.contains(&dependency.as_str())) {
                found.push(format!("{name} must not know {dependency}"));
            }
        }
    }
    found
}

#[test]
fn no_crate_depends_upwards() {
    let crates = workspace();
    let shipped =
        crates.iter().map(|(n, p)| (n.clone(), shipped(p).map(ToOwned::to_owned).collect())).collect();
    let found = violations(&shipped);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_crate_has_a_layer() {
    for name in workspace().keys().filter(|name| *name != "xtask") {
        assert!(rank(name).is_some(), "{name} is in no layer: add it to ARCHITECTURE.md and here");
    }
}

#[test]
fn development_tools_are_not_shipped() {
    const TOOLS: [&str; 6] =
        ["dumpforge", "differential", "driver-harness", "test-data", "kd-target", "kd-sim"];
    let shipping = |name: &&str| *name != "xtask" && !TOOLS.contains(name);
    for (name, package) in workspace().iter().filter(|(name, _)| shipping(&name.as_str())) {
        for tool in TOOLS {
            assert!(!shipped(package).any(|dependency| dependency == tool), "{name} ships {tool}");
        }
    }
}

#[test]
fn the_comparison_knows_the_product_by_its_tools_only() {
    let crates = workspace();
    let own: Vec<&str> = shipped(&crates["differential"]).filter(|d| crates.contains_key(*d)).collect();
    assert!(own.is_empty(), "differential depends on {own:?}");
}

#[test]
fn a_planted_upward_dependency_is_found() {
    let planted = BTreeMap::from([
        ("target".to_owned(), vec!["tools".to_owned()]),
        ("channel".to_owned(), vec!["tools".to_owned()]),
    ]);
    assert_eq!(violations(&planted).len(), 2);
}
