//! docs/known-problems.md names tests that exist.

use std::path::Path;

use crate::files;

#[test]
fn every_test_of_the_known_problems_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/known-problems.md")).unwrap();
    let code: Vec<String> = ["src", "tests"]
        .iter()
        .flat_map(|folder| files(&root.join(folder)))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let mut named = 0;
    for line in page.lines().filter(|l| l.starts_with("| ")) {
        let last = line.trim_end_matches([' ', '|']).rsplit("| ").next();
        let Some(test) = last.and_then(|c| c.trim().strip_prefix('`')?.strip_suffix('`')) else {
            continue;
        };
        named += 1;
        let head = format!("fn {test}(");
        assert!(code.iter().any(|c| c.contains(&head)), "{test} is no test");
    }
    assert!(named > 20, "{named} tests are named");
}
