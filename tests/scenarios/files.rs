//! A scenario file with a mistake is refused with file, line, key and what is allowed.

use gpudeck::sandbox::scenario::Scenario;

/// Checks the words for a file.
fn refused(text: &str, words: &str) {
    let error = Scenario::parse("s.toml", text).unwrap_err().to_string();
    assert_eq!(error, words);
}

#[test]
fn an_unknown_key() {
    refused(
        "about = \"x\"\n[load]\ndemnd = 1.0\n",
        "s.toml: line 3: load.demnd: unknown field `demnd`, expected one of `demand`, \
         `finished-jobs`, `notebook-percent`, `fail-percent`, `services`, `gangs`",
    );
}

#[test]
fn an_unknown_model() {
    refused(
        "about = \"x\"\n[[pool]]\nmodel = \"h100\"\nnodes = 1\n[[pool]]\nmodel = \"b300\"\nnodes = 1\n",
        "s.toml: line 6: pool[2].model: unknown word `b300`, expected one of `h100`, `h200`, \
         `a100-80`, `a100-40`, `l40s`, `cpu`",
    );
}

#[test]
fn a_number_out_of_bounds_or_none_at_all() {
    refused(
        "about = \"x\"\n[[pool]]\nmodel = \"h100\"\nnodes = 0\n",
        "s.toml: line 4: pool[1].nodes: found the number 0, expected a whole number from 1 to 20000",
    );
    refused(
        "about = \"x\"\nspeed = \"fast\"\n",
        "s.toml: line 2: speed: found the text \"fast\", expected a number from 0.1 to 1000",
    );
}

#[test]
fn a_missing_key() {
    refused("speed = 2\n", "s.toml: line 1: missing field `about`");
    refused(
        "about = \"x\"\n[[pool]]\nmodel = \"cpu\"\n",
        "s.toml: line 2: pool[1]: missing field `nodes`",
    );
}

#[test]
fn a_time_that_is_none() {
    refused(
        "about = \"x\"\n[[fault]]\nat = \"soon\"\ninject = { kind = \"gone\" }\n",
        "s.toml: line 3: fault[1].at: `soon` is no length of time; a length of time such as 250ms, \
         90s, 1m30s or 2h is needed",
    );
}

#[test]
fn gpus_that_cannot_be_cut_so() {
    refused(
        "about = \"x\"\n[[pool]]\nmodel = \"h100\"\nnodes = 1\nmig = \"9g.80gb\"\n",
        "s.toml: line 5: pool[1].mig: `9g.80gb` is no profile of h100; allowed: whole, balanced, \
         1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb",
    );
    refused(
        "about = \"x\"\n[[pool]]\nmodel = \"l40s\"\nnodes = 1\nmig = \"balanced\"\n",
        "s.toml: line 5: pool[1].mig: l40s cannot be cut; allowed: whole",
    );
}

#[test]
fn slices_that_are_shared() {
    refused(
        "about = \"x\"\n[[pool]]\nmodel = \"h100\"\nnodes = 1\nmig = \"balanced\"\nshared = 4\n",
        "s.toml: line 6: pool[1].shared: only whole GPUs are shared: not with mig, not cpu",
    );
}

#[test]
fn a_fault_that_makes_no_sense() {
    refused(
        "about = \"x\"\n[[fault]]\nat = \"1m\"\ninject = { kind = \"restart\", delay = \"3s\" }\n",
        "s.toml: line 4: fault[1].inject: delay: is no key of restart; allowed: for, keep-history",
    );
    refused(
        "about = \"x\"\n[[fault]]\nat = \"1m\"\ninject = { kind = \"lag\" }\n",
        "s.toml: line 4: fault[1].inject.kind: unknown word `lag`, expected one of `latency`, \
         `drop-watches`, `silent-watches`, `gone`, `too-many-requests`, `conflict`, \
         `internal-error`, `restart`, `clock-skew`",
    );
}

#[test]
fn an_event_that_does_nothing() {
    refused(
        "about = \"x\"\n[[event]]\nat = \"1m\"\n",
        "s.toml: line 3: event[1].at: nothing happens; allowed: nodes with cordon, labels or \
         annotations, create, delete",
    );
    refused(
        "about = \"x\"\n[[event]]\nat = \"1m\"\ncordon = true\n",
        "s.toml: line 3: event[1].at: cordon, labels and annotations need nodes, as nodes = { \
         names = [\"h100-*\"] }",
    );
    refused(
        "about = \"x\"\n[[event]]\nat = \"1m\"\ncreate = '''\nkind: Pod\n'''\n",
        "s.toml: line 4: event[1].create: an object without apiVersion in it",
    );
}

#[test]
fn a_team_that_is_no_namespace_or_there_twice() {
    refused(
        "about = \"x\"\n[[team]]\nname = \"Team A\"\n",
        "s.toml: line 3: team[1].name: is a namespace: at most 63 of a-z, 0-9 and -, with a letter \
         or digit at each end",
    );
    refused(
        "about = \"x\"\n[[team]]\nname = \"a\"\n[[team]]\nname = \"a\"\n",
        "s.toml: line 5: team[2].name: the team `a` is there twice",
    );
}

#[test]
fn no_toml_at_all() {
    let error = Scenario::parse("s.toml", "about = \n")
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("s.toml: line 1: about: "), "{error}");
}

#[test]
fn a_name_that_is_neither_built_in_nor_a_file() {
    let error = Scenario::load("tuor").unwrap_err().to_string();
    assert!(
        error.starts_with("there is no scenario `tuor`; built in are tour, quiet,"),
        "{error}"
    );
    let error = Scenario::load("/nowhere/s.toml").unwrap_err().to_string();
    assert!(
        error.starts_with("/nowhere/s.toml: cannot be read: "),
        "{error}"
    );
}
