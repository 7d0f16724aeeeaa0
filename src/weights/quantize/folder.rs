//! Writes a hub's folder anew with the matrices of its layers in bytes, in the layout that `compressed-tensors`
//! calls `int-quantized` and `float-quantized`: a byte a weight, and a scale for each row beside it.

use super::channels::encode_channels;
use super::gguf::part_path;
use super::safetensors::{Entry, entries, header};
use super::{QuantizeError, TensorLoss};
use crate::weights::BlockFormat;
use crate::weights::bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderFormat {
    Int8,
    /// e4m3.
    Fp8,
}

const CONFIG: &str = "config.json";
const INDEX: &str = "model.safetensors.index.json";

/// Writes the model in the folder `from` to the folder `to`: every matrix of its layers as `format`, all other
/// tensors and files as they are. At any time one tensor is in memory. `progress(done, total)` counts bytes read.
/// Gives what each matrix lost.
///
/// # Errors
/// What cannot be read or written, a folder that is quantised already, and files that are there, unless `overwrite`.
pub fn write_folder(
    from: &Path,
    format: FolderFormat,
    to: &Path,
    overwrite: bool,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Vec<TensorLoss>, QuantizeError> {
    let mut config = config(from)?;
    let (shards, others) = files(from)?;
    let same = fs::canonicalize(to).is_ok_and(|to| fs::canonicalize(from).is_ok_and(|from| from == to));
    if same || (to.join(CONFIG).exists() && !overwrite) {
        return Err(QuantizeError::Exists(to.to_owned()));
    }
    fs::create_dir_all(to).map_err(|source| QuantizeError::Write { path: to.to_owned(), source })?;
    let total = shards.iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum();
    let mut out = Folder {
        to,
        format,
        done: 0,
        total,
        progress,
        losses: Vec::new(),
        left: BTreeSet::new(),
        weight_map: Map::new(),
        bytes: 0,
    };
    for shard in &shards {
        out.shard(shard)?;
    }
    out.index(shards.len())?;
    config.insert("quantization_config".into(), out.described());
    for path in others {
        let name = path.file_name().unwrap_or_default();
        fs::copy(&path, to.join(name))
            .map_err(|source| QuantizeError::Write { path: to.join(name), source })?;
    }
    // Last: a folder with it is whole.
    out.put(CONFIG, &pretty(&Value::Object(config)))?;
    Ok(out.losses)
}

/// Beside the weights: the shards, and what is copied.
fn files(from: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), QuantizeError> {
    let wrong = |problem: String| QuantizeError::Folder { path: from.to_owned(), problem };
    let listed = fs::read_dir(from).map_err(|error| wrong(error.to_string()))?;
    let mut all: Vec<PathBuf> =
        listed.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.is_file()).collect();
    all.sort();
    let has = |path: &Path, endings: &[&str]| {
        path.extension().is_some_and(|extension| endings.iter().any(|ending| extension == *ending))
    };
    let is = |path: &Path, name: &str| path.file_name().is_some_and(|found| found == name);
    let shards: Vec<PathBuf> = all.iter().filter(|path| has(path, &["safetensors"])).cloned().collect();
    if shards.is_empty() {
        return Err(wrong("it has no .safetensors file".into()));
    }
    all.retain(|path| {
        has(path, &["json", "jinja", "txt", "model", "md"]) && !is(path, CONFIG) && !is(path, INDEX)
    });
    Ok((shards, all))
}

fn config(from: &Path) -> Result<Map<String, Value>, QuantizeError> {
    let path = from.join(CONFIG);
    let wrong = |problem: String| QuantizeError::Folder { path: path.clone(), problem };
    let text = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
    let config: Map<String, Value> =
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    match config.contains_key("quantization_config") {
        true => Err(wrong("it is quantised already: quantization_config".into())),
        false => Ok(config),
    }
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// The folder that is being written.
struct Folder<'a> {
    to: &'a Path,
    format: FolderFormat,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    losses: Vec<TensorLoss>,
    /// Modules with a matrix that was left as it is.
    left: BTreeSet<String>,
    weight_map: Map<String, Value>,
    /// Of all tensors written.
    bytes: usize,
}

