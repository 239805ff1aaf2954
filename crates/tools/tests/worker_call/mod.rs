//! A worker tool called as a client calls it, its answer held to its schema.

use serde_json::{Value, json};
use target::{Halt, Silent, Target};
use tools::tool::Run;
use tools::{Job, Surface, ToolError, admit};

pub(crate) fn call(target: &dyn Target, tool: &str, args: Value) -> Result<(Value, String), ToolError> {
    let entry = tools::find(tool).unwrap();
    let admission = admit(entry, args.as_object().cloned())?;
    let Run::Worker(run) = entry.run else { panic!("{tool} is no worker tool") };
    let (mut commands, mut runs) = (command::Session::new(), control::Runs::default());
    let mut job = Job {
        target,
        halt: &Halt::unbounded(),
        progress: &Silent,
        commands: &mut commands,
        runs: &mut runs,
        kept: &mut tools::Kept::default(),
    };
    let data = run(&mut job, admission.args)?;
    let text = entry.render(&data, &Surface::all()).unwrap();
    let mut answer = data.clone();
    answer["status"] = json!("ok");
    jsonschema::validate(entry.output_schema().unwrap(), &answer).unwrap();
    Ok((data, text))
}
