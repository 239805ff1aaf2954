//! The command line's shape.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tools::Surface;

use crate::transcript::Transcript;

/// What was asked for.
#[derive(Debug)]
pub struct Arguments {
    pub(crate) command: Option<Command>,
    pub(crate) build: &'static str,
    engine_dir: Option<PathBuf>,
    tools: Surface,
    dump_dirs: Vec<PathBuf>,
    redact: Option<PathBuf>,
}

impl Arguments {
    /// Parses the process's own command line. Help, version and mistakes end the process here, with
    /// the exit codes 0 and 2.
    #[must_use]
    pub fn from_command_line(build: &'static str) -> Self {
        let matches = Line::command().version(build).get_matches();
        let line = Line::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let refuse = |kind, text: String| Line::command().error(kind, text).exit();
        if line.command.is_some() && (line.tools.is_some() || !line.dump_dir.is_empty()) {
            let text = "--tools and --dump-dir go with serving; of the subcommands only `tools` takes --tools, \
                        behind it: windbg-mcp tools --tools SPEC";
            refuse(ErrorKind::ArgumentConflict, text.to_owned());
        }
        let tools = surface(line.tools.as_deref())
            .unwrap_or_else(|error| refuse(ErrorKind::ValueValidation, error.to_string()));
        Self {
            command: line.command,
            build,
            engine_dir: line.engine_dir,
            tools,
            dump_dirs: line.dump_dir,
            redact: line.redact,
        }
    }

    /// What `--tools` chose to serve.
    #[must_use]
    pub fn tools(&self) -> &Surface {
        &self.tools
    }

    /// The folders below which paths of dumps are completed.
    #[must_use]
    pub fn dump_dirs(&self) -> &[PathBuf] {
        &self.dump_dirs
    }

    /// The folder with Microsoft's debugger DLLs, when it was named.
    #[must_use]
    pub fn engine_dir(&self) -> Option<&std::path::Path> {
        self.engine_dir.as_deref()
    }

    /// The file with the redaction rules: `--redact`, else `WINDBG_MCP_REDACT`.
    #[must_use]
    pub fn redact(&self) -> Option<PathBuf> {
        let named = std::env::var_os("WINDBG_MCP_REDACT").filter(|path| !path.is_empty());
        self.redact.clone().or(named.map(PathBuf::from))
    }

    /// Whether it opens sessions, which a transcript is kept of.
    #[must_use]
    pub fn opens_sessions(&self) -> bool {
        matches!(self.command, None | Some(Command::Triage(_) | Command::Call(_)))
    }

    /// Without a subcommand the process serves MCP over standard input and output.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.command.is_none()
    }
}

/// The surface that `--tools` asks for.
pub(crate) fn surface(spec: Option<&str>) -> Result<Surface, tools::SpecError> {
    spec.map_or_else(|| Ok(Surface::default()), |spec| Surface::parse(spec, "--tools"))
}

