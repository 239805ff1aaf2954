//! Dates as the debugger writes them: `Sun Feb 21 01:38:22.987 2021`.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// From the Sunday on which Zeller-style counting starts.
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// Parts of an RFC 3339 UTC time as `target` writes them.
struct Parts<'a> {
    year: i64,
    month: usize,
    day: i64,
    /// `01:38:22.987`.
    clock: &'a str,
}

fn parts(text: &str) -> Option<Parts<'_>> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut numbers = date.split('-').map(str::parse::<i64>);
    let mut next = || numbers.next()?.ok();
    let (year, month, day) = (next()?, usize::try_from(next()?).ok()?, next()?);
    (1..=12).contains(&month).then_some(Parts { year, month, day, clock })
}

/// Sakamoto's method.
fn weekday(year: i64, month: usize, day: i64) -> &'static str {
    const SHIFTS: [i64; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
    let y = if month < 3 { year - 1 } else { year };
    let day = (y + y / 4 - y / 100 + y / 400 + SHIFTS[month - 1] + day).rem_euclid(7);
    DAYS[usize::try_from(day).unwrap_or(0)]
}

/// With milliseconds: `Fri Jul  6 22:16:05.318 2018`.
pub(crate) fn from_rfc3339(text: &str) -> Option<String> {
    let Parts { year, month, day, clock } = parts(text)?;
    Some(format!("{} {} {day:>2} {clock} {year}", weekday(year, month, day), MONTHS[month - 1]))
}

/// Without milliseconds, from seconds since 1970.
pub(crate) fn from_unix(seconds: i64) -> Option<String> {
    let text = target::value::rfc3339(seconds, 0)?;
    let shown = from_rfc3339(&text)?;
    Some(shown.replacen(".000 ", " ", 1))
}

/// Seconds since 1970 of an RFC 3339 time, milliseconds dropped.
pub(crate) fn unix_seconds(text: &str) -> Option<i64> {
    let Parts { year, month, day, clock } = parts(text)?;
    let mut numbers = clock.split(['.', ':']).map(|n| n.parse::<i64>());
    let mut next = || numbers.next()?.ok();
    let second_of_day = next()? * 3600 + next()? * 60 + next()?;
    // Days-from-civil (Howard Hinnant's public-domain algorithm).
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let month_from_march = (i64::try_from(month).ok()? + 9) % 12;
    let doy = (153 * month_from_march + 2) / 5 + day - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    Some((era * 146_097 + doe - 719_468) * 86_400 + second_of_day)
}

/// `0 days 0:00:03.747`.
pub(crate) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    format!(
        "{} days {}:{:02}:{:02}.{:03}",
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        milliseconds % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dates_of_known_dumps() {
        assert_eq!(from_rfc3339("2021-02-21T01:38:22.987Z").unwrap(), "Sun Feb 21 01:38:22.987 2021");
        assert_eq!(from_rfc3339("2018-07-06T22:16:05.318Z").unwrap(), "Fri Jul  6 22:16:05.318 2018");
        assert_eq!(from_rfc3339("2010-09-29T23:57:21.000Z").unwrap(), "Wed Sep 29 23:57:21.000 2010");
        assert_eq!(from_unix(0).unwrap(), "Thu Jan  1 00:00:00 1970");
        assert_eq!(unix_seconds("2021-02-21T01:38:22.987Z"), Some(1_613_871_502));
        assert_eq!(unix_seconds("1970-01-01T00:00:00.000Z"), Some(0));
        for text in ["", "2021", "2021-13-01T00:00:00.000Z", "xTyZ", "2021-02-21T1Z"] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
        assert_eq!(span(3747), "0 days 0:00:03.747");
        assert_eq!(span(1_776_759_251), "20 days 13:32:39.251");
    }
}
