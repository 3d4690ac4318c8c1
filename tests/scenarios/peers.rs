//! Every scenario under `cases/` through `sched::decide`: semantic ones hold, strict ones are told.

use std::path::{Path, PathBuf};

use gpudeck::sim::scenario::{CaseResult, Verdict, read, run};

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(root)
        .unwrap()
        .flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

fn results() -> Vec<CaseResult> {
    files()
        .iter()
        .flat_map(|file| read(&std::fs::read_to_string(file).unwrap()).unwrap())
        .map(|case| run(&case))
        .collect()
}

#[test]
fn every_semantic_case_holds() {
    let results = results();
    assert!(results.len() > 362, "{} cases", results.len());
    let mut wrong = Vec::new();
    for result in &results {
        match result.verdict {
            Verdict::Pass => {}
            Verdict::StrictDiffers => println!("strict {} differs: {:?}", result.id, result.why),
            _ => wrong.push(format!("{}: {:?}", result.id, result.why)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let strict = results.iter().filter(|r| r.gate == "strict").count();
    let differ = results
        .iter()
        .filter(|r| r.verdict == Verdict::StrictDiffers)
        .count();
    // Half of another system's tie-breaks at most: more would be a mechanism, not a tie-break.
    assert!(2 * differ <= strict + strict / 4, "{differ} of {strict}");
}

#[test]
fn the_same_case_comes_out_the_same() {
    let text = std::fs::read_to_string(&files()[0]).unwrap();
    for case in read(&text).unwrap() {
        let got = |r: CaseResult| serde_json::to_string(&r).unwrap();
        assert_eq!(got(run(&case)), got(run(&case)));
    }
}

#[test]
fn what_is_no_case_is_told() {
    let words = |text: &str| read(text).unwrap_err().to_string();
    assert!(words("{}").contains("list of cases"), "{}", words("{}"));
    assert!(words("[{\"id\": 3}]").contains("id") || words("[{\"id\": 3}]").contains("string"));
    let cyclic = r#"[{"id": "c", "nodes": [{"name": "n", "gpus": 1}],
        "queues": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
        "jobs": [{"name": "j", "queue": "a", "pods": [{"gpus": 1}]}],
        "expect": {"pending": ["j"]}}]"#;
    let result = run(&read(cyclic).unwrap()[0]);
    assert_eq!(result.verdict, Verdict::Pass, "{:?}", result.why);
    let nowhere = r#"[{"id": "c", "nodes": [], "queues": [{"name": "a"}],
        "jobs": [{"name": "j", "queue": "a", "pods": [{"gpus": 1, "state": "running"}]}]}]"#;
    let result = run(&read(nowhere).unwrap()[0]);
    assert_eq!(result.verdict, Verdict::Inexpressible);
    assert!(
        result.why[0].contains("runs on no node"),
        "{:?}",
        result.why
    );
}
