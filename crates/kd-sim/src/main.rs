//! Serves one scenario: `kd-sim [--scenario FILE] [--fixtures FOLDER] [--processors N] [--listen
//! tcp:ADDRESS:PORT|unix:PATH] [--capture FILE] [--deadline-ms N]`. Prints `{"endpoint":…,"connection":…}`
//! when it listens, and ends at the end of its standard input or at the deadline.

use std::io::{BufWriter, Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use kd_sim::{Listen, Scenario, Simulator};

struct Asked {
    scenario: Scenario,
    listen: Listen,
    capture: Option<PathBuf>,
    deadline: Option<Duration>,
}

fn main() -> std::process::ExitCode {
    match asked(std::env::args().skip(1)).and_then(|asked| serve(&asked)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("kd-sim: {problem}");
            std::process::ExitCode::from(2)
        }
    }
}

fn asked(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked =
        Asked { scenario: Scenario::default(), listen: Listen::local(), capture: None, deadline: None };
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--scenario" => {
                let text = std::fs::read_to_string(&value).map_err(|e| format!("{value}: {e}"))?;
                asked.scenario = Scenario::from_json(&text).map_err(|e| format!("{value}: {e}"))?;
            }
            "--fixtures" => asked.scenario = asked.scenario.with_fixtures(value.as_ref()),
            "--processors" => {
                let count = value.parse().map_err(|_| format!("{value} is no number of processors"))?;
                asked.scenario.processors = Scenario::with_processors(count).processors;
            }
            "--listen" => asked.listen = listen(&value)?,
            "--capture" => asked.capture = Some(value.into()),
            "--deadline-ms" => {
                let milliseconds = value.parse().map_err(|_| format!("{value} is no number"))?;
                asked.deadline = Some(Duration::from_millis(milliseconds));
            }
            _ => return Err(format!("there is no option {option}; see the program's source for them")),
        }
    }
    Ok(asked)
}

fn listen(text: &str) -> Result<Listen, String> {
    match text.split_once(':') {
        Some(("tcp", address)) => {
            address.parse().map(Listen::Tcp).map_err(|_| format!("{address} is no ADDRESS:PORT"))
        }
        Some(("unix", path)) => Ok(Listen::Unix(path.into())),
        _ => Err(format!("{text} is neither tcp:ADDRESS:PORT nor unix:PATH")),
    }
}

fn serve(asked: &Asked) -> Result<(), String> {
    let simulator = Simulator::start(&asked.scenario, &asked.listen).map_err(|e| e.to_string())?;
    println!("{}", simulator.announcement());
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    match asked.deadline {
        Some(deadline) => drop(end.recv_timeout(deadline)),
        None => drop(end.recv()),
    }
    let report = simulator.report();
    if let Some(path) = &asked.capture {
        let write = || -> std::io::Result<()> {
            let mut file = BufWriter::new(std::fs::File::create(path)?);
            for frame in &report.frames {
                writeln!(file, "{}", serde_json::to_string(frame)?)?;
            }
            file.flush()
        };
        write().map_err(|e| format!("{}: {e}", path.display()))?;
    }
    for (api, count) in &report.summary.unknown {
        eprintln!("kd-sim: {count} requests of the unknown API {api:#x} were refused");
    }
    Ok(())
}
