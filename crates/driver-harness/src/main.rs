//! `driver-harness DRIVER.sys`: one line `default STATUS`, then a line `CODE STATUS` for every control
//! code with another status. A process of its own: a driver that faults takes only this one down.

#[cfg(all(unix, target_arch = "x86_64"))]
mod program {
    use std::io::Write as _;
    use std::path::PathBuf;

    use anyhow::{Context as _, Result};
    use clap::Parser;
    use driver_harness::{Driver, Lengths};

    #[derive(Parser)]
    #[command(about = "Tries every control code on a test driver of this repository")]
    struct Arguments {
        driver: PathBuf,
        /// The first and the last code.
        #[arg(long, default_value = "0", value_parser = number)]
        first: u32,
        #[arg(long, default_value = "0xffffffff", value_parser = number)]
        last: u32,
        /// Input and output length, decimal.
        #[arg(long, default_value_t = 32)]
        input: u32,
        #[arg(long, default_value_t = 32)]
        output: u32,
        /// Stop at this many codes.
        #[arg(long, default_value_t = 1 << 20)]
        most: usize,
    }

    fn number(text: &str) -> Result<u32, std::num::ParseIntError> {
        text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u32::from_str_radix(hex, 16))
    }

    pub(crate) fn main() -> Result<()> {
        let arguments = Arguments::parse();
        let file = std::fs::read(&arguments.driver)
            .with_context(|| format!("cannot read {}", arguments.driver.display()))?;
        // SAFETY: the operator names a driver of this repository; see the crate's own words.
        let mut driver = unsafe { Driver::load(&file)? };
        driver.set_lengths(Lengths { input: arguments.input, output: arguments.output })?;
        let default = driver.default_status()?;
        let found = driver.sweep(arguments.first..=arguments.last, default, arguments.most);
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        writeln!(out, "default {default:#010x}")?;
        for (code, status) in found {
            writeln!(out, "{code:#010x} {status:#010x}")?;
        }
        out.flush()?;
        Ok(())
    }
}

#[cfg(all(unix, target_arch = "x86_64"))]
fn main() -> anyhow::Result<()> {
    program::main()
}

#[cfg(not(all(unix, target_arch = "x86_64")))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("the drivers are x64 code, run as it is: an x86-64 Unix host is needed")
}
