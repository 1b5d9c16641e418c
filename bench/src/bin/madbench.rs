//! Runs what the library measures: `list`, `run`, `check`, `compare`, `report`, and the child processes that `run` starts.
//!
//! Exit codes: 0 measured (or skipped because a peer is missing), 1 failed with one line on standard error, or `check`
//! found a bar missed, 2 wrong usage. A scenario that fails does not keep the others from being run and written.
#![forbid(unsafe_code)]

use std::io::Write;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use madplane_bench::hdr_log::to_hdr_log;
use madplane_bench::libibmad::Probe;
use madplane_bench::machine::Environment;
use madplane_bench::programs::peers_required;
use madplane_bench::report::{
    Line, Outcome, Results, Status, compare, from_json_lines, to_json_lines, to_text,
};
use madplane_bench::scenario::{self, Options, Scenario};
use madplane_bench::{BenchError, check, page};
use madplane_shm::tuning::{Mode, Parameter};

/// Measures a plane, checks every answer, and compares.
#[derive(Debug, Parser)]
#[command(name = "madbench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the scenarios.
    List {
        /// How to print.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// The floor of this machine; the same as `run floor`.
    Floor(RunArguments),
    /// Runs scenarios.
    Run {
        /// Names; see `list`.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        arguments: RunArguments,
    },
    /// Holds results against the bars of the project; exits with 1 if any is missed or was not measured.
    Check {
        /// Result files of `run`, a later one over an earlier; without them the scenarios are run.
        #[arg(long)]
        from: Vec<PathBuf>,
        /// Only the bars of this issue.
        #[arg(long)]
        issue: Option<u32>,
        #[command(flatten)]
        arguments: RunArguments,
    },
    /// Draws result files as one self-contained HTML page.
    Report {
        /// Result files of `run`, a later one over an earlier.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Only the bars of this issue.
        #[arg(long)]
        issue: Option<u32>,
        /// Write the page to this file instead of standard output.
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// Compares two result files.
    Compare {
        /// Result file of `run --format json`.
        a: PathBuf,
        /// Another one.
        b: PathBuf,
    },
    /// Asks through libibmad; started by `run libibmad`.
    #[command(hide = true)]
    ProbeLibibmad {
        #[arg(long)]
        device: String,
        #[arg(long, value_delimiter = ',')]
        path: Vec<u8>,
        #[arg(long, value_parser = parse_guid)]
        node_guid: u64,
        #[arg(long)]
        count: u32,
    },
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// Rounds of each thing; 0 for the scenario's default.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    rounds: u32,
    /// Measurements per round; 0 for the scenario's default.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    count: u32,
    /// Fabric instead of the scenario's own, builtin:KIND,key=value,...
    #[arg(long)]
    fabric: Option<String>,
    /// The small variant.
    #[arg(long)]
    quick: bool,
    /// Time that each scenario may take in all, in seconds; 0 for its default.
    #[arg(long, default_value_t = 0.0, value_parser = parse_seconds, allow_negative_numbers = true)]
    duration: f64,
    /// Modes of the worker to measure in: polling, interrupt, adaptive; may be repeated.
    #[arg(long, value_delimiter = ',', value_parser = parse_mode)]
    mode: Vec<Mode>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Also write the JSON lines to this file.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Write the distributions as an HdrHistogram log to this file.
    #[arg(long)]
    log: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn parse_guid(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").ok_or("a GUID starts with 0x")?;
    u64::from_str_radix(digits, 16).map_err(|error| error.to_string())
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    let number = Parameter::Mode.parse(text).map_err(|error| error.to_string())?;
    Mode::from_number(number).ok_or_else(|| "no such mode".to_owned())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // a day; also keeps `Duration::from_secs_f64` from failing
    if (0.0..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("0 to 86400 seconds".to_owned()) }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    match execute(arguments.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&error.to_string());
            if matches!(error, BenchError::Usage(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Prints help as it is, and wrong usage as one line.
fn usage(error: &clap::Error) -> ExitCode {
    if error.exit_code() == 0 {
        return ExitCode::from(u8::from(error.print().is_err()));
    }
    let text = error.to_string();
    let told = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = told.flat_map(str::split_whitespace).collect();
    let line = words.join(" ").replace(" tip: ", "; ");
    say(&format!("{} (see madbench --help)", line.strip_prefix("error: ").unwrap_or(&line)));
    ExitCode::from(2)
}

/// Whether everything was measured and everything that was checked holds.
fn execute(command: Command) -> Result<bool, BenchError> {
    match command {
        Command::List { format: Format::Json } => print(&scenario::to_json())?,
        Command::List { format: Format::Text } => {
            let lines: Vec<_> = scenario::ALL
                .iter()
                .map(|scenario| format!("{:<14} {}", scenario.name, scenario.about))
                .collect();
            print(&(lines.join("\n") + "\n"))?;
        }
        Command::Floor(arguments) => return run(&["floor".to_owned()], &arguments),
        Command::Run { names, arguments } => return run(&names, &arguments),
        Command::Check { from, issue, arguments } => return hold(&from, issue, &arguments),
        Command::Report { files, issue, output } => {
            let page = page::to_html(&check::goals(issue)?, &read_all(&files)?);
            match output {
                Some(path) => write(&path, &page)?,
                None => print(&page)?,
            }
        }
        Command::Compare { a, b } => print(&compare(&read(&a)?, &read(&b)?))?,
        Command::ProbeLibibmad { device, path, node_guid, count } => {
            let times = Probe { device, path, node_guid, count }.run()?;
            let line = serde_json::to_string(&times.summary(None));
            print(&(line.map_err(|error| BenchError::Usage(error.to_string()))? + "\n"))?;
        }
    }
    Ok(true)
}

fn hold(from: &[PathBuf], issue: Option<u32>, arguments: &RunArguments) -> Result<bool, BenchError> {
    let goals = check::goals(issue)?;
    let lines = if from.is_empty() {
        let names: Vec<String> = check::scenarios(&goals).into_iter().map(str::to_owned).collect();
        measure(&names, arguments)?.lines()
    } else {
        read_all(from)?
    };
    let verdicts = check::check(&goals, &lines);
    print(&match arguments.format {
        Format::Text => check::to_text(&verdicts),
        Format::Json => {
            serde_json::to_string_pretty(&verdicts).map_err(|error| BenchError::Usage(error.to_string()))?
                + "\n"
        }
    })?;
    Ok(verdicts.short == 0)
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<Line>, BenchError> {
    let files = paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(files.into_iter().flatten().collect())
}

fn read(path: &Path) -> Result<Vec<Line>, BenchError> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| BenchError::io(name.to_string(), e))?;
    from_json_lines(&text).map_err(|error| BenchError::Usage(format!("{name}: {error}")))
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    std::fs::write(path, text).map_err(|e| BenchError::io(path.display().to_string(), e))
}

fn print(text: &str) -> Result<(), BenchError> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| BenchError::io("standard output", e))
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "madbench: {text}");
}

/// Whether no scenario failed.
fn run(names: &[String], arguments: &RunArguments) -> Result<bool, BenchError> {
    let results = measure(names, arguments)?;
    match arguments.format {
        Format::Json => print(&to_json_lines(&results))?,
        Format::Text => print(&to_text(&results))?,
    }
    Ok(results.outcomes.iter().all(|outcome| outcome.status != Status::Failed))
}

/// Runs scenarios; the files that are wanted are written before the first and after each, so that nothing gets lost.
fn measure(names: &[String], arguments: &RunArguments) -> Result<Results, BenchError> {
    let mut scenarios: Vec<&Scenario> = Vec::new();
    for name in names {
        let scenario = scenario::find(name)?;
        if !scenarios.iter().any(|known| known.name == scenario.name) {
            scenarios.push(scenario);
        }
    }
    let options = Options {
        rounds: arguments.rounds,
        count: arguments.count,
        fabric: arguments.fabric.clone(),
        quick: arguments.quick,
        duration: (arguments.duration > 0.0).then(|| Duration::from_secs_f64(arguments.duration)),
        modes: arguments.mode.clone(),
    };
    let mut results = Results { environment: Environment::now(), ..Results::default() };
    keep(&results, arguments)?;
    for (number, scenario) in (1..).zip(&scenarios) {
        if scenarios.len() > 1 {
            say(&format!("{number}/{} {}", scenarios.len(), scenario.name));
        }
        let outcome = measure_one(scenario, &options, &mut results);
        results.outcomes.push(outcome?);
        keep(&results, arguments)?;
    }
    Ok(results)
}

/// Runs one scenario and says how it ended. Only wrong usage is an error, and only before anything was measured.
fn measure_one(scenario: &Scenario, options: &Options, results: &mut Results) -> Result<Outcome, BenchError> {
    let start = Instant::now();
    let measured = catch_unwind(|| (scenario.run)(options))
        .unwrap_or_else(|_| Err(BenchError::Wrong("the scenario panicked".to_owned())));
    let (status, reason) = match measured {
        Ok(records) => {
            results.records.extend(records);
            (Status::Measured, String::new())
        }
        Err(BenchError::Missing(what)) if !peers_required() => {
            say(&format!("skipped {}: {what}", scenario.name));
            (Status::Skipped, what)
        }
        Err(error @ BenchError::Usage(_)) if results.outcomes.is_empty() => return Err(error),
        Err(error) => {
            say(&format!("{} failed: {error}", scenario.name));
            (Status::Failed, error.to_string())
        }
    };
    let elapsed_s = start.elapsed().as_secs_f64();
    Ok(Outcome { bench: scenario.name.to_owned(), status, reason, elapsed_s })
}

/// Writes what there is so far to the files that are wanted.
fn keep(results: &Results, arguments: &RunArguments) -> Result<(), BenchError> {
    if let Some(path) = &arguments.output {
        write(path, &to_json_lines(results))?;
    }
    if let Some(path) = &arguments.log {
        write(path, &to_hdr_log(&results.environment, &results.records)?)?;
    }
    Ok(())
}
