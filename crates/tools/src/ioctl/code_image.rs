//! Which image, and which address in it, a code tool is asked about.

use code_flow::{CodeImage, CodeLocation, Coverage, ImageError, over_target};
use target::{Module, Rva, Target, TargetExt, TargetKind};

use crate::error::{Category, ToolError};
use crate::location::{check_expression, evaluate};
use crate::tool::Job;

/// Problems of the pair (`address`, `module` with `rva`): exactly one of them.
pub(crate) fn check_place(
    address: Option<&str>,
    module: Option<&str>,
    rva: Option<Rva>,
) -> Result<(), Vec<String>> {
    match (address, module, rva) {
        (Some(text), None, None) => check_expression("address", text),
        (None, Some(text), Some(_)) => check_expression("module", text),
        _ => Err(vec!["give either address, or module and rva".to_owned()]),
    }
}

/// The address a place means; of an import by its name, its slot's.
pub(crate) fn place(
    job: &Job<'_>,
    address: Option<&str>,
    module: Option<&str>,
    rva: Option<Rva>,
) -> Result<u64, ToolError> {
    match (address, module, rva) {
        (Some(text), _, _) => match evaluate(job.target, text, job.halt) {
            // "Who calls ExAllocatePoolWithTag" is asked of the slot its calls go through.
            Err(error) => expression::import_address(job.target, text.trim()).ok_or(error),
            found => found,
        },
        (None, Some(name), Some(rva)) => {
            let module = module_named(job, name)?;
            if rva.0 >= module.size {
                return Err(ToolError::invalid(format!(
                    "rva {rva} lies past {} ({:#x} bytes)",
                    module.name, module.size
                ))
                .because("out_of_bounds"));
            }
            Ok(module.base.wrapping_add(rva.0))
        }
        _ => Err(ToolError::invalid("give either address, or module and rva").because("both_or_neither")),
    }
}

/// A module by its name, or by an expression for an address inside it.
pub(crate) fn module_named(job: &Job<'_>, name: &str) -> Result<Module, ToolError> {
    if let Some(module) = job.target.module_named(name)? {
        return Ok(module);
    }
    if let Ok(address) = job.target.evaluate(name, job.halt)
        && let Some(module) = job.target.module_at(address)?
    {
        return Ok(module);
    }
    Err(ToolError::new(
        Category::Debugger,
        format!("no loaded module is called {name}, nor is it an address in one"),
    )
    .because("not_found"))
}

/// The module a tool is about: the one named, or the only one there is.
pub(crate) fn module(job: &Job<'_>, name: Option<&str>) -> Result<Module, ToolError> {
    let Some(name) = name else {
        return match job.target.modules()?.as_ref() {
            [only] => Ok(only.clone()),
            _ => Err(ToolError::invalid("name the module; only a session on an image file has just one")),
        };
    };
    module_named(job, name)
}

/// The module that holds `address`.
pub(crate) fn module_of(target: &dyn Target, address: u64) -> Result<Module, ToolError> {
    target.module_at(address)?.ok_or_else(|| {
        ToolError::new(
            Category::Debugger,
            format!("{address:#018x} is in no loaded module, so no image holds it"),
        )
        .because("not_code")
    })
}

/// The image of a module.
pub(crate) fn open<'t>(job: &Job<'t>, module: &Module) -> Result<CodeImage<'t>, ToolError> {
    over_target::open(job.target, module, job.halt).map_err(|error| {
        let reason = match &error {
            ImageError::Headers { .. } => "unreadable",
            ImageError::Machine { .. } => "unsupported_target",
            ImageError::Malformed { .. } => "malformed",
        };
        let hint = match (&error, job.target.facts().kind) {
            (ImageError::Headers { .. }, kind) if kind != TargetKind::Image => {
                "; a small dump holds no code: give a path where the image file can be found"
            }
            _ => "",
        };
        ToolError::new(Category::Debugger, format!("{error}{hint}")).because(reason)
    })
}

/// The location of an address, with the section it lies in.
pub(crate) fn located(
    locations: &mut analysis_driver::Locations<'_>,
    image: &CodeImage<'_>,
    address: u64,
) -> CodeLocation {
    let mut out = locations.at(address);
    out.section = image.section_at(address).map(|section| section.name.clone());
    out
}

/// What was not seen, in words; empty when everything was.
pub(crate) fn caveat(coverage: &Coverage) -> String {
    let mut parts = Vec::new();
    if coverage.unreadable_bytes > 0 {
        let mut sections: Vec<&str> =
            coverage.unreadable.iter().map(|range| range.section.as_str()).collect();
        sections.dedup();
        sections.truncate(4);
        parts.push(format!(
            "{} bytes of code could not be read ({}): discarded, paged out or not in the dump; an image file \
             on the symbol or image path fills them",
            coverage.unreadable_bytes,
            sections.join(", ")
        ));
    }
    if let Some(stopped) = coverage.stopped {
        parts.push(match stopped {
            code_flow::Stopped::Deadline => "time ran out".to_owned(),
            code_flow::Stopped::Interrupted => "interrupted".to_owned(),
        });
    }
    if !coverage.caps.is_empty() {
        parts.push(format!("cut at {}", coverage.caps.join(", ")));
    }
    if coverage.blind > 0 {
        parts.push(format!("{} instructions of reached code did not decode", coverage.blind));
    }
    parts.join("; ")
}

/// The images named, and where the bytes of `image` came from.
pub(crate) fn images(
    locations: analysis_driver::Locations<'_>,
    image: &CodeImage<'_>,
) -> Vec<code_flow::ImageRecord> {
    let mut out = locations.images();
    for record in &mut out {
        if record.base.0 == image.base {
            record.bytes_from = image.bytes_from();
        }
    }
    out
}