/// A Windows debugger for crash dumps, on any machine.
///
/// Without a subcommand it serves MCP (the Model Context Protocol) over standard input and output.
#[derive(Debug, Parser)]
#[command(name = "windbg-mcp", bin_name = "windbg-mcp", disable_help_subcommand = true, after_help = AFTER)]
struct Line {
    /// The folder with Microsoft's debugger DLLs, for engine dbgeng [default: WINDBG_MCP_ENGINE_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    engine_dir: Option<PathBuf>,
    /// Rules (TOML) of what is replaced in everything that leaves this process [default:
    /// WINDBG_MCP_REDACT]
    #[arg(long, global = true, value_name = "FILE")]
    redact: Option<PathBuf>,
    /// Serve only these groups and tools, with commas between; all is everything [default: all groups
    /// but securekernel]
    #[arg(long, value_name = "SPEC")]
    tools: Option<String>,
    /// A folder below which an MCP client may complete paths of dumps; may be given again
    #[arg(long, value_name = "DIR")]
    dump_dir: Vec<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

const AFTER: &str = "Variables: _NT_SYMBOL_PATH and _NT_EXECUTABLE_IMAGE_PATH (default paths), \
                     WINDBG_MCP_ENGINE (auto, native, dbgeng), WINDBG_MCP_ENGINE_DIR, WINDBG_MCP_WINE, \
                     WINDBG_MCP_WINE_WORKER, WINDBG_MCP_CALL_TIMEOUT_SECS, WINDBG_MCP_TRANSCRIPT, \
                     WINDBG_MCP_REDACT, RUST_LOG, NO_COLOR.\n\
                     Exit codes: 0 all well, 1 something failed, 2 wrong usage.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what crashed, why, where and who, of dumps and folders of dumps
    #[command(after_help = "Exit codes: 0 every dump was triaged, 1 some failed, 2 wrong usage.")]
    Triage(Triage),
    /// Report which control codes drivers accept, from whom, and what they lead to
    #[command(after_help = "Exit codes: 0 every driver was read, 1 some were not, 2 wrong usage.")]
    Driver(Driver),
    /// Call one tool, as an MCP client would
    Call(Call),
    /// List the tools that are served
    Tools(Tools),
    /// Say what works on this machine, what is missing and how to get it
    #[command(after_help = "Exit codes: 0 nothing is broken, 1 something is.")]
    Doctor {
        /// The findings as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Copy Microsoft's debugger DLLs to where engine dbgeng finds them
    InstallEngine(InstallEngine),
    /// Show a recorded session (WINDBG_MCP_TRANSCRIPT) as a cast or as a page
    Transcript(Transcript),
}

#[derive(Debug, Args)]
pub(crate) struct InstallEngine {
    /// A folder that has them: Debuggers\x64 or Debuggers\x86 of the Debugging Tools, WinDbg's own
    #[arg(value_name = "DIR")]
    pub(crate) from: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Paths {
    /// Where symbols are: folders, srv*CACHE*URL, ';' between [default: _NT_SYMBOL_PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) symbols: Option<String>,
    /// Where the images (.exe, .dll, .sys) are; same form [default: _NT_EXECUTABLE_IMAGE_PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) images: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Triage {
    /// Dumps, folders that are searched for dumps, or images (.sys, .dll, .exe)
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) search: Paths,
    /// Print one JSON object a dump instead of a report
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the whole report of every dump, not only of a single one
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Driver {
    /// Drivers (.sys), or folders that are searched for them; several are ranked by what their codes reach
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) search: Paths,
    /// Print one JSON object a driver instead of a report
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the whole report of every driver, not only of a single one
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
    /// Write the control codes as a C header
    #[arg(long, value_name = "FILE")]
    pub(crate) header: Option<PathBuf>,
    /// Write a script that names the handlers in IDA
    #[arg(long, value_name = "FILE")]
    pub(crate) ida: Option<PathBuf>,
    /// Write a script that names the handlers in Ghidra
    #[arg(long, value_name = "FILE")]
    pub(crate) ghidra: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The tool's name; see: windbg-mcp tools
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// The tool's arguments: command=k, frames=8; a value is text where the tool takes text, else JSON
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) named: Vec<String>,
    /// The same as a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) json: String,
    /// A dump to open first
    #[arg(long, value_name = "PATH")]
    pub(crate) dump: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) search: Paths,
    /// Print the structured answer instead of the text
    #[arg(long)]
    pub(crate) structured: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// Print the definitions as JSON: names, descriptions, schemas, annotations
    #[arg(long)]
    pub(crate) json: bool,
    /// As a server with this --tools would list them
    #[arg(long, value_name = "SPEC")]
    pub(crate) tools: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Line::command().debug_assert();
    }

    #[test]
    fn help() {
        let mut texts = Vec::new();
        let mut command = Line::command().version("0").term_width(100);
        texts.push(command.render_long_help().to_string());
        for name in ["triage", "driver", "call", "tools", "doctor", "transcript"] {
            let sub = command.find_subcommand_mut(name).unwrap();
            texts.push(format!("== {name}\n{}", sub.render_long_help()));
        }
        insta::assert_snapshot!(texts.join("\n"));
    }
}
