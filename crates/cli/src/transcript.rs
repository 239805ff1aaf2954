//! `transcript render`: a transcript as an asciicast to play or a page to read.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use redaction::Redactor;
use transcript::Reading;
use transcript::render::{CastOptions, Report, cast, html};

use crate::{FAILED, OK, output};

#[derive(Debug, Args)]
pub(crate) struct Transcript {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Render transcripts as an asciicast (asciinema play FILE) or as one HTML page
    Render(Render),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// asciicast v2
    Cast,
    /// One page without scripts
    Html,
}

#[derive(Debug, Args)]
pub(crate) struct Render {
    /// Transcripts, as WINDBG_MCP_TRANSCRIPT wrote them; rotated parts in any order
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Cast)]
    format: Format,
    /// Where to [default: the first FILE with the extension of the format]; - is standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A title instead of the first session's kind and target
    #[arg(long)]
    title: Option<String>,
    /// Columns of the cast's terminal
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u16).range(20..=1000))]
    width: u16,
    /// Lines of the cast's terminal
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(5..=1000))]
    height: u16,
    /// Seconds a player waits at most; 0 is as long as it took
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    idle_limit: f64,
    /// Lines of a result the cast shows; 0 is all
    #[arg(long, default_value_t = 24, value_name = "N")]
    max_lines: usize,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0 to 86400".to_owned()),
    }
}

/// Whether two paths are one file: by what they name where they exist, else as they are written.
fn same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

impl Render {
    fn place(&self) -> PathBuf {
        let extension = match self.format {
            Format::Cast => "cast",
            Format::Html => "html",
        };
        let first = self.files.first().cloned().unwrap_or_default();
        self.out.clone().unwrap_or_else(|| first.with_extension(extension))
    }

    fn rendered(&self, reading: &Reading) -> (String, Report) {
        match self.format {
            Format::Html => html(reading, self.title.as_deref()),
            Format::Cast => {
                let (title, width, height) = (self.title.clone(), self.width, self.height);
                let (idle_limit, max_lines) = (self.idle_limit, self.max_lines);
                cast(reading, &CastOptions { title, width, height, idle_limit, max_lines })
            }
        }
    }

    fn run(&self, redactor: &Redactor) -> Result<(), String> {
        let place = self.place();
        // Writing truncates, and a transcript is the only record there is.
        if let Some(input) = self.files.iter().find(|file| same(file, &place)) {
            return Err(format!("{} would be overwritten; name another file with --out", input.display()));
        }
        let mut reading = Reading::of(&self.files).map_err(|error| error.to_string())?;
        if redactor.filters() {
            reading.redact(redactor);
        }
        let (text, report) = self.rendered(&reading);
        if place.as_os_str() == "-" {
            output::print(&text);
            return Ok(());
        }
        std::fs::write(&place, text).map_err(|error| format!("{}: {error}", place.display()))?;
        output::said(&format!("{}: {}", place.display(), report.words()));
        Ok(())
    }
}

/// Runs the subcommand.
pub(crate) fn run(asked: &Transcript, redactor: &Redactor) -> i32 {
    let What::Render(render) = &asked.what;
    match render.run(redactor) {
        Ok(()) => OK,
        Err(problem) => {
            output::problem(&problem);
            FAILED
        }
    }
}
