use super::json;
use crate::base::visible;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

/// What `glassbox quantize` did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QuantizeReport {
    /// What was asked for.
    pub to: String,
    /// Where it is; nothing where nothing was written.
    pub path: Option<PathBuf>,
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Matrices that take as few bits already.
    pub left: usize,
    pub layers: Vec<LayerRow>,
    pub tensors: Vec<LossRow>,
}

/// What the matrices of one layer lost: |W - Q(W)| / |W|, root mean square.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerRow {
    /// `None` is the head.
    pub layer: Option<usize>,
    pub matrices: usize,
    pub mean_error: f64,
    pub worst_error: f64,
    pub worst: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossRow {
    pub name: String,
    pub from: String,
    pub to: String,
    pub error: f64,
}

pub fn print_quantized(out: &mut impl Write, report: &QuantizeReport, as_json: bool) -> io::Result<()> {
    if as_json {
        return json::write_pretty(out, report);
    }
    writeln!(out, "LAYER  MATRICES  MEAN ERROR  WORST    OF")?;
    for LayerRow { layer, matrices, mean_error, worst_error, worst } in &report.layers {
        let layer = layer.map_or("head".to_owned(), |layer| layer.to_string());
        let (mean, most) = (100.0 * mean_error, 100.0 * worst_error);
        writeln!(out, "{layer:>5}  {matrices:>8}  {mean:>8.3} %  {most:>5.3} %  {}", visible(worst))?;
    }
    for (format, count) in formats(&report.tensors) {
        writeln!(out, "{count} as {format}")?;
    }
    if report.left > 0 {
        writeln!(out, "{} stay as they are: they take as few bits already", report.left)?;
    }
    let (before, after) = (report.bytes_before as f64 / 1e6, report.bytes_after as f64 / 1e6);
    match &report.path {
        Some(path) => {
            writeln!(out, "{before:.1} MB became {after:.1} MB: {}", visible(&path.display().to_string()))
        }
        None => writeln!(out, "{before:.1} MB would become {after:.1} MB"),
    }
}

/// How many matrices became what, in the order they first appear.
fn formats(tensors: &[LossRow]) -> Vec<(String, usize)> {
    let mut formats: Vec<(String, usize)> = Vec::new();
    for LossRow { from, to, .. } in tensors {
        let change = format!("{to} (from {from})");
        match formats.iter_mut().find(|(known, _)| *known == change) {
            Some((_, count)) => *count += 1,
            None => formats.push((change, 1)),
        }
    }
    formats
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn layers_formats_and_sizes_are_told() {
        let loss = |name: &str, to: &str| LossRow {
            name: name.into(),
            from: "BF16".into(),
            to: to.into(),
            error: 0.0701,
        };
        let report = QuantizeReport {
            to: "q4_k".into(),
            path: Some("/out.gguf".into()),
            bytes_before: 3_000_000,
            bytes_after: 1_000_000,
            left: 2,
            layers: vec![LayerRow {
                layer: Some(3),
                matrices: 2,
                mean_error: 0.069,
                worst_error: 0.0701,
                worst: "blk.3.ffn_up.weight".into(),
            }],
            tensors: vec![loss("a", "Q4_K"), loss("b", "Q4_K"), loss("c", "Q5_0")],
        };
        let mut out = Vec::new();
        print_quantized(&mut out, &report, false).unwrap();
        let told = String::from_utf8(out).unwrap();
        assert_eq!(
            told,
            "LAYER  MATRICES  MEAN ERROR  WORST    OF\n    3         2     6.900 %  7.010 %  blk.3.ffn_up.weight\n\
             2 as Q4_K (from BF16)\n1 as Q5_0 (from BF16)\n2 stay as they are: they take as few bits already\n\
             3.0 MB became 1.0 MB: /out.gguf\n"
        );
    }
}
