//! The short table of a run of `benches/gpu.sh`, from the JSON files that it left in a folder.

use super::report::{heading_of, line_of};
use crate::base::visible;
use serde_json::Value;
use std::io::{self, Write};

/// A file that was found: its name without an ending, and what is in it.
pub type File = (String, Value);

const WIDTHS: [usize; 7] = [19, 17, 10, 10, 7, 7, 5];

/// Rates of whole engines, and of kernels those that are furthest from their floor.
pub fn print_summary(files: &[File], out: &mut impl Write) -> io::Result<()> {
    let gpu = files.iter().find(|(_, content)| content["kernels"].is_array());
    if let Some((_, gpu)) = gpu {
        kernels(gpu, out)?;
    }
    let rows = files.iter().flat_map(|(name, content)| rows(name, content));
    let rows: Vec<[String; 7]> = rows.collect();
    if rows.is_empty() {
        return writeln!(out, "no rates of an engine");
    }
    heading_of(out, &["run", "test", "tok/s", "TTFT ms", "GB/s", "memory", "MFU"], &WIDTHS)?;
    rows.iter().try_for_each(|row| line_of(out, row, &WIDTHS))
}

/// Lines of one `bench speed --json`.
fn rows<'a>(name: &'a str, content: &'a Value) -> impl Iterator<Item = [String; 7]> + 'a {
    let tests = content.as_array().map(Vec::as_slice).unwrap_or_default();
    tests.iter().filter(|test| test["median_ts"].is_number()).map(move |test| {
        let figure = |value: &Value, digits: usize| {
            value.as_f64().map_or_else(|| "-".to_owned(), |x| format!("{x:.digits$}"))
        };
        let share = |name: &str| {
            let share = test["shares"][name].as_f64();
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
        };
        [
            visible(name.trim_start_matches("speed-")).into(),
            visible(test["test"].as_str().unwrap_or("?")).into(),
            figure(&test["median_ts"], 1),
            figure(&test["ttft_ms"], 1),
            figure(&test["gb_per_s"], 0),
            share("memory"),
            share("mfu"),
        ]
    })
}

/// How many are told of.
const FURTHEST: usize = 5;

fn kernels(gpu: &Value, out: &mut impl Write) -> io::Result<()> {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let (ceilings, all) = (&gpu["ceilings"], gpu["kernels"].as_array().expect("it was looked for"));
    let device = visible(gpu["device"].as_str().unwrap_or("?")).into_owned();
    writeln!(
        out,
        "{device}: reads {:.0} GB/s, f16 {:.0} TFLOP/s, int8 {:.0} TOP/s",
        number(&ceilings["read_gb_per_s"]),
        number(&ceilings["f16_tflops"]),
        number(&ceilings["int8_tops"])
    )?;
    let mut shares: Vec<(f64, &Value)> =
        all.iter().filter_map(|kernel| Some((kernel["share_of_floor"].as_f64()?, kernel))).collect();
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let failed = all.len() - shares.len();
    let middle = shares.get(shares.len() / 2).map_or(0.0, |(share, _)| *share);
    writeln!(
        out,
        "{} kernels measured, {failed} not; in the middle at {:.0} % of the floor; furthest from it:",
        shares.len(),
        middle * 100.0
    )?;
    for (share, kernel) in shares.iter().take(FURTHEST) {
        let text = |name: &str| visible(kernel[name].as_str().unwrap_or("?")).into_owned();
        writeln!(out, "  {:>3.0} %  {}, {}", share * 100.0, text("kernel"), text("shape"))?;
    }
    writeln!(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table(files: &[File]) -> String {
        let mut out = Vec::new();
        print_summary(files, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rates_and_the_worst_kernels_are_told() {
        let kernel =
            |name: &str, share: f64| json!({ "kernel": name, "shape": "1 row", "share_of_floor": share });
        let gpu = json!({
            "device": "H200", "ceilings": { "read_gb_per_s": 4000.0, "f16_tflops": 800.0, "int8_tops": 1600.0 },
            "kernels": [kernel("good", 0.9), kernel("bad", 0.1), { "kernel": "none", "error": "no memory" }],
        });
        let speed = json!([
            { "test": "tg128 x8", "median_ts": 800.0, "gb_per_s": 3000.0, "shares": { "memory": 0.75, "mfu": 0.1 } },
            { "test": "pp512", "median_ts": 20_000.0, "ttft_ms": 25.6 },
        ]);
        let table = table(&[("gpu".into(), gpu), ("speed-8b-Q4_K".into(), speed)]);
        for line in [
            "H200: reads 4000 GB/s, f16 800 TFLOP/s, int8 1600 TOP/s",
            "2 kernels measured, 1 not; in the middle at 90 % of the floor; furthest from it:",
            "   10 %  bad, 1 row",
            "| 8b-Q4_K             |          tg128 x8 |      800.0 |          - |    3000 |    75 % |  10 % |",
            "| 8b-Q4_K             |             pp512 |    20000.0 |       25.6 |       - |       - |     - |",
        ] {
            assert!(table.contains(line), "no {line} in\n{table}");
        }
    }

    #[test]
    fn nothing_is_made_up_of_files_that_are_not_there_or_of_another_kind() {
        assert_eq!(table(&[]), "no rates of an engine\n");
        assert_eq!(
            table(&[("x".into(), json!({ "a": 1 })), ("y".into(), json!([1, "b"]))]),
            "no rates of an engine\n"
        );
    }
}
