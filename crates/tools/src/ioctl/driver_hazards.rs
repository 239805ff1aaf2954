//! `driver_hazards`: what a driver calls and executes that matters, and how it is hardened.

use std::collections::BTreeMap;

use analysis_driver::Locations;
use code_flow::over_target::{Divergence, divergences};
use code_flow::sinks::WDF_SINKS;
use code_flow::wdf::{wdf_sites, wdf_table};
use code_flow::{
    CodeImage, CodeLocation, Coverage, ImageIndex, ImageRecord, ImportUse, Mitigations, NamedFrom,
    SINK_LIST_VERSION, SectionState, SinkKind, Standing, mitigations, sink_kind,
};
use driver_replay::Framework;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::Address;

use crate::error::ToolError;
use crate::ioctl::code_image;
use crate::ioctl::hazard_findings::{Findings, findings};
use crate::location::check_expression;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::table::fenced;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct DriverHazards;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Part {
    Sinks,
    Privileged,
    Findings,
    Mitigations,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Name or an address in it; optional in a session on a driver file.
    #[serde(default)]
    module: Option<String>,
    /// Default all.
    #[serde(default)]
    sections: Option<Vec<Part>>,
    /// Routine findings start from; default what DriverEntry installs.
    #[serde(default)]
    dispatch: Option<String>,
    /// Sites listed for each sink, default 256.
    #[serde(default)]
    #[schemars(range(min = 1, max = 4096))]
    max_sites: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct CallSite {
    at: CodeLocation,
    standing: Standing,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Sink {
    library: String,
    name: String,
    kind: SinkKind,
    slots: Vec<Address>,
    slot_count: usize,
    call_sites: Vec<CallSite>,
    call_site_count: usize,
    /// Reads of the slot that no call follows.
    address_taken_count: usize,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct PrivilegedRow {
    at: CodeLocation,
    /// `port_io`, `model_specific_register`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    mnemonic: String,
    standing: Standing,
    /// `sgdt` and its like: runs in user mode too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unprivileged: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Privileged {
    instructions: Vec<PrivilegedRow>,
    privileged_count: usize,
    in_function_count: usize,
    no_unwind_entry_count: usize,
    unverified_count: usize,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    module: String,
    base: Address,
    sink_list_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sinks: Option<Vec<Sink>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    privileged: Option<Privileged>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    findings: Option<Findings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mitigations: Option<Mitigations>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    framework: Option<Framework>,
    /// Imports that are no sink.
    other_imports: usize,
    /// Never checked against the list of names.
    ordinal_imports: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unnamed_libraries: Vec<String>,
    imports_named_from: Vec<NamedFrom>,
    /// Why the imports may be short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    imports_problem: Option<String>,
    /// Code of the target that is not the file's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    diverges: Vec<Divergence>,
    coverage: Coverage,
    complete: bool,
    images: Vec<ImageRecord>,
}

impl Output {
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }
    /// Classes of the findings about a code.
    pub(crate) fn classes_of(&self, code: target::Code) -> Vec<String> {
        self.findings.as_ref().map(|findings| findings.classes_of(code)).unwrap_or_default()
    }
}

/// All of it for one module, findings from the routine given or from what the driver installs.
pub(crate) fn of(job: &mut Job<'_>, module: &str, dispatch: Option<u64>) -> Result<Output, ToolError> {
    let params = Params {
        module: Some(module.to_owned()),
        sections: None,
        dispatch: dispatch.map(|address| Address(address).to_string()),
        max_sites: None,
        session_id: None,
    };
    DriverHazards::run(job, params)
}

const DEFAULT_SITES: u32 = 256;
/// Sites listed over all sinks.
const MAX_SITES: usize = 4096;
/// Privileged instructions listed: of functions, of gaps.
const MAX_PRIVILEGED: usize = 1024;
const MAX_PRIVILEGED_GAPS: usize = 128;
/// Slots listed for each sink.
const MAX_SLOTS: usize = 64;

impl Tool for DriverHazards {
    const NAME: &'static str = "driver_hazards";
    const TITLE: &'static str = "List what a driver does that matters";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "A driver's calls of sensitive kernel routines, its privileged instructions, data-flow findings from its \
         handlers, and its mitigations. An import is not a call, an absent import excludes nothing, and a call site \
         is not reachable until shown.",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        params.module.as_deref().map_or(Ok(()), |text| check_expression("module", text))?;
        params.dispatch.as_deref().map_or(Ok(()), |text| check_expression("dispatch", text))
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = format!("{} at {}", output.module, output.base);
        if let Some(framework) = &output.framework {
            text.push_str(&format!("\n{}: {}", framework.name, framework.note));
        }
        let caveat = code_image::caveat(&output.coverage);
        if !caveat.is_empty() {
            text.push_str(&format!("\nNot complete: {caveat}."));
        }
        if let Some(problem) = &output.imports_problem {
            text.push_str(&format!("\nImports: {problem}."));
        }
        if !output.diverges.is_empty() {
            text.push_str(&format!(
                "\nThe target's code differs from the file's in {} places.",
                output.diverges.len()
            ));
        }
        render_sinks(output, &mut text);
        render_privileged(output, &mut text);
        if let Some(findings) = &output.findings {
            text.push_str(&format!("\n\n{}", findings.text()));
        }
        if let Some(mitigations) = &output.mitigations {
            text.push_str(&format!("\n\nMitigations: {}", mitigations_text(mitigations)));
        }
        text
    }
}

/// Call sites of a routine that the text names; the answer has all that were asked for.
const SITES_SHOWN: usize = 8;

fn render_sinks(output: &Output, text: &mut String) {
    let Some(sinks) = &output.sinks else { return };
    text.push_str(&format!(
        "\n\n{} sensitive imports (list {}), {} others, {} by ordinal\n",
        sinks.len(),
        output.sink_list_version,
        output.other_imports,
        output.ordinal_imports
    ));
    let rows: Vec<[String; 4]> = sinks
        .iter()
        .map(|sink| {
            let kind = serde_json::to_value(sink.kind).ok();
            let kind = kind.and_then(|v| v.as_str().map(ToOwned::to_owned)).unwrap_or_default();
            let sites = sink.call_sites.iter().take(SITES_SHOWN).map(|site| site.at.describe());
            let mut shown = sites.collect::<Vec<String>>().join(" ");
            if sink.call_sites.len() > SITES_SHOWN {
                shown.push_str(" ...");
            }
            [sink.name.clone(), kind, sink.call_site_count.to_string(), shown]
        })
        .collect();
    if !rows.is_empty() {
        text.push_str(&fenced(["routine", "kind", "calls", "at"], &rows));
    }
}

fn render_privileged(output: &Output, text: &mut String) {
    let Some(privileged) = &output.privileged else { return };
    text.push_str(&format!(
        "\n\n{} privileged instructions: {} in functions, {} without unwind entry (may be data), {} unverified\n",
        privileged.privileged_count,
        privileged.in_function_count,
        privileged.no_unwind_entry_count,
        privileged.unverified_count
    ));
    let rows: Vec<[String; 3]> = privileged
        .instructions
        .iter()
        .filter(|row| row.standing == Standing::InFunction)
        .take(64)
        .map(|row| {
            let kind = row.kind.clone().unwrap_or_else(|| "unprivileged".to_owned());
            [row.at.describe(), row.mnemonic.clone(), kind]
        })
        .collect();
    if !rows.is_empty() {
        text.push_str(&fenced(["at", "instruction", "kind"], &rows));
    }
}

fn mitigations_text(m: &Mitigations) -> String {
    let flags = [
        (m.nx_compat, "nx"),
        (m.dynamic_base, "aslr"),
        (m.high_entropy, "high entropy"),
        (m.force_integrity, "force integrity"),
        (m.guard_cf, "cfg"),
        (m.retpoline, "retpoline"),
        (m.gs_cookie, "stack cookie"),
        (m.signed, "signed (not verified)"),
    ];
    let on: Vec<&str> = flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    let mut text = if on.is_empty() { "none".to_owned() } else { on.join(", ") };
    if !m.writable_executable_sections.is_empty() {
        text.push_str(&format!("; writable and executable: {}", m.writable_executable_sections.join(" ")));
    }
    text
}

impl WorkerTool for DriverHazards {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let module = code_image::module(job, params.module.as_deref())?;
        let image = code_image::open(job, &module)?;
        let index = job.kept.indexes.index(job.target, &image, job.halt);
        let wants = |part| params.sections.as_ref().is_none_or(|parts| parts.contains(&part));
        let mut locations = Locations::new(job.target);
        locations.note(&module);
        let mut coverage = index.coverage.clone();
        let limit = params.max_sites.unwrap_or(DEFAULT_SITES) as usize;
        let sinks = wants(Part::Sinks).then(|| {
            let mut collector =
                Sinks { image: &image, index: &index, limit, left: MAX_SITES, cap_hit: false };
            let sinks = collector.collect(&mut locations);
            if collector.cap_hit {
                coverage.cap("call_sites");
            }
            sinks
        });
        let privileged =
            wants(Part::Privileged).then(|| privileged(&image, &index, &mut locations, &mut coverage));
        let findings = if wants(Part::Findings) {
            Some(findings(job, &image, params.dispatch.as_deref())?)
        } else {
            None
        };
        let imports = image.imports();
        let sink_imports =
            imports.slots.iter().filter(|s| s.name.as_deref().and_then(sink_kind).is_some()).count();
        let analysed = findings.as_ref().is_none_or(|findings| findings.status == SectionState::Ok);
        let whole = imports.problem.is_none() && imports.unnamed_libraries.is_empty();
        Ok(Output {
            module: module.name.clone(),
            base: Address(module.base),
            sink_list_version: SINK_LIST_VERSION.to_owned(),
            sinks,
            privileged,
            findings,
            mitigations: wants(Part::Mitigations).then(|| mitigations(&image)),
            framework: framework(&image),
            other_imports: imports.slots.len().saturating_sub(sink_imports),
            ordinal_imports: imports.ordinal_imports,
            unnamed_libraries: imports.unnamed_libraries.clone(),
            imports_named_from: imports.named_from.clone(),
            imports_problem: imports.problem.clone(),
            diverges: divergences(job.target, &image),
            complete: coverage.is_complete() && whole && analysed,
            coverage,
            images: code_image::images(locations, &image),
        })
    }
}

