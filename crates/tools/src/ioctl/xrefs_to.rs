//! `xrefs_to`: who refers to an address.

use std::collections::BTreeMap;

use code_flow::{
    CodeImage, CodeLocation, Coverage, ImageRecord, Standing, XrefKind, data_pointers, decode_at, function_at,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Rva};

use crate::error::ToolError;
use crate::ioctl::code_image;
use crate::location::check_expression;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::table::fenced;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct XrefsTo;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Expression for the target.
    #[serde(default)]
    address: Option<String>,
    /// With `rva`, instead of `address`.
    #[serde(default)]
    module: Option<String>,
    #[serde(default)]
    rva: Option<Rva>,
    /// Module to search; default the target's own.
    #[serde(default)]
    in_module: Option<String>,
    /// Default all.
    #[serde(default)]
    kinds: Option<Vec<XrefKind>>,
    /// Sites listed, default 512.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2048))]
    limit: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Site {
    at: CodeLocation,
    kind: XrefKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mnemonic: Option<String>,
    /// In a section that is gone once the driver has initialised.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    discardable: bool,
    /// Absent for data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    standing: Option<Standing>,
    /// Start of the function around the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function: Option<CodeLocation>,
    /// Nothing says that the loader relocates the value: it may be a number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unrelocated: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    /// The module searched.
    module: String,
    base: Address,
    target: CodeLocation,
    sites: Vec<Site>,
    site_count: usize,
    by_kind: BTreeMap<String, usize>,
    /// Indirect jumps of the module whose targets are unknown.
    unresolved_jumps: usize,
    coverage: Coverage,
    complete: bool,
    not_searched: Vec<String>,
    images: Vec<ImageRecord>,
}

const DEFAULT_LIMIT: u32 = 512;

fn kind_name(kind: XrefKind) -> String {
    serde_json::to_value(kind).ok().and_then(|v| v.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}

struct Found {
    at: u64,
    kind: XrefKind,
    standing: Option<Standing>,
    unrelocated: bool,
}

/// References to `target`; through import slots too, where it is what one is bound to.
fn references(image: &CodeImage<'_>, index: &code_flow::ImageIndex, target: u64) -> Vec<Found> {
    let mut found: Vec<Found> = index
        .to(target)
        .map(|r| Found { at: r.at, kind: r.kind, standing: Some(r.standing), unrelocated: false })
        .collect();
    if let Some(import) = image.bound_import(target) {
        let through = index.to(import.slot).filter(|r| r.kind == XrefKind::Import);
        found.extend(through.map(|r| Found {
            at: r.at,
            kind: r.kind,
            standing: Some(r.standing),
            unrelocated: false,
        }));
    }
    let pointers = data_pointers(image, target).into_iter();
    found.extend(pointers.map(|pointer| Found {
        at: pointer.at,
        kind: XrefKind::DataPointer,
        standing: None,
        unrelocated: pointer.unrelocated,
    }));
    found
}

impl Tool for XrefsTo {
    const NAME: &'static str = "xrefs_to";
    const TITLE: &'static str = "Find references to an address";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Who calls, jumps to, or takes the address of a place, and which data points at it: one module's decoded \
         code, jump tables included. Calls through registers and memory are not found; no site is no proof that \
         nothing gets there.",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        code_image::check_place(params.address.as_deref(), params.module.as_deref(), params.rva)?;
        params.in_module.as_deref().map_or(Ok(()), |text| check_expression("in_module", text))
    }

    fn render(output: &Output, _: &Surface) -> String {
        let counts: Vec<String> =
            output.by_kind.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let mut text =
            format!("{} in {}: {} sites", output.target.describe(), output.module, output.site_count);
        if !counts.is_empty() {
            text.push_str(&format!(" ({})", counts.join(", ")));
        }
        let caveat = code_image::caveat(&output.coverage);
        if !caveat.is_empty() {
            text.push_str(&format!("\nNot complete: {caveat}."));
        }
        text.push_str(&format!("\nNot searched: {}.\n", output.not_searched.join(", ")));
        if output.sites.is_empty() {
            return text;
        }
        let rows: Vec<[String; 5]> = output
            .sites
            .iter()
            .map(|site| {
                let mut notes = Vec::new();
                match site.standing {
                    Some(Standing::NoUnwindEntry) => notes.push("may be data"),
                    Some(Standing::Unverified) => notes.push("unverified"),
                    _ => {}
                }
                if site.discardable {
                    notes.push("discarded after initialisation");
                }
                if site.unrelocated {
                    notes.push("not relocated");
                }
                [
                    site.at.address.to_string(),
                    kind_name(site.kind),
                    site.at.describe(),
                    site.function.as_ref().map(CodeLocation::describe).unwrap_or_default(),
                    notes.join(", "),
                ]
            })
            .collect();
        text.push_str(&fenced(["address", "kind", "where", "function", "note"], &rows));
        text
    }
}

impl WorkerTool for XrefsTo {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let target = code_image::place(job, params.address.as_deref(), params.module.as_deref(), params.rva)?;
        let module = match &params.in_module {
            Some(name) => code_image::module_named(job, name)?,
            None => code_image::module_of(job.target, target)?,
        };
        let image = code_image::open(job, &module)?;
        let index = job.kept.indexes.index(job.target, &image, job.halt);
        let mut found = references(&image, &index, target);
        if let Some(kinds) = &params.kinds {
            found.retain(|site| kinds.contains(&site.kind));
        }
        found.sort_by_key(|site| (site.at, site.kind));
        let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
        for site in &found {
            *by_kind.entry(kind_name(site.kind)).or_default() += 1;
        }
        let limit = params.limit.unwrap_or(DEFAULT_LIMIT) as usize;
        let mut coverage = index.coverage.clone();
        if found.len() > limit {
            coverage.cap("limit");
        }
        let mut locations = analysis_driver::Locations::new(job.target);
        locations.note(&module);
        let site_count = found.len();
        let sites = found.iter().take(limit).map(|found| site(&mut locations, &image, found)).collect();
        let target = locations.at(target);
        let unresolved_jumps = index.unresolved_jumps;
        Ok(Output {
            module: module.name.clone(),
            base: Address(module.base),
            target,
            sites,
            site_count,
            by_kind,
            unresolved_jumps,
            complete: coverage.is_complete() && unresolved_jumps == 0,
            coverage,
            not_searched: not_searched(unresolved_jumps),
            images: code_image::images(locations, &image),
        })
    }
}

fn not_searched(unresolved_jumps: usize) -> Vec<String> {
    let mut out = vec!["indirect calls".to_owned(), "other modules".to_owned()];
    if unresolved_jumps > 0 {
        out.push(format!("{unresolved_jumps} jumps through unresolved tables"));
    }
    out
}

fn site(locations: &mut analysis_driver::Locations<'_>, image: &CodeImage<'_>, found: &Found) -> Site {
    let code = found.standing.is_some();
    let mnemonic = code
        .then(|| decode_at(image, &mut code::Recorder::new(image.machine), found.at).mnemonic.to_string());
    let function = if code { function_at(image, found.at) } else { None };
    Site {
        at: code_image::located(locations, image, found.at),
        kind: found.kind,
        mnemonic,
        discardable: image.section_at(found.at).is_some_and(code_flow::spans::is_discardable),
        standing: found.standing,
        function: function.map(|start| locations.at(start)),
        unrelocated: found.unrelocated,
    }
}