impl Folder<'_> {
    fn shard(&mut self, path: &Path) -> Result<(), QuantizeError> {
        let wrong = |problem: String| QuantizeError::Folder { path: path.to_owned(), problem };
        let file = Bytes::map(path).map_err(|error| wrong(error.to_string()))?;
        let entries = entries(&file).map_err(wrong)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let planned = self.planned(&entries, &name);
        let part = part_path(&self.to.join(&name));
        let failed = |source| QuantizeError::Write { path: part.clone(), source };
        let mut out = BufWriter::new(File::create(&part).map_err(failed)?);
        out.write_all(&header(&planned)).map_err(failed)?;
        for entry in &entries {
            let data = &file[entry.place.clone()];
            match self.encodes(entry) {
                None => out.write_all(data).map_err(failed)?,
                Some((cols, from)) => {
                    let made = encode_channels(data, cols, from, self.format)
                        .map_err(|problem| wrong(format!("tensor {:?}: {problem}", entry.name)))?;
                    out.write_all(&made.bytes).and_then(|()| out.write_all(&made.scales)).map_err(failed)?;
                    let (name, error) = (entry.name.clone(), made.loss.relative());
                    self.losses.push(TensorLoss { name, from, to: self.format.blocks(), error });
                }
            }
            self.done += data.len() as u64;
            if (self.progress)(self.done, self.total).is_break() {
                // What is left of it is of no use.
                let _ = fs::remove_file(&part);
                return Err(QuantizeError::Interrupted);
            }
        }
        let written = out.into_inner().map_err(|error| failed(error.into_error()))?;
        written.sync_all().and_then(|()| fs::rename(&part, self.to.join(&name))).map_err(failed)
    }

    /// The tensors of the new file: a matrix is followed by its scales.
    fn planned(&mut self, entries: &[Entry], file: &str) -> Vec<Entry> {
        let mut planned = Vec::new();
        let mut at = 0;
        let mut put = |name: String, dtype: &str, shape: Vec<usize>, bytes: usize| {
            planned.push(Entry { name, dtype: dtype.into(), shape, place: at..at + bytes });
            at += bytes;
        };
        for entry in entries {
            match self.encodes(entry) {
                None => put(entry.name.clone(), &entry.dtype, entry.shape.clone(), entry.place.len()),
                Some(_) => {
                    let (rows, shape) = (entry.shape[0], entry.shape.clone());
                    put(entry.name.clone(), self.format.dtype(), shape, entry.shape.iter().product());
                    put(format!("{}_scale", entry.name), "F32", vec![rows, 1], 4 * rows);
                }
            }
        }
        let is_left = |entry: &&Entry| entry.shape.len() == 2 && self.encodes(entry).is_none();
        let module = |entry: &Entry| entry.name.strip_suffix(".weight").map(str::to_owned);
        let left: Vec<String> = entries.iter().filter(is_left).filter_map(module).collect();
        self.left.extend(left);
        self.weight_map.extend(planned.iter().map(|entry| (entry.name.clone(), json!(file))));
        self.bytes += at;
        planned
    }

    /// Columns and format of a matrix that is encoded: those of the layers, but for routers.
    fn encodes(&self, entry: &Entry) -> Option<(usize, BlockFormat)> {
        const STAYS: [&str; 6] = ["norm", "embed", "router", ".gate.", "shared_expert_gate", "conv"];
        let in_layer = [".layers.", ".h.", ".blocks."].iter().any(|part| entry.name.contains(part));
        let stays = STAYS.iter().any(|part| entry.name.contains(part));
        let matrix = entry.name.ends_with(".weight") && entry.shape.len() == 2 && entry.shape[1] > 0;
        let format = entry.format()?;
        (matrix && in_layer && !stays).then(|| (entry.shape[1], format))
    }

    /// Which file has which tensor, where there are several.
    fn index(&self, shards: usize) -> Result<(), QuantizeError> {
        if shards < 2 {
            return Ok(());
        }
        let index = json!({ "metadata": { "total_size": self.bytes }, "weight_map": self.weight_map });
        self.put(INDEX, &pretty(&index))
    }

    /// For `config.json`: weights in bytes with a scale for each row, activations as they are.
    fn described(&self) -> Value {
        let (kind, layout) = match self.format {
            FolderFormat::Int8 => ("int", "int-quantized"),
            FolderFormat::Fp8 => ("float", "float-quantized"),
        };
        json!({
            "quant_method": "compressed-tensors",
            "format": layout,
            "quantization_status": "compressed",
            "ignore": self.left,
            "config_groups": { "group_0": {
                "targets": ["Linear"],
                "input_activations": null,
                "output_activations": null,
                "weights": {
                    "num_bits": 8, "type": kind, "strategy": "channel", "symmetric": true, "dynamic": false,
                },
            } },
        })
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<(), QuantizeError> {
        let path = self.to.join(name);
        let part = part_path(&path);
        fs::write(&part, content)
            .and_then(|()| fs::rename(&part, &path))
            .map_err(|source| QuantizeError::Write { path, source })
    }
}

impl FolderFormat {
    fn dtype(self) -> &'static str {
        match self {
            FolderFormat::Int8 => "I8",
            FolderFormat::Fp8 => "F8_E4M3",
        }
    }

    /// The blocks that such weights become when they are read.
    fn blocks(self) -> BlockFormat {
        match self {
            FolderFormat::Int8 => BlockFormat::Q8_0,
            FolderFormat::Fp8 => BlockFormat::F8,
        }
    }
}