fn framework(image: &CodeImage<'_>) -> Option<Framework> {
    let mut libraries: BTreeMap<String, Vec<pe::Import>> = BTreeMap::new();
    for slot in &image.imports().slots {
        let import = pe::Import { name: slot.name.clone(), ordinal: slot.ordinal, slot: 0 };
        libraries.entry(slot.library.clone()).or_default().push(import);
    }
    let imports: Vec<pe::ImportedDll> =
        libraries.into_iter().map(|(name, imports)| pe::ImportedDll { name, imports }).collect();
    driver_replay::framework_of(&imports)
}

struct Sinks<'c, 'i> {
    image: &'c CodeImage<'i>,
    index: &'c ImageIndex,
    limit: usize,
    left: usize,
    cap_hit: bool,
}

impl Sinks<'_, '_> {
    fn collect(&mut self, locations: &mut Locations<'_>) -> Vec<Sink> {
        // Keyed by library and name: a forged table that repeats a name makes one row.
        let mut rows: BTreeMap<(String, String), (SinkKind, Vec<u64>)> = BTreeMap::new();
        for slot in &self.image.imports().slots {
            let Some(name) = &slot.name else { continue };
            let Some(kind) = sink_kind(name) else { continue };
            let key = (slot.library.to_lowercase(), name.clone());
            rows.entry(key).or_insert((kind, Vec::new())).1.push(slot.slot);
        }
        let mut out = Vec::new();
        for ((library, name), (kind, slots)) in rows {
            let mut sites = Vec::new();
            let mut address_taken_count = 0;
            for slot in &slots {
                for site in self.index.uses(*slot) {
                    match site.how {
                        ImportUse::Called => sites.push((site.standing, site.at)),
                        ImportUse::Read => address_taken_count += 1,
                    }
                }
            }
            let slot_count = slots.len();
            let slots = slots.into_iter().take(MAX_SLOTS).map(Address).collect();
            let (call_sites, call_site_count) = self.sites(locations, sites);
            out.push(Sink {
                library,
                name,
                kind,
                slots,
                slot_count,
                call_sites,
                call_site_count,
                address_taken_count,
            });
        }
        out.extend(self.framework(locations));
        out
    }

