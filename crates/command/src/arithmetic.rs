//! `?` and `.formats`.

use target::Result;

use crate::calendar;
use crate::run::{Run, usage};

pub(crate) fn question(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if arguments.is_empty() {
        return Err(usage("? needs an expression; the commands served are in the documentation"));
    }
    let value = run.evaluate(arguments)?;
    let notation = run.notation();
    let signed = if notation.is_32_bit() && value <= 0xffff_ffff {
        i64::from(u32::try_from(value).unwrap_or(0).cast_signed())
    } else {
        value.cast_signed()
    };
    let shown = if value > 0xffff_ffff || !notation.is_32_bit() {
        target::value::backticked(value)
    } else {
        notation.address(value)
    };
    run.say(format!("Evaluate expression: {signed} = {shown}"));
    Ok(())
}

pub(crate) fn formats(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let value = run.evaluate(arguments)?;
    let narrow = run.notation().is_32_bit() && value <= 0xffff_ffff;
    let bytes = if narrow { value.to_be_bytes()[4..].to_vec() } else { value.to_be_bytes().to_vec() };
    let binary: Vec<String> = bytes.iter().map(|b| format!("{b:08b}")).collect();
    let chars: String = bytes.iter().map(|b| crate::dump_text::printable(*b)).collect();
    run.say("Evaluate expression:");
    if narrow {
        let low = u32::try_from(value).unwrap_or(0);
        run.say(format!("  Hex:     {value:08x}"));
        run.say(format!("  Decimal: {}", low.cast_signed()));
        run.say(format!("  Octal:   {value:011o}"));
    } else {
        run.say(format!("  Hex:     {}", target::value::backticked(value)));
        run.say(format!("  Decimal: {}", value.cast_signed()));
        run.say(format!("  Octal:   {value:022o}"));
    }
    run.say(format!("  Binary:  {}", binary.join(" ")));
    run.say(format!("  Chars:   {chars}"));
    let time = if narrow {
        calendar::from_unix(i64::try_from(value).unwrap_or(0))
    } else {
        target::value::rfc3339_from_filetime(value)
            .filter(|_| value >> 32 != 0)
            .and_then(|t| calendar::from_rfc3339(&t))
            .or_else(|| calendar::from_unix(i64::try_from(value).ok()?))
    };
    run.say(format!("  Time:    {}", time.unwrap_or_else(|| "***** Invalid".to_owned())));
    let low = f32::from_bits(u32::try_from(value & 0xffff_ffff).unwrap_or(0));
    let high = f32::from_bits(u32::try_from(value >> 32).unwrap_or(0));
    run.say(format!("  Float:   low {low:e} high {high:e}"));
    run.say(format!("  Double:  {:e}", f64::from_bits(value)));
    Ok(())
}
