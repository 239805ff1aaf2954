//! Prints what the engine makes of a file: `look FILE [SYMBOL_PATH] [IMAGE_PATH]`.

use std::time::{Duration, Instant};

use engine_native::{OpenOptions, open};
use target::{ContextOf, FrameInfo, Halt, View};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else { return };
    let options =
        OpenOptions { symbol_path: arguments.next(), image_path: arguments.next(), ..Default::default() };
    let start = Instant::now();
    let target = match open(std::path::Path::new(&path), &options) {
        Ok(target) => target,
        Err(error) => {
            println!("{} {:?}: {error}", error.category, error.reason);
            return;
        }
    };
    println!("opened in {:?}: {:#?}", start.elapsed(), target.facts());
    let halt = Halt::within(Duration::from_secs(30));
    println!("event {:x?}", target.stored_event());
    println!("bug check {:x?}", target.bug_check());
    if let Ok(Some(context)) = target.context(ContextOf::Selected, View::Default) {
        match target.stack(&context, 64, &halt) {
            Ok(stack) => {
                for (index, frame) in stack.frames.iter().enumerate() {
                    let row = FrameInfo::new(index, frame);
                    println!(
                        "{index:3} {:x} {:016x} {:?} {} {:?}",
                        frame.ip,
                        frame.sp,
                        frame.found,
                        row.place(),
                        row.source
                    );
                }
                println!("{:?} {:?}", stack.end, stack.limitations);
            }
            Err(error) => println!("{error}"),
        }
        for frame in target.scan_stack(&context, 24, &halt).unwrap_or_default() {
            println!("scan {:x} {:016x} {}", frame.ip, frame.sp, FrameInfo::new(0, &frame).place());
        }
    }
    for module in target.modules().iter().flat_map(|m| m.iter()) {
        println!(
            "{:x} {:x} {} {} {:?}",
            module.base,
            module.end(),
            module.name,
            module.image_path,
            target.symbol_status(module.base, false).map(|s| (s.state, s.note))
        );
    }
    for process in target.processes(&halt).unwrap_or_default() {
        println!("{process:x?}");
    }
    println!("{:?}", start.elapsed());
}