    /// Sites to list, code before what may be data, and how many there are.
    fn sites(
        &mut self,
        locations: &mut Locations<'_>,
        mut sites: Vec<(Standing, u64)>,
    ) -> (Vec<CallSite>, usize) {
        sites.sort_unstable();
        sites.dedup();
        let count = sites.len();
        let room = self.limit.min(self.left);
        self.cap_hit |= count > room;
        let listed: Vec<CallSite> = sites
            .into_iter()
            .take(room)
            .map(|(standing, at)| CallSite { at: code_image::located(locations, self.image, at), standing })
            .collect();
        self.left -= listed.len();
        (listed, count)
    }

    /// Framework routines that hand out the caller's own memory, by their index.
    fn framework(&mut self, locations: &mut Locations<'_>) -> Vec<Sink> {
        let Some(table) = wdf_table(self.image) else { return Vec::new() };
        let used = wdf_sites(self.image, self.index, &table);
        let mut out = Vec::new();
        for (index, name) in WDF_SINKS {
            let sites: Vec<(Standing, u64)> =
                used.iter().filter(|site| site.index == index).map(|site| (site.standing, site.at)).collect();
            if sites.is_empty() {
                continue;
            }
            let (call_sites, call_site_count) = self.sites(locations, sites);
            out.push(Sink {
                library: "Wdf".to_owned(),
                name: name.to_owned(),
                kind: SinkKind::UserPointerGuard,
                slots: Vec::new(),
                slot_count: 0,
                call_sites,
                call_site_count,
                address_taken_count: 0,
            });
        }
        out
    }
}

fn privileged(
    image: &CodeImage<'_>,
    index: &ImageIndex,
    locations: &mut Locations<'_>,
    coverage: &mut Coverage,
) -> Privileged {
    let (mut code, mut gaps) = (Vec::new(), Vec::new());
    for site in &index.privileged {
        let in_function = site.standing == Standing::InFunction;
        let (list, most) =
            if in_function { (&mut code, MAX_PRIVILEGED) } else { (&mut gaps, MAX_PRIVILEGED_GAPS) };
        if list.len() >= most {
            coverage.cap("privileged");
            continue;
        }
        list.push(PrivilegedRow {
            at: code_image::located(locations, image, site.at),
            kind: site.kind.map(|kind| kind.name().to_owned()),
            mnemonic: site.mnemonic.clone(),
            standing: site.standing,
            unprivileged: site.kind.is_none(),
        });
    }
    code.extend(gaps);
    let [in_function_count, no_unwind_entry_count, unverified_count] = index.privileged_counts;
    Privileged {
        instructions: code,
        privileged_count: in_function_count + no_unwind_entry_count + unverified_count,
        in_function_count,
        no_unwind_entry_count,
        unverified_count,
    }
}
