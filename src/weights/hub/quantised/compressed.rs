//! compressed-tensors: what llm-compressor writes. Which way a matrix is packed shows in what lies there:
//! `weight_packed` words of 4 or 8 bits, `weight` of signed bytes or of e4m3 beside a `weight_scale`.

use super::super::dtype::Dtype;
use super::super::item::Item;
use super::super::json::Json;
use super::super::weights::Weights;
use super::packed::{Groups, Layout, Packed, Zeros};
use super::{fp8, gptq};
use crate::weights::CheckpointError;

const FORMATS: [&str; 6] =
    ["dense", "int-quantized", "float-quantized", "naive-quantized", "pack-quantized", "mixed-precision"];

pub(super) fn unpack(said: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    if let Some(format) = said.str("format")?.filter(|format| !FORMATS.contains(format)) {
        return Err(said.wrong("format", format!("is {format:?}; supported are {}", FORMATS.join(", "))));
    }
    let sparse = said.object("sparsity_config")?;
    if let Some(format) = sparse.as_ref().map_or(Ok(None), |sparse| sparse.str("format"))?
        && format != "dense"
    {
        return Err(said.wrong("sparsity_config.format", format!("is {format:?}; dense is supported")));
    }
    for name in weights.ending(".weight_packed") {
        let stem = name.trim_end_matches(".weight_packed").to_owned();
        let item = packed(weights, &stem)?;
        weights.put(format!("{stem}.weight"), item);
    }
    for name in weights.ending(".weight_scale") {
        let stem = name.trim_end_matches(".weight_scale").to_owned();
        if weights.get(&format!("{stem}.weight")).is_some_and(|item| item.dtype == Dtype::I8) {
            let item = bytes(weights, &stem)?;
            weights.put(format!("{stem}.weight"), item);
        }
    }
    fp8::unpack_all(weights, square(said)?)
}

/// Of the first group of matrices that says one: `strategy: block`.
fn square(said: &Json) -> Result<Option<(usize, usize)>, CheckpointError> {
    let Some(groups) = said.object("config_groups")? else { return Ok(None) };
    for name in groups.names() {
        let of = groups.object(name)?.map_or(Ok(None), |group| group.object("weights"))?;
        let Some(weights) = of else { continue };
        if let Some(square) = fp8::square(&weights, "block_structure")? {
            return Ok(Some(square));
        }
    }
    Ok(None)
}

/// `[rows, columns / codes of a word]`, codes counted from half.
fn packed(weights: &mut Weights, stem: &str) -> Result<Item, CheckpointError> {
    let codes = weights.require(&format!("{stem}.weight_packed"))?;
    let scales = weights.require(&format!("{stem}.weight_scale"))?;
    let shape = weights.require(&format!("{stem}.weight_shape"))?;
    let zeros = weights.take(&format!("{stem}.weight_zero_point"));
    let order = weights.take(&format!("{stem}.weight_g_idx"));
    let wrong = |problem: String| weights.wrong(stem, problem);
    let (rows, columns) = match said_shape(weights, stem, &shape)? {
        [rows, columns] if rows > 0 && columns > 0 => (rows, columns),
        other => return Err(wrong(format!("its shape is said to be {other:?}"))),
    };
    let words = codes.shape.last().copied().unwrap_or(0);
    let bits = [4, 8].into_iter().find(|bits| columns.div_ceil(32 / bits) == words);
    let Some(bits) = bits else {
        return Err(wrong(format!("{words} words for {columns} columns are neither 4 nor 8 bits")));
    };
    let num_groups = scales.shape.get(1).copied().unwrap_or(1).max(1);
    let groups = match &order {
        Some(order) if order.elements() == columns => {
            let list = gptq::listed(weights, stem, order, num_groups)?;
            Groups::listed(list, Groups::even(columns, num_groups, None))
        }
        Some(order) => return Err(wrong(format!("{} columns have groups of {columns}", order.elements()))),
        None => Groups::even(columns, num_groups, None),
    };
    let zeros = zeros.map_or(Zeros::Same(1 << (bits - 1)), Zeros::Rows);
    let packed = Packed { rows, columns, bits, layout: Layout::Rows, codes, scales, zeros, groups };
    packed.into_item(weights.files()).map_err(wrong)
}

/// `weight_shape`: two whole numbers.
fn said_shape(weights: &Weights, stem: &str, shape: &Item) -> Result<[usize; 2], CheckpointError> {
    let bytes = weights.read(stem, shape)?;
    let numbers: Vec<i64> = match shape.dtype {
        Dtype::I64 => bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect(),
        Dtype::I32 => bytes.as_chunks().0.iter().map(|word| i64::from(i32::from_le_bytes(*word))).collect(),
        _ => Vec::new(),
    };
    match numbers.as_slice() {
        // Words are checked against it, so it cannot claim more than there is.
        [rows @ 0..=0x7FFF_FFFF, columns @ 0..=0x7FFF_FFFF] => Ok([*rows as usize, *columns as usize]),
        other => Err(weights.wrong(&format!("{stem}.weight_shape"), format!("{other:?} is no shape"))),
    }
}

/// Signed bytes, a scale for each row or each group of columns.
fn bytes(weights: &mut Weights, stem: &str) -> Result<Item, CheckpointError> {
    let codes = weights.require(&format!("{stem}.weight"))?;
    let scales = weights.require(&format!("{stem}.weight_scale"))?;
    let zeros = weights.take(&format!("{stem}.weight_zero_point"));
    let wrong = |problem: String| weights.wrong(stem, problem);
    let [rows, columns] = *codes.shape.as_slice() else {
        return Err(wrong(format!("shape {:?} is no matrix", codes.shape)));
    };
    if rows == 0 || columns == 0 {
        return Err(wrong("it has no elements".to_owned()));
    }
    // One scale for all is one for each row.
    let scales = match scales.elements() {
        1 if rows > 1 => {
            let one = scales.reshaped(Vec::new()).map_err(wrong)?;
            Item::stack(vec![one; rows]).map_err(wrong)?
        }
        _ => scales,
    };
    let num_groups = scales.shape.get(1).copied().unwrap_or(1).max(1);
    let groups = Groups::even(columns, num_groups, None);
    let zeros = zeros.map_or(Zeros::Same(0), Zeros::Bytes);
    let packed = Packed { rows, columns, bits: 8, layout: Layout::Bytes, codes, scales, zeros, groups };
    packed.into_item(weights.files()).map_err(wrong)
}
