//! `gpudeck simulate scenario`: runs cases in the neutral form and tells which hold.

use std::io::Write;

use color_eyre::eyre::{Result, WrapErr, eyre};

use super::cli::{ScenarioArgs, ScenarioOutput};
use crate::sim::scenario::{CaseResult, Verdict, Verdicts, read, run as run_case};

/// Runs the cases of all files and prints what came out.
///
/// # Errors
/// A file cannot be read; a semantic case fails, after all are printed; standard output is closed.
pub fn run(args: &ScenarioArgs) -> Result<()> {
    let mut results = Vec::new();
    for file in &args.files {
        let text = std::fs::read_to_string(file)
            .wrap_err_with(|| format!("cannot read {}", file.display()))?;
        let cases = read(&text).wrap_err_with(|| file.display().to_string())?;
        results.extend(cases.iter().map(run_case));
    }
    let mut counts = Verdicts::default();
    for result in &results {
        counts.count(result.verdict);
    }
    let text = match args.output {
        ScenarioOutput::Json => serde_json::to_string_pretty(&results)? + "\n",
        ScenarioOutput::Table => table(&results, counts),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    let broken = results.iter().filter(|r| r.breaks_the_gate()).count();
    if broken > 0 {
        return Err(eyre!(
            "{broken} semantic case(s) did not come out as the rules say"
        ));
    }
    Ok(())
}

fn table(results: &[CaseResult], counts: Verdicts) -> String {
    let mut text = String::new();
    for result in results {
        let word = match result.verdict {
            Verdict::Pass => continue,
            Verdict::Fail => "FAIL",
            Verdict::StrictDiffers => "differs",
            Verdict::Inexpressible => "inexpressible",
        };
        text += &format!("{word:<14} {:<24} {}\n", result.id, result.why.join("; "));
    }
    text += &format!(
        "{} cases: {} pass, {} fail, {} strict ones differ, {} inexpressible\n",
        results.len(),
        counts.pass,
        counts.fail,
        counts.differ,
        counts.inexpressible
    );
    text
}
