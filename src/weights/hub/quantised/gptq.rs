//! GPTQ (Frantar et al. 2022) as AutoGPTQ and GPTQModel pack it: `qweight`, `qzeros`, `scales`, `g_idx` in
//! place of `weight`. Files of format `gptq` hold zeros less one; `gptq_v2` holds them as they are.

use super::super::dtype::Dtype;
use super::super::item::Item;
use super::super::json::Json;
use super::super::weights::Weights;
use super::packed::{Groups, Layout, Packed, Zeros};
use crate::weights::CheckpointError;

pub(super) fn unpack(said: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    let bits = said.require_u64("bits")?;
    if !matches!(bits, 4 | 8) {
        return Err(said.wrong("bits", format!("is {bits}; 4 and 8 are supported for GPTQ")));
    }
    let add = match said.str("checkpoint_format")?.unwrap_or("gptq") {
        "gptq" => 1,
        "gptq_v2" => 0,
        other => {
            let problem = format!("is {other:?}; gptq and gptq_v2 are supported");
            return Err(said.wrong("checkpoint_format", problem));
        }
    };
    let size = said.i64("group_size")?.and_then(|size| usize::try_from(size).ok());
    for name in weights.ending(".qweight") {
        let stem = name.trim_end_matches(".qweight").to_owned();
        let item = matrix(weights, &stem, bits as usize, add, size)?;
        weights.put(format!("{stem}.weight"), item);
        leave_out_zero_bias(weights, &stem)?;
    }
    Ok(())
}

fn matrix(
    weights: &mut Weights,
    stem: &str,
    bits: usize,
    add: i32,
    size: Option<usize>,
) -> Result<Item, CheckpointError> {
    let codes = weights.require(&format!("{stem}.qweight"))?;
    let zeros = weights.require(&format!("{stem}.qzeros"))?;
    let scales = weights.require(&format!("{stem}.scales"))?;
    let order = weights.take(&format!("{stem}.g_idx"));
    let wrong = |problem: String| weights.wrong(stem, problem);
    let [words, rows] = *codes.shape.as_slice() else {
        return Err(wrong(format!("its codes have shape {:?}", codes.shape)));
    };
    let num_groups = scales.shape.first().copied().unwrap_or(0);
    // Of the columns that the words have room for, those that have a group.
    let columns = order.as_ref().map_or(words * 32 / bits, Item::elements);
    if columns == 0 || rows == 0 || num_groups == 0 {
        return Err(wrong(format!("its codes have shape {:?}, its scales {:?}", codes.shape, scales.shape)));
    }
    let even = Groups::even(columns, num_groups, size);
    let groups = match &order {
        None => even,
        Some(order) => Groups::listed(listed(weights, stem, order, num_groups)?, even),
    };
    let zeros = Zeros::Words { item: zeros, add };
    let packed = Packed { rows, columns, bits, layout: Layout::Columns, codes, scales, zeros, groups };
    packed.into_item(weights.files()).map_err(wrong)
}

/// The group of each column, as `g_idx` has it.
pub(super) fn listed(
    weights: &Weights,
    stem: &str,
    order: &Item,
    num_groups: usize,
) -> Result<Vec<u32>, CheckpointError> {
    let wrong = |problem: String| weights.wrong(&format!("{stem}.g_idx"), problem);
    if order.dtype != Dtype::I32 {
        return Err(wrong(format!("it is {}, I32 is needed", order.dtype.name())));
    }
    let bytes = weights.read(stem, order)?;
    let groups: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    // The scales' shape is checked against the largest.
    match groups.iter().max().copied().unwrap_or(0) {
        most if most as usize + 1 == num_groups => Ok(groups),
        most => Err(wrong(format!("its largest group is {most}, and there are scales for {num_groups}"))),
    }
}

/// Some writers give every matrix a bias, of zeros where the model has none.
fn leave_out_zero_bias(weights: &mut Weights, stem: &str) -> Result<(), CheckpointError> {
    let name = format!("{stem}.bias");
    let Some(bias) = weights.get(&name) else { return Ok(()) };
    if super::floats(weights, &name, bias)?.iter().all(|value| *value == 0.0) {
        weights.leave_out_where(|other| other == name, "it is zero");
    }
    Ok(())
}
