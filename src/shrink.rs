//! `glassbox quantize`: a model written anew in fewer bits. Part of the wiring, as `launch` is.

use crate::config::QuantizeArgs;
use crate::launch::Context;
use crate::model::block_format;
use crate::protocol::WeightFormat;
use crate::script::{self, LayerRow, LossRow, Progress, QuantizeReport, Quit, Status, written};
use crate::store::IfMissing;
use crate::weights::{self, Checkpoint, FolderFormat, Losses, QuantizeError, Quantized, TensorLoss};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn command(args: &QuantizeArgs) -> Result<Status, Quit> {
    let found = Context::read(Vec::new())?.store.obtain(&args.model, IfMissing::Refuse, args.quiet)?;
    let (wanted, path) = (args.clone(), found.path);
    let bar = if args.quiet { Progress::hidden() } else { Progress::bytes(&args.to.to_string()) };
    let ended = script::unless_signalled(move |stop| quantize(&wanted, &path, &bar, stop))?;
    let report = match ended {
        Ok(report) => report?,
        Err(signal) => return Err(Quit::new(signal.into(), "interrupted: nothing was written")),
    };
    written(script::print_quantized(&mut io::stdout().lock(), &report, args.json))
}

fn quantize(
    args: &QuantizeArgs,
    model: &Path,
    bar: &Progress,
    stop: &AtomicBool,
) -> Result<QuantizeReport, Quit> {
    let mut progress = |done, total| {
        bar.set(done, total);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let to = block_format(args.to);
    match args.output.as_deref() {
        Some(output) if !is_gguf(output)? => {
            let format = folder_format(args.to)?;
            let losses =
                weights::write_folder(model, format, output, args.force, &mut progress).map_err(quit)?;
            Ok(folder_report(args, model, output, losses))
        }
        output => {
            let file = Checkpoint::open(model).map_err(|error| quit(error.into()))?;
            let quantized = match output {
                Some(output) => weights::write_gguf(&file, to, output, args.force, &mut progress),
                None => weights::measure(&file, to, &mut progress),
            };
            Ok(report(args, &file, &quantized.map_err(quit)?))
        }
    }
}

/// Whether it is a GGUF file that is asked for, or a folder.
fn is_gguf(output: &Path) -> Result<bool, Quit> {
    let usage = |message: String| Err(Quit::new(Status::Usage, message));
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("gguf") => Ok(true),
        Some("safetensors") => usage(format!(
            "{}: safetensors need config.json and a tokenizer beside them: name a folder",
            output.display()
        )),
        _ => Ok(false),
    }
}

fn folder_format(format: WeightFormat) -> Result<FolderFormat, Quit> {
    match format {
        WeightFormat::Int8 => Ok(FolderFormat::Int8),
        WeightFormat::Fp8 => Ok(FolderFormat::Fp8),
        other => Err(Quit::new(Status::Usage, format!("a folder's weights can be int8 or fp8, not {other}"))
            .advise("a name that ends in .gguf makes a GGUF file")),
    }
}

fn report(args: &QuantizeArgs, file: &Checkpoint, quantized: &Quantized) -> QuantizeReport {
    let bytes = |file: &Checkpoint| file.tensors().map(|tensor| tensor.bytes as u64).sum();
    QuantizeReport {
        bytes_before: bytes(file),
        bytes_after: bytes(&quantized.checkpoint),
        left: quantized.small,
        ..losses(args, &quantized.losses)
    }
}

fn folder_report(args: &QuantizeArgs, from: &Path, to: &Path, tensors: Vec<TensorLoss>) -> QuantizeReport {
    QuantizeReport {
        bytes_before: safetensors_bytes(from),
        bytes_after: safetensors_bytes(to),
        ..losses(args, &Losses::of(tensors))
    }
}

fn losses(args: &QuantizeArgs, losses: &Losses) -> QuantizeReport {
    let layers = losses.layers().into_iter().map(|layer| LayerRow {
        layer: layer.layer,
        matrices: layer.matrices,
        mean_error: layer.mean,
        worst_error: layer.worst.error,
        worst: layer.worst.name,
    });
    let tensors = losses.tensors().into_iter().map(|tensor| LossRow {
        name: tensor.name,
        from: tensor.from.name().to_owned(),
        to: tensor.to.name().to_owned(),
        error: tensor.error,
    });
    QuantizeReport {
        to: args.to.to_string(),
        path: args.output.clone(),
        layers: layers.collect(),
        tensors: tensors.collect(),
        ..QuantizeReport::default()
    }
}

fn safetensors_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_weights = |path: &Path| path.extension().is_some_and(|extension| extension == "safetensors");
    files.filter(|file| is_weights(&file.path())).filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

fn quit(error: QuantizeError) -> Quit {
    let message = error.to_string();
    match error {
        QuantizeError::File(_) | QuantizeError::Family { .. } | QuantizeError::Unread { .. } => {
            Quit::new(Status::NoModel, message)
        }
        QuantizeError::Exists(_) => Quit::new(Status::Usage, message).advise("--force replaces it"),
        QuantizeError::NotInGguf { .. } => {
            Quit::new(Status::Usage, message).advise("a folder can hold it: name one")
        }
        QuantizeError::Nothing { .. } | QuantizeError::NoMatrix { .. } => Quit::new(Status::Data, message),
        QuantizeError::Folder { .. } => Quit::new(Status::NoInput, message),
        QuantizeError::Write { .. } => Quit::new(Status::Failed, message),
        QuantizeError::Interrupted => Quit::new(Status::Interrupted, message),
    }
}
